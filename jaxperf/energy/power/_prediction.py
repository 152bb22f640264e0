"""From a timeline to its energy: power, sums by class, rank and phase, nodes, and what they say."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxperf.config import Hardware, PowerDescription
from jaxperf.cost import Work
from jaxperf.energy._prediction_types import (
    Accounting,
    BoundaryEnergy,
    EnergyPrediction,
    PredictedSeries,
    RankPower,
)
from jaxperf.energy.power._builder import power_tasks
from jaxperf.energy.power._limit import hold_limit
from jaxperf.energy.power._model import PowerModel, power_model
from jaxperf.energy.power._node import node_power
from jaxperf.energy.power._sums import (
    CLASSES_AND_STATIC,
    PHASES,
    energy_by_class_j,
    energy_by_phase_j,
    energy_by_rank_j,
)
from jaxperf.energy.power._tasks import PowerTasks
from jaxperf.energy.power._timeline_power import (
    PowerExtremes,
    TimelinePower,
    power_extremes,
    rank_series_w,
    series_w,
    timeline_power,
)
from jaxperf.graph import ExecutionGraph, TaskClass
from jaxperf.replay import Timeline, double_precision
from jaxperf.trace import Note

WINDOW_US = 50_000.0
"""Over which an accelerator keeps its power limit, and peaks are means."""

_GRID_US = 1_000.0
# Without a grid of the user's a series has about this many cells.
_FEWEST, _MOST = 100, 1_000
_S = 1e-6
_JOULES_PER_KWH = 3.6e6


class _Figures(NamedTuple):
    """What is computed on the device of a timeline's power."""

    by_class_j: Array
    by_phase_j: Array
    by_rank_j: Array
    series_w: Array
    together: PowerExtremes
    of_ranks: PowerExtremes


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
    windows_us = np.linspace(*span_us, max(int(np.diff(span_us)[0] // WINDOW_US), 1) + 1)
    with double_precision():
        drawn, highest_w = _drawn(model, tasks, power.nominal_clock_hz, windows_us)
        above_w = max(float(highest_w) - power.power_limit_w, 0.0)
        if above_w > 0:
            drawn = _held(drawn, power.power_limit_w, windows_us)
        figures = jax.tree.map(np.asarray, _figures(drawn, WINDOW_US, edges_us))
    known = _known_share(tasks)
    return _summed(
        figures,
        tasks,
        power,
        hardware,
        step_us=step_us,
        edges_us=edges_us,
        account=account,
        known_share=known,
        above_w=above_w,
        notes=(*notes, *_notes(tasks, power, known, above_w, account, hardware)),
    )


def series_grid_us(span_us: tuple[float, float], grid_us: float | None = None) -> np.ndarray:
    """(cells + 1,) edges over a span: cells of one length, the last may be shorter."""
    begin_us, end_us = span_us
    if grid_us is None:
        span = end_us - begin_us
        grid_us = float(np.clip(_GRID_US, span / _MOST, span / _FEWEST))
    # A rest that is nothing but rounding is no cell.
    cells = max(math.ceil((end_us - begin_us) / grid_us * (1 - 1e-12)), 1)
    return np.append(begin_us + grid_us * np.arange(cells), end_us)


@jax.jit
def _drawn(
    model: PowerModel, tasks: PowerTasks, clock_hz: ArrayLike, windows_us: Array
) -> tuple[TimelinePower, Array]:
    """What is drawn at the nominal clock, and the highest mean of any rank over a window."""
    power = timeline_power(model, tasks, clock_hz)
    return power, jnp.max(rank_series_w(power, windows_us))


_held = jax.jit(hold_limit)


@jax.jit
def _figures(power: TimelinePower, window_us: ArrayLike, edges_us: Array) -> _Figures:
    ranks = jnp.arange(len(power.static_w), dtype=power.rank.dtype)
    return _Figures(
        energy_by_class_j(power),
        energy_by_phase_j(power),
        energy_by_rank_j(power),
        series_w(power, edges_us),
        power_extremes(power, window_us, edges_us),
        jax.lax.map(lambda rank: power_extremes(power, window_us, edges_us, rank), ranks),
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
        np.asarray(figures.of_ranks.highest_w).tolist(),
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
        peak_accelerator_w=float(figures.of_ranks.highest_w.max()),
        peak_node_ac_w=float(highest.ac_w) / nodes,
        lowest_node_ac_w=float(lowest.ac_w) / nodes,
        rise_w=float(figures.together.rise_w),
        fall_w=float(figures.together.fall_w),
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
            figures.series_w / gpus,  # pyright: ignore[reportArgumentType]
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


def _named(names: tuple[str, ...], values_j: ArrayLike) -> dict[str, float]:
    return dict(zip(names, np.asarray(values_j).tolist(), strict=True))


def _known_share(tasks: PowerTasks) -> float:
    """Of the time of tasks inside the span, that of those with known work; NaN without any."""
    until_us = np.minimum(tasks.start_us + tasks.duration_us, tasks.end_us)
    inside_us = np.maximum(until_us - np.maximum(tasks.start_us, tasks.begin_us), 0.0)
    time_us = inside_us * tasks.ranks_alike[tasks.rank]
    total = time_us.sum()
    return float(time_us[tasks.is_known].sum() / total) if total > 0 else float("nan")


def _notes(
    tasks: PowerTasks,
    power: PowerDescription,
    known_share: float,
    above_w: float,
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
    if above_w > 0:
        yield Note(
            "above-power-limit",
            f"power would be above the limit of {power.power_limit_w:.0f} W by up to"
            f" {above_w:.0f} W at the nominal clock, over 50 ms or the span: the times are taken to"
            " contain the lower clock that keeps the limit, and what follows the voltage to draw"
            " as much less",
        )
    gpus = tasks.ranks_alike.sum()
    if gpus > hardware.gpus_per_node and math.isnan(account.switches_w):
        yield Note(
            "switches-left-out",
            "what the switches between nodes draw is not known, and not counted",
        )
