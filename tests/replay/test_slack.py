"""Slack is exactly how much longer a task may take before a deadline is missed."""

import time

import numpy as np
import pytest
from hypothesis import given

from jaxperf.compiled import compile_program
from jaxperf.replay import Timeline, replay_graph
from jaxperf.replay._slack import slack_us
from tests.helpers import make_graph, random_graphs, start_times


def ends(graph, duration):
    return np.array(start_times(graph, duration.tolist())) + duration


def timeline_of(graph) -> Timeline:
    end = ends(graph, graph.duration_ns) / 1e3
    return Timeline(end - graph.duration_ns / 1e3, end)


def longer(graph, task, extra_ns):
    duration = graph.duration_ns.copy()
    duration[task] += extra_ns
    return ends(graph, duration)


@given(random_graphs())
def test_with_its_slack_a_task_moves_nothing_and_with_more_it_moves_the_end(graph):
    before = ends(graph, graph.duration_ns).max()
    slack_ns = np.round(slack_us(graph, timeline_of(graph)) * 1e3).astype(int)
    assert (slack_ns >= 0).all()
    for task in range(0, graph.tasks, 1 + graph.tasks // 13):
        assert longer(graph, task, slack_ns[task]).max() == before
        assert longer(graph, task, slack_ns[task] + 700).max() == before + 700


@given(random_graphs())
def test_deadlines_of_some_tasks_are_met_with_the_slack_and_missed_with_more(graph):
    before = ends(graph, graph.duration_ns)
    due = np.arange(0, graph.tasks, 3)
    deadlines_us = np.full(graph.tasks, np.inf)
    deadlines_us[due] = before[due] / 1e3
    slack = slack_us(graph, timeline_of(graph), deadlines_us)
    for task in range(0, graph.tasks, 1 + graph.tasks // 13):
        if np.isinf(slack[task]):
            assert (longer(graph, task, 10**9)[due] == before[due]).all()
            continue
        extra = int(round(slack[task] * 1e3))
        assert (longer(graph, task, extra)[due] <= before[due]).all()
        late = longer(graph, task, extra + 700)[due] - before[due]
        assert late.max() == 700


def test_a_call_that_nobody_waits_for_may_go_on_till_the_end():
    # The kernel follows the start of its call, so the call's own time holds nothing up.
    graph = make_graph([6_000, 10_000], [(0, 1, 4_000, True)], release_ns={0: 0})
    assert slack_us(graph, timeline_of(graph)).tolist() == [8.0, 0.0]


def test_a_missed_deadline_is_negative_slack():
    graph = make_graph([6_000, 10_000], [(0, 1)], release_ns={0: 0})
    deadlines_us = np.array([np.inf, 15.0])
    assert slack_us(graph, timeline_of(graph), deadlines_us).tolist() == [-1.0, -1.0]


@pytest.mark.slow
def test_a_million_tasks_take_seconds(million_tasks):
    graph = million_tasks
    timeline, program = replay_graph(graph), compile_program(graph)
    begin = time.perf_counter()
    slack = slack_us(graph, timeline, program=program)
    assert time.perf_counter() - begin < 15.0
    assert slack.min() == 0.0
