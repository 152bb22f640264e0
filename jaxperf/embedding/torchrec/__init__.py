"""TorchRec's planner: its estimates as they are and as they should be, and its files."""

from jaxperf.embedding.torchrec._corrected import (
    H100_RATES as H100_RATES,
    LookupRates as LookupRates,
    LookupTimes as LookupTimes,
    LookupWork as LookupWork,
    correct_perf as correct_perf,
    lookup_times as lookup_times,
    shard_work as shard_work,
)
from jaxperf.embedding.torchrec._enumerate import (
    cut_table as cut_table,
    enumerate_options as enumerate_options,
    estimate_shards as estimate_shards,
)
from jaxperf.embedding.torchrec._fit_rates import (
    fit_lookup_rates as fit_lookup_rates,
    lookup_errors as lookup_errors,
)
from jaxperf.embedding.torchrec._measured import (
    MeasuredLookups as MeasuredLookups,
    read_measured_lookups as read_measured_lookups,
)
from jaxperf.embedding.torchrec._offload_statistics import (
    OffloadStatistics as OffloadStatistics,
    offload_statistics as offload_statistics,
)
from jaxperf.embedding.torchrec._perf import shard_perf as shard_perf
from jaxperf.embedding.torchrec._plan_files import (
    ShardingPlan as ShardingPlan,
    TableSharding as TableSharding,
    place_option as place_option,
    read_offload_statistics as read_offload_statistics,
    read_sharding_plan as read_sharding_plan,
    write_offload_statistics as write_offload_statistics,
    write_sharding_plan as write_sharding_plan,
)
from jaxperf.embedding.torchrec._storage import shard_storage as shard_storage
from jaxperf.embedding.torchrec._types import (
    ALL_SHARDING_TYPES as ALL_SHARDING_TYPES,
    COMPUTE_KERNELS as COMPUTE_KERNELS,
    SHARDING_TYPES as SHARDING_TYPES,
    Shard as Shard,
    ShardEstimate as ShardEstimate,
    ShardingOption as ShardingOption,
    ShardPerf as ShardPerf,
    ShardStorage as ShardStorage,
    Topology as Topology,
)
