"""Selectors: what a word selects, and what is said of a word that selects nothing."""

from dataclasses import replace

import numpy as np
import pytest

from jaxperf.errors import ConfigError
from jaxperf.graph import (
    DependencyKind,
    TaskClass,
    is_launch_selector,
    select_launch_lags,
    select_tasks,
)
from tests.helpers import make_graph

CLASSES = [
    TaskClass.HOST,
    TaskClass.LAUNCH,
    TaskClass.GEMM,
    TaskClass.COMMUNICATION,
    TaskClass.OTHER,
    TaskClass.MEMCPY,
]
NAMES = ("host", "cudaLaunchKernel", "nvjet_gemm", "ncclDevKernel_AllReduce", "mine", "Memcpy HtoD")


@pytest.fixture
def graph():
    """Twice the same six tasks, on ranks 0 and 3."""
    one = make_graph(
        [1] * 12,
        [(1, 2, 5), (2, 3, 1), (7, 8, 5), (1, 4, -3)],
        release_ns={i: 0 for i in range(12)},
        task_class=CLASSES * 2,
        dependency=[
            DependencyKind.LAUNCH,
            DependencyKind.STREAM_ORDER,
            DependencyKind.LAUNCH,
            DependencyKind.LAUNCH,
        ],
    )
    return replace(
        one,
        ranks=(0, 3),
        names=NAMES,
        name=np.tile(np.arange(6), 2).astype(np.int32),
        trace=np.repeat([0, 1], 6).astype(np.int32),
    )


@pytest.mark.parametrize(
    "selector, tasks",
    [
        ("gemm", [2, 8]),
        ("communication", [3, 9]),
        ("memcpy", [5, 11]),
        ("host", [0, 1, 6, 7]),
        ("launch", [1, 7]),
        ("compute", [2, 4, 8, 10]),
        ("rank:3/compute", [8, 10]),
        ("name:AllReduce", [3, 9]),
        ("name:^(mine|host)$", [0, 4, 6, 10]),
        ("rank:0/name:Memcpy HtoD", [5]),
    ],
)
def test_a_selector_selects(graph, selector, tasks):
    assert np.flatnonzero(select_tasks(graph, selector)).tolist() == tasks


@pytest.mark.parametrize(
    "selector, message",
    [
        ("gem", "unknown selector; got 'gem'; expected name:REGEX or one of gemm"),
        ("attention", "selects nothing.*a class that the trace has: other, gemm, memcpy"),
        ("name:nvjet_gem$", "selects nothing.*nvjet_gemm"),
        ("name:(", "not a regular expression"),
        ("name:", "not a selector"),
        ("", "not a selector"),
        ("rank:1/gemm", "no such rank; got 'rank:1/gemm'; expected a rank of 0, 3"),
        ("rank:x/gemm", "no such rank"),
        ("rank:/gemm", "no such rank"),
        # Digits all, but a rank is written in ASCII.
        ("rank:٣/gemm", "no such rank; got 'rank:٣/gemm'; expected a rank of 0, 3"),
        ("rank:²/gemm", "no such rank"),
        ("rank:3/gemm".translate({ord("3"): 0xFF13}), "no such rank"),
        ("class:gemm", "not a selector"),
        ("name:a{99999999999}", "not a regular expression"),
        (f"name:{'(' * 20_000}{')' * 20_000}", "not a regular expression"),
    ],
)
def test_a_selector_that_is_wrong_or_selects_nothing_names_the_nearest(graph, selector, message):
    with pytest.raises(ConfigError, match=message) as error:
        select_tasks(graph, selector, where="scale")
    assert str(error.value).startswith("scale: ")


def test_a_rank_without_such_tasks_is_refused(graph):
    lacking = replace(graph, task_class=np.where(np.arange(12) == 8, 0, graph.task_class))
    with pytest.raises(ConfigError, match="selects nothing; got 'rank:3/gemm'"):
        select_tasks(lacking, "rank:3/gemm")


def test_the_latency_of_selected_launches_is_theirs_but_no_delay_that_nothing_explains(graph):
    late = replace(graph, unexplained_ns=np.array([0, 0, 4, 0]))
    calls = select_tasks(graph, "launch")
    assert select_launch_lags(graph, calls).tolist() == [True, False, True, False]
    assert select_launch_lags(late, calls).tolist() == [True, False, False, False]
    of_rank = select_tasks(graph, "rank:3/launch")
    assert select_launch_lags(graph, of_rank).tolist() == [False, False, True, False]


def test_only_a_class_can_be_about_launches():
    assert is_launch_selector("launch") and is_launch_selector("rank:4/launch")
    assert not is_launch_selector("name:launch") and not is_launch_selector("rank:0/name:a/launch")
