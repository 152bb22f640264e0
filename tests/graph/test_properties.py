"""Random programs: what the simulator runs, the graph of its trace repeats and foretells."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.graph import ExecutionGraph, build_graph
from jaxperf.simulator import (
    Annotation,
    Instruction,
    Kernel,
    LaunchGraph,
    Noise,
    Rank,
    Record,
    SimulatedRun,
    StreamWait,
    SynchronizeDevice,
    SynchronizeEvent,
    SynchronizeStream,
    Work,
    execute,
    write_traces,
)
from jaxperf.trace import read_run
from tests.graph.asked import on_device, replayed
from tests.scenarios import add, gemm

PERCENT = 0.5
START_US = 1.0
"""Beside half a percent, for the lags of a device are means over its starts."""

STREAMS = st.sampled_from([7, 20, 24])
SHORT = Kernel("sm90_xmma_gemm_bf16", 9.0, "gemm")
EVENTS = st.sampled_from(["first", "second"])

INSTRUCTIONS: st.SearchStrategy[Instruction] = st.one_of(
    st.builds(gemm, st.integers(5, 200), STREAMS),
    st.builds(add, st.integers(2, 80), STREAMS),
    st.builds(Work, st.integers(5, 150)),
    st.builds(Record, EVENTS, STREAMS),
    st.builds(StreamWait, EVENTS, STREAMS),
    st.builds(SynchronizeEvent, EVENTS),
    st.builds(SynchronizeStream, STREAMS),
    st.just(SynchronizeDevice()),
    st.builds(
        lambda count, stream: LaunchGraph((SHORT,) * count, stream), st.integers(2, 6), STREAMS
    ),
)

# What no trace can tell if nothing in it shows it: the constants of the device, how long each kind
# of blocking call takes to return, and that a stream is there.
SHOWN: list[Instruction] = [
    Work(5.0),
    add(2.0, 20),
    add(2.0, 24),
    *[add(1.0), Work(12.0)] * 4,
    *[add(25.0)] * 5,
    SynchronizeStream(),
    gemm(40.0),
    SynchronizeDevice(),
    gemm(40.0),
    Record("first"),
    Record("second"),
    SynchronizeEvent("first"),
]


def run_of(body: list[Instruction], change: dict[str, float] | None = None) -> SimulatedRun:
    steps = [Annotation(f"ProfilerStep#{i}", [*SHOWN, *body, Work(5.0)]) for i in (1, 2)]
    rank = Rank({"main": [*steps, SynchronizeDevice()]})
    return execute({0: rank}, noise=Noise(host=0.05), seed=1, scale=change)


def graph_of(run: SimulatedRun, folder, *, rows: bool) -> ExecutionGraph:
    return build_graph(read_run(list(write_traces(run, folder, cuda_sync_rows=rows))))


@pytest.mark.parametrize("rows", [True, False], ids=["sync_rows", "calls_alone"])
@settings(max_examples=25)
@given(body=st.lists(INSTRUCTIONS, min_size=1, max_size=25))
def test_any_program_is_repeated(tmp_path_factory, rows, body):
    run = run_of(body)
    graph = graph_of(run, tmp_path_factory.mktemp("run"), rows=rows)
    answer = replayed(graph)
    assert answer.steps_us == pytest.approx(run.steps_us, rel=PERCENT / 100)
    mine = on_device(graph)
    right_us = (graph.start_ns[mine] - graph.start_ns.min()) / 1e3
    start_us = (answer.start_ns[mine] - answer.start_ns.min()) / 1e3
    assert (np.abs(start_us - right_us) <= START_US + PERCENT / 100 * right_us).all()


@settings(max_examples=25)
@given(
    body=st.lists(INSTRUCTIONS, min_size=1, max_size=25),
    change=st.sampled_from([{"gemm": 0.5}, {"gemm": 2.0}, {"elementwise": 3.0}]),
)
def test_a_change_of_any_program_is_foretold(tmp_path_factory, body, change):
    graph = graph_of(run_of(body), tmp_path_factory.mktemp("run"), rows=True)
    right = run_of(body, change).steps_us
    assert replayed(graph, change).steps_us == pytest.approx(right, rel=PERCENT / 100)


@settings(max_examples=25)
@given(
    body=st.lists(INSTRUCTIONS, min_size=1, max_size=25),
    factor=st.floats(0.0, 1.0),
    selector=st.sampled_from(["gemm", "elementwise", "host"]),
)
def test_less_work_never_makes_anything_later(tmp_path_factory, body, factor, selector):
    graph = graph_of(run_of(body), tmp_path_factory.mktemp("run"), rows=True)
    whole, part = replayed(graph), replayed(graph, {selector: factor})
    assert (part.start_ns <= whole.start_ns).all()
    assert (part.end_ns <= whole.end_ns).all()
