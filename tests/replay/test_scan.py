"""Replays against the plain recursion, and gradients against finite differences."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.compiled import compile_program
from jaxperf.errors import ProgramError
from jaxperf.replay import _scan, _times, makespan_us, start_times_us, step_times_us
from tests.helpers import make_graph, random_graph, random_graphs, relabelled, start_times

# What the issue asks for: a nanosecond, on a million tasks.
ONE_NS_IN_US = 1e-3
# Rounding of a few hundred sums below 1e6 us in float64.
ROUNDING_US = 1e-6
# Central differences of a piecewise linear function are exact but for rounding.
GRADIENT = 1e-6
SEEDS = st.integers(0, 2**32 - 1)


def draw(graph, seed):
    """Durations and lags in microseconds, different for each task, so that nothing ties."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0.0, 10.0, graph.tasks), graph.lag_ns / 1e3 + rng.uniform(
        0.0, 1.0, len(graph.lag_ns)
    )


def expected_starts_us(graph, duration_us, lag_us):
    as_ns = np.asarray(duration_us) * 1e3, np.asarray(lag_us) * 1e3
    return np.array(start_times(graph, as_ns[0].tolist(), as_ns[1].tolist())) / 1e3


@given(random_graphs(), SEEDS)
def test_starts_equal_the_plain_recursion(graph, seed):
    duration, lag = draw(graph, seed)
    program = compile_program(graph)
    starts = start_times_us(program, duration, lag)
    expected = expected_starts_us(graph, duration, lag)
    np.testing.assert_allclose(starts, expected, atol=ROUNDING_US)
    np.testing.assert_allclose(makespan_us(program, duration, lag), np.max(expected + duration))
    times = [(expected + duration)[s.end_task] - expected[s.begin_task] for s in graph.steps]
    np.testing.assert_allclose(step_times_us(program, duration, lag), times, atol=ROUNDING_US)


@given(random_graphs())
def test_by_default_durations_and_lags_are_the_graphs_own(graph):
    starts = start_times_us(compile_program(graph))
    expected = np.array(start_times(graph, graph.duration_ns.tolist())) / 1e3
    np.testing.assert_allclose(starts, expected, atol=ROUNDING_US)


@given(random_graphs(), SEEDS)
def test_no_task_starts_before_what_it_waits_for(graph, seed):
    duration, lag = draw(graph, seed)
    starts = np.asarray(start_times_us(compile_program(graph), duration, lag))
    ready = starts[graph.source] + np.where(graph.from_start, 0, duration[graph.source]) + lag
    assert np.all(starts[graph.target] >= ready - ROUNDING_US)


@given(random_graphs(), SEEDS)
def test_longer_durations_never_make_a_task_start_earlier(graph, seed):
    duration, lag = draw(graph, seed)
    longer = duration + np.random.default_rng(seed).exponential(1.0, graph.tasks)
    program = compile_program(graph)
    before, after = start_times_us(program, duration, lag), start_times_us(program, longer, lag)
    assert np.all(np.asarray(after) >= np.asarray(before) - ROUNDING_US)


@given(random_graphs(), SEEDS)
def test_relabelling_tasks_changes_nothing(graph, seed):
    duration, lag = draw(graph, seed)
    new = np.random.default_rng(seed).permutation(graph.tasks)
    other = compile_program(relabelled(graph, new))
    moved = duration[np.argsort(new)]
    starts = start_times_us(compile_program(graph), duration, lag)
    np.testing.assert_allclose(np.asarray(start_times_us(other, moved, lag))[new], starts)


def pad(values, like):
    return np.pad(values, (0, len(like) - len(values)))


@jax.jit
def everything(program, duration, lag, weight, temperature=None):
    arguments, options = (program, duration, lag), {"temperature_us": temperature}
    total = jnp.vdot(weight, start_times_us(*arguments, **options))
    total += makespan_us(*arguments, **options)
    return total + step_times_us(*arguments, **options).sum()


slopes = jax.jit(jax.grad(everything, (1, 2)))


@given(random_graphs(), SEEDS, st.sampled_from([None, 3.0]))
def test_gradients_equal_central_differences(graph, seed, temperature):
    duration, lag = draw(graph, seed)
    program = compile_program(graph)
    duration, lag = pad(duration, program.duration_us), pad(lag, program.lag_us)
    rng = np.random.default_rng(seed)
    weight, along, along_lag = (
        pad(rng.uniform(-1, 1, size), like)
        for size, like in [
            (graph.tasks, duration),
            (graph.tasks, duration),
            (len(graph.lag_ns), lag),
        ]
    )
    by_duration, by_lag = slopes(program, duration, lag, weight, temperature)
    step = 1e-6 if temperature is None else 1e-4
    ahead, behind = (
        everything(program, duration + h * along, lag + h * along_lag, weight, temperature)
        for h in (step, -step)
    )
    slope = by_duration @ along + by_lag @ along_lag
    scale = 1 + np.sum(np.abs(by_duration))
    np.testing.assert_allclose(slope, (ahead - behind) / (2 * step), atol=GRADIENT * scale)


