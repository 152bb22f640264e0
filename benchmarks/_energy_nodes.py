"""Node power of large MLPerf Training runs, foretold from runs of the same benchmark on one node.

Only logs of one node are fitted. Of a larger run its performance log is used, as a replay would
give it: how long it took, how many samples it trained on, how often it evaluated. That is so much
work for each node, and so much time at the speed of one node alone; in the rest of the run the node
stalls: it starts up, waits, or does nothing but communicate.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from _tables import largest, markdown, number

from jaxperf.energy._log_files import LogFiles, open_logs
from jaxperf.energy._mllog import LoggedEvent, read_events
from jaxperf.energy.calibration._node_power import (
    NodeIntervals,
    NodePower,
    fit_node_power,
    predict_node_power,
)
from jaxperf.energy.training import LoggedRun, read_runs
from jaxperf.energy.training._window_energy import node_powers, window_power

FOLDER = Path("power") / "training_logs"
LARGE = {"llama2_70b_lora": (8, 64), "resnet": (8,), "unet3d": (9,)}
METERS = ("dc", "ac")
SHORTEST_S = 10.0
"""Five readings: of anything shorter, the delay of the meter decides what it seems to draw."""
LATE_MS = 1000.0
_KEYS = ("block_start", "block_stop", "epoch_start", "epoch_stop", "eval_start", "eval_stop")


@dataclass(frozen=True)
class Progress:
    """What the performance log of a run tells of its course.

    Attributes:
        start_ms, stop_ms: of the run.
        blocks: (blocks, 3) start, stop, and samples trained on between them.
        evaluations: (evaluations, 2) start and stop.
    """

    start_ms: float
    stop_ms: float
    blocks: np.ndarray
    evaluations: np.ndarray

    @property
    def duration_s(self) -> float:
        return (self.stop_ms - self.start_ms) / 1e3

    @property
    def samples(self) -> float:
        return float(self.blocks[:, 2].sum())

    @property
    def samples_per_s(self) -> float:
        """The median over blocks, but for the first, in which the job starts up."""
        begin_ms, end_ms, samples = self.blocks[1:].T
        return float(np.median(samples / (end_ms - begin_ms)) * 1e3)

    @property
    def lost_s(self) -> float:
        """Time of the first block beyond what its samples take later."""
        begin_ms, end_ms, samples = self.blocks[0]
        return float((end_ms - begin_ms) / 1e3 - samples / self.samples_per_s)


@dataclass(frozen=True)
class Run:
    """A run: its course, and its power logs."""

    progress: Progress
    logged: LoggedRun

    @property
    def node_w(self) -> float:
        """Mean power of its nodes during the run, as measured."""
        return float(np.mean([node.power_w for node in node_powers(self.logged)]))


@dataclass(frozen=True)
class OneNode:
    """What the runs of a benchmark on one node tell.

    Attributes:
        power: fitted; `stalled_w` is NaN where no run stalls long enough.
        samples_per_s, evaluation_s: while it trains, and for one evaluation.
        idle_w: the lowest reading of a run, the median of the runs: the job is there, and waits.
        mean_w: over the runs.
    """

    power: NodePower
    samples_per_s: float
    evaluation_s: float
    idle_w: float
    mean_w: float


def read(shared: Path, meter: str, nodes: int, benchmark: str) -> list[Run]:
    """All runs of a submission."""
    logs = open_logs(shared / FOLDER / f"smc_{meter}_{nodes}x8h100_{benchmark}_v40.tar.xz")
    return [Run(_progress(logs, logged, benchmark), logged) for logged in read_runs(logs)]


def one_node(runs: list[Run]) -> OneNode:
    """What runs on one node tell."""
    intervals = [interval for run in runs for interval in _intervals(run)]
    fitted = fit_node_power(NodeIntervals(*np.array(intervals).T))
    if np.isnan(fitted.evaluation_w):
        fitted = replace(fitted, evaluation_w=fitted.training_w)
    evaluations = np.concatenate([np.diff(run.progress.evaluations).ravel() for run in runs])
    return OneNode(
        power=fitted,
        samples_per_s=float(np.mean([run.progress.samples_per_s for run in runs])),
        evaluation_s=float(evaluations.mean()) / 1e3,
        idle_w=float(np.median([_lowest_w(run) for run in runs])),
        mean_w=float(np.mean([run.node_w for run in runs])),
    )


Model = Callable[[OneNode, float, Progress, int], float]
"""One node, what it draws stalled, a larger run's course and number of nodes: watts of a node."""


def work_over_idle(one: OneNode, stalled_w: float, progress: Progress, nodes: int) -> float:
    """As `work`, but stalled time draws no more than a job that waits."""
    return work(one, one.idle_w, progress, nodes)


