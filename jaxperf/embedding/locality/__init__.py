"""Locality of embedding lookups: how often a cache of some size would have the row.

Host only, but for the cache that several tables share: that is jax, and is imported when it is
first used.
"""

from typing import TYPE_CHECKING

from jaxperf._lazy import lazy_names
from jaxperf.embedding.locality._access_log import (
    AccessLog as AccessLog,
    access_log as access_log,
    read_access_logs as read_access_logs,
)
from jaxperf.embedding.locality._characterise import (
    Characteristics as Characteristics,
    Histogram as Histogram,
    characterise as characterise,
)
from jaxperf.embedding.locality._curve import (
    MissRatioCurve as MissRatioCurve,
    lru_curve as lru_curve,
    pinned_curve as pinned_curve,
    set_associative_estimate as set_associative_estimate,
    set_associative_hits as set_associative_hits,
    splitmix64 as splitmix64,
)
from jaxperf.embedding.locality._footprint import (
    ReuseTimes as ReuseTimes,
    eviction_time as eviction_time,
    eviction_time_hit_ratio as eviction_time_hit_ratio,
    mean_distinct_rows as mean_distinct_rows,
    miss_ratio_after as miss_ratio_after,
    model_footprint as model_footprint,
    reuse_times as reuse_times,
)
from jaxperf.embedding.locality._log_content import LOG_FORMATS as LOG_FORMATS
from jaxperf.embedding.locality._policies import (
    POLICIES as POLICIES,
    policy_hits as policy_hits,
)
from jaxperf.embedding.locality._popularity import (
    Popularity as Popularity,
    expected_distinct_rows as expected_distinct_rows,
    independent_hit_ratio as independent_hit_ratio,
    popularity_of_bins as popularity_of_bins,
    popularity_of_log as popularity_of_log,
    zipf_popularity as zipf_popularity,
)
from jaxperf.embedding.locality._popularity_files import (
    LocalityStats as LocalityStats,
    popularity_of_stats as popularity_of_stats,
    read_locality_stats as read_locality_stats,
    read_popularity as read_popularity,
)
from jaxperf.embedding.locality._sampled import (
    SampledCurve as SampledCurve,
    sampled_curve as sampled_curve,
)
from jaxperf.embedding.locality._stack_distance import (
    previous_use as previous_use,
    stack_distances as stack_distances,
)

if TYPE_CHECKING:
    from jaxperf.embedding.locality._shared_cache import (
        FootprintTable as FootprintTable,
        footprint_table as footprint_table,
        shared_eviction_time as shared_eviction_time,
        shared_hit_ratio as shared_hit_ratio,
    )

_OF_JAX = ("FootprintTable", "footprint_table", "shared_eviction_time", "shared_hit_ratio")
__getattr__, __dir__ = lazy_names(
    __name__, dict.fromkeys(_OF_JAX, "jaxperf.embedding.locality._shared_cache")
)
