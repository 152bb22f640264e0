"""Embedding tables over a hierarchy of memories: what they need, where they go, how many nodes."""

from jaxperf.embedding._profile import profile as profile
from jaxperf.embedding._profile_types import (
    BatchRows as BatchRows,
    CurvePoint as CurvePoint,
    LogProfile as LogProfile,
    Profile as Profile,
)
from jaxperf.embedding.placement import (
    EmbeddingPlan as EmbeddingPlan,
    Shard as Shard,
    TablePlan as TablePlan,
    TierUse as TierUse,
    plan as plan,
)