def work(one: OneNode, stalled_w: float, progress: Progress, nodes: int) -> float:
    """Each node does its share of the work at the power of one node, and is stalled else."""
    predicted = predict_node_power(
        replace(one.power, stalled_w=stalled_w),
        training_s=progress.samples / nodes / one.samples_per_s,
        evaluation_s=len(progress.evaluations) / nodes * one.evaluation_s,
        duration_s=progress.duration_s,
    )
    return float(predicted)


def throughput(one: OneNode, stalled_w: float, progress: Progress, nodes: int) -> float:
    """`a + b u`: from a job that waits to the mean of one node, by throughput while it trains."""
    ratio = progress.samples_per_s / nodes / one.samples_per_s
    return one.idle_w + (one.mean_w - one.idle_w) * ratio


def constant(one: OneNode, stalled_w: float, progress: Progress, nodes: int) -> float:
    """A node draws what one node drew."""
    return one.mean_w


MODELS: Mapping[str, Model] = {
    "as one node": constant,
    "a + b u": throughput,
    "work, idle": work_over_idle,
    "work, stalled": work,
}


def stalled_w(ones: Mapping[str, OneNode], benchmark: str, *, held_out: bool = False) -> float:
    """What a stalled node of the machine draws, from every benchmark that tells.

    Args:
        ones: by benchmark.
        benchmark: to be predicted.
        held_out: leave it out. Where no other tells, what a waiting job draws takes its place.
    """
    told = [
        one.power.stalled_w
        for name, one in ones.items()
        if not (held_out and name == benchmark) and not np.isnan(one.power.stalled_w)
    ]
    return float(np.mean(told)) if told else ones[benchmark].idle_w


def table(shared: Path) -> str:
    """The section of the documentation."""
    rows, fits = [], []
    for meter in METERS:
        alone = {name: read(shared, meter, 1, name) for name in LARGE}
        ones = {name: one_node(runs) for name, runs in alone.items()}
        for name, one in ones.items():
            late_w = one_node(_read_earlier(alone[name], LATE_MS)).power.stalled_w
            power = one.power
            watts = (one.idle_w, power.stalled_w, late_w, power.training_w, power.evaluation_w)
            cells = (number(each, 0) for each in (*watts, one.mean_w))
            fits.append((f"{name}, {meter.upper()}", *cells))
        for name, scales in LARGE.items():
            for nodes in scales:
                runs = read(shared, meter, nodes, name)
                label = f"{name}, {nodes} nodes, {meter.upper()}"
                rows.append((label, *_row(ones, name, nodes, runs)))
    fit_columns = ("one node", "waits", "stalled", "1 s late", "trains", "evaluates", "mean")
    columns = ("run", "measured W", *MODELS, "worst run", "held out", "energy")
    return "\n\n".join(
        (_FITTED, markdown(fit_columns, fits), _JUDGED, markdown(columns, rows), _CHOICE)
    )


_FITTED = (
    "What the runs on one node tell, in W. `waits` is the lowest reading of a run, `stalled` what "
    "is drawn in the time that the first block loses against later ones (only Llama 2 loses enough "
    "to tell), `1 s late` the same if the meter shows what was drawn a second before."
)
_JUDGED = (
    "Error of the mean power of a node in larger runs, %. Of the last form also: the worst single "
    "run, the error where the benchmark itself does not tell the stalled power (Llama 2 then has "
    "that of a waiting job), and the error of the energy of all nodes and switches in the run."
)
_CHOICE = (
    "The forms, from the left: one node's mean; `a + b u` from a waiting job to one node's mean by "
    "throughput; each node's share of the samples at the power of one node, and else that of a "
    "waiting job; the same, and else that of stalled time. The last was chosen because stalled "
    "time is measured, not assumed. It was written after the errors of the third were known, all "
    "of which are negative; no number was fitted to a larger run. It hangs on some 19 s of each of "
    "ten runs: its standard error is about 0.3 kW with the DC and 0.2 kW with the AC meter, and a "
    "DC meter that is a second late would take the run on 64 nodes out of the bar of 5 %. Energy "
    "is that of the run alone. For Llama 2 it is also the official one; the official energies of "
    "ResNet and 3D U-Net average the idle time around the run as well, and are not foretold."
)


def errors_percent(
    model: Model, ones: Mapping[str, OneNode], name: str, nodes: int, runs: list[Run], **choice
) -> tuple[float, float, float]:
    """Of the mean power over runs, of the worst run, and of all energy with switches."""
    one, stalled = ones[name], stalled_w(ones, name, **choice)
    predicted = np.array([model(one, stalled, run.progress, nodes) for run in runs])
    measured = np.array([run.node_w for run in runs])
    duration_s = np.array([run.progress.duration_s for run in runs])
    switches_w = np.array(
        [sum(log.interconnect_power_w for log in run.logged.switches) for run in runs]
    )
    energy_j = (np.stack([predicted, measured]) * nodes + switches_w) @ duration_s
    return (
        _percent(predicted.mean() / measured.mean()),
        largest(np.abs(_percent(predicted / measured))),
        _percent(energy_j[0] / energy_j[1]),
    )


