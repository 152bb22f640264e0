"""The training step of a recommendation model: as a graph, and of a recorded run asked again."""

from typing import TYPE_CHECKING

from jaxperf._lazy import lazy_names

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
    "DenseLayers": "jaxperf.embedding.training._dense",
    "DenseTimes": "jaxperf.embedding.training._dense",
    "EmbeddingAnswer": "jaxperf.embedding.training._retarget",
    "EmbeddingChange": "jaxperf.embedding.training._retarget",
    "EmbeddingRole": "jaxperf.embedding.training._recorded",
    "EmbeddingWhatIf": "jaxperf.embedding.training._retarget",
    "RecordedEmbeddings": "jaxperf.embedding.training._recorded",
    "RecordedStep": "jaxperf.embedding.training._recorded",
    "StepParts": "jaxperf.embedding.training._parts",
    "TrainingGraph": "jaxperf.embedding.training._graph",
    "TrainingStep": "jaxperf.embedding.training._steady",
    "balanced_change": "jaxperf.embedding.training._changes",
    "build_training_graph": "jaxperf.embedding.training._graph",
    "cached_change": "jaxperf.embedding.training._changes",
    "change_of_parts": "jaxperf.embedding.training._changes",
    "dense_times": "jaxperf.embedding.training._dense",
    "embedding_whatif": "jaxperf.embedding.training._retarget",
    "find_embeddings": "jaxperf.embedding.training._recorded",
    "recorded_step": "jaxperf.embedding.training._recorded",
    "replay_training": "jaxperf.embedding.training._steady",
    "retarget_embeddings": "jaxperf.embedding.training._retarget",
    "step_parts": "jaxperf.embedding.training._durations",
    "unified_memory_change": "jaxperf.embedding.training._changes",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
