"""What clocks and power limits do to a run, and which clocks take least energy."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from jaxperf.compiled import Program, compile_program
from jaxperf.config import PowerDescription
from jaxperf.energy._span import steady_span_us
from jaxperf.energy.clocks._above_limit import highest_window_w
from jaxperf.energy.clocks._frontier import clock_frontier
from jaxperf.energy.clocks._governor import WINDOW_US, power_windows, window_power_w
from jaxperf.energy.clocks._limits import limit_scenarios
from jaxperf.energy.clocks._pace import paced_by_devices
from jaxperf.energy.clocks._recorded import recorded_clocks
from jaxperf.energy.clocks._scenarios import clock_scenarios
from jaxperf.energy.clocks._types import ClockAnswer, ClockWhatIf
from jaxperf.energy.power._model import as_at_nominal_clock, power_model
from jaxperf.energy.power._tasks import PowerTasks
from jaxperf.errors import ConfigError
from jaxperf.graph import ExecutionGraph, TaskClass, select_tasks
from jaxperf.replay import double_precision, on_device_us, replay_graph
from jaxperf.trace import Note

Source = str | os.PathLike[str]

# Tasks have the clock of the window of their middle: so much above a limit is not told.
_TOLERATED = 0.01


def clock_whatif(
    graph: ExecutionGraph,
    tasks: PowerTasks,
    power: PowerDescription,
    *,
    step_us: float,
    step: str | int | None = None,
    clock_hz: Mapping[str, float] | None = None,
    power_limit_w: float | None = None,
    frontier: int = 0,
) -> ClockWhatIf:
    """Answers for a run that was prepared already.

    Where the tasks would draw more than the device's limit at its nominal clock, they are taken to
    be timed at the clock that explains why they did not, as `predict_timeline` does.

    Args:
        graph: the execution graph.
        tasks: of `power_tasks`.
        power: what the accelerators draw, and their clocks.
        step_us: of the run.
        step: where the tasks are of one iteration only: its name, or its place.
        clock_hz, power_limit_w, frontier: see `jaxperf.energy.predict`.

    Returns:
        The answers.

    Raises:
        ConfigError: nothing is asked, a selector, clock or limit is not valid, or no clock explains
            that the run kept the device's limit.

    Example:
        >>> from jaxperf.config import load_power
        >>> clock_hz = {"gemm": 990e6}
        >>> found = clock_whatif(graph, tasks, load_power("h100"), step_us=17.0, clock_hz=clock_hz)
        >>> found.baseline.step_us, found.answers[0].step_us
        (17.0, 27.0)
    """
    if not clock_hz and power_limit_w is None and not frontier:
        raise ConfigError(
            "nothing is asked", where="clocks", expected="a clock, a power limit or a frontier"
        )
    if not len(tasks):
        raise ConfigError(
            "no tasks on accelerators", where="clocks", expected="a run with kernels or copies"
        )
    asked = _Asked(graph, tasks, power, step_us, step)
    answers = []
    if clock_hz:
        answers.append(asked.at_clocks(clock_hz))
    if power_limit_w is not None:
        answers.append(asked.under_limit(power_limit_w))
    points = asked.frontier(frontier) if frontier else ()
    return ClockWhatIf(asked.baseline, tuple(answers), points, tuple(asked.notes))


class _Asked:
    """A run, with its tasks as at the nominal clock, and the clocks that it was recorded at."""

    def __init__(
        self,
        graph: ExecutionGraph,
        tasks: PowerTasks,
        power: PowerDescription,
        step_us: float,
        step: str | int | None,
    ):
        self.power, self.step_us, self.step = power, step_us, step
        self.model = power_model(power)
        self.graph, behind = paced_by_devices(graph, replay_graph(graph))
        self.notes: list[Note] = []
        if behind:
            text = (
                f"{behind} iterations of hosts end before their work on the device: under other "
                "clocks each host keeps the lead that it had"
            )
            self.notes.append(Note("hosts-keep-lead", text))
        recorded = recorded_clocks(tasks, self.model, power, step_us)
        if recorded.not_held_w:
            raise ConfigError(
                "no clock explains the power of the run, so none can be asked of it",
                where=f"power_limit_w of {power.name}",
                got=f"{recorded.not_held_w:.0f} W above {power.power_limit_w:g} W at the lowest",
                remedy="fit the description to readings, or correct its limit",
            )
        self.cell, self.recorded_hz = recorded.cell, recorded.clock_hz
        self.tasks = tasks
        self._is_limited = bool(self.recorded_hz.min() < power.nominal_clock_hz)
        if self._is_limited:
            self.tasks = self._at_nominal_clock(tasks)

    @cached_property
    def program(self) -> Program:
        return compile_program(self.graph)

    def _at_nominal_clock(self, tasks: PowerTasks) -> PowerTasks:
        """The tasks of the run, replayed with the times that they have at the nominal clock."""
        with double_precision():
            faster = as_at_nominal_clock(self.model, tasks, self.recorded_hz[self.cell])
        follows = tasks.clock_share > 0
        duration_us = self.graph.duration_ns / 1e3
        duration_us[tasks.task[follows]] = np.asarray(faster.duration_us)[follows]
        timeline = replay_graph(self.graph, duration_us)
        start_us, end_us = on_device_us(self.graph, timeline, tasks.task)
        span_us, _ = steady_span_us(self.graph, timeline, self.step)
        return replace(
            tasks,
            begin_us=span_us[0],
            end_us=span_us[1],
            start_us=start_us,
            duration_us=end_us - start_us,
            clock_share=np.asarray(faster.clock_share),
        )

    @cached_property
    def baseline(self) -> ClockAnswer:
        answers = clock_scenarios(
            self.graph,
            self.program,
            self.tasks,
            self.model,
            self.recorded_hz[:, None],
            self.cell,
        )
        clocks = {"all": float(self.recorded_hz[self.cell].mean())} if len(self.cell) else {}
        return self._answer("baseline", clocks, answers, 0, None)

    def at_clocks(self, clock_hz: Mapping[str, float]) -> ClockAnswer:
        group, known = self.cell.copy(), len(self.recorded_hz)
        for place, (selector, hz) in enumerate(clock_hz.items()):
            self._check_clock(selector, hz)
            group[self._selected(selector)] = known + place
        for place, selector in enumerate(clock_hz):
            if not np.any(group == known + place):
                raise ConfigError(
                    "later clocks decide all that it selects",
                    where="clock",
                    got=selector,
                    expected="narrower selectors behind wider ones",
                )
        column = np.concatenate([self.recorded_hz, list(clock_hz.values())])
        answers = clock_scenarios(
            self.graph, self.program, self.tasks, self.model, column[:, None], group
        )
        name = ", ".join(f"{selector} = {hz / 1e6:g} MHz" for selector, hz in clock_hz.items())
        self._note_above_limit(name, column[group], np.asarray(answers.rank_power_w)[:, 0])
        return self._answer(name, dict(clock_hz), answers, 0, self.baseline)

    def _note_above_limit(self, name: str, clock_hz: np.ndarray, rank_power_w: np.ndarray) -> None:
        if self.step_us < WINDOW_US:
            # A window holds whole steps, whose waiting was replayed.
            highest_w = float(rank_power_w.max())
        else:
            highest_w = highest_window_w(self.model, self.tasks, clock_hz, self.step_us)
        limit_w = self.power.power_limit_w
        if highest_w > limit_w * (1.0 + _TOLERATED):
            text = (
                f"{name}: an accelerator would draw up to {highest_w:.0f} W, above its limit of "
                f"{limit_w:g} W: it would lower its clock, and take longer"
            )
            self.notes.append(Note("above-power-limit", text))

    def _check_clock(self, selector: str, hz: float) -> None:
        low, high = self.power.minimum_clock_hz, self.power.maximum_clock_hz
        if not low <= hz <= high:
            raise ConfigError(
                "not a clock of the device",
                where=selector,
                got=f"{hz:g} Hz",
                expected=f"{low:g} to {high:g} Hz",
            )

    def _selected(self, selector: str) -> np.ndarray:
        """(n,) bool of the tasks on accelerators."""
        rank, _, word = selector.rpartition("/")
        if word in ("all", ""):
            known = [f"rank:{each}" for each in self.tasks.ranks]
            if rank and rank not in known:
                raise ConfigError(
                    "no such rank", where="clock", got=selector, expected=", ".join(known[:16])
                )
            of_rank = self.tasks.rank == known.index(rank) if rank else True
            return np.full(len(self.tasks), True) & of_rank
        chosen = select_tasks(self.graph, selector, where="clock")[self.tasks.task]
        if not chosen.any():
            raise ConfigError(
                "selects nothing on an accelerator", where="clock", got=selector, expected="kernels"
            )
        return chosen

    def under_limit(self, limit_w: float) -> ClockAnswer:
        power = self.power
        found = limit_scenarios(
            self.graph,
            self.program,
            self.tasks,
            self.model,
            np.array([limit_w]),
            lowest_hz=power.minimum_clock_hz,
            highest_hz=power.nominal_clock_hz,
        )
        mean_hz = found.clock_hz[:, :, 0].mean(1)
        if not found.is_kept[0]:
            self.notes.append(Note("power-limit-too-low", self._too_low(limit_w)))
        elif not found.is_settled[0]:
            text = (
                f"power limit {limit_w:g} W: clocks and the waiting that follows from them did not "
                "come to rest; the last ones stand here"
            )
            self.notes.append(Note("power-limit-not-settled", text))
        clocks = {
            f"rank:{rank}": float(hz) for rank, hz in zip(self.tasks.ranks, mean_hz, strict=True)
        }
        return self._answer(f"power limit {limit_w:g} W", clocks, found.answers, 0, self.baseline)

    def _too_low(self, limit_w: float) -> str:
        windows = power_windows(self.tasks, self.step_us)
        with double_precision():
            lowest = np.full((windows.cells, 1), self.power.minimum_clock_hz)
            least_w = float(window_power_w(windows, self.model, lowest).max())
        return (
            f"a limit of {limit_w:g} W cannot be kept: at the lowest clock, "
            f"{self.power.minimum_clock_hz / 1e6:g} MHz, {least_w:.1f} W are drawn"
        )

    def frontier(self, points: int) -> tuple[ClockAnswer, ...]:
        key = np.stack([self.tasks.rank, self.tasks.task_class])
        kinds, group = np.unique(key, axis=1, return_inverse=True)
        found = clock_frontier(
            self.graph,
            self.program,
            self.tasks,
            self.model,
            group.reshape(-1),
            kinds.shape[1],
            lowest_hz=self.power.minimum_clock_hz,
            highest_hz=self.power.nominal_clock_hz,
            points=points,
            # A run at its power limit cannot be faster than it was.
            shortest_us=self.baseline.step_us if self._is_limited else 0.0,
        )
        if not found.is_settled:
            text = (
                "the search for the frontier did not come to rest: energies may be above the least "
                f"(steps were up to {found.excess:.2%} above their targets before they were "
                "brought there)"
            )
            self.notes.append(Note("frontier-not-settled", text))
        if kinds.shape[1] > len(np.unique(kinds[0])):
            text = (
                "the frontier has a clock for each class of kernels of a rank: a device must "
                "change its clock between kernels to follow it"
            )
            self.notes.append(Note("frontier-by-class", text))
        names = [
            f"rank:{self.tasks.ranks[rank]}/{TaskClass(kind).name.lower()}"
            for rank, kind in kinds.T.tolist()
        ]
        titles = [f"step of {target_us:.0f} us" for target_us in found.target_us.tolist()]
        of_task = group.reshape(-1)
        for k, title in enumerate(titles):
            clock_hz = found.clock_hz[of_task, k]
            self._note_above_limit(title, clock_hz, found.rank_power_w[:, k])
        return tuple(
            self._answer(
                titles[k],
                dict(zip(names, found.clock_hz[:, k].tolist(), strict=True)),
                found,
                k,
                self.baseline,
            )
            for k in range(len(found.step_us))
        )

    def _answer(self, name: str, clock_hz, answers, k: int, baseline) -> ClockAnswer:
        step_us, energy_j = float(answers.step_us[k]), float(answers.energy_j[k])
        return ClockAnswer(
            name=name,
            clock_hz=clock_hz,
            step_us=step_us,
            ratio=step_us / baseline.step_us if baseline else 1.0,
            energy_j=energy_j,
            energy_ratio=energy_j / baseline.energy_j if baseline else 1.0,
            average_power_w=float(answers.average_power_w[k]),
        )
