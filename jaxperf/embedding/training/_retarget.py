"""A recorded run of a recommendation model, asked again with other embedding tables.

Every task stays with its dependencies. What changes are durations of lookups, updates and
all-to-alls (`scaled`), and what is added: rows that enter the device's cache, and rows fetched from
slower tiers (`modelled`). All else is as `recorded`. Kernels do not slow each other down.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from jaxperf.embedding.training._device_steps import device_breakdown, device_step_us
from jaxperf.embedding.training._fetches import Fetches, table_steps
from jaxperf.embedding.training._recorded import (
    EmbeddingRole,
    RecordedEmbeddings,
    RecordedStep,
    find_embeddings,
    recorded_step,
)
from jaxperf.errors import ConfigError
from jaxperf.graph import ExecutionGraph, build_graph
from jaxperf.replay import (
    Breakdown,
    Timeline,
    binding_dependencies,
    path_to,
    replay_graph,
    replay_notes,
)
from jaxperf.trace import Note, read_run

_STEADY = 3
_ORIGINS = ("recorded", "scaled", "modelled")


@dataclass(frozen=True, eq=False)
class EmbeddingChange:
    """How the tables of another hierarchy or placement differ from the recorded ones.

    Attributes:
        lookup_scale: () or (ranks,) factor of the recorded lookups.
        update_scale: () or (ranks,) factor of the recorded updates.
        all_to_all_scale: () factor of the bytes of each all-to-all; or of the link's time for one.
        fetch_us: () or (ranks,) of a step, rows that come from slower tiers and go back to them.
        fill_us: () or (ranks,) of a step, rows that enter and leave the device's cache.
        prefetch: whether rows of the next batch are fetched beside the step. They begin when the
            update of the batch before has freed their places, and the next update waits for them.
            Else they are fetched before the lookups.
    """

    lookup_scale: ArrayLike = 1.0
    update_scale: ArrayLike = 1.0
    all_to_all_scale: float = 1.0
    fetch_us: ArrayLike = 0.0
    fill_us: ArrayLike = 0.0
    prefetch: bool = True


@dataclass(frozen=True, eq=False)
class EmbeddingAnswer:
    """What a change comes to.

    Attributes:
        step_us: mean over ranks and iterations, each from when host and device are through with the
            one before until they are through with it; the first counts where it is alone.
        ratio: of this to the recorded run's, replayed.
        breakdown: where that time goes.
        origins: shares of the critical path of the last step that are `recorded`, `scaled` and
            `modelled`.
    """

    step_us: float
    ratio: float
    breakdown: Breakdown
    origins: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class EmbeddingWhatIf:
    """A recorded run, and what changes of its tables come to.

    Attributes:
        recorded: what its step is made of, replayed.
        answers: by the names of the changes.
        notes: everything that was repaired, guessed or set aside.
    """

    recorded: RecordedStep
    answers: Mapping[str, EmbeddingAnswer]
    notes: tuple[Note, ...]


def embedding_whatif(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    changes: Mapping[str, EmbeddingChange],
) -> EmbeddingWhatIf:
    """What the steady step of a recorded run would take with other embedding tables.

    Args:
        paths: a trace file, a folder of one run's traces, or several of either.
        changes: what is asked, by name.

    Returns:
        The answers.

    Raises:
        TraceError, GraphError: the paths hold nothing that can be replayed.
        ConfigError: the run has no lookups, or a change is not valid.

    Example:
        >>> embedding_whatif(folder, {"slow": EmbeddingChange(fetch_us=500.0)})  # doctest: +SKIP
    """
    run = read_run(paths)
    graph = build_graph(run)
    recorded = find_embeddings(graph, run)
    timeline = replay_graph(graph)
    base_us = device_step_us(graph, timeline)
    answers = {name: _answer(graph, recorded, base_us, change) for name, change in changes.items()}
    notes = (*graph.notes, *replay_notes(run, graph), *_notes(graph, recorded))
    return EmbeddingWhatIf(recorded_step(graph, recorded, timeline), answers, notes)


def retarget_embeddings(
    graph: ExecutionGraph, recorded: RecordedEmbeddings, change: EmbeddingChange
) -> EmbeddingAnswer:
    """What the steady step of a recorded run would take with other embedding tables.

    Args:
        graph: of `build_graph`.
        recorded: of `find_embeddings`.
        change: of the tables.

    Returns:
        The answer.

    Raises:
        ConfigError: the change is not valid.

    Example:
        >>> recorded = find_embeddings(graph, run)  # doctest: +SKIP
        >>> retarget_embeddings(graph, recorded, EmbeddingChange()).ratio  # doctest: +SKIP
        1.0
    """
    base_us = device_step_us(graph, replay_graph(graph))
    return _answer(graph, recorded, base_us, change)


@dataclass(frozen=True, eq=False)
class _Changed:
    """A graph with its change: durations, and where each comes from (index into `_ORIGINS`)."""

    graph: ExecutionGraph
    durations_us: np.ndarray
    origin: np.ndarray


def _answer(
    graph: ExecutionGraph, recorded: RecordedEmbeddings, base_us: float, change: EmbeddingChange
) -> EmbeddingAnswer:
    columns = _checked(change, len(graph.ranks))
    changed = _with_fetches(_scaled(graph, recorded, columns), recorded.role, columns, change)
    timeline = replay_graph(changed.graph, changed.durations_us)
    step_us = device_step_us(changed.graph, timeline)
    return EmbeddingAnswer(
        step_us=step_us,
        ratio=step_us / base_us if base_us > 0 else float("nan"),
        breakdown=device_breakdown(changed.graph, timeline),
        origins=_origins(changed, timeline),
    )


def _notes(graph: ExecutionGraph, recorded: RecordedEmbeddings) -> list[Note]:
    """What was found of tables, and how much there is to see it by."""
    counts = np.bincount(recorded.role, minlength=len(EmbeddingRole))
    text = (
        f"{counts[EmbeddingRole.LOOKUP]} kernels of lookups, {counts[EmbeddingRole.UPDATE]} of "
        f"updates and {counts[EmbeddingRole.ALL_TO_ALL]} all-to-alls were found"
    )
    notes = [Note("embedding-tasks", text)]
    if len({step.name for step in graph.steps}) < _STEADY:
        text = "with less than three iterations none is steady: what warms up is in the answers"
        notes.append(Note("embedding-few-iterations", text))
    if not counts[EmbeddingRole.UPDATE]:
        text = "no update of tables was found: rows that are fetched ahead wait for lookups instead"
        notes.append(Note("embedding-updates-missing", text))
    return notes


def _checked(change: EmbeddingChange, ranks: int) -> dict[str, np.ndarray]:
    """(ranks,) of each number of a change."""
    columns = {}
    for field in fields(change):
        if field.name == "prefetch":
            continue
        value = np.asarray(getattr(change, field.name), float)
        if value.shape not in ((), (ranks,)) or not (np.isfinite(value) & (value >= 0)).all():
            raise ConfigError(
                "not a change of the tables",
                where=field.name,
                got=f"{value.shape} {value.reshape(-1)[:4].tolist()}",
                expected=f"one number, or one for each of {ranks} ranks, 0 or more",
            )
        columns[field.name] = np.broadcast_to(value, (ranks,))
    return columns


def _scaled(
    graph: ExecutionGraph, recorded: RecordedEmbeddings, columns: Mapping[str, np.ndarray]
) -> _Changed:
    durations_us = graph.duration_ns / 1e3
    origin = np.zeros(graph.tasks, np.int8)
    for role, name in (
        (EmbeddingRole.LOOKUP, "lookup_scale"),
        (EmbeddingRole.UPDATE, "update_scale"),
        (EmbeddingRole.ALL_TO_ALL, "all_to_all_scale"),
    ):
        tasks = np.flatnonzero(recorded.role == role)
        scale = columns[name][graph.trace[tasks]]
        fixed_us = recorded.fixed_us if role == EmbeddingRole.ALL_TO_ALL else 0.0
        # What an all-to-all takes whatever it sends stays.
        moved_us = np.maximum(durations_us[tasks] - fixed_us, 0.0)
        durations_us[tasks] += moved_us * (scale - 1.0)
        origin[tasks] = scale != 1.0
    return _Changed(graph, durations_us, origin)


def _with_fetches(
    changed: _Changed, role: np.ndarray, columns: Mapping[str, np.ndarray], change: EmbeddingChange
) -> _Changed:
    """Add what a step fetches from slower tiers and fills into the device's cache."""
    fetches = Fetches(changed.graph)
    for rank in range(len(changed.graph.ranks)):
        fetch_us, fill_us = columns["fetch_us"][rank], columns["fill_us"][rank]
        steps = table_steps(changed.graph, role, rank)
        if not steps:
            continue
        if fetch_us > 0 and change.prefetch:
            fetches.add_beside(rank, steps, fetch_us)
        before_us = fill_us + (0.0 if change.prefetch else fetch_us)
        if before_us > 0:
            fetches.add_before_lookups(rank, steps, before_us)
    if not fetches.times_us:
        return changed
    origin = np.full(len(fetches.times_us), _ORIGINS.index("modelled"), np.int8)
    return _Changed(
        fetches.join(),
        np.concatenate([changed.durations_us, fetches.times_us]),
        np.concatenate([changed.origin, origin]),
    )


def _origins(changed: _Changed, timeline: Timeline) -> dict[str, float]:
    """Shares of the critical path of the last step; lags count as what they lead to."""
    graph = changed.graph
    binding = binding_dependencies(graph, timeline.start_us, changed.durations_us)
    path = path_to(graph, timeline, binding, int(np.argmax(timeline.end_us)))
    ends = timeline.end_us[path.task]
    spent_us = np.diff(ends, prepend=timeline.start_us[path.task[0]])
    begins = [timeline.start_us[step.begin_task] for step in graph.steps]
    since_us = max(begins, default=-np.inf)
    spent_us = np.minimum(spent_us, np.maximum(ends - since_us, 0.0))
    total_us = float(spent_us.sum())
    origin = changed.origin[path.task]
    return {
        name: float(spent_us[origin == index].sum()) / total_us if total_us > 0 else float("nan")
        for index, name in enumerate(_ORIGINS)
    }
