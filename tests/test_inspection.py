"""What `inspect` says of traces whose content is known."""

import json

import pytest
from rich.console import Console

import jaxperf
from jaxperf.report import inspection_to_json, print_inspection
from jaxperf.simulator import (
    Annotation,
    Kernel,
    Launch,
    Rank,
    Record,
    StreamWait,
    SynchronizeDevice,
    Work,
    execute,
    write_traces,
)


@pytest.fixture(scope="module")
def two_streams(tmp_path_factory):
    """One rank, two steps: a kernel on each of two streams, the second waiting for the first."""
    step = (
        Work(5.0),
        Launch(Kernel("first", 30.0), stream=7),
        Record("done", stream=7),
        StreamWait("done", stream=20),
        Launch(Kernel("second", 10.0), stream=20),
        SynchronizeDevice(),
    )
    steps = [Annotation("ProfilerStep#1", step), Annotation("ProfilerStep#2", step)]
    (path,) = write_traces(execute({0: Rank({"main": steps})}), tmp_path_factory.mktemp("run"))
    return jaxperf.inspect(path)


def test_events_are_counted_by_category(two_streams):
    (rank,) = two_streams.ranks
    assert rank.categories["kernel"] == rank.device_tasks == 4
    assert rank.categories["annotation"] == 2
    assert rank.categories["runtime"] == 10
    assert sum(rank.categories.values()) == rank.events


def test_lanes_say_how_much_of_the_time_they_cover(two_streams):
    (rank,) = two_streams.ranks
    covered = {(lane.device, lane.stream): lane.busy_us for lane in rank.lanes}
    assert covered[0, 7] == 60.0
    assert covered[0, 20] == 20.0
    assert sum(lane.events for lane in rank.lanes) == rank.events


def test_nested_events_are_covered_once(two_streams):
    (rank,) = two_streams.ranks
    thread = max((lane for lane in rank.lanes if lane.stream is None), key=lambda x: x.busy_us)
    assert thread.busy_us <= rank.span_us


def test_steps_are_those_of_the_annotations(two_streams):
    (rank,) = two_streams.ranks
    assert [step.name for step in rank.steps] == ["ProfilerStep#1", "ProfilerStep#2"]
    assert all(step.measured_us > 40.0 for step in rank.steps)


def test_dependencies_are_counted_by_kind(two_streams):
    assert two_streams.dependencies["launch"] == 4
    assert two_streams.dependencies["event_wait"] == 2
    assert two_streams.dependencies["stream_order"] == 2
    assert "hand_over" not in two_streams.dependencies


def test_strangers_are_set_aside_with_the_reason(traces, tmp_path):
    for path in traces.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "notes.txt").write_text("nothing to see")
    result = jaxperf.inspect(tmp_path)
    assert [rank.rank for rank in result.ranks] == [0, 1]
    (stranger,) = result.set_aside
    assert stranger.file.endswith("notes.txt")
    assert stranger.reason


def test_a_trace_without_a_graph_is_still_inspected(tmp_path):
    path = tmp_path / "annotated.json"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)",'
        ' "pid": "Spans", "tid": "PyTorch Profiler", "ts": 5, "dur": 7.5}]}'
    )
    result = jaxperf.inspect(path)
    assert result.tasks is None
    assert result.dependencies is None
    assert result.ranks[0].steps is None
    assert result.ranks[0].span_us == 7.5
    assert "no-graph" in {note.code for note in result.notes}


def test_an_inspection_is_valid_json(traces):
    inspection = jaxperf.inspect(traces)
    text = json.dumps(inspection_to_json(inspection), allow_nan=False)
    assert len(json.loads(text)["ranks"]) == 2


def test_tables_fit_a_terminal_of_80_columns(traces):
    console = Console(width=80)
    with console.capture() as capture:
        print_inspection(jaxperf.inspect(traces), console)
    text = capture.get()
    assert "Dependencies" in text
    assert "stream order" in text
    assert max(map(len, text.splitlines())) <= 80


def test_progress_counts_the_files(traces):
    seen = []
    jaxperf.inspect(traces, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]
