"""Runs on another machine, as `jaxperf whatif` has them, beside what they took there.

Three models were profiled on H100 and on MI300X: each trace predicts the other, with the two
hardware files and no fit.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _tables import markdown, number

from jaxperf.config import Scenario
from jaxperf.graph import COMPUTE_CLASSES, ExecutionGraph, TaskClass, TaskKind, build_graph
from jaxperf.trace import Run, read_run
from jaxperf.whatif import answer_scenarios
from jaxperf.whatif._machines import find_machines, time_ratio

FOLDER = "infer_pairs_h100_vs_mi300x"
MODELS = {"BERT": "bert-small", "Qwen": "qwen1.5-0.5b", "ViT": "vit-nsfw"}
FILES = {"h100": "h100", "mi300x": "mi300"}
"""By hardware file, how the files of its traces end."""
DIRECTIONS = (("h100", "mi300x"), ("mi300x", "h100"))


@dataclass(frozen=True)
class Row:
    """One model, from one machine to the other; times in us.

    Attributes:
        name: which model, from where to where.
        recorded_us, predicted_us, measured_us: the step here, as it would be there, as it is there.
        classes: the same three of the time of the device's kernels, by class.
        unknown_percent: share of the recorded time of kernels whose work the trace does not tell.
    """

    name: str
    recorded_us: float
    predicted_us: float
    measured_us: float
    classes: dict[TaskClass, tuple[float, float, float]]
    unknown_percent: float


def measure(shared: Path) -> list[Row]:
    """Every model, both ways."""
    found = []
    for model, name in MODELS.items():
        runs = {
            machine: read_run([shared / "traces" / FOLDER / f"{name}_{ending}.json.gz"])
            for machine, ending in FILES.items()
        }
        graphs = {machine: build_graph(run) for machine, run in runs.items()}
        for here, there in DIRECTIONS:
            label = f"{model}, {here.upper()} to {there.upper()}"
            found.append(_row(label, runs[here], graphs[here], graphs[there], here, there))
    return found


def _row(
    name: str, run: Run, graph: ExecutionGraph, other: ExecutionGraph, here: str, there: str
) -> Row:
    scenario = Scenario(name=there, scale={}, set={"hardware": there})
    answer = answer_scenarios(run, graph, [scenario], hardware=here)
    machines = find_machines(run, graph, [scenario], here, None)
    ratio = time_ratio(machines, 0)
    assert ratio is not None and machines.work is not None
    does = machines.work_of_task
    duration_us = graph.duration_ns / 1e3
    moved_us = np.where(does >= 0, ratio[does], 1.0) * duration_us
    unknown = (does >= 0) & (machines.work.kind[does] == 0)
    step = other.steps[0]
    by_class = [
        _by_class(graph, duration_us),
        _by_class(graph, moved_us),
        _by_class(other, other.duration_ns / 1e3),
    ]
    return Row(
        name=name,
        recorded_us=answer.baseline.step_us,
        predicted_us=answer.scenarios[0].step_us,
        measured_us=(step.end_ns - step.begin_ns) / 1e3,
        classes={
            kind: (by_class[0][kind], by_class[1][kind], by_class[2][kind])
            for kind in sorted(COMPUTE_CLASSES)
            if any(times[kind] for times in by_class)
        },
        unknown_percent=100.0 * duration_us[unknown].sum() / duration_us[does >= 0].sum(),
    )


def _by_class(graph: ExecutionGraph, duration_us: np.ndarray) -> np.ndarray:
    """Time of the kernels of each class."""
    kernels = (graph.kind >= TaskKind.KERNEL) & (graph.kind != TaskKind.ARRIVAL)
    return np.bincount(graph.task_class[kernels], duration_us[kernels], len(TaskClass))


def steps_table(rows: list[Row]) -> str:
    """One line a model and direction: its step, and all its kernels."""
    lines = []
    for row in rows:
        recorded, predicted, measured = np.sum(list(row.classes.values()), axis=0)
        lines.append(
            [
                row.name,
                *(number(us / 1e3) for us in (row.recorded_us, row.predicted_us, row.measured_us)),
                number(_error(row.predicted_us, row.measured_us), 1),
                *(number(us / 1e3) for us in (recorded, predicted, measured)),
                number(_error(predicted, measured), 1),
                number(_error(recorded, measured), 1),
                number(row.unknown_percent, 0),
            ]
        )
    return markdown(
        [
            "run",
            "step here, ms",
            "predicted there",
            "measured there",
            "error, %",
            "kernels here, ms",
            "predicted there",
            "measured there",
            "error, %",
            "unchanged, %",
            "work unknown, %",
        ],
        lines,
    )


def classes_table(rows: list[Row]) -> str:
    """One line a model and direction: predicted and measured time of each class, and the error."""
    kinds = sorted({kind for row in rows for kind in row.classes})
    lines = [[row.name, *(_cell(row.classes.get(kind)) for kind in kinds)] for row in rows]
    return markdown(["predicted / measured us (error, %)", *(k.name.lower() for k in kinds)], lines)


def _cell(times: tuple[float, float, float] | None) -> str:
    if times is None:
        return "-"
    _, predicted, measured = times
    error = f" ({_error(predicted, measured):+.0f})" if measured else ""
    return f"{predicted:,.0f} / {measured:,.0f}{error}"


def _error(predicted: float, measured: float) -> float:
    return 100.0 * (predicted / measured - 1.0)
