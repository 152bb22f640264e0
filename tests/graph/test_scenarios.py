"""Graphs of simulated programs answer what the simulator answers when it runs the change."""

from functools import cache

import pytest

from jaxperf.graph import DependencyKind, ExecutionGraph, build_graph
from jaxperf.trace import read_run
from tests.graph.asked import replayed
from tests.scenarios import SCENARIOS

WHAT_IF_PERCENT = 0.5
"""What is asked of every change, the capture's own noise included."""
UNCHANGED_PERCENT = 0.1
"""A run is repeated more closely than a change is foretold: only rounding is in between."""

PROFILERS = pytest.mark.parametrize("rows", [True, False], ids=["sync_rows", "calls_alone"])


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    @cache
    def graph(name: str, rows: bool) -> ExecutionGraph:
        folder = tmp_path_factory.mktemp(name)
        return build_graph(read_run(list(SCENARIOS[name].write(folder, cuda_sync_rows=rows))))

    return graph


@cache
def truth_us(name: str, change: tuple[tuple[str, float], ...]) -> tuple[float, ...]:
    """Every step of a run of the changed program."""
    return SCENARIOS[name].run(dict(change)).steps_us


@PROFILERS
@pytest.mark.parametrize("name", SCENARIOS)
def test_an_unchanged_replay_repeats_the_run(graphs, name, rows):
    right = truth_us(name, ())
    assert replayed(graphs(name, rows)).steps_us == pytest.approx(
        right, rel=UNCHANGED_PERCENT / 100
    )


@PROFILERS
@pytest.mark.parametrize(
    ("name", "change"),
    [(name, change) for name, scenario in SCENARIOS.items() for change in scenario.changes],
    ids=lambda value: value if isinstance(value, str) else "_".join(map(str, *value.items())),
)
def test_a_changed_replay_is_the_changed_run(graphs, name, change, rows):
    right = truth_us(name, tuple(change.items()))
    answer = replayed(graphs(name, rows), change)
    assert answer.steps_us == pytest.approx(right, rel=WHAT_IF_PERCENT / 100)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("several_waits", DependencyKind.EVENT_WAIT),
        ("record_after_waits", DependencyKind.EVENT_WAIT),
        ("event_reused", DependencyKind.EVENT_WAIT),
        ("two_devices", DependencyKind.EVENT_WAIT),
        ("polling", DependencyKind.HOST_SYNC),
        ("event_synchronize", DependencyKind.HOST_SYNC),
        ("stream_synchronize", DependencyKind.HOST_SYNC),
        ("device_synchronize", DependencyKind.HOST_SYNC),
        ("blocking_copy", DependencyKind.HOST_SYNC),
        ("full_queue", DependencyKind.QUEUE_FULL),
        ("hand_over", DependencyKind.HAND_OVER),
    ],
)
@PROFILERS
def test_each_phenomenon_is_recovered_as_its_own_kind(graphs, name, kind, rows):
    assert kind in graphs(name, rows).dependency


@PROFILERS
@pytest.mark.parametrize("name", ["data_loader", "launch_bound", "device_bound"])
def test_threads_and_streams_that_do_not_wait_are_not_tied(graphs, name, rows):
    found = set(graphs(name, rows).dependency.tolist())
    assert not found & {DependencyKind.HAND_OVER, DependencyKind.EVENT_WAIT}
