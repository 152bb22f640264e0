"""A hierarchy of memories under embedding tables: hits, step time, wear, cost, power, nodes."""

from jaxperf.embedding.hierarchy._accounting import (
    PlacedBytes as PlacedBytes,
    TierHits as TierHits,
    miss_rate as miss_rate,
    tier_hits as tier_hits,
    weight_bytes as weight_bytes,
)
from jaxperf.embedding.hierarchy._curves import (
    LocalityCurves as LocalityCurves,
    csv_curve as csv_curve,
    curve_of_points as curve_of_points,
    distinct_rows as distinct_rows,
    hit_ratio as hit_ratio,
    pinned_ratio as pinned_ratio,
    popularity_curve as popularity_curve,
    stack_curves as stack_curves,
    zipf_curve as zipf_curve,
)
from jaxperf.embedding.hierarchy._designs import (
    design_gradient as design_gradient,
    evaluate_designs as evaluate_designs,
    example_design as example_design,
    repeat_design as repeat_design,
)
from jaxperf.embedding.hierarchy._flows import (
    Flows as Flows,
    conflict_rows as conflict_rows,
    flows_of as flows_of,
    set_associative_ratio as set_associative_ratio,
    shared_cache_rows as shared_cache_rows,
    traffic_of as traffic_of,
)
from jaxperf.embedding.hierarchy._logs import curve_of_log as curve_of_log, log_curve as log_curve
from jaxperf.embedding.hierarchy._model import (
    POLICIES as POLICIES,
    Design as Design,
    HierarchyRules as HierarchyRules,
    ModelArrays as ModelArrays,
    model_arrays as model_arrays,
    policy_weights as policy_weights,
    table_curve as table_curve,
)
from jaxperf.embedding.hierarchy._nodes import (
    NodePlan as NodePlan,
    Savings as Savings,
    frontier as frontier,
    least_nodes as least_nodes,
    savings as savings,
    unbeaten as unbeaten,
)
from jaxperf.embedding.hierarchy._step import Outcome as Outcome, evaluate as evaluate
from jaxperf.embedding.hierarchy._tiers import (
    LIMITS as LIMITS,
    Machine as Machine,
    Tiers as Tiers,
    Traffic as Traffic,
    machine_of as machine_of,
    tier_limits_us as tier_limits_us,
    tier_us as tier_us,
)
from jaxperf.embedding.hierarchy._waterfall import (
    waterfall as waterfall,
    waterfall_designs as waterfall_designs,
)
