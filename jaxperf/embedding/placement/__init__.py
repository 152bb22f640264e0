"""Placement: tables and their shards to memories and devices, with a bound on what is left."""

from jaxperf.embedding.placement._plan import plan as plan
from jaxperf.embedding.placement._plan_types import (
    EmbeddingPlan as EmbeddingPlan,
    Shard as Shard,
    TablePlan as TablePlan,
    TierUse as TierUse,
)
