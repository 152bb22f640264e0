"""Other batch sizes of a run that was recorded at two of them."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxperf.config import Hardware, recorded_hardware
from jaxperf.cost import CostModel, cost_us, default_model, task_work
from jaxperf.errors import ConfigError
from jaxperf.graph import ExecutionGraph, TaskKind, build_graph
from jaxperf.replay import (
    Timeline,
    double_precision,
    replay_graph,
    steady_weights,
)
from jaxperf.trace import Note, Run, Trace, read_run
from jaxperf.workload._matching import Matching, match_runs

Source = str | os.PathLike[str]

# Runs with less of their device time in common are not of one program.
_COMMON = 0.5
# A host task that took this many times as long as in the other run did something once.
_ONCE = 1.0


@dataclass(frozen=True, eq=False)
class BatchSizes:
    """Predicted iterations at several batch sizes.

    Attributes:
        sizes: the batch sizes.
        step_us: (sizes,) the steady step; where the traces have no steps the whole window.
        device_us: (sizes,) time of all device work of the window together.
        recorded: the batch size of the run whose program each prediction follows.
        recorded_share, scaled_share, modelled_share: (sizes,) shares of `device_us` of work that
            does not change with the batch, that moves between and beyond two measured times, and
            that one run alone has, which moves by the ratio of modelled times.
        notes: what was taken for granted.
    """

    sizes: tuple[int, ...]
    step_us: np.ndarray
    device_us: np.ndarray
    recorded: tuple[int, ...]
    recorded_share: np.ndarray
    scaled_share: np.ndarray
    modelled_share: np.ndarray
    notes: tuple[Note, ...]


@dataclass(frozen=True, eq=False)
class _Recorded:
    size: int
    run: Run
    graph: ExecutionGraph
    model_us: np.ndarray


def predict_batch_sizes(
    runs: Mapping[int, Source | Sequence[Source]],
    sizes: Sequence[int],
    *,
    hardware: Hardware | Source | None = None,
) -> BatchSizes:
    recorded = _read(runs, hardware)
    model = default_model(recorded_hardware(_devices(recorded[0].run), hardware))
    recorded = [replace(side, model_us=_model_us(model, side.run, side.graph)) for side in recorded]
    rows = [_predict(model, recorded, size) for size in sizes]
    return rows


def _read(runs, hardware):
    found = []
    for size, paths in sorted(runs.items()):
        run = read_run(paths)
        found.append(_Recorded(size, run, build_graph(run), np.empty(0)))
    return found


def _devices(run: Run):
    return [trace.device_name for trace in run.traces]


def _model_us(model: CostModel, run: Run, graph: ExecutionGraph) -> np.ndarray:
    with double_precision():
        return np.asarray(cost_us(model, task_work(graph, run)))


def _predict(model, recorded, size, host=None, dev=None):
    by = sorted(recorded, key=lambda side: abs(np.log(side.size / size)))
    own = by[0]
    other = next((s for s in by[1:] if (s.size > size) != (own.size > size)), by[1])
    key=(own.size,other.size)
    if key not in _cache:
        _cache[key]=match_runs(own.run, own.graph, other.run, other.graph)
    matching = _cache[key]
    return predict(model, own, other, matching, size)

import re
ALLOC=re.compile('(cuda|hip)(Malloc|Free)')
_cache={}

def predict(model, own: _Recorded, other: _Recorded, matching: Matching, size: int):
    graph = own.graph
    traces, fixed = zip(*(
        _resized(one, two, rows, own.size, other.size, size)
        for one, two, rows in zip(own.run.traces, other.run.traces, matching.operator, strict=True)
    ), strict=True)
    there_us = _model_us(model, replace(own.run, traces=tuple(traces)), graph)
    paired = matching.partner >= 0
    partner = matching.partner
    t1 = graph.duration_ns / 1e3
    t2 = np.where(paired, other.graph.duration_ns[partner] / 1e3, np.nan)
    m1, m2, m = own.model_us, np.where(paired, other.model_us[partner], np.nan), there_us
    known = np.isfinite(m1) & np.isfinite(m) & (np.isfinite(m2) | ~paired)
    m1, m2, m = (np.where(known, x, y) for x, y in zip((m1, m2, m), (own.size, other.size, size), strict=True))
    dev = (graph.kind >= TaskKind.KERNEL) & (graph.kind < TaskKind.ARRIVAL)
    t = np.where(dev, np.where(paired, _between(m1, t1, m2, t2, m), t1 * m / m1), t1)
    h = paired & ~dev
    hi, lo = np.fmax(t1, t2), np.fmin(t1, t2)
    t = np.where(h, np.where(hi > _ONCE * lo, lo, (lo + hi) / 2), t)
    alone = ~dev & ~paired
    for n in np.unique(graph.name[alone]):
        mine = graph.name == n
        med = np.median(t[mine & h]) if (mine & h).any() else np.inf
        if ALLOC.search(graph.names[n]): med = 0
        t = np.where(mine & alone & (t > 10 * med), med, t)
    tl = replay_graph(graph, t)
    return dict(size=size, step=_step_us(graph, tl), dev=t[dev].sum(), known=(known&dev&paired)[dev].mean(), paired=paired[dev].mean(), hpaired=paired[~dev].mean(), unpaired_host=t1[~dev&~paired].sum())


def _between(m1, t1, m2, t2, m):
    """Time at modelled time m, on the line through two points, at least proportionally outside."""
    with np.errstate(divide="ignore", invalid="ignore"):
        same = np.abs(m2 - m1) < 1e-3 * m1
        slope = np.maximum((t2 - t1) / (m2 - m1), 0.0)
        flat = same | (slope == 0)
        level = (t1 + t2) / 2
        a = t1 - slope * m1
        line = np.where(slope == 0, level, a + slope * m)
        # a negative overhead: below, proportional to the smaller
        small = np.where(m1 < m2, t1 / m1, t2 / m2) * m
        line = np.where((a < 0) & (m < np.minimum(m1, m2)), small, line)
        return np.where(same, level * m / np.sqrt(m1 * m2), line)


def _step_us(graph: ExecutionGraph, timeline: Timeline) -> float:
    weights = steady_weights(graph)
    if not weights.any():
        return float(timeline.end_us.max() - timeline.start_us.min())
    spans = [timeline.end_us[s.end_task] - timeline.start_us[s.begin_task] for s in graph.steps]
    return float(np.dot(weights, spans))


def _resized(trace: Trace, other: Trace, rows: np.ndarray, a: int, b: int, size: int):
    """A trace whose operators have the shapes of another batch size."""
    shapes, shape = list(trace.shapes), trace.shape.copy()
    known: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero((rows >= 0) & (trace.shape >= 0)):
        key = int(trace.shape[row]), int(other.shape[rows[row]])
        if key not in known:
            text = _resized_text(trace.shapes[key[0]], other.shapes[key[1]] if key[1] >= 0 else "null", a, b, size)
            known[key] = -1 if text is None else len(shapes)
            if text is not None: shapes.append(text)
        shape[row] = known[key]
    return replace(trace, shapes=tuple(shapes), shape=shape), None


def _resized_text(one, two, a, b, size):
    try:
        found = _resized_shape(json.loads(one), json.loads(two), a, b, size)
    except ValueError:
        return None
    return None if found is None else json.dumps(found)


def _resized_shape(one, two, a, b, size):
    if not isinstance(one, list) or not isinstance(two, list) or len(one) != len(two):
        return None
    if any(isinstance(x, list) for x in one):
        parts = [_resized_shape(x, y, a, b, size) for x, y in zip(one, two, strict=True)]
        return None if any(p is None for p in parts) else parts
    exact = [x != y and x * b == y * a for x, y in zip(one, two)]
    multiple = [x != y and x % a == 0 and y % b == 0 for x, y in zip(one, two)]
    which = exact if any(exact) else multiple
    at = which.index(True) if any(which) else -1
    return [x * size // a if i == at else x for i, x in enumerate(one)]
