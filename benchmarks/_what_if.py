"""What a changed job would take, beside what the changed job did take."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _tables import largest, markdown, mean, number

from jaxperf.graph import COMPUTE_CLASSES, ExecutionGraph, TaskClass
from jaxperf.replay._verb import replay_graph

COLUMNS = {
    "gemm_scale 0.5": "matrix multiplies x 0.5",
    "gemm_scale 2": "x 2",
    "comm_scale 0.5": "communication x 0.5",
    "comm_scale 3": "x 3",
    "cpu_scale 0.5": "host x 0.5",
    "cpu_scale 4": "x 4",
    "norm_scale 0": "normalization x 0",
    "straggler -1": "no straggler",
}
"""Heading of each change of the truth."""
SELECTED = {
    "gemm_scale": (TaskClass.GEMM,),
    "comm_scale": (TaskClass.COMMUNICATION,),
    "norm_scale": (TaskClass.NORMALIZATION,),
    "cpu_scale": (TaskClass.HOST, TaskClass.LAUNCH),
}
"""Which tasks each change of the truth multiplies."""


@dataclass(frozen=True)
class Answer:
    """The steady step of the changed job over that of the recorded one."""

    change: str
    true_ratio: float
    ratio: float

    @property
    def error_percent(self) -> float:
        """Signed error of the ratio."""
        return 100.0 * (self.ratio / self.true_ratio - 1.0)


def measure(graph: ExecutionGraph, truth: Path) -> list[Answer]:
    """Every change of one scale, and the removal of a slow rank."""
    known = json.loads(truth.read_text())
    recorded_us = _steady_step_us(graph, graph.duration_ns / 1e3)
    found = []
    for entry in known["what_if"]:
        duration_us = _changed(graph, entry["change"])
        if duration_us is None:
            continue
        ((word, value),) = entry["change"].items()
        found.append(
            Answer(
                f"{word} {value:g}",
                entry["step_us"] / known["steady_step_us"],
                _steady_step_us(graph, duration_us) / recorded_us,
            )
        )
    return found


def _changed(graph: ExecutionGraph, change: dict[str, float]) -> np.ndarray | None:
    """(tasks,) durations under a change; `None` where it changes the job itself."""
    duration_us = graph.duration_ns / 1e3
    word, factor = next(iter(change.items()))
    if word == "straggler":
        return _without_straggler(graph)
    if len(change) > 1 or word not in SELECTED:
        return None
    duration_us[np.isin(graph.task_class, SELECTED[word])] *= factor
    return duration_us


def _without_straggler(graph: ExecutionGraph) -> np.ndarray:
    """The kernels of the slowest rank as quick as those of the other ranks."""
    duration_us = graph.duration_ns / 1e3
    compute = np.isin(graph.task_class, list(COMPUTE_CLASSES))
    busy_us = np.bincount(graph.trace[compute], duration_us[compute])
    slow = int(busy_us.argmax())
    others_us = np.median(np.delete(busy_us, slow))
    duration_us[compute & (graph.trace == slow)] *= others_us / busy_us[slow]
    return duration_us


def _steady_step_us(graph: ExecutionGraph, duration_us: np.ndarray) -> float:
    """Mean over ranks and steps without the first."""
    timeline = replay_graph(graph, duration_us)
    steady = [step for step in graph.steps if step.name != graph.steps[0].name]
    begin = timeline.start_us[[step.begin_task for step in steady]]
    end = timeline.end_us[[step.end_task for step in steady]]
    return float(np.mean(end - begin))


def table(entries: dict[str, list[Answer]]) -> str:
    """One line a set: the error of each ratio, their mean size and their largest."""
    lines = []
    for name, answers in entries.items():
        errors = {answer.change: answer.error_percent for answer in answers}
        cells = [number(errors.get(change, math.nan)) for change in COLUMNS]
        lines.append([name, *cells, *_sizes(errors.values())])
    every = [answer.error_percent for answers in entries.values() for answer in answers]
    lines.append([f"**all {len(every)}**", *[""] * len(COLUMNS), *_sizes(every, "**{}**")])
    return markdown(["set", *COLUMNS.values(), "mean size", "largest"], lines)


def _sizes(errors: Iterable[float], form: str = "{}") -> list[str]:
    sizes = [abs(error) for error in errors]
    return [form.format(number(mean(sizes))), form.format(number(largest(sizes)))]
