"""Changes to ask a recorded run about: from another hierarchy, another tier, another placement."""

import numpy as np

from jaxperf.embedding.training._parts import StepParts
from jaxperf.embedding.training._recorded import EmbeddingRole, RecordedEmbeddings, RecordedStep
from jaxperf.embedding.training._retarget import EmbeddingChange
from jaxperf.errors import ConfigError
from jaxperf.graph import ExecutionGraph


def change_of_parts(
    recorded: StepParts, other: StepParts, *, prefetch: bool = True
) -> EmbeddingChange:
    """The change from one description of a run to another, such as of two designs.

    Args:
        recorded: of the run as it was recorded, whose rows are all in the devices' memory.
        other: of the run that is asked for, on as many ranks.
        prefetch: see `EmbeddingChange`.

    Returns:
        Lookups, updates and all-to-alls by the ratios of the two; fetches and fills as they are.

    Raises:
        ConfigError: the recorded run fetches rows, or the ranks are not as many.

    Example:
        >>> times = {name: np.ones(1) for name in StepParts.__dataclass_fields__}
        >>> recorded = StepParts(**times | {"fetch_us": np.zeros((1, 1)), "fill_us": np.zeros(1)})
        >>> other = StepParts(**times | {"fetch_us": np.full((1, 1), 9.0)})
        >>> change = change_of_parts(recorded, other)
        >>> change.fetch_us, change.fill_us, change.lookup_scale
        (array([9.]), array([1.]), array([1.]))
    """
    if recorded.ranks != other.ranks:
        raise ConfigError(
            "not as many ranks", where="other", got=str(other.ranks), expected=str(recorded.ranks)
        )
    if (recorded.fetch_us > 0).any() or (recorded.fill_us > 0).any():
        raise ConfigError(
            "the recorded run fetches rows, which cannot be taken out of it",
            where="recorded",
            expected="all rows in the devices' memory",
        )
    sent = [parts.indices_us + parts.pooled_us + parts.gradients_us for parts in (recorded, other)]
    return EmbeddingChange(
        lookup_scale=_ratio(other.lookup_us, recorded.lookup_us),
        update_scale=_ratio(other.update_us, recorded.update_us),
        all_to_all_scale=float(_ratio(sent[1].mean(), sent[0].mean())),
        fetch_us=other.fetch_us.max(1, initial=0.0) if prefetch else other.fetch_us.sum(1),
        fill_us=other.fill_us,
        prefetch=prefetch,
    )


def unified_memory_change(memory_bytes_per_s: float, link_bytes_per_s: float) -> EmbeddingChange:
    """All tables in the host's memory, which kernels read and write row by row over the link.

    On an H100, lookups of 512-byte rows take 7.93 ms over the link and 0.345 ms in its own memory:
    rows are read at 68 GB/s, and at 1,560, as pooled rows are written besides (NVIDIA's
    recsys-examples). Where recorded lookups do not reach what is told here, the answer is an upper
    bound.

    Args:
        memory_bytes_per_s: of the device's memory, at which lookups read rows.
        link_bytes_per_s: to the host, at which they read rows there.

    Returns:
        The change: lookups and updates by the ratio.

    Example:
        >>> unified_memory_change(900e9, 12e9).lookup_scale
        75.0
    """
    scale = memory_bytes_per_s / link_bytes_per_s
    return EmbeddingChange(lookup_scale=scale, update_scale=scale)


def cached_change(
    step: RecordedStep,
    hit_ratio: float,
    memory_bytes_per_s: float,
    link_bytes_per_s: float,
    *,
    prefetch: bool = True,
) -> EmbeddingChange:
    """All tables in the host's memory, and some of their rows in the device's.

    For a run of which nothing is known but its trace: the rows of a step are taken to be what the
    recorded lookups read at the bandwidth of the memory, each of them once, which is an upper bound
    of the rows that are fetched. What is fetched comes back by the other way of the link.

    Args:
        step: of `recorded_step`.
        hit_ratio: of the cache.
        memory_bytes_per_s: of the device's memory, at which lookups read rows.
        link_bytes_per_s: each way, to the host.
        prefetch: see `EmbeddingChange`.

    Returns:
        The change.

    Raises:
        ConfigError: the hit ratio is not one.
    """
    if not 0 <= hit_ratio <= 1:
        raise ConfigError("not a part", where="hit_ratio", got=str(hit_ratio), expected="0 to 1")
    missed_bytes = (1 - hit_ratio) * step.lookup_us * memory_bytes_per_s
    return EmbeddingChange(
        fetch_us=missed_bytes / link_bytes_per_s,
        fill_us=2 * missed_bytes / memory_bytes_per_s,
        prefetch=prefetch,
    )


def balanced_change(graph: ExecutionGraph, recorded: RecordedEmbeddings) -> EmbeddingChange:
    """The tables spread so that lookups and updates take every rank as long as their mean.

    What ranks send each other is left as recorded.

    Args:
        graph: the recorded run.
        recorded: of `find_embeddings`.

    Returns:
        The change.
    """
    scales = []
    for role in (EmbeddingRole.LOOKUP, EmbeddingRole.UPDATE):
        mine = recorded.role == role
        spent = np.bincount(graph.trace[mine], graph.duration_ns[mine], len(graph.ranks))
        scales.append(_ratio(np.full(len(spent), spent.mean()), spent))
    return EmbeddingChange(lookup_scale=scales[0], update_scale=scales[1])


def _ratio(other: np.ndarray, recorded: np.ndarray) -> np.ndarray:
    """1 where nothing was recorded."""
    return np.where(recorded > 0, other / np.where(recorded > 0, recorded, 1.0), 1.0)
