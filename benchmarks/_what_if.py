"""What a changed job would take, as `jaxperf whatif` says, beside what the changed job did take."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from _tables import largest, markdown, mean, number

from jaxperf.config import Scenario
from jaxperf.graph import ExecutionGraph
from jaxperf.trace import Run
from jaxperf.whatif import answer_scenarios

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
SELECTORS = {
    "gemm_scale": "gemm",
    "comm_scale": "communication",
    "norm_scale": "normalization",
    "cpu_scale": "host",
}
"""What `--scale` is given for each change of the truth."""
STRAGGLER = {"rank:2/compute": 1.0 / 1.3}
"""Its removal: the note of its job says which rank is slow, and by how much."""


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


def measure(run: Run, graph: ExecutionGraph, truth: Path) -> list[Answer]:
    """Every change of one scale, and the removal of a slow rank, in one call."""
    known = json.loads(truth.read_text())
    scaled = {}
    for entry in known["what_if"]:
        scale = _scale(entry["change"])
        if scale is not None:
            ((word, value),) = entry["change"].items()
            scaled[f"{word} {value:g}"] = scale, entry["step_us"] / known["steady_step_us"]
    scenarios = [Scenario(name=name, scale=scale, set={}) for name, (scale, _) in scaled.items()]
    answers = answer_scenarios(run, graph, scenarios).scenarios
    return [Answer(each.name, scaled[each.name][1], each.ratio) for each in answers]


def _scale(change: dict[str, float]) -> dict[str, float] | None:
    """Factors by selector; `None` where the job itself changes."""
    if len(change) > 1:
        return None
    ((word, value),) = change.items()
    if word == "straggler":
        return STRAGGLER
    return {SELECTORS[word]: value} if word in SELECTORS else None


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
