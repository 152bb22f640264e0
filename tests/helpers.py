"""What the engine's tests compare with: a graph's recursion in plain Python; random graphs.

Nothing here is used by the package.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import strategies as st

from jaxperf.graph import DependencyKind, ExecutionGraph, GraphLane, Step, TaskClass, TaskKind
from jaxperf.trace import MISSING

Edge = tuple[int, int] | tuple[int, int, int] | tuple[int, int, int, bool]


def make_graph(
    duration_ns: Sequence[int] | np.ndarray,
    edges: Sequence[Edge],
    *,
    release_ns: Mapping[int, int] | None = None,
    lane: Sequence[int] | np.ndarray | None = None,
    order: Sequence[int] | np.ndarray | None = None,
    steps: Sequence[tuple[int, int]] = (),
    task_class: Sequence[TaskClass] | np.ndarray | None = None,
    dependency: Sequence[DependencyKind] | np.ndarray | None = None,
) -> ExecutionGraph:
    """A graph from what matters: edges are `(source, target[, lag_ns[, from_start]])`."""
    tasks = len(duration_ns)
    rows = [(e[0], e[1], e[2] if len(e) > 2 else 0, e[3] if len(e) > 3 else False) for e in edges]
    release = np.full(tasks, MISSING)
    for task, time in (release_ns or {}).items():
        release[task] = time
    column = np.array(rows, np.int64).reshape(len(rows), 4)
    zeros = np.zeros(tasks, np.int64)
    return ExecutionGraph(
        ranks=(0,),
        names=("work",),
        lanes=(GraphLane(0, "thread 1", -1, -1),),
        name=zeros.astype(np.int32),
        lane=np.array(zeros if lane is None else lane, np.int32),
        kind=np.full(tasks, TaskKind.HOST_WORK, np.int8),
        task_class=np.array(
            np.full(tasks, TaskClass.HOST) if task_class is None else task_class, np.int8
        ),
        trace=zeros.astype(np.int32),
        event=zeros.astype(np.int32),
        start_ns=zeros,
        end_ns=zeros,
        duration_ns=np.array(duration_ns, np.int64),
        release_ns=release,
        order=np.arange(tasks) if order is None else np.array(order, np.int64),
        source=column[:, 0].astype(np.int32),
        target=column[:, 1].astype(np.int32),
        lag_ns=column[:, 2],
        unexplained_ns=np.zeros(len(column), np.int64),
        from_start=column[:, 3].astype(bool),
        dependency=np.array(
            np.full(len(rows), DependencyKind.THREAD_ORDER) if dependency is None else dependency,
            np.int8,
        ),
        step=np.full(tasks, -1, np.int32),
        arrival=np.full(tasks, -1, np.int32),
        sm_share=np.full(tasks, np.nan, np.float32),
        clocks=(),
        steps=tuple(Step(f"step {i}", 0, b, e, 0, 0) for i, (b, e) in enumerate(steps)),
        notes=(),
    )


def start_times(graph: ExecutionGraph, duration: list, lag: list | None = None) -> list:
    """Start of every task by the definition, one at a time; exact where the numbers are integers.

    Args:
        duration: of each task, in nanoseconds or any other unit, as `lag`.
        lag: of each dependency, by default the graph's own in nanoseconds.
    """
    lags: list = graph.lag_ns.tolist() if lag is None else lag
    release = graph.release_ns.tolist()
    inputs: list[list[int]] = [[] for _ in range(graph.tasks)]
    outputs: list[list[int]] = [[] for _ in range(graph.tasks)]
    source, from_start = graph.source.tolist(), graph.from_start.tolist()
    for edge, target in enumerate(graph.target.tolist()):
        inputs[target].append(edge)
        outputs[source[edge]].append(target)
    waiting = [len(edges) for edges in inputs]
    ready = [task for task in range(graph.tasks) if not waiting[task]]
    start: list = [None] * graph.tasks
    while ready:
        task = ready.pop()
        candidates = [
            start[source[e]] + (0 if from_start[e] else duration[source[e]]) + lags[e]
            for e in inputs[task]
        ]
        if release[task] != MISSING:
            candidates.append(release[task])
        start[task] = max(candidates)
        for target in outputs[task]:
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    return start


def relabelled(graph: ExecutionGraph, new: np.ndarray) -> ExecutionGraph:
    """The same graph with task `i` called `new[i]`."""
    old = np.argsort(new)
    columns = {
        name: getattr(graph, name)[old]
        for name in "name lane kind task_class trace event start_ns end_ns".split()
        + "duration_ns release_ns order step sm_share".split()
    }
    steps = [
        Step(s.name, s.rank, int(new[s.begin_task]), int(new[s.end_task]), 0, 0)
        for s in graph.steps
    ]
    fields = {**graph.__dict__, **columns, "steps": tuple(steps)}
    fields["source"] = new[graph.source].astype(np.int32)
    fields["target"] = new[graph.target].astype(np.int32)
    return ExecutionGraph(**fields)


def random_graph(
    rng: np.random.Generator, tasks: int, *, lanes: int = 3, spread: float = 1.5
) -> ExecutionGraph:
    """Lanes with gaps, joins between them, releases, edges from starts, and negative lags."""
    lane = rng.integers(0, lanes, tasks)
    edges: list[Edge] = []
    release = {}
    last: dict[int, int] = {}
    for task in range(tasks):
        inputs = set(rng.integers(0, task, rng.poisson(spread)).tolist()) if task else set()
        if rng.random() < 0.5:
            inputs = set()
        if lane[task] in last and rng.random() < 0.9:
            inputs.add(last[lane[task]])
        last[int(lane[task])] = task
        edges += [
            (source, task, int(rng.integers(-300, 1_000)), bool(rng.random() < 0.2))
            for source in sorted(inputs)
        ]
        if not inputs or rng.random() < 0.1:
            release[task] = int(rng.integers(0, 5_000))
    edges = [edges[i] for i in rng.permutation(len(edges))]
    picks = rng.integers(0, tasks, (2, 2)).tolist()
    return make_graph(
        rng.integers(0, 10_000, tasks),
        edges,
        release_ns=release,
        lane=lane,
        steps=[tuple(pick) for pick in picks],
        task_class=rng.integers(0, 13, tasks),
        dependency=rng.integers(0, 8, len(edges)),
    )


def random_graphs() -> st.SearchStrategy[ExecutionGraph]:
    """Random graphs whose size shrinks."""
    return st.builds(
        lambda seed, tasks, lanes, spread: random_graph(
            np.random.default_rng(seed), tasks, lanes=lanes, spread=spread
        ),
        seed=st.integers(0, 2**32 - 1),
        # Few sizes, and so few shapes to compile for.
        tasks=st.sampled_from([1, 2, 5, 13, 40]),
        lanes=st.integers(1, 5),
        spread=st.floats(0.2, 4.0),
    )
