"""From a timeline to its energy: power, sums by class, rank and phase, nodes, and what they say."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jaxperf.config import Hardware, PowerDescription
from jaxperf.cost import Work
from jaxperf.energy._prediction_types import (
    Accounting,
    BoundaryEnergy,
    EnergyPrediction,
    PredictedSeries,
    RankPower,
)
from jaxperf.energy.clocks._governor import WINDOW_US
from jaxperf.energy.clocks._recorded import RecordedClocks, recorded_clocks
from jaxperf.energy.power._builder import power_tasks
from jaxperf.energy.power._extremes import PowerExtremes, each_rank, power_extremes, steepest_w
from jaxperf.energy.power._model import power_model
from jaxperf.energy.power._node import node_power
from jaxperf.energy.power._sums import (
    CLASSES_AND_STATIC,
    PHASES,
    energy_by_class_j,
    energy_by_phase_j,
    energy_by_rank_j,
)
from jaxperf.energy.power._tasks import PowerTasks, share_between
from jaxperf.energy.power._timeline_power import TimelinePower, recorded_power, series_w
from jaxperf.errors import ConfigError
from jaxperf.graph import ExecutionGraph, TaskClass
from jaxperf.replay import Timeline
from jaxperf.trace import Note

_GRID_US = 1_000.0
# Without a grid of the user's a series has about this many cells.
_FEWEST, _MOST = 100, 1_000
_MOST_CELLS = 10_000_000
_S = 1e-6
_JOULES_PER_KWH = 3.6e6


class _Figures(NamedTuple):
    """What follows from a timeline's power."""

    by_class_j: np.ndarray
    by_phase_j: np.ndarray
    by_rank_j: np.ndarray
    series_w: np.ndarray
    together: PowerExtremes
    of_ranks: tuple[PowerExtremes, ...]


def predict_timeline(
    graph: ExecutionGraph,
    timeline: Timeline,
    work: Work,
    power: PowerDescription,
    hardware: Hardware,
    *,
    span_us: tuple[float, float],
    step_us: float,
    ranks_alike: tuple[float, ...] | None = None,
    grid_us: float | None = None,
    accounting: Accounting | None = None,
    notes: tuple[Note, ...] = (),
) -> EnergyPrediction:
    """The energy of a run, replayed or estimated.

    Args:
        graph: its tasks.
        timeline: when they start and end.
        work: (tasks,) what they have to do; rows are only needed of tasks on accelerators.
        power: what an accelerator and its node draw.
        hardware: the machine that the times are of.
        span_us: begin and end of what is looked at, such as the steady steps.
        step_us: a steady step.
        ranks_alike: (ranks,) how many each rank stands for, itself included; 1 by default.
        grid_us: length of a cell of the series; by default 1 ms where that makes some hundred.
        accounting: what energy is divided by and multiplied with.
        notes: what was taken for granted already.

    Returns:
        The prediction. The energy of a step is the average power of the span times the step.

    Raises:
        ConfigError: the cells of the series have no length, or are too many.

    Example:
        >>> from jaxperf.config import load_hardware, load_power
        >>> from jaxperf.cost import unknown_work
        >>> timeline = Timeline(np.array([0.0, 4.0, 15.0]), np.array([6.0, 14.0, 17.0]))
        >>> found = predict_timeline(graph, timeline, unknown_work(3), load_power("h100"),
        ...     load_hardware("h100"), span_us=(0.0, 17.0), step_us=17.0)
        >>> round(found.accelerator_w, 3)  # the example has no kernels, only host work
        117.0
    """
    account = accounting or Accounting()
    tasks = power_tasks(graph, timeline, work, hardware, *span_us, ranks_alike=ranks_alike)
    model = power_model(power)
    edges_us = series_grid_us(span_us, grid_us)
    clocks = recorded_clocks(tasks, model, power, step_us)
    drawn = recorded_power(model, tasks, clocks.clock_hz[clocks.cell])
    known = _known_share(tasks)
    return _summed(
        _figures(drawn, edges_us),
        tasks,
        power,
        hardware,
        step_us=step_us,
        edges_us=edges_us,
        account=account,
        known_share=known,
        above_w=clocks.above_limit_w,
        notes=(*notes, *_notes(tasks, power, known, clocks, account, hardware)),
    )


