"""From traces to the work of each task of their graph."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from jaxperf.cost._messages import (
    RECORDER,
    Message,
    is_collective,
    message_of_collective,
    message_of_operator,
)
from jaxperf.cost._operator_convolution import ONE_SIDED, results
from jaxperf.cost._operator_inputs import Inputs, read_inputs
from jaxperf.cost._operator_shares import Kernel, Share, kernel, shares
from jaxperf.cost._operator_work import OperatorWork, Stream, as_work
from jaxperf.cost._operators import is_known, operator_work
from jaxperf.cost._work import PRECISIONS, Work, WorkKind, select_work, unknown_work
from jaxperf.cost._work_formulas import collective_work
from jaxperf.graph import ExecutionGraph, TaskClass, TaskKind, calls_by_correlation
from jaxperf.trace import MISSING, Category, Run, Trace, call_tree

_ON_DEVICE = (TaskKind.KERNEL, TaskKind.MEMCPY, TaskKind.MEMSET, TaskKind.COLLECTIVE)
_AROUND = (Category.CPU_OP, Category.ANNOTATION, Category.RUNTIME, Category.DRIVER)
_REPLAY = re.compile(r"GraphLaunch")
_IN_DEVICE = re.compile(r"DtoD|Device -> Device", re.IGNORECASE)
_FP32, _TF32 = PRECISIONS.index("fp32"), PRECISIONS.index("tf32")


def task_work(graph: ExecutionGraph, run: Run) -> Work:
    """The work of every task of a graph, as far as its traces tell.

    A kernel has the work of the operator that launched it: the innermost one around its launch
    whose name and inputs tell; several kernels of one operator share it. Work of CPU threads,
    kernels of a replayed device graph, and whatever else the traces do not tell stay unknown.

    Args:
        graph: of `build_graph`.
        run: the traces that it was built from.

    Returns:
        (tasks,) work; `task_class` is the graph's.

    Example:
        >>> task_work(build_graph(run), run).flops  # doctest: +SKIP
        array([nan, 4.29e9, nan])
    """
    work = unknown_work(graph.tasks)
    work.task_class[:] = graph.task_class
    told = np.isin(graph.kind, _ON_DEVICE) & (graph.event >= 0)
    for index, trace in enumerate(run.traces):
        tasks = np.flatnonzero(told & (graph.trace == index))
        found = _rank_work(trace, graph.event[tasks], graph.task_class[tasks], graph.kind[tasks])
        for field in fields(Work):
            if field.name != "task_class":
                getattr(work, field.name)[tasks] = getattr(found, field.name)
    return work


def known_work(work: Work) -> np.ndarray:
    """(n,) bool, tasks of which enough is known for a model of their kind.

    That is type, sizes, flops and bytes of a multiply or attention, bytes of a stream, and
    operation, message, ranks and stride of a collective.

    Example:
        >>> known_work(unknown_work(2)).tolist()
        [False, False]
    """
    sizes = (work.batch, work.m, work.n, work.k, work.flops, work.memory_bytes)
    computes = np.all(np.isfinite(sizes), 0) & (work.precision >= 0)
    meets = np.isfinite(work.message_bytes) & (work.operation >= 0)
    meets &= np.isfinite(work.ranks) & ((work.ranks == 1) | (work.stride > 0))
    return np.select(
        [
            np.isin(work.kind, [WorkKind.MATMUL, WorkKind.ATTENTION]),
            work.kind == WorkKind.MEMORY,
            work.kind == WorkKind.COLLECTIVE,
        ],
        [computes, np.isfinite(work.memory_bytes), meets],
        False,
    )


def _rank_work(trace: Trace, row: np.ndarray, task_class: np.ndarray, kind: np.ndarray) -> Work:
    """The work of the device work in some rows of a trace."""
    launcher = _launchers(trace, row)
    operators = _operators(trace, launcher.parent)
    work = _kernels(trace, row, task_class, operators, launcher)
    _add_copies(work, trace, row, kind)
    _add_collectives(work, trace, row, np.flatnonzero(kind == TaskKind.COLLECTIVE), launcher)
    return work


# Kernels and their operators
# ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Launchers:
    """What was going on when each piece of device work was launched.

    Attributes:
        parent: (events,) row of the event around each.
        innermost: (rows,) the innermost operator or annotation around the launch, -1 for none.
    """

    parent: np.ndarray
    innermost: np.ndarray

    def climb(self, wanted: np.ndarray) -> np.ndarray:
        """(rows,) the innermost of the events around each launch that is wanted, -1 for none."""
        at = self.innermost.copy()
        climbing = np.flatnonzero((at >= 0) & ~wanted[at])
        while len(climbing):
            at[climbing] = self.parent[at[climbing]]
            up = at[climbing]
            climbing = climbing[(up >= 0) & ~wanted[up]]
        return at


def _launchers(trace: Trace, row: np.ndarray) -> _Launchers:
    tree = call_tree(trace, _AROUND)
    call = calls_by_correlation(trace, trace.correlation[row])
    # What surrounds the launch of a whole device graph launched none of its kernels.
    replays = np.array([bool(_REPLAY.search(name)) for name in trace.names], bool)
    single = (call >= 0) & ~replays[trace.name[call]]
    around = np.where(single, tree.parent[call], -1).astype(np.int64)
    # Where the launch was not recorded, the profiler may have said whose it was.
    rows = np.flatnonzero((trace.category == Category.CPU_OP) & (trace.external_id != MISSING))
    rows = rows[np.argsort(trace.external_id[rows], kind="stable")]
    if len(rows):
        at = np.searchsorted(trace.external_id[rows], trace.external_id[row])
        at = np.minimum(at, len(rows) - 1)
        same = trace.external_id[rows[at]] == trace.external_id[row]
        around = np.where((around < 0) & (call < 0) & same, rows[at], around)
    return _Launchers(tree.parent, around)


@dataclass(frozen=True, eq=False)
class _Operators:
    """Operators whose work is known.

    Attributes:
        works: that of each kind of them.
        untyped: (works,) bytes are in elements, whose size the trace does not tell.
        of_row: (events,) which of the works an event has, -1 for none.
    """

    works: list[OperatorWork]
    untyped: np.ndarray
    of_row: np.ndarray


def _operators(trace: Trace, parent: np.ndarray) -> _Operators:
    """The work of each operator, decided once for all that have the same name and inputs."""
    named = np.array([is_known(name) for name in trace.names], bool)
    rows = np.flatnonzero(
        (trace.category == Category.CPU_OP) & named[trace.name] & (trace.shape >= 0)
    )
    told = _told_by(trace, rows, parent)
    rows, told = rows[told >= 0], told[told >= 0]
    of_row = np.full(trace.events, -1, np.int64)
    columns = (trace.shape, trace.input_type, trace.input_value)
    first, same = _distinct([trace.name[rows], *(column[told] for column in columns)])
    unique = [
        (trace.names[trace.name[row]], _inputs(trace, source))
        for row, source in zip(rows[first].tolist(), told[first].tolist(), strict=True)
    ]
    known = results((name, inputs) for name, inputs in unique if inputs is not None)
    works: list[OperatorWork] = []
    untyped = []
    number = np.full(len(unique), -1)
    for i, (name, inputs) in enumerate(unique):
        found = operator_work(name, inputs, known) if inputs is not None else None
        if inputs is not None and found is not None:
            number[i] = len(works)
            works.append(found)
            untyped.append(inputs.untyped)
    of_row[rows] = number[same]
    return _Operators(works, np.array(untyped, bool), of_row)


def _told_by(trace: Trace, rows: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """(rows,) the row that has the inputs of each operator, -1 where there is none."""
    sided = np.array([name in ONE_SIDED for name in trace.names], bool)[trace.name[rows]]
    told = rows.copy()
    for i in np.flatnonzero(sided).tolist():
        up = int(parent[rows[i]])
        around = ONE_SIDED[trace.names[trace.name[rows[i]]]]
        told[i] = up if up >= 0 and trace.names[trace.name[up]] == around else -1
    return told


def _distinct(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """A row of each distinct combination of columns, and which of them each row is."""
    first = key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        joined = key * (int(column.max(initial=0)) + 2) + column + 1
        _, first, key = np.unique(joined, return_index=True, return_inverse=True)
    return first, key


def _inputs(trace: Trace, row: int) -> Inputs | None:
    types, values = int(trace.input_type[row]), int(trace.input_value[row])
    return read_inputs(
        trace.shapes[trace.shape[row]],
        trace.input_types[types] if types >= 0 else None,
        trace.input_values[values] if values >= 0 else None,
    )


def _kernels(
    trace: Trace,
    row: np.ndarray,
    task_class: np.ndarray,
    operators: _Operators,
    launcher: _Launchers,
) -> Work:
    """The work of kernels, each a share of that of the operator around its launch."""
    operator = launcher.climb(operators.of_row >= 0)
    innermost = launcher.climb(trace.category == Category.CPU_OP)
    able = (operator >= 0) & (trace.category[row] == Category.KERNEL)
    chosen = np.flatnonzero(able & (task_class != TaskClass.COMMUNICATION))
    # The kernels of one operator together, in order of their start.
    chosen = chosen[np.lexsort((trace.start_ns[row[chosen]], operator[chosen]))]
    named = [
        kernel(trace.names[name], kind)
        for name, kind in zip(trace.name[row].tolist(), task_class.tolist(), strict=True)
    ]
    # What many launches of the same operator have in common is decided once, by the mean of their
    # times: a kernel that happens to be slow must not be said to do more for it.
    alike: dict[tuple, list[np.ndarray]] = {}
    for group in np.split(chosen, np.flatnonzero(np.diff(operator[chosen])) + 1):
        if len(group):
            at = operator[group[0]]
            innermost_too = bool((innermost[group] == at).all())
            names = tuple(trace.name[row[group]].tolist())
            key = int(operators.of_row[at]), names, innermost_too
            alike.setdefault(key, []).append(group)
    told: list[Share] = [None] * len(row)
    untyped = np.zeros(len(row), bool)
    for (number, _, innermost_too), groups in alike.items():
        tasks = np.stack(groups)
        found = shares(
            operators.works[number],
            [named[task] for task in groups[0].tolist()],
            trace.duration_ns[row[tasks]].mean(0).tolist(),
            innermost_too,
        )
        untyped[tasks] = operators.untyped[number]
        for column, share in zip(tasks.T.tolist(), found, strict=True):
            for task in column:
                told[task] = share
    return _of_shares(told, untyped, named)


def _of_shares(told: Sequence[Share], untyped: np.ndarray, named: Sequence[Kernel]) -> Work:
    """(tasks,) the work of shares of records."""
    work = unknown_work(len(told))
    tasks = [task for task, share in enumerate(told) if share is not None]
    given = [share for share in told if share is not None]
    if not tasks:
        return work
    # Many tasks share few records.
    records = list({id(record): record for record, _ in given}.values())
    numbers = {id(record): number for number, record in enumerate(records)}
    row = np.array([numbers[id(record)] for record, _ in given], np.int64)
    part = np.array([share for _, share in given])
    found = select_work(as_work(records), row)
    size = np.array([named[task].element_bytes for task in tasks])
    elements = np.array([r.elements if isinstance(r, Stream) else 0.0 for r in records])[row]
    memory = np.where(untyped[tasks], size, 1.0) * found.memory_bytes
    memory += np.where(elements > 0, elements * size, 0.0)
    spoken = np.array([named[task].precision for task in tasks])
    precision = np.where(untyped[tasks], spoken, found.precision)
    reduced = np.array([named[task].reduced for task in tasks])
    fast = (precision == _FP32) & (found.kind == WorkKind.MATMUL) & reduced
    found = replace(
        found,
        flops=found.flops * part,
        batch=found.batch * part,
        memory_bytes=memory * part,
        precision=np.where(fast, _TF32, precision),
    )
    for field in fields(Work):
        getattr(work, field.name)[tasks] = getattr(found, field.name)
    return work


# Copies and collectives
# ---------------------------------------------------------------------------------------


def _add_copies(work: Work, trace: Trace, row: np.ndarray, kind: np.ndarray) -> None:
    """Copies within the device are read and written there; sets and others pass once.

    What bounds a copy to or from the host is not the device's memory: its kind stays unknown.
    """
    copies = np.isin(kind, (TaskKind.MEMCPY, TaskKind.MEMSET)) & (trace.bytes[row] != MISSING)
    within = np.array([bool(_IN_DEVICE.search(name)) for name in trace.names], bool)[
        trace.name[row]
    ]
    size = trace.bytes[row].astype(np.float64)
    work.memory_bytes[copies] = np.where(within, 2 * size, size)[copies]
    work.kind[copies & (within | (kind == TaskKind.MEMSET))] = WorkKind.MEMORY


def _add_collectives(
    work: Work, trace: Trace, row: np.ndarray, tasks: np.ndarray, launcher: _Launchers
) -> None:
    """Collectives, each as the profiler said it, else by its operator, else by its name."""
    said = launcher.climb(trace.collective >= 0)
    own = trace.collective[row]
    own = np.where((own < 0) & (said >= 0), trace.collective[said], own)
    tells = np.array([is_collective(name) for name in trace.names], bool)
    operator = launcher.climb(tells[trace.name] & (trace.shape >= 0))
    records = np.array([name == RECORDER for name in trace.names], bool)
    recorder = launcher.climb(records[trace.name] & (trace.input_value >= 0))
    known: dict[tuple[int, ...], Message] = {}
    messages = []
    for task in tasks.tolist():
        key = (int(own[task]), int(trace.name[row[task]]))
        if key[0] < 0:
            key = (*key, int(operator[task]), int(recorder[task]))
        if key not in known:
            known[key] = _message(trace, *key)
        messages.append(known[key])
    columns = ("operation", "message_bytes", "ranks", "stride")
    made = collective_work(*(np.array([getattr(m, name) for m in messages]) for name in columns))
    for field in fields(Work):
        if field.name != "task_class":
            getattr(work, field.name)[tasks] = getattr(made, field.name)


def _message(
    trace: Trace, collective: int, name: int, operator: int = -1, recorder: int = -1
) -> Message:
    kernel_name = trace.names[name]
    if collective >= 0:
        said = trace.collectives[collective]
        return message_of_collective(said, kernel_name, trace.world_size)
    group = _inputs(trace, recorder) if recorder >= 0 and trace.shape[recorder] >= 0 else None
    if operator >= 0:
        around, inputs = trace.names[trace.name[operator]], _inputs(trace, operator)
        return message_of_operator(around, inputs, kernel_name, group)
    return message_of_operator("", None, kernel_name, group)
