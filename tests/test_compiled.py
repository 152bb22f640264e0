"""A program means what its graph means, and no other graph is compiled."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, strategies as st

from jaxperf.compiled import Program, compile_program
from jaxperf.errors import ProgramError
from tests.helpers import make_graph, random_graph, random_graphs, relabelled, start_times

# A few hundred additions of numbers below 1e6 us in float64.
TOLERANCE_US = 1e-6


def run(program: Program) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start times, rows and slots by the definition in `Program`'s docstring, a step at a time."""
    duration, lag = program.duration_us.copy(), program.lag_us.copy()
    assert duration[-1] == lag[-1] == 0
    offset = np.zeros(len(duration))
    for i in np.flatnonzero(program.continues):
        between = duration[program.chain_task[i]] + lag[program.chain_lag[i]]
        offset[i] = offset[i - 1] + between
    weight = offset[program.source_position] + duration[program.source_task]
    weight += lag[program.source_lag] + program.constant_us
    rows, slots = np.zeros(weight.shape[1] + 1), np.zeros(program.slots)
    for k in range(weight.shape[1]):
        rows[k + 1] = np.max(rows[program.source_row[:, k]] + weight[:, k])
        slots[program.target_slot[k]] = np.max(slots[program.source_slot[:, k]] + weight[:, k])
    starts = rows[program.row] + offset[program.position]
    return starts[: int(program.tasks)], rows, slots


def with_order(graph, order):
    return dataclasses.replace(graph, order=np.asarray(order, np.int64))


@given(random_graphs(), st.booleans(), st.integers(0, 2**32 - 1))
def test_a_program_gives_the_start_times_of_its_graph(graph, in_order, seed):
    if not in_order:
        graph = with_order(graph, np.random.default_rng(seed).integers(0, 9, graph.tasks))
    starts, rows, _ = run(compile_program(graph))
    expected = np.array(start_times(graph, graph.duration_ns.tolist())) / 1e3
    np.testing.assert_allclose(starts, expected, atol=TOLERANCE_US)
    makespan = np.max(expected + graph.duration_ns / 1e3)
    assert rows[compile_program(graph).makespan_row] == pytest.approx(makespan, abs=TOLERANCE_US)


@given(random_graphs())
def test_slots_hold_what_is_wanted_at_the_end(graph):
    program = compile_program(graph)
    _, rows, slots = run(program)
    np.testing.assert_array_equal(slots[program.begin_slot], rows[program.row[program.begin_task]])
    np.testing.assert_array_equal(slots[program.end_slot], rows[program.row[program.end_task]])
    assert slots[program.makespan_slot] == rows[program.makespan_row]


@given(random_graphs(), st.integers(0, 2**32 - 1))
def test_the_names_of_tasks_do_not_matter(graph, seed):
    new = np.random.default_rng(seed).permutation(graph.tasks)
    starts, _, _ = run(compile_program(graph))
    others, _, _ = run(compile_program(relabelled(graph, new)))
    np.testing.assert_allclose(others[new], starts, atol=TOLERANCE_US)


def test_a_thread_is_one_chain_and_takes_one_step_and_the_makespan_another():
    edges = [(i, i + 1) for i in range(9)]
    program = compile_program(make_graph([1_000] * 10, edges, release_ns={0: 0}))
    assert program.continues.sum() == 9
    assert set(program.row[:10].tolist()) == {1}
    assert program.makespan_row == 2


def test_several_inputs_are_folded_from_the_first_to_the_last():
    graph = make_graph([1_000] * 4, [(0, 3), (1, 3), (2, 3)], release_ns={0: 0, 1: 0, 2: 0})
    program = compile_program(graph)
    # Rows 1, 3 and 4 or so are the sources'; the fold's second step starts from its first.
    last = int(program.row[3]) - 1
    assert program.source_row[0, last] == last
    assert program.source_task[:, last - 1].tolist() == [0, 1]
    assert program.source_task[1, last] == 2


def test_few_values_are_alive_at_once_in_launch_order():
    # Two streams fed by one thread: a value per lane, however many kernels there are.
    launches, edges = 300, []
    for i in range(launches):
        call, kernel = 2 * i, 2 * i + 1
        edges += [(call, kernel, 5_000, True)]
        if i:
            edges += [(call - 2, call)]
        if i > 1:
            edges += [(kernel - 4, kernel)]
    lane = [0 if i % 2 == 0 else 1 + i // 2 % 2 for i in range(2 * launches)]
    graph = make_graph([1_000] * (2 * launches), edges, release_ns={0: 0}, lane=lane)
    used = np.unique(compile_program(graph).target_slot)
    assert len(used) <= 8


def test_without_a_launch_order_dependencies_decide():
    graph = make_graph([5, 7, 9], [(2, 1), (1, 0)], release_ns={2: 0})
    starts, _, _ = run(compile_program(graph))
    assert starts.tolist() == [0.016, 0.009, 0.0]


def test_similar_graphs_have_equal_shapes():
    def shapes(tasks):
        graph = random_graph(np.random.default_rng(3), tasks)
        columns = vars(compile_program(graph)).values()
        return [column.shape for column in columns if isinstance(column, np.ndarray)]

    assert shapes(500) == shapes(600)


def test_padding_of_many_tasks_wastes_at_most_an_eighth():
    for tasks in (17_000, 20_481, 30_000):
        graph = make_graph([1] * tasks, [], release_ns=dict.fromkeys(range(tasks), 0))
        assert len(compile_program(graph).duration_us) <= (tasks + 1) * 1.125


def test_a_cycle_is_named_by_its_tasks():
    graph = make_graph([1] * 4, [(0, 1), (1, 2), (2, 3), (3, 1)], release_ns={0: 0})
    with pytest.raises(ProgramError, match="cycle") as caught:
        compile_program(graph)
    where = caught.value.where or ""
    assert "task 1 (work)" in where
    assert "task 3 (work)" in where
    assert "task 0" not in where


def test_a_task_that_waits_for_itself_is_a_cycle():
    with pytest.raises(ProgramError, match="cycle"):
        compile_program(make_graph([1, 1], [(0, 1), (1, 1)], release_ns={0: 0}))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"source": np.array([0, 7])}, r"source\[1\].*out of range; got 7; expected 0 to 2"),
        ({"target": np.array([-1, 2])}, r"target\[0\].*out of range; got -1"),
        ({"duration_ns": np.array([1, -2, 3])}, "task 1 .work.*negative; got -2 ns"),
        ({"duration_ns": np.array([1.0, 2.0, 3.0])}, "duration_ns.*got float64"),
        ({"lag_ns": np.array([1])}, r"lag_ns.*expected integers of shape \(2,\)"),
        ({"from_start": np.array([0, 1])}, "from_start.*expected bool"),
        ({"release_ns": np.full(3, np.iinfo(np.int64).min)}, "task 0 .work.*nothing starts"),
    ],
)
def test_what_is_no_graph_is_refused(change, message):
    graph = make_graph([1, 2, 3], [(0, 1), (1, 2)], release_ns={0: 0})
    with pytest.raises(ProgramError, match=message):
        compile_program(dataclasses.replace(graph, **change))


def test_steps_beyond_the_tasks_and_empty_graphs_are_refused():
    with pytest.raises(ProgramError, match="steps.end_task"):
        compile_program(make_graph([1], [], release_ns={0: 0}, steps=[(0, 1)]))
    with pytest.raises(ProgramError, match="no tasks"):
        compile_program(make_graph([], []))
