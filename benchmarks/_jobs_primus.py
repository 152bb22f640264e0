"""Recorded pipelines of `groundtruth/primus_pp_schedule`, replayed in the order of their schedule.

Eight ranks, 64 layers, 16 micro-batches, 1F1B and interleaved with two chunks, 20 iterations each.
The files have the start and end of every pass on one clock, waits for messages left out. What a
rank does is known from the schedule alone; a pass starts a lag after the pass before it on its
rank and a lag after the message it needs. Lags are those of the other iterations (the median by
pair of ranks and kinds of passes, where that dependency came last), and so is what follows the
last pass. Passes take their own time (is the order right?), or the median of the same pass in the
other iterations (what would a further iteration take?).

The first iteration, which warms up, is left out.
"""

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _tables import markdown, number

from jaxperf.compiled import compile_program
from jaxperf.graph import DependencyKind, ExecutionGraph, GraphLane, TaskClass, TaskKind
from jaxperf.replay import double_precision, start_times_us
from jaxperf.trace import MISSING
from jaxperf.workload._schedules import PassKind, dependencies, schedule_passes

FOLDER = Path("groundtruth") / "primus_pp_schedule" / "gpu8_layer64_gbs16"
RUNS = {"pp8": "1F1B", "pp8_vpp2": "interleaved"}
STALL = 2.0
"""A pass of so many times its median over the iterations stalled; nothing foretells which will."""


@dataclass(frozen=True)
class Recording:
    """What one run measured; passes are numbered rank after rank, each in order of execution.

    Attributes:
        schedule: the order of its passes.
        rank: (passes,) of the pipeline.
        kind: (passes,) `PassKind`.
        edges: (edges, 2) passes, the second of which waits for the first.
        start_ms, end_ms: (iterations, passes), from the start of the iteration.
        total_ms: (iterations, ranks), of the iteration as each rank has it.
    """

    schedule: str
    rank: np.ndarray
    kind: np.ndarray
    edges: np.ndarray
    start_ms: np.ndarray
    end_ms: np.ndarray
    total_ms: np.ndarray

    @property
    def duration_ms(self) -> np.ndarray:
        return self.end_ms - self.start_ms

    @property
    def stalled(self) -> np.ndarray:
        """(iterations,) bool: one of its passes stalled."""
        long = self.duration_ms > STALL * np.median(self.duration_ms, axis=0)
        return np.any(long, axis=1)


@dataclass(frozen=True)
class Errors:
    """Replayed less measured, in percent of the measured iteration.

    Attributes:
        schedule: of the run.
        own: passes took their own time, not that of the other iterations.
        stalled: (iterations,) bool: a pass stalled.
        total: (iterations,) of the whole iteration.
        start, end: (iterations, passes).
    """

    schedule: str
    own: bool
    stalled: np.ndarray
    total: np.ndarray
    start: np.ndarray
    end: np.ndarray


def read(folder: Path, schedule: str) -> Recording:
    """The recording of one run."""
    config = json.loads((folder / "config.json").read_text())
    stages = config["pp_size"]
    orders = schedule_passes(schedule, stages, config["num_mbs"], config["vp_size"])
    rank = np.repeat(range(stages), [len(order) for order in orders])
    kind = np.array([each.kind for order in orders for each in order])
    first = np.searchsorted(rank, range(stages))
    edges = [(task - 1, task) for task in range(1, len(rank)) if rank[task] == rank[task - 1]]
    for receiver, row in enumerate(dependencies(schedule, orders)):
        for position, places in enumerate(row):
            edges += [
                (first[sender] + at, first[receiver] + position)
                for sender, at in places
                if sender != receiver
            ]
    times = [json.loads((folder / f"pp_rank_{r}.json").read_text()) for r in range(stages)]
    iterations = [str(i + 1) for i in range(1, config["train_iters"])]
    start, end = (np.empty((len(iterations), len(rank))) for _ in range(2))
    for number_of, name in enumerate(iterations):
        for r in range(stages):
            for direction, which in (
                ("fwd", (rank == r) & (kind == PassKind.FORWARD)),
                ("bwd", (rank == r) & (kind == PassKind.BACKWARD)),
            ):
                start[number_of, which] = times[r][name][f"{direction}_start"]
                end[number_of, which] = times[r][name][f"{direction}_end"]
    total = np.array([[of_rank[name]["total"] for of_rank in times] for name in iterations])
    return Recording(schedule, rank, kind, np.array(edges), start, end, total)