def _row(ones, name, nodes, runs) -> tuple[str, ...]:
    each = [errors_percent(model, ones, name, nodes, runs) for model in MODELS.values()]
    held_out = errors_percent(work, ones, name, nodes, runs, held_out=True)
    return (
        number(float(np.mean([run.node_w for run in runs])), 0),
        *(_signed(mean) for mean, _, _ in each),
        number(each[-1][1], 1),
        _signed(held_out[0]),
        _signed(each[-1][2]),
    )


def _read_earlier(runs: list[Run], late_ms: float) -> list[Run]:
    """The runs, if each reading is of so much earlier."""
    found = []
    for run in runs:
        nodes = tuple(
            replace(node, time_ms=node.time_ms - late_ms, start_ms=node.start_ms - late_ms)
            for node in run.logged.nodes
        )
        found.append(replace(run, logged=replace(run.logged, nodes=nodes)))
    return found


def _signed(value: float) -> str:
    return f"{value:+.1f}"


def _percent(ratio):
    return 100.0 * (ratio - 1.0)


def _intervals(run: Run) -> list[tuple[float, float, float, float]]:
    """Energy, and time trained, evaluated and stalled: the start, long evaluations, the rest.

    Evaluations that are too short to tell are counted as training. So is a start that loses too
    little time: it is left out.
    """
    progress, node = run.progress, run.logged.nodes[0]
    evaluations = progress.evaluations
    evaluations = evaluations[np.diff(evaluations).ravel() >= SHORTEST_S * 1e3]
    first_ms = progress.blocks[0, 1]
    found = []
    if progress.lost_s >= SHORTEST_S:
        begin_ms = progress.blocks[0, 0]
        energy_j, length_s = _energy(node, begin_ms, first_ms)
        found.append((energy_j, length_s - progress.lost_s, 0.0, progress.lost_s))
    bounds = np.concatenate([[first_ms], evaluations.ravel(), [progress.stop_ms]])
    for i, (begin_ms, end_ms) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
        energy_j, length_s = _energy(node, begin_ms, end_ms)
        if length_s >= SHORTEST_S and not np.isnan(energy_j):
            found.append((energy_j, *((0.0, length_s) if i % 2 else (length_s, 0.0)), 0.0))
    return found


def _energy(node, begin_ms: float, end_ms: float) -> tuple[float, float]:
    length_s = (end_ms - begin_ms) / 1e3
    return window_power(node, begin_ms, end_ms).power_w * length_s, length_s


def _lowest_w(run: Run) -> float:
    (node,) = run.logged.nodes
    within = (node.time_ms > run.progress.start_ms) & (node.time_ms <= run.progress.stop_ms)
    return float(node.power_w[within & (node.power_w > 0.0)].min())


def _progress(logs: LogFiles, logged: LoggedRun, benchmark: str) -> Progress:
    name = f"{logged.result.name}.txt"
    events = read_events(logs.read(name), logs.where(name), (*_KEYS, "train_samples"))
    unit = "epoch" if benchmark == "resnet" else "block"
    (data,) = (event.value for event in events if event.key == "train_samples")
    blocks = [
        (begin.time_ms, end.time_ms, _samples(benchmark, begin, end, data))
        for begin, end in _pairs(events, unit)
    ]
    evaluations = [(begin.time_ms, end.time_ms) for begin, end in _pairs(events, "eval")]
    return Progress(
        logged.result.start_ms,
        logged.result.stop_ms,
        np.array(blocks, np.float64),
        np.array(evaluations, np.float64),
    )


def _samples(benchmark: str, begin: LoggedEvent, end: LoggedEvent, data: int) -> float:
    """Each benchmark logs in its own way how far it is."""
    if benchmark == "llama2_70b_lora":
        return end.metadata["samples_count"] - begin.metadata["samples_count"]
    # 3D U-Net counts samples where its log speaks of epochs.
    return begin.metadata["epoch_count"] if benchmark == "unet3d" else data


def _pairs(events: list[LoggedEvent], what: str) -> list[tuple[LoggedEvent, LoggedEvent]]:
    begins = [event for event in events if event.key == f"{what}_start"]
    ends = [event for event in events if event.key == f"{what}_stop"]
    return list(zip(begins, ends, strict=False))


if __name__ == "__main__":
    import sys

    print(table(Path(sys.argv[1])))