def test_the_gradient_of_a_temperature_is_right_too():
    graph = random_graph(np.random.default_rng(1), 60)
    program = compile_program(graph)

    @jax.jit
    def value(temperature):
        return makespan_us(program, temperature_us=temperature)

    slope = (value(2.0 + 1e-4) - value(2.0 - 1e-4)) / 2e-4
    np.testing.assert_allclose(jax.grad(value)(2.0), slope, rtol=GRADIENT)


@given(random_graphs(), SEEDS)
def test_a_smoothed_replay_is_later_and_comes_down_to_the_sharp_one(graph, seed):
    duration, lag = draw(graph, seed)
    program = compile_program(graph)
    sharp = np.asarray(start_times_us(program, duration, lag, temperature_us=0))
    previous = np.inf
    for temperature in (3.0, 0.1, 1e-9):
        smooth = np.asarray(start_times_us(program, duration, lag, temperature_us=temperature))
        assert np.all(smooth >= sharp - ROUNDING_US)
        assert np.all(smooth <= previous + ROUNDING_US)
        previous = smooth
    np.testing.assert_allclose(previous, sharp, atol=ROUNDING_US)


def test_the_gradient_of_the_makespan_is_one_along_the_path_that_bounds_it():
    #   0 -> 1 -> 3    0 takes 1, 1 takes 5, 2 takes 2, 3 takes 1: the path is 0, 1, 3
    #   0 -> 2 -> 3
    edges = [(0, 1), (0, 2), (1, 3), (2, 3)]
    graph = make_graph([0] * 4, edges, release_ns={0: 0}, lane=[0, 0, 1, 0])
    program = compile_program(graph)
    gradient = jax.grad(makespan_us, 1)(program, np.array([1.0, 5.0, 2.0, 1.0]))
    assert gradient.tolist() == [1.0, 1.0, 0.0, 1.0]


makespan_slopes = jax.jit(jax.grad(makespan_us, (1, 2)))


@given(random_graphs(), SEEDS)
def test_the_makespan_is_what_its_gradient_adds_up_to(graph, seed):
    duration, lag = draw(graph, seed)
    # The makespan is homogeneous in durations, lags and releases: all releases at zero.
    at_zero = np.where(graph.release_ns == np.iinfo(np.int64).min, graph.release_ns, 0)
    program = compile_program(dataclasses.replace(graph, release_ns=at_zero))
    duration, lag = pad(duration, program.duration_us), pad(lag, program.lag_us)
    by_duration, by_lag = makespan_slopes(program, duration, lag)
    value = makespan_us(program, duration, lag)
    np.testing.assert_allclose(by_duration @ duration + by_lag @ lag, value)


@pytest.mark.parametrize("first", [1, 2])
def test_on_a_tie_the_gradient_goes_to_the_dependency_that_is_first_in_the_graph(first):
    second = 3 - first
    edges = [(0, 1), (0, 2), (first, 3), (second, 3)]
    graph = make_graph([0] * 4, edges, release_ns={0: 0, 3: 4_000}, lane=[0, 0, 1, 0])
    gradient = jax.grad(makespan_us, 1)(compile_program(graph), np.array([1.0, 3.0, 3.0, 1.0]))
    assert gradient[first] == 1.0
    assert gradient[second] == 0.0


@given(random_graphs(), SEEDS)
def test_padding_changes_nothing_and_has_no_gradient(graph, seed):
    duration, lag = draw(graph, seed)
    program = compile_program(graph)
    # Whatever stands in the padding.
    padded = np.full(len(program.duration_us), 1e9)
    padded[: graph.tasks] = duration
    padded_lag = np.full(len(program.lag_us), 1e9)
    padded_lag[: len(lag)] = lag
    starts = start_times_us(program, padded, padded_lag)
    assert len(starts) == len(padded)
    np.testing.assert_array_equal(starts[: graph.tasks], start_times_us(program, duration, lag))
    by_duration, by_lag = makespan_slopes(program, padded, padded_lag)
    assert not np.any(by_duration[graph.tasks :])
    assert not np.any(by_lag[len(lag) :])


@given(random_graphs(), SEEDS)
@settings(max_examples=20)
def test_a_batch_equals_its_scenarios_one_by_one(graph, seed):
    rng = np.random.default_rng(seed)
    durations = rng.uniform(0, 10, (graph.tasks, 3))
    lags = graph.lag_ns[:, None] / 1e3 + rng.uniform(0, 1, (len(graph.lag_ns), 3))
    program = compile_program(graph)
    for lag in (lags, lags[:, 0]):
        starts = start_times_us(program, durations, lag)
        ends, steps = makespan_us(program, durations, lag), step_times_us(program, durations, lag)
        for i in range(3):
            own = lag[:, i] if lag.ndim == 2 else lag
            one = program, durations[:, i], own
            np.testing.assert_allclose(starts[:, i], start_times_us(*one))
            np.testing.assert_allclose(ends[i], makespan_us(*one))
            np.testing.assert_allclose(steps[:, i], step_times_us(*one), atol=ROUNDING_US)


