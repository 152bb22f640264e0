"""A part of a program, replayed again for other durations of its own, beside the whole."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings, strategies as st

from jaxperf.compiled import compile_program
from jaxperf.replay import double_precision, start_times_us
from jaxperf.replay._part import part_of, part_start_times
from tests.helpers import random_graphs, start_times


@given(random_graphs(), st.integers(0, 2**32 - 1))
@settings(max_examples=8)
def test_a_part_starts_its_tasks_when_the_whole_does(graph, seed):
    rng = np.random.default_rng(seed)
    program = compile_program(graph)
    tasks = rng.choice(graph.tasks, rng.integers(1, min(graph.tasks, 4) + 1), replace=False)
    part, place = part_of(program, tasks)
    assert np.asarray(part.task)[place].tolist() == tasks.tolist()

    duration_us = np.zeros((len(program.duration_us), 2))
    duration_us[: graph.tasks] = rng.uniform(0, 10, (graph.tasks, 2))
    lag_us = np.repeat(program.lag_us[:, None], 2, 1)
    other_us = duration_us.copy()
    other_us[tasks] = rng.uniform(0, 10, (len(tasks), 2))
    with double_precision():
        again = part_start_times(program, part, jnp.asarray(duration_us), jnp.asarray(lag_us))
        found = np.asarray(again(jnp.asarray(other_us[part.task])))
        whole = np.asarray(start_times_us(program, other_us, lag_us))
    np.testing.assert_array_equal(found[place], whole[tasks])
    by_definition = start_times(
        graph, (1e3 * other_us[: graph.tasks, 1]).tolist(), graph.lag_ns.tolist()
    )
    np.testing.assert_allclose(found[place, 1], np.array(by_definition)[tasks] / 1e3)
