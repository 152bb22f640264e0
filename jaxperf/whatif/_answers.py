"""From scenarios to answers: the worlds that they are, replayed."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxperf.config import Hardware, Job, Scenario, hardware_of_device, recorded_hardware
from jaxperf.cost import Fit, Work
from jaxperf.errors import ConfigError
from jaxperf.graph import ExecutionGraph, TaskKind, bounded_by_queue, with_launch_queue
from jaxperf.replay import (
    Contention,
    Variation,
    Worlds,
    duration_variation,
    fit_contention,
    measured_timeline,
    prepare_worlds,
    replay_notes,
    steady_breakdown,
    steady_step_us,
    steady_weights,
    task_shapes,
    world_steps_us,
    world_timelines,
)
from jaxperf.trace import Note, Run
from jaxperf.whatif._asked import check_asked
from jaxperf.whatif._factors import Groups, group_tasks, scenario_factors
from jaxperf.whatif._jobs import find_jobs, job_answer, without_job
from jaxperf.whatif._machines import (
    Machines,
    drawn_time_ratio,
    find_machines,
    launch_queue,
    out_of_range,
    time_ratio,
)
from jaxperf.whatif._off_path import off_path_note
from jaxperf.whatif._types import INTERVAL, ScenarioAnswer, WhatIf
from jaxperf.workload import origin_shares

_BREAKDOWNS = 16
"""Of up to so many scenarios each has its breakdown, which takes a timeline."""

_BASELINE = Scenario(name="baseline")
_USUAL_QUEUE = 1024
# A stream is behind where it needs so much longer than the step; so many scenarios are named.
_BEHIND = 1.05
_NAMED = 4
_LOOKED_AT = 64


def answer_scenarios(
    run: Run,
    graph: ExecutionGraph,
    scenarios: Sequence[Scenario],
    *,
    job: Job | str | os.PathLike[str] | None = None,
    hardware: Hardware | str | os.PathLike[str] | None = None,
    fit: Fit | str | os.PathLike[str] | None = None,
    samples: int = 0,
    contention: bool = True,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> WhatIf:
    """Answer scenarios on a graph that was built already.

    Args:
        run, graph: the run.
        scenarios: what is asked.
        job, hardware, fit, samples, contention, seed, progress: see `whatif`.

    Returns:
        The answers.

    Raises:
        ConfigError: see `whatif`.
    """
    check_asked(scenarios, samples)
    jobs = find_jobs(run, graph, scenarios, job, hardware)
    plain = [k for k, scenario in enumerate(scenarios) if jobs.of_scenario[k] is None]
    shapes = task_shapes(run, graph)
    slowed = fit_contention(graph, measured_timeline(graph), shapes) if contention else None
    call = _Call(run, hardware, fit, samples, seed, progress)
    found = call.answers(graph, [scenarios[k] for k in plain], slowed, shapes)
    baseline = found.answers[0]
    answers = dict(zip(plain, found.answers[1:], strict=True))
    notes = [*found.notes, *jobs.notes(baseline.step_us)]
    for changed, members in jobs.by_job.items():
        emitted = jobs.graph(changed)
        asked = [without_job(scenarios[k]) for k in members]
        of_job = replace(call, samples=0).answers(emitted.graph, asked, work=emitted.work)
        origins = origin_shares(emitted)
        for k, answer in zip(members, of_job.answers[1:], strict=True):
            answers[k] = job_answer(scenarios[k], answer, baseline, origins)
        notes += [note for note in of_job.notes if note not in notes]
    return WhatIf(
        baseline=baseline,
        scenarios=tuple(answers[k] for k in range(len(scenarios))),
        contention=slowed.classes if slowed else (),
        notes=(*graph.notes, *replay_notes(run, graph), *notes),
    )


@dataclass(frozen=True, eq=False)
class _Found:
    """Answers to scenarios on one graph, the unchanged first, and what to note."""

    answers: list[ScenarioAnswer]
    notes: tuple[Note, ...]


@dataclass(frozen=True, eq=False)
class _Call:
    """What all scenarios of a call have in common; see `whatif`."""

    run: Run
    hardware: Hardware | str | os.PathLike[str] | None
    fit: Fit | str | os.PathLike[str] | None
    samples: int
    seed: int
    progress: Callable[[int, int], None] | None

    def answers(
        self,
        graph: ExecutionGraph,
        scenarios: Sequence[Scenario],
        contention: Contention | None = None,
        shapes: np.ndarray | None = None,
        work: Work | None = None,
    ) -> _Found:
        """Answer scenarios that change durations alone."""
        every = (_BASELINE, *scenarios)
        recorded = graph
        graph, bound = bounded_by_queue(graph, _queue_length(self.run, self.hardware))
        machines = find_machines(self.run, graph, every, self.hardware, self.fit, work)
        groups = group_tasks(graph, every, machines)
        asked = _Asked(graph, every, machines, groups, contention, self.samples, self.seed)
        # Times beyond all numbers are told below.
        with np.errstate(over="ignore", invalid="ignore"):
            steps_us, breakdowns, draws = asked.answer(shapes, self.progress)
        for scenario, step_us in zip(every, steps_us, strict=True):
            if not np.isfinite(step_us):
                raise ConfigError(
                    "the step takes forever",
                    where=scenario.name,
                    got=", ".join(f"{k} = {v}" for k, v in (scenario.scale | scenario.set).items()),
                    expected="factors and values within reason",
                )
        answers = [
            ScenarioAnswer(
                name=scenario.name,
                scale=scenario.scale,
                set=scenario.set,
                step_us=float(step_us),
                ratio=float(step_us / steps_us[0]) if steps_us[0] > 0 else float("nan"),
                breakdown=breakdowns.get(k),
                interval_us=None if draws is None else _interval(step_us, draws[k]),
                out_of_range=out_of_range(machines, k),
            )
            for k, (scenario, step_us) in enumerate(zip(every, steps_us, strict=True))
        ]
        off_path = off_path_note(recorded, every, machines, steps_us)
        told = () if off_path is None else (off_path,)
        return _Found(answers, (*bound, *machines.notes, *asked.notes, *told))


def _queue_length(run: Run, hardware: Hardware | str | os.PathLike[str] | None) -> int:
    names = {trace.device_name for trace in run.traces}
    known = [hardware_of_device(name) for name in names if name]
    if hardware is not None:
        known = [recorded_hardware([], hardware)]
    return min((each.launch_queue for each in known if each), default=_USUAL_QUEUE)


class _Asked:
    """The scenarios of one call, by the launch queue that they ask for."""

    def __init__(self, graph, scenarios, machines, groups, contention, samples, seed):
        self.graph, self.scenarios = graph, scenarios
        self.machines: Machines = machines
        self.groups: Groups = groups
        self.contention: Contention | None = contention
        self.samples, self.seed = samples, seed
        self.notes: list[Note] = []

    def answer(self, shapes: np.ndarray | None, progress):
        """Steps of all scenarios, the breakdowns of the first, and the draws of each."""
        steps_us = np.zeros(len(self.scenarios))
        draws = np.zeros((len(self.scenarios), self.samples)) if self.samples else None
        variation = None
        if self.samples:
            assert shapes is not None
            variation = self._variation(shapes)
        breakdowns = {}
        for queue, members in self._by_queue().items():
            worlds = self._worlds(queue)
            few = [k for k in members if k == 0 or len(self.scenarios) <= _BREAKDOWNS + 1]
            factors = self._factors(few)
            for k, timeline in zip(few, world_timelines(worlds, factors), strict=True):
                steps_us[k] = steady_step_us(worlds, timeline)
                breakdowns[k] = steady_breakdown(self.graph, timeline)
            many = [k for k in members if k not in breakdowns]
            steps_us[many] = world_steps_us(
                worlds, len(many), lambda s, many=many: self._factors(many[s]), progress=progress
            )
            if draws is not None:
                draws[members] = self._draws(worlds, members, variation, progress)
        self._note_devices_behind(steps_us)
        if len(self.scenarios) > _BREAKDOWNS + 1:
            text = f"of more than {_BREAKDOWNS} scenarios only the baseline has a breakdown"
            self.notes.append(Note("no-breakdown", text))
        return steps_us, breakdowns, draws

    def _note_devices_behind(self, steps_us: np.ndarray) -> None:
        """Say where a stream needs longer for a step than the step takes."""
        weights = steady_weights(self.graph)
        if not weights.any():
            return
        graph, groups = self.graph, self.groups
        on_device = np.flatnonzero((graph.kind >= TaskKind.KERNEL) & (graph.step >= 0))
        ranks = len({s.rank for s, w in zip(graph.steps, weights, strict=True) if w > 0})
        busy_us = weights[graph.step[on_device]] * ranks * graph.duration_ns[on_device] / 1e3
        place = graph.lane[on_device] * (groups.groups + 1) + groups.group[on_device]
        shape = len(graph.lanes), groups.groups + 1
        by_group = np.bincount(place, busy_us, shape[0] * shape[1]).reshape(shape)
        behind = []
        for k, scenario in enumerate(self.scenarios[:_LOOKED_AT]):
            factors = np.append(self._factors([k])[:, 0], 1.0)
            needed_us = float((by_group @ factors).max())
            if needed_us > _BEHIND * steps_us[k]:
                behind.append(f"{scenario.name} {needed_us:.0f} us")
        if behind:
            text = (
                "a stream needs longer for a step than the host, which nothing in the trace stops "
                f"from running ahead; a longer run takes at least: {', '.join(behind[:_NAMED])}"
            )
            self.notes.append(Note("device-behind", text))

    def _by_queue(self) -> dict[int | None, list[int]]:
        members: dict[int | None, list[int]] = {}
        for k, scenario in enumerate(self.scenarios):
            members.setdefault(launch_queue(scenario), []).append(k)
        return members

    def _worlds(self, queue: int | None) -> Worlds:
        graph, lag_group = self.graph, self.groups.lag_group
        if queue is not None:
            graph, kept = with_launch_queue(graph, queue)
            lag_group = np.where(kept >= 0, lag_group[kept], self.groups.groups)
        return prepare_worlds(
            graph, self.groups.group, lag_group, self.groups.groups, self.contention
        )

    def _factors(self, members: Sequence[int]) -> np.ndarray:
        columns = [
            scenario_factors(self.groups, self.scenarios[k], time_ratio(self.machines, k))
            for k in members
        ]
        return np.stack(columns, 1) if columns else np.ones((self.groups.groups, 0))

    def _variation(self, shapes: np.ndarray) -> Variation:
        """What durations are drawn from; and a note of those that are not."""
        variation = duration_variation(self.graph, shapes)
        if variation.unknown:
            text = (
                f"{variation.unknown} tasks were seen once only: their durations are not drawn, "
                "and the intervals are too narrow by that"
            )
            self.notes.append(Note("variation-unknown", text))
        return variation

    def _draws(self, worlds: Worlds, members, variation, progress) -> np.ndarray:
        """(members, samples) steady steps of drawn durations and parameters."""
        samples, found = self.samples, []
        for place, k in enumerate(members):
            ratio = drawn_time_ratio(self.machines, k, samples, self.seed)
            factors = scenario_factors(self.groups, self.scenarios[k], ratio)
            factors = factors if factors.ndim == 2 else np.tile(factors[:, None], samples)
            found.append(
                world_steps_us(
                    worlds,
                    samples,
                    lambda s, factors=factors: factors[:, s],
                    variation=variation,
                    seed=self.seed,
                    progress=progress
                    and (
                        lambda done, _, before=place * samples: progress(
                            before + done, len(members) * samples
                        )
                    ),
                )
            )
        return np.stack(found)


def _interval(step_us: float, draws: np.ndarray) -> tuple[float, float] | None:
    if not np.ptp(draws) > 0:
        return None
    # Draws vary around durations that have varied already, and joins make more of the sum of both:
    # only the spread of the draws is theirs, the middle is what was measured.
    low, high = np.quantile(draws, [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2]) - draws.mean()
    return float(step_us + low), float(step_us + high)