def replay_errors(recording: Recording, own: bool) -> Errors:
    """Every iteration, replayed with the lags of all others."""
    iterations = len(recording.start_ms)
    duration, lag, tail = [], [], []
    last = np.searchsorted(recording.rank, range(recording.total_ms.shape[1]), side="right") - 1
    after = recording.total_ms - recording.end_ms[:, last]
    for held_out in range(iterations):
        others = np.arange(iterations) != held_out
        times = recording.duration_ms
        duration.append(times[held_out] if own else np.median(times[others], axis=0))
        lag.append(_lags_ms(recording, others))
        tail.append(np.median(after[others], axis=0))
    program = compile_program(_graph(recording))
    with double_precision():
        begin = start_times_us(program, np.array(duration).T * 1e3, np.array(lag).T * 1e3)
    start = np.asarray(begin).T / 1e3
    end = start + np.array(duration)
    total = (end[:, last] + np.array(tail)).max(axis=1)
    measured = recording.total_ms.max(axis=1)
    return Errors(
        recording.schedule,
        own,
        recording.stalled,
        100 * (total - measured) / measured,
        100 * (start - recording.start_ms) / measured[:, None],
        100 * (end - recording.end_ms) / measured[:, None],
    )


def measure(shared: Path) -> list[Errors]:
    """Both runs, both ways."""
    recordings = [read(shared / FOLDER / name, schedule) for name, schedule in RUNS.items()]
    return [replay_errors(recording, own) for recording in recordings for own in (True, False)]


def table(shared: Path) -> str:
    """Errors of iterations and of passes as a table, in percent of the iteration."""
    rows = []
    for found in measure(shared):
        for stalled in (False, True):
            which = found.stalled == stalled
            passes = np.abs(np.stack([found.start[which], found.end[which]]))
            total = np.abs(found.total[which])
            time = "own" if found.own else "of the others"
            rows.append(
                (
                    f"{found.schedule}, {'with a stall' if stalled else 'no stall'}, {time}",
                    which.sum(),
                    *(number(x) for x in (total.mean(), total.max(), passes.mean(), passes.max())),
                )
            )
    columns = (
        "schedule, iterations, time of passes",
        "iterations",
        "total, mean %",
        "worst %",
        "starts and ends, mean %",
        "worst %",
    )
    return markdown(columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    print(table(parser.parse_args().shared))


def _lags_ms(recording: Recording, chosen: np.ndarray) -> np.ndarray:
    """(edges,) the median lag of each edge's group in the chosen iterations."""
    source, target = recording.edges.T
    ready = recording.end_ms[chosen][:, source]
    latest = np.full((chosen.sum(), len(recording.rank)), -np.inf)
    for edge, waiting in enumerate(target.tolist()):
        latest[:, waiting] = np.maximum(latest[:, waiting], ready[:, edge])
    binds = ready == latest[:, target]
    waited = recording.start_ms[chosen][:, target] - ready
    groups = defaultdict(list)
    for edge, (a, b) in enumerate(recording.edges):
        of_ranks = (recording.rank[a], recording.rank[b])
        groups[*of_ranks, recording.kind[a], recording.kind[b]].append(edge)
    lag = np.zeros(len(recording.edges))
    for edges in groups.values():
        seen = waited[:, edges][binds[:, edges]]
        if seen.size:
            lag[edges] = np.median(seen)
    return lag


def _graph(recording: Recording) -> ExecutionGraph:
    """The passes as tasks, a lane a rank; durations and lags are given at replay."""
    tasks, edges = len(recording.rank), len(recording.edges)
    ranks = tuple(range(recording.total_ms.shape[1]))
    none = np.zeros(tasks, np.int64)
    release = np.full(tasks, MISSING)
    release[0] = 0
    source, target = recording.edges.T.astype(np.int32)
    within = recording.rank[source] == recording.rank[target]
    return ExecutionGraph(
        ranks=ranks,
        names=tuple(kind.name.lower() for kind in PassKind),
        lanes=tuple(GraphLane(rank, "passes", 0, 0) for rank in ranks),
        name=recording.kind.astype(np.int32),
        lane=recording.rank.astype(np.int32),
        kind=np.full(tasks, TaskKind.KERNEL, np.int8),
        task_class=np.full(tasks, TaskClass.GEMM, np.int8),
        trace=recording.rank.astype(np.int32),
        event=np.full(tasks, -1, np.int32),
        start_ns=none,
        end_ns=none,
        duration_ns=none,
        release_ns=release,
        order=np.arange(tasks),
        source=source,
        target=target,
        lag_ns=np.zeros(edges, np.int64),
        unexplained_ns=np.zeros(edges, np.int64),
        from_start=np.zeros(edges, bool),
        dependency=np.where(within, DependencyKind.STREAM_ORDER, DependencyKind.RENDEZVOUS).astype(
            np.int8
        ),
        step=np.full(tasks, -1, np.int32),
        arrival=np.full(tasks, -1, np.int32),
        sm_share=np.full(tasks, np.nan, np.float32),
        clocks=(),
        steps=(),
        notes=(),
    )


if __name__ == "__main__":
    main()