def test_one_set_of_durations_takes_several_sets_of_lags():
    graph = random_graph(np.random.default_rng(5), 40)
    duration, lag = draw(graph, 5)
    lags = np.stack([lag, 2 * lag], 1)
    starts = start_times_us(compile_program(graph), duration, lags)
    np.testing.assert_allclose(
        starts[:, 1], start_times_us(compile_program(graph), duration, 2 * lag)
    )


def test_batches_wider_than_a_chunk_equal_narrow_ones_with_their_gradients():
    graph = random_graph(np.random.default_rng(2), 50)
    scenarios = _times.CHUNK + 3
    durations = np.random.default_rng(3).uniform(0, 10, (graph.tasks, scenarios))
    program = compile_program(graph)
    wide = makespan_us(program, durations)
    assert wide.shape == (scenarios,)
    gradient = jax.jit(jax.grad(lambda x: makespan_us(program, x).sum()))(durations)
    slope = jax.jit(jax.grad(lambda x: makespan_us(program, x)))
    for i in (0, _times.CHUNK, scenarios - 1):
        one = durations[:, i]
        np.testing.assert_allclose(wide[i], makespan_us(program, one))
        np.testing.assert_allclose(gradient[:, i], slope(one))


def test_vmap_equals_the_batch():
    graph = random_graph(np.random.default_rng(4), 50)
    durations = np.random.default_rng(5).uniform(0, 10, (graph.tasks, 4))
    program = compile_program(graph)

    def starts(duration):
        return start_times_us(program, duration)

    def slope(duration):
        return jax.grad(lambda x: makespan_us(program, x))(duration)

    mapped = jax.jit(jax.vmap(starts, 1, 1))(durations)
    np.testing.assert_allclose(mapped, starts(durations))
    gradients = jax.jit(jax.vmap(slope, 1, 1))(durations)
    np.testing.assert_allclose(gradients[:, 2], jax.jit(slope)(durations[:, 2]))


def test_float32_is_as_exact_as_its_numbers():
    graph = random_graph(np.random.default_rng(6), 3_000, lanes=6)
    program = compile_program(graph)
    single = start_times_us(program, (graph.duration_ns / 1e3).astype(np.float32))
    assert single.dtype == np.float32
    expected = np.array(start_times(graph, graph.duration_ns.tolist())) / 1e3
    # Each join on the way rounds once: a random walk of a few dozen units in the last place.
    unit = np.spacing(np.float32(np.max(np.abs(expected))))
    assert np.max(np.abs(np.asarray(single) - expected)) < 64 * unit


@pytest.mark.parametrize("shape", [(1000,), (1000, 2)])
def test_what_accelerators_compute_equals_what_processors_do(shape):
    rng = np.random.default_rng(7)
    weight, continues = jnp.asarray(rng.uniform(size=shape)), jnp.asarray(rng.random(1000) < 0.9)
    by_halves = jax.jit(_scan._sums_by_halves)(weight, continues)
    np.testing.assert_allclose(_scan._sums_in_turn(weight, continues), by_halves)
    into, index = jnp.ones((50, *shape[1:])), jnp.asarray(rng.integers(0, 50, 1000))
    by_halves = jax.jit(_scan._add_sums_by_halves)(into, index, weight, continues)
    in_turn = jax.jit(_scan._add_sums_in_turn)(into, index, weight, continues)
    np.testing.assert_allclose(in_turn, by_halves)


def test_two_graphs_of_similar_size_share_one_compilation():
    compiled: Any = _times._start_times
    compiled.clear_cache()
    for tasks in (900, 905):
        graph = random_graph(np.random.default_rng(3), tasks)
        start_times_us(compile_program(graph), graph.duration_ns / 1e3)
    assert compiled._cache_size() == 1


def test_a_program_is_a_pytree_that_goes_through_jit():
    graph = random_graph(np.random.default_rng(8), 40)
    program = jax.device_put(compile_program(graph))
    duration = graph.duration_ns / 1e3
    starts = jax.jit(start_times_us)(program, duration)
    np.testing.assert_allclose(starts, start_times_us(program, duration))
    assert len(jax.jit(start_times_us)(program)) == len(program.duration_us)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((np.zeros(4),), r"durations_us: .*got float64\(4,\); expected floats of shape \(3,\)"),
        ((np.zeros(3, int),), "durations_us: .*got int64"),
        ((np.zeros((3, 1, 1)),), "durations_us"),
        ((np.zeros(3), np.zeros(1)), "lags_us"),
        ((np.zeros((3, 2)), np.zeros((2, 3))), "disagree on the number of scenarios"),
    ],
)
def test_durations_that_do_not_fit_are_refused(arguments, message):
    graph = make_graph([1, 2, 3], [(0, 1), (1, 2)], release_ns={0: 0})
    with pytest.raises(ProgramError, match=message):
        start_times_us(compile_program(graph), *arguments)


@pytest.mark.slow
def test_a_million_tasks_are_within_a_nanosecond_of_the_exact_integers(million_tasks):
    graph = million_tasks
    expected = np.array(start_times(graph, graph.duration_ns.tolist())) / 1e3
    starts = np.asarray(start_times_us(compile_program(graph)))
    assert np.max(np.abs(starts - expected)) < ONE_NS_IN_US
