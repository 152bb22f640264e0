"""Scenarios that change the job itself: the recorded run re-targeted, once for each other job."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from jaxperf.config import (
    Hardware,
    Job,
    Scenario,
    check_keys,
    following_fields,
    is_job_key,
    load_job,
    recorded_hardware,
    set_job,
)
from jaxperf.errors import ConfigError
from jaxperf.graph import ExecutionGraph
from jaxperf.trace import Note, Run
from jaxperf.whatif._types import ScenarioAnswer
from jaxperf.workload import EmittedGraph, RecordedJob, recognise_job, retarget, steady_us

# It changes which messages leave their node, which a job tells better than sizes alone.
_NODE = "gpus_per_node"


@dataclass(frozen=True, slots=True)
class OtherJob:
    """A job to re-target to, and the nodes that it runs on.

    Attributes:
        job: the job.
        gpus_per_node: as on the recorded machine where `None`.
    """

    job: Job
    gpus_per_node: int | None


@dataclass(frozen=True, eq=False)
class Jobs:
    """The recorded job, and those that scenarios ask for.

    Attributes:
        recorded: what was recognised; `None` where no job was described.
        of_scenario: the job of each scenario; `None` where it is the recorded one.
        following: fields that changed with others, see `following_fields`.
    """

    recorded: RecordedJob | None
    of_scenario: tuple[OtherJob | None, ...]
    following: tuple[str, ...] = ()

    @property
    def by_job(self) -> dict[OtherJob, list[int]]:
        """The scenarios of each other job."""
        members: dict[OtherJob, list[int]] = {}
        for k, other in enumerate(self.of_scenario):
            if other is not None:
                members.setdefault(other, []).append(k)
        return members

    def graph(self, other: OtherJob) -> EmittedGraph:
        """The graph of another job."""
        assert self.recorded is not None
        return retarget(self.recorded, other.job, gpus_per_node=other.gpus_per_node)

    def notes(self, recorded_us: float) -> list[Note]:
        """How well the recorded job is rebuilt from its parts.

        Args:
            recorded_us: its steady step as recorded and replayed.

        Returns:
            A note where there is another job.
        """
        if self.recorded is None or not self.by_job:
            return []
        rebuilt_us = steady_us(retarget(self.recorded, self.recorded.job))
        text = (
            "the recorded job, put together again from its parts, takes "
            f"{rebuilt_us:,.0f} us where it took {recorded_us:,.0f} "
            f"({100 * (rebuilt_us / recorded_us - 1):+.1f} %)"
        )
        notes = [Note("job-rebuilt", text)]
        if self.following:
            text = f"what only says what follows was changed too: {', '.join(self.following)}"
            notes.append(Note("fields-follow", text))
        if self.recorded.job.micro_batches == 1 and any(
            other.job.micro_batches > 1 for other in self.by_job
        ):
            text = (
                "with one micro-batch nothing was added to gradients: what later micro-batches add "
                "is missing from steps with several"
            )
            notes.append(Note("accumulation-unseen", text))
        return notes


def find_jobs(
    run: Run,
    graph: ExecutionGraph,
    scenarios: Sequence[Scenario],
    job: Job | str | os.PathLike[str] | None,
    hardware: Hardware | str | os.PathLike[str] | None,
) -> Jobs:
    """Resolve the jobs that scenarios ask for.

    Args:
        run, graph: the run.
        scenarios: what is asked.
        job: the recorded job, or its file.
        hardware: the recorded machine, see `whatif`.

    Returns:
        The jobs.

    Raises:
        ConfigError: a field of a job is to change and none is described, or the traces are not
            those of the job, or the other job cannot be.
    """
    keys = [key for scenario in scenarios for key in scenario.set if is_job_key(key)]
    if job is None:
        if keys:
            raise ConfigError(
                "a field of the job, and no job is described",
                where=f"set {keys[0]}",
                expected="the recorded job",
                remedy="describe it in a TOML file, and name that with --job",
            )
        return Jobs(None, (None,) * len(scenarios))
    described = job if isinstance(job, Job) else load_job(job)
    machine = recorded_hardware([trace.device_name for trace in run.traces], hardware)
    check_keys((key for scenario in scenarios for key in scenario.set), machine)
    recorded = recognise_job(run, graph, described, machine)
    following = [
        f"{field} of {scenario.name}"
        for scenario in scenarios
        for field in following_fields(described, scenario.set)
    ]
    others = tuple(_other(described, scenario) for scenario in scenarios)
    return Jobs(recorded, others, tuple(following))


def _other(job: Job, scenario: Scenario) -> OtherJob | None:
    values = {key: value for key, value in scenario.set.items() if is_job_key(key)}
    node = scenario.set.get(_NODE)
    if not values and node is None:
        return None
    if node is not None and (isinstance(node, str) or not 1 <= node < 1e9 or node != int(node)):
        raise ConfigError(
            "not a number of accelerators",
            where=f"set {_NODE}",
            got=repr(node),
            expected="a whole number, 1 or more",
        )
    return OtherJob(set_job(job, values), None if node is None else int(node))


def without_job(scenario: Scenario) -> Scenario:
    """What is left of a scenario on the graph of its job."""
    rest: Mapping[str, float | str] = {
        key: value for key, value in scenario.set.items() if not is_job_key(key) and key != _NODE
    }
    return msgspec.structs.replace(scenario, set=rest)


def job_answer(
    scenario: Scenario,
    answer: ScenarioAnswer,
    baseline: ScenarioAnswer,
    origins: Mapping[str, float],
) -> ScenarioAnswer:
    """The answer on the graph of another job, by the recorded one.

    Args:
        scenario: as asked.
        answer: on that graph.
        baseline: of the recorded job; durations of another job vary as much as its do.
        origins: where the durations come from.

    Returns:
        The answer to the scenario.
    """
    interval_us = None
    if baseline.interval_us is not None:
        low, high = (bound / baseline.step_us for bound in baseline.interval_us)
        interval_us = low * answer.step_us, high * answer.step_us
    return replace(
        answer,
        set=scenario.set,
        ratio=answer.step_us / baseline.step_us if baseline.step_us > 0 else float("nan"),
        interval_us=interval_us,
        origins=origins,
    )
