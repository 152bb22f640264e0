"""The training step of a recommendation model: as a graph, and of a recorded run asked again."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxperf.embedding.training._changes import (
        balanced_change as balanced_change,
        cached_change as cached_change,
        change_of_parts as change_of_parts,
        unified_memory_change as unified_memory_change,
    )
    from jaxperf.embedding.training._dense import (
        DenseLayers as DenseLayers,
        DenseTimes as DenseTimes,
        dense_times as dense_times,
    )
    from jaxperf.embedding.training._durations import step_parts as step_parts
    from jaxperf.embedding.training._graph import (
        TrainingGraph as TrainingGraph,
        build_training_graph as build_training_graph,
    )
    from jaxperf.embedding.training._parts import StepParts as StepParts
    from jaxperf.embedding.training._recorded import (
        EmbeddingRole as EmbeddingRole,
        RecordedEmbeddings as RecordedEmbeddings,
        RecordedStep as RecordedStep,
        find_embeddings as find_embeddings,
        recorded_step as recorded_step,
    )
    from jaxperf.embedding.training._retarget import (
        EmbeddingAnswer as EmbeddingAnswer,
        EmbeddingChange as EmbeddingChange,
        EmbeddingWhatIf as EmbeddingWhatIf,
        embedding_whatif as embedding_whatif,
        retarget_embeddings as retarget_embeddings,
    )
    from jaxperf.embedding.training._steady import (
        TrainingStep as TrainingStep,
        replay_training as replay_training,
    )

# Times are computed with jax: all of it is imported when it is first used.
_MODULES = {
    "DenseLayers": "_dense",
    "DenseTimes": "_dense",
    "EmbeddingAnswer": "_retarget",
    "EmbeddingChange": "_retarget",
    "EmbeddingRole": "_recorded",
    "EmbeddingWhatIf": "_retarget",
    "RecordedEmbeddings": "_recorded",
    "RecordedStep": "_recorded",
    "StepParts": "_parts",
    "TrainingGraph": "_graph",
    "TrainingStep": "_steady",
    "balanced_change": "_changes",
    "build_training_graph": "_graph",
    "cached_change": "_changes",
    "change_of_parts": "_changes",
    "dense_times": "_dense",
    "embedding_whatif": "_retarget",
    "find_embeddings": "_recorded",
    "recorded_step": "_recorded",
    "replay_training": "_steady",
    "retarget_embeddings": "_retarget",
    "step_parts": "_durations",
    "unified_memory_change": "_changes",
}


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module 'jaxperf.embedding.training' has no attribute {name!r}")
    return getattr(importlib.import_module(f"jaxperf.embedding.training.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
