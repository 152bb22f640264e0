"""Selectors: which tasks of a graph a change is about, in a word."""

import difflib
import re

import numpy as np

from jaxperf.config import compile_pattern
from jaxperf.errors import ConfigError
from jaxperf.graph._classes import COMPUTE_CLASSES, TaskClass
from jaxperf.graph._types import DependencyKind, ExecutionGraph

_HOST = (TaskClass.HOST, TaskClass.LAUNCH)
_FORM = re.compile(r"(?:rank:(?P<rank>[^/]*)/)?(?:name:(?P<name>.+)|(?P<word>[^/:]+))", re.DOTALL)

SELECTABLE_CLASSES: tuple[str, ...] = (
    *(kind.name.lower() for kind in TaskClass),
    "compute",
)
"""Words that select tasks: the classes, and `compute`: every kernel that does not communicate."""


def select_tasks(graph: ExecutionGraph, selector: str, *, where: str = "selector") -> np.ndarray:
    """The tasks that a selector selects.

    A selector is a class, or `name:REGEX` on the names of tasks, each optionally behind `rank:N/`.
    `host` is all work of CPU threads, launch calls included; `launch` is the launch calls alone.

    Args:
        graph: the execution graph.
        selector: such as `gemm`, `name:ncclDevKernel_AllReduce`, `rank:2/compute`.
        where: what to name in an error.

    Returns:
        (tasks,) bool.

    Raises:
        ConfigError: the selector is not valid, or selects nothing; the message names the nearest
            that would.

    Example:
        >>> select_tasks(graph, "gemm").tolist()
        [False, True, False]
    """
    match = _FORM.fullmatch(selector)
    if not match:
        raise ConfigError(
            "not a selector",
            where=where,
            got=repr(selector),
            expected="a class or name:REGEX, optionally behind rank:N/",
        )
    if match["name"]:
        mask = _named(graph, match["name"], selector, where)
    else:
        mask = _of_class(graph, match["word"], selector, where)
    if match["rank"] is not None:
        mask = mask & (graph.trace == _rank_index(graph, match["rank"], selector, where))
        if not mask.any():
            raise ConfigError(
                "selects nothing", where=where, got=repr(selector), expected="tasks of that rank"
            )
    return mask


def select_launch_lags(graph: ExecutionGraph, selected: np.ndarray) -> np.ndarray:
    """The launch latencies that go with selected launch calls.

    Args:
        graph: the execution graph.
        selected: (tasks,) bool, of `select_tasks` for `launch`.

    Returns:
        (dependencies,) bool. A delay that nothing in the trace explains is no latency.
    """
    latency = (graph.lag_ns > 0) & (graph.unexplained_ns == 0)
    return (graph.dependency == DependencyKind.LAUNCH) & latency & selected[graph.source]


def is_launch_selector(selector: str) -> bool:
    """Whether a selector is about launches, whose latency is no task's.

    Example:
        >>> is_launch_selector("rank:1/launch"), is_launch_selector("host")
        (True, False)
    """
    return selector.rpartition("/")[2] == "launch" and "name:" not in selector


def _of_class(graph: ExecutionGraph, word: str, selector: str, where: str) -> np.ndarray:
    if word not in SELECTABLE_CLASSES:
        near = difflib.get_close_matches(word, SELECTABLE_CLASSES, n=3, cutoff=0.5)
        raise ConfigError(
            "unknown selector",
            where=where,
            got=repr(selector),
            expected=f"name:REGEX or one of {', '.join(near or SELECTABLE_CLASSES)}",
        )
    if word == "compute":
        classes = list(COMPUTE_CLASSES)
    elif word == "host":
        classes = list(_HOST)
    else:
        classes = [TaskClass[word.upper()]]
    mask = np.isin(graph.task_class, classes)
    if not mask.any():
        present = [TaskClass(c).name.lower() for c in np.unique(graph.task_class)]
        raise ConfigError(
            "selects nothing",
            where=where,
            got=repr(selector),
            expected=f"a class that the trace has: {', '.join(present)}",
        )
    return mask


def _named(graph: ExecutionGraph, pattern: str, selector: str, where: str) -> np.ndarray:
    compiled = compile_pattern(pattern, where)
    found = np.array([bool(compiled.search(name)) for name in graph.names], bool)
    mask = found[graph.name]
    if not mask.any():
        used = [graph.names[i] for i in np.unique(graph.name)]
        near = difflib.get_close_matches(pattern, used, n=3, cutoff=0.3)
        raise ConfigError(
            "selects nothing",
            where=where,
            got=repr(selector),
            expected=f"a part of a task's name, such as {', '.join(near or used[:3])}",
        )
    return mask


def _rank_index(graph: ExecutionGraph, text: str, selector: str, where: str) -> int:
    known = ", ".join(map(str, graph.ranks[:16]))
    if not (text.isascii() and text.isdigit()) or int(text) not in graph.ranks:
        raise ConfigError(
            "no such rank", where=where, got=repr(selector), expected=f"a rank of {known}"
        )
    return graph.ranks.index(int(text))
