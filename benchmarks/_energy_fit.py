"""Fits the power model to simulated logs of a node, and says how far off what it tells is.

A node of eight accelerators runs phases of training with different batches, of evaluation, and of
none, one after the other for some minutes. Its true energies lie within a factor of two of what is
believed before the fit, and its meter reads once a second, with a window, noise, whole watts, and a
clock that is off by some seconds.
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from _tables import markdown

from jaxperf.config import PowerDescription, load_hardware, load_power
from jaxperf.cost import task_work
from jaxperf.energy._series import PowerSeries, power_series
from jaxperf.energy.calibration._design import TimedTasks, with_values
from jaxperf.energy.calibration._solve import fit_power
from jaxperf.energy.calibration._types import PowerFit, Told
from jaxperf.energy.power._builder import power_tasks
from jaxperf.energy.power._model import power_model
from jaxperf.energy.power._tasks import PowerTasks
from jaxperf.energy.power._timeline_power import cumulative_energy_j, timeline_power
from jaxperf.graph import build_graph
from jaxperf.replay import double_precision, measured_timeline
from jaxperf.simulator import SimulatedJob, simulate, write_traces
from jaxperf.trace import read_run

GPUS = 8
ZERO_NS = 1_735_689_600_000_000_000
STATIC_PARTS = ("constant_w", "leakage_w", "clock_w")
BYTES = ("memory_byte_j", "node_byte_j", "network_byte_j")
STATIC = (*(f"static.{name}" for name in STATIC_PARTS), "node.host_w")

_COLUMNS = [
    field.name
    for field in fields(PowerTasks)
    if field.name not in ("ranks", "ranks_alike", "begin_us", "end_us")
]
SEEDS = 20
_EVALUATION = 0.33
"""Of a training step, the part that its forward pass takes."""


@dataclass(frozen=True)
class Case:
    """What happened, and what a meter said of it.

    Attributes:
        run: the node's tasks.
        series: of the meter.
        truth: values of the power description.
        believed: the description before the fit.
        skew_s, window_s: of the meter.
    """

    run: TimedTasks
    series: PowerSeries
    truth: dict[str, float]
    believed: PowerDescription
    skew_s: float
    window_s: float


def training_steps(rng: np.random.Generator) -> list[PowerTasks]:
    """Steps of jobs that differ in what their time goes to."""
    wide, long = int(rng.choice([6144, 8192])), int(rng.choice([4096, 8192]))
    base = SimulatedJob(layers=2, hidden_size=wide, attention_heads=wide // 128, steps=1)
    jobs = [
        # Multiplies; attention; the optimizer and weights; messages.
        replace(base, sequence_length=2048, micro_batch_size=8, data_parallel=2),
        replace(base, sequence_length=long, micro_batch_size=2, data_parallel=2),
        replace(base, sequence_length=512, micro_batch_size=1),
        replace(base, sequence_length=2048, micro_batch_size=2, tensor_parallel=4),
    ]
    return [recorded_step(job) for job in jobs]


def recorded_step(job: SimulatedJob) -> PowerTasks:
    """The tasks of the first rank in one step of a job."""
    with tempfile.TemporaryDirectory() as folder:
        run = read_run(write_traces(simulate(job), folder))
    graph = build_graph(run)
    begin_us = min(step.begin_ns for step in graph.steps) / 1e3
    end_us = max(step.end_ns for step in graph.steps) / 1e3
    tasks = power_tasks(
        graph,
        measured_timeline(graph),
        task_work(graph, run),
        load_hardware("h100"),
        begin_us,
        end_us,
    )
    return _select(tasks, tasks.rank == 0)


def phases(
    steps: Sequence[PowerTasks], rng: np.random.Generator, seconds: float, length_s: float = 12.0
) -> PowerTasks:
    """Phases of random kinds and lengths, one after the other; the one rank stands for all."""
    columns: dict[str, list[np.ndarray]] = {name: [] for name in _COLUMNS}
    now_us, ordinal = 0.0, 0
    while now_us < seconds * 1e6:
        phase_us = rng.uniform(0.5, 1.5) * length_s * 1e6
        # Each kind of step in turn, so that a short log too has all of them.
        step, ordinal = steps[ordinal % len(steps)], ordinal + 1
        kind = rng.choice(["idle", "evaluation", "training"], p=[0.15, 0.25, 0.6])
        if kind == "idle":
            now_us += phase_us
            continue
        length_us = step.end_us - step.begin_us
        if kind == "evaluation":
            length_us *= _EVALUATION
            step = _select(step, step.start_us < step.begin_us + length_us)
        length_us += rng.uniform(0.0, 5e3)
        times = int(phase_us / length_us) + 1
        for name in _COLUMNS:
            column = np.tile(getattr(step, name), times)
            if name == "start_us":
                begins_us = now_us + length_us * np.arange(times)
                column = (step.start_us - step.begin_us + begins_us[:, None]).reshape(-1)
            columns[name].append(column)
        now_us += times * length_us
    return PowerTasks(
        ranks=(0,),
        ranks_alike=np.array([float(GPUS)]),
        begin_us=0.0,
        end_us=now_us,
        **{name: np.concatenate(parts) for name, parts in columns.items()},
    )


def simulated_case(
    steps: Sequence[PowerTasks],
    rng: np.random.Generator,
    *,
    seconds: float = 300.0,
    period_s: float = 1.0,
    noise: bool = True,
) -> Case:
    """A log of a node whose numbers are drawn, and not those that are believed."""
    believed = load_power("h100")
    tasks = phases(steps, rng, seconds)
    truth = {key: value * 2.0 ** rng.uniform(-1, 1) for key, value in numbers(believed).items()}
    skew_s, window_s = rng.uniform(-3, 3), rng.uniform(0.02, 1.0)
    time_s = np.arange(rng.uniform(0, period_s) + window_s, tasks.end_us * 1e-6, period_s)
    power_w = true_reading_w(with_values(believed, truth), tasks, time_s, window_s)
    if noise:
        power_w = power_w * (1 + 0.01 * rng.standard_normal(len(power_w)))
        power_w = np.round(power_w + 5 * rng.standard_normal(len(power_w)))
    time_ns = ZERO_NS + np.rint((time_s + skew_s) * 1e9).astype(np.int64)
    series, _ = power_series(time_ns, power_w, "node", "power.csv")
    return Case(TimedTasks(tasks, ZERO_NS), series, truth, believed, skew_s, window_s)


def true_reading_w(
    description: PowerDescription, tasks: PowerTasks, time_s: np.ndarray, window_s: float
) -> np.ndarray:
    """The mean power of the node before each time, at its power supplies."""
    with double_precision():
        power = timeline_power(power_model(description), tasks, description.nominal_clock_hz)
        ends_s = np.concatenate([time_s - window_s, time_s])
        begin_j, end_j = np.split(np.asarray(cumulative_energy_j(power, ends_s * 1e6)), 2)
    node = description.node
    direct_w = (1 + node.fan_share) * ((end_j - begin_j) / window_s + node.host_w)
    return direct_w / node.conversion_efficiency


def errors_percent(case: Case, fit: PowerFit) -> dict[str, float]:
    """Of each number and sum that the fit says the log tells."""
    fitted = {each.key: each for each in fit.parameters}
    found = {
        key: 100 * (each.value / case.truth[key] - 1)
        for key, each in fitted.items()
        if each.is_identified
    }
    for each in fit.sums:
        true_w = sum(
            watts * case.truth[key] / fitted[key].value
            for key, watts in zip(each.keys, each.each_w, strict=True)
        )
        found["static and host" if each.keys == STATIC else " + ".join(each.keys)] = 100 * (
            each.power_w / true_w - 1
        )
    return found


def inside(case: Case, fit: PowerFit, told: Told = "log") -> list[bool]:
    """Whether each true number that the log tells so lies in its interval."""
    return [
        each.interval[0] <= case.truth[each.key] <= each.interval[1]
        for each in fit.parameters
        if each.told == told
    ]


def _select(tasks: PowerTasks, which: np.ndarray) -> PowerTasks:
    chosen = {name: getattr(tasks, name)[which] for name in _COLUMNS}
    return replace(tasks, ranks=(0,), ranks_alike=np.array([float(GPUS)]), **chosen)


def numbers(description: PowerDescription) -> dict[str, float]:
    """What the power at one clock depends on."""
    tables = {
        f"{table}.{key}": value
        for table in ("flop_j", "class_w", "unknown_w")
        for key, value in getattr(description, table).items()
    }
    static = {f"static.{name}": getattr(description.static, name) for name in STATIC_PARTS}
    moved = {name: getattr(description, name) for name in BYTES}
    return static | tables | moved | {"node.host_w": description.node.host_w}


def table(shared: Path) -> str:
    rows, covered, loosely_covered, worst, worst_s = [], [], [], 0.0, 0.0
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        case = simulated_case(training_steps(rng), rng)
        begun = time.perf_counter()
        fit = fit_power([case.run], case.series, case.believed, gpus_per_node=GPUS)
        took_s = time.perf_counter() - begun
        errors = errors_percent(case, fit)
        skew_error_s = fit.skew_s - case.skew_s
        covered += inside(case, fit)
        covered.append(fit.skew_interval_s[0] <= case.skew_s <= fit.skew_interval_s[1])
        loosely_covered += inside(case, fit, "loosely")
        worst = max(worst, *map(abs, errors.values()))
        worst_s = max(worst_s, abs(skew_error_s))
        loosely, untold = (
            ", ".join(each.key for each in fit.parameters if each.told == told)
            for told in ("loosely", "prior")
        )
        rows.append(
            [
                seed,
                len(case.run.tasks),
                fit.readings,
                f"{case.skew_s:+.2f}",
                f"{skew_error_s:+.3f}",
                f"{case.window_s:.2f}",
                f"{fit.window_s - case.window_s:+.3f}",
                ", ".join(f"{key} {error:+.2f}" for key, error in errors.items()),
                loosely,
                untold,
                f"{fit.errors.before_percent:.1f}",
                f"{fit.errors.after_percent:.2f}",
                f"{took_s:.1f}",
            ]
        )
    heads = (
        "seed,tasks,readings,skew s,error s,window s,error s,told %,told loosely,not told,"
        "before %,after %,s"
    )
    told = (
        f"What is told is off by {worst:.2f} % at most, the skew by {worst_s:.3f} s; "
        f"{100 * np.mean(covered):.0f} % of them lie in their 90 % intervals, and"
        f" {100 * np.mean(loosely_covered):.0f} % of those told loosely."
    )
    return f"{markdown(heads.split(','), rows)}\n\n{told}"