def series_grid_us(span_us: tuple[float, float], grid_us: float | None = None) -> np.ndarray:
    """(cells + 1,) edges over a span: cells of one length, the last may be shorter.

    Example:
        >>> series_grid_us((0.0, 10.0), 4.0).tolist()
        [0.0, 4.0, 8.0, 10.0]
    """
    begin_us, end_us = span_us
    if grid_us is None:
        span = end_us - begin_us
        grid_us = float(np.clip(_GRID_US, span / _MOST, span / _FEWEST))
    # A rest that is nothing but rounding is no cell.
    cells = (end_us - begin_us) / grid_us * (1 - 1e-12) if 0 < grid_us < math.inf else math.nan
    if not cells <= _MOST_CELLS:
        raise ConfigError(
            "not a length of cells",
            where="grid_us",
            got=f"{grid_us:g}",
            expected=f"a time that makes at most {_MOST_CELLS:,} of {end_us - begin_us:g} us",
        )
    return np.append(begin_us + grid_us * np.arange(max(math.ceil(cells), 1)), end_us)


def _figures(power: TimelinePower, edges_us: np.ndarray) -> _Figures:
    return _Figures(
        energy_by_class_j(power),
        energy_by_phase_j(power),
        energy_by_rank_j(power),
        np.asarray(series_w(power, edges_us)),
        power_extremes(power, WINDOW_US),
        tuple(power_extremes(rank, WINDOW_US) for rank in each_rank(power)),
    )


def _summed(
    figures: _Figures,
    tasks: PowerTasks,
    power: PowerDescription,
    hardware: Hardware,
    *,
    step_us: float,
    edges_us: np.ndarray,
    account: Accounting,
    known_share: float,
    above_w: float,
    notes: tuple[Note, ...],
) -> EnergyPrediction:
    gpus = max(round(float(tasks.ranks_alike.sum())), 1)
    span_s = (tasks.end_us - tasks.begin_us) * _S
    # What a step takes of what the span takes.
    steps = step_us * _S / span_s
    switches_w = 0.0 if math.isnan(account.switches_w) else account.switches_w

    def nodes_of(accelerators_w):
        places = hardware.gpus_per_node, power.node, power.idle_w, switches_w
        return node_power(accelerators_w, gpus, *places)

    average_w = float(figures.by_class_j.sum()) / span_s
    average, series = nodes_of(average_w), nodes_of(figures.series_w)
    highest, lowest = nodes_of(figures.together.highest_w), nodes_of(figures.together.lowest_w)
    dc_w, ac_w = float(average.dc_w), float(average.ac_w)
    rise_w, fall_w = steepest_w(figures.series_w)
    nodes = average.nodes
    boundaries = tuple(
        _boundary(name, watts, step_us, account)
        for name, watts in (
            ("accelerators", average_w),
            ("nodes_dc", dc_w),
            ("nodes_ac", ac_w),
            ("facility", ac_w * account.pue),
        )
    )
    facility, at_nodes = (
        _whole_j(boundary, account) for boundary in (boundaries[3], boundaries[2])
    )
    emitted_j = at_nodes if math.isnan(account.pue) else facility
    rows = zip(
        tasks.ranks,
        tasks.ranks_alike.tolist(),
        (figures.by_rank_j / span_s).tolist(),
        (each.highest_w for each in figures.of_ranks),
        strict=True,
    )
    return EnergyPrediction(
        device=power.name,
        gpus=gpus,
        nodes=nodes,
        step_us=step_us,
        span_us=(tasks.begin_us, tasks.end_us),
        accelerator_w=average_w / gpus,
        node_dc_w=dc_w / nodes,
        node_ac_w=ac_w / nodes,
        peak_window_us=min(WINDOW_US, tasks.end_us - tasks.begin_us),
        peak_accelerator_w=max(each.highest_w for each in figures.of_ranks),
        peak_node_ac_w=float(highest.ac_w) / nodes,
        lowest_node_ac_w=float(lowest.ac_w) / nodes,
        rise_w=rise_w,
        fall_w=fall_w,
        boundaries=boundaries,
        by_class_j=_named(CLASSES_AND_STATIC, figures.by_class_j * steps),
        by_phase_j=_named(PHASES, figures.by_phase_j * steps),
        by_rank=tuple(RankPower(*row) for row in rows),
        known_work_share=known_share,
        above_limit_w=above_w,
        accounting=account,
        facility_energy_j=facility,
        carbon_g=emitted_j / _JOULES_PER_KWH * account.carbon_g_per_kwh,
        series=PredictedSeries(
            edges_us,
            figures.series_w / gpus,
            np.asarray(series.dc_w),
            np.asarray(series.ac_w),
        ),
        notes=notes,
    )


