"""Which classes of kernels are seen to slow down while their rank communicates."""

from _tables import markdown, number

from jaxperf.graph import ExecutionGraph
from jaxperf.replay import ClassSlowdown, fit_contention, measured_timeline, task_shapes
from jaxperf.trace import Run


def measure(run: Run, graph: ExecutionGraph) -> tuple[ClassSlowdown, ...]:
    """What `jaxperf whatif` finds in a run."""
    found = fit_contention(graph, measured_timeline(graph), task_shapes(run, graph))
    return found.classes if found else ()


def table(found: dict[str, tuple[ClassSlowdown, ...]]) -> str:
    """One line a set and class; sets without any in the last."""
    lines = [
        [
            name,
            each.task_class.name.lower(),
            number(100.0 * each.slowdown, 1),
            number(100.0 * each.standard_error, 1),
            each.kernels,
        ]
        for name, classes in found.items()
        for each in classes
    ]
    without = sum(not classes for classes in found.values())
    lines.append([f"the {without} other sets", "none", "", "", ""])
    return markdown(["set", "class", "slowdown, %", "standard error, %", "kernels"], lines)
