"""Batches that scale groups equal replays one by one, whatever the grouping."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.compiled import compile_program
from jaxperf.errors import ProgramError
from jaxperf.replay import (
    _batch,
    makespan_us,
    replay_scenarios,
    scale_groups,
    start_times_us,
    step_times_us,
)
from tests.helpers import make_graph, random_graph, random_graphs

ROUNDING_US = 1e-6
GRADIENT = 1e-6
SCENARIOS = 5


def draw(graph, groups, seed):
    rng = np.random.default_rng(seed)
    return (
        rng.integers(-1, groups, graph.tasks),
        rng.integers(-1, groups, len(graph.lag_ns)),
        rng.uniform(0.1, 2.0, (groups, SCENARIOS)),
    )


@given(random_graphs(), st.integers(1, 6), st.integers(0, 2**32 - 1), st.sampled_from([None, 2.0]))
@settings(max_examples=30)
def test_scenarios_equal_replays_of_their_durations(graph, groups, seed, temperature):
    group, lag_group, scale = draw(graph, groups, seed)
    program = compile_program(graph)
    scaled = scale_groups(program, group, groups, lag_group=lag_group)
    times = replay_scenarios(scaled, scale, temperature_us=temperature)
    factor = np.vstack([scale, np.ones((1, SCENARIOS))])
    durations = graph.duration_ns[:, None] / 1e3 * factor[group]
    lags = graph.lag_ns[:, None] / 1e3 * factor[lag_group]
    arguments = program, durations, lags
    expected = makespan_us(*arguments, temperature_us=temperature)
    np.testing.assert_allclose(times.makespan_us, expected, atol=ROUNDING_US)
    expected = step_times_us(*arguments, temperature_us=temperature)
    np.testing.assert_allclose(times.step_us, expected, atol=ROUNDING_US)


@given(random_graphs())
@settings(max_examples=20)
def test_factors_of_one_are_the_replay(graph):
    program = compile_program(graph)
    scaled = scale_groups(program, np.zeros(graph.tasks, int), 1)
    times = replay_scenarios(scaled, np.ones((1, 2)))
    np.testing.assert_allclose(times.makespan_us, np.full(2, makespan_us(program)))


def test_a_factor_of_zero_removes_the_time():
    graph = make_graph([5_000, 7_000], [(0, 1, 1_000)], release_ns={0: 0})
    scaled = scale_groups(compile_program(graph), np.array([0, 1]), 2)
    scale = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    assert replay_scenarios(scaled, scale).makespan_us.tolist() == [13.0, 8.0, 1.0]


def test_gradients_of_factors_equal_central_differences():
    graph = random_graph(np.random.default_rng(1), 60)
    group, lag_group, scale = draw(graph, 4, seed=2)
    scaled = scale_groups(compile_program(graph), group, 4, lag_group=lag_group)
    weight = np.arange(1.0, SCENARIOS + 1)

    @jax.jit
    def value(scale):
        times = replay_scenarios(scaled, scale)
        return weight @ times.makespan_us + jnp.sum(times.step_us)

    gradient = jax.grad(value)(scale)
    along = np.random.default_rng(3).uniform(-1, 1, scale.shape)
    slope = (value(scale + 1e-6 * along) - value(scale - 1e-6 * along)) / 2e-6
    np.testing.assert_allclose(jnp.vdot(gradient, along), slope, rtol=GRADIENT)


def test_more_scenarios_than_a_chunk_are_all_replayed(monkeypatch):
    monkeypatch.setattr(_batch, "_CHUNK", 4)
    graph = random_graph(np.random.default_rng(4), 50)
    scaled = scale_groups(compile_program(graph), np.zeros(graph.tasks, int), 1)
    scale = np.linspace(0.5, 2.0, 11)[None]
    wide = jax.jit(lambda s: _batch._in_slots(scaled, s, None))(scale)[0]
    for i in (0, 4, 10):
        expected = makespan_us(scaled.program, graph.duration_ns / 1e3 * scale[0, i])
        np.testing.assert_allclose(wide[i], expected)


def test_float32_factors_give_float32_times():
    graph = random_graph(np.random.default_rng(5), 500)
    program = compile_program(graph)
    scaled = scale_groups(program, np.zeros(graph.tasks, int), 1)
    times = replay_scenarios(scaled, np.ones((1, 1), np.float32))
    assert times.makespan_us.dtype == np.float32
    np.testing.assert_allclose(times.makespan_us[0], makespan_us(program), rtol=1e-6)


def test_a_step_depends_on_few_groups():
    # A thread of group 0 feeds a stream of groups 1 to 7, each kernel the only one of its chain.
    edges = []
    for i in range(40):
        edges += [(2 * i, 2 * i + 1, 0, True)]
        if i:
            edges += [(2 * i - 2, 2 * i), (2 * i - 1, 2 * i + 1)]
    group = [0 if i % 2 == 0 else 1 + i // 2 % 7 for i in range(80)]
    lane = [i % 2 for i in range(80)]
    graph = make_graph([1_000] * 80, edges, release_ns={0: 0}, lane=lane)
    scaled = scale_groups(compile_program(graph), np.array(group), 8)
    assert scaled.term.shape[-1] == 1


@pytest.mark.parametrize("mixtures", [0, 5, 10_000])
def test_sides_that_depend_on_many_groups_are_mixed_beforehand(monkeypatch, mixtures):
    monkeypatch.setattr(_batch, "_MIXED", mixtures)
    graph = random_graph(np.random.default_rng(6), 60)
    group, lag_group, scale = draw(graph, 6, seed=7)
    program = compile_program(graph)
    scaled = scale_groups(program, group, 6, lag_group=lag_group)
    assert len(scaled.mixture_us) <= mixtures
    assert (len(scaled.mixture_us) > 0) == (mixtures > 0)
    factor = np.vstack([scale, np.ones((1, SCENARIOS))])
    durations = graph.duration_ns[:, None] / 1e3 * factor[group]
    lags = graph.lag_ns[:, None] / 1e3 * factor[lag_group]
    times = replay_scenarios(scaled, scale)
    np.testing.assert_allclose(times.makespan_us, makespan_us(program, durations, lags))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((np.array([0, 2]), 2), "group: group out of range; got 0 to 2"),
        ((np.array([0, 1, 1]), 2), r"group: .*expected integers of shape \(2,\)"),
        ((np.array([0.0, 1.0]), 2), "group: wrong shape or type; got float64"),
        ((np.array([0, 1]), 2, np.ones(5)), "durations_us"),
    ],
)
def test_groups_that_do_not_fit_are_refused(arguments, message):
    graph = make_graph([5_000, 7_000], [(0, 1)], release_ns={0: 0})
    with pytest.raises(ProgramError, match=message):
        scale_groups(compile_program(graph), *arguments)


def test_factors_that_do_not_fit_are_refused():
    graph = make_graph([5_000, 7_000], [(0, 1)], release_ns={0: 0})
    scaled = scale_groups(compile_program(graph), np.array([0, 1]), 2)
    for scale in (np.ones((3, 4)), np.ones(2), np.ones((2, 4), int)):
        with pytest.raises(ProgramError, match=r"scale: .*expected floats of shape \(2, scenarios"):
            replay_scenarios(scaled, scale)
    assert start_times_us(scaled.program).shape == (2,)
