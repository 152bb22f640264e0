"""Placement: tables and their shards to memories and devices, with a bound on what is left."""

from jaxperf.embedding.placement._catalogue import (
    CatalogueEntry as CatalogueEntry,
    Saving as Saving,
    catalogue as catalogue,
    saving as saving,
)
from jaxperf.embedding.placement._plan import plan as plan
from jaxperf.embedding.placement._plan_types import (
    EmbeddingPlan as EmbeddingPlan,
    Shard as Shard,
    TablePlan as TablePlan,
    TierUse as TierUse,
)