def _boundary(name: str, watts: float, step_us: float, account: Accounting) -> BoundaryEnergy:
    step_j = watts * step_us * _S
    return BoundaryEnergy(
        name,
        watts,
        step_j,
        step_j / account.samples_per_step,
        step_j / account.tokens_per_step,
        step_j * account.steps,
    )


def _whole_j(boundary: BoundaryEnergy, account: Accounting) -> float:
    return boundary.step_j if math.isnan(account.steps) else boundary.train_j


def _named(names: tuple[str, ...], values_j: np.ndarray) -> dict[str, float]:
    return dict(zip(names, values_j.tolist(), strict=True))


def _known_share(tasks: PowerTasks) -> float:
    """Of the time of tasks inside the span, that of those with known work; NaN without any."""
    inside_us = tasks.duration_us * share_between(tasks, tasks.begin_us, tasks.end_us)
    time_us = inside_us * tasks.ranks_alike[tasks.rank]
    total = time_us.sum()
    return float(time_us[tasks.is_known].sum() / total) if total > 0 else float("nan")


def _notes(
    tasks: PowerTasks,
    power: PowerDescription,
    known_share: float,
    clocks: RecordedClocks,
    account: Accounting,
    hardware: Hardware,
) -> Iterator[Note]:
    if known_share < 1.0:
        classes = np.bincount(tasks.task_class[~tasks.is_known], minlength=len(TaskClass))
        most = ", ".join(
            TaskClass(each).name.lower() for each in np.argsort(-classes)[:3] if classes[each]
        )
        yield Note(
            "work-unknown",
            f"what tasks of {100 * (1 - known_share):.1f} % of the accelerators' time have to do is"
            f" not known, most in {most}: they are taken to draw what is usual for their class",
        )
    if math.isnan(known_share):
        yield Note(
            "no-device-tasks",
            "no kernel, copy or collective runs in the span: only static power is counted",
        )
    yield from _limit_notes(power, clocks)
    gpus = tasks.ranks_alike.sum()
    if gpus > hardware.gpus_per_node and math.isnan(account.switches_w):
        yield Note(
            "switches-left-out",
            "what the switches between nodes draw is not known, and not counted",
        )


def _limit_notes(power: PowerDescription, clocks: RecordedClocks) -> Iterator[Note]:
    limit = f"the limit of {power.power_limit_w:g} W"
    if clocks.not_held_w > 0:
        yield Note(
            "power-above-limit",
            f"{limit} is not held: no clock explains so little power; the highest window is"
            f" {clocks.not_held_w:.0f} W above it even at the lowest clock,"
            f" {power.minimum_clock_hz / 1e6:.0f} MHz, at which such windows are taken to be timed",
        )
    elif clocks.above_limit_w > 0:
        yield Note(
            "power-limit-kept",
            f"at the nominal clock power would be above {limit} by up to"
            f" {clocks.above_limit_w:.0f} W, over 50 ms or a step: the run is taken to be timed at"
            f" the clocks that keep it, {clocks.clock_hz.min() / 1e6:.0f} to"
            f" {clocks.clock_hz.max() / 1e6:.0f} MHz",
        )
