"""Training steps as graphs, against times worked out by hand."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.embedding.training import StepParts, build_training_graph, replay_training
from jaxperf.errors import ConfigError
from jaxperf.graph import TaskClass

# Two ranks with a table each; the first one's is larger.
TWO_RANKS = StepParts(
    indices_us=np.array([1.0, 1.0]),
    fetch_us=np.zeros((2, 0)),
    fill_us=np.zeros(2),
    lookup_us=np.array([10.0, 4.0]),
    pooled_us=np.array([3.0, 3.0]),
    bottom_forward_us=np.array([2.0, 2.0]),
    top_forward_us=np.array([5.0, 5.0]),
    top_backward_us=np.array([10.0, 10.0]),
    bottom_backward_us=np.array([4.0, 4.0]),
    gradients_us=np.array([3.0, 3.0]),
    update_us=np.array([8.0, 6.0]),
    all_reduce_us=np.array([7.0, 7.0]),
)


def step_us(parts, **options):
    return replay_training(build_training_graph(parts, **options)).step_us


def fetching(*tiers):
    return replace(TWO_RANKS, fetch_us=np.array([tiers, tiers]))


def test_in_turn_a_step_is_the_sum_of_the_slowest_rank():
    # 1 + 10 + 3 + 2 + 5 + 10 + 4 + 3 + 8 + 7
    assert step_us(TWO_RANKS, prefetch=False, overlap=False) == pytest.approx(53)


def test_messages_run_beside_the_dense_layers_and_the_update():
    # Lookups end at 10, and pooled rows come at 13, beside the bottom layers. The top layers end at
    # 28, those below at 32; the gradients come at 31, so the update is from 32 to 40. The
    # all-reduce is over at 39. Indices were sent in the step before.
    assert step_us(TWO_RANKS, prefetch=False, overlap=True) == pytest.approx(40)


def test_a_prefetch_is_hidden_until_it_fills_the_step_but_for_the_update():
    for fetch_us in (20.0, 45.0):
        assert step_us(fetching(fetch_us), overlap=False) == pytest.approx(53)
    # One after the other on the slower rank: the fetch of 50, and the update of 8.
    assert step_us(fetching(50.0), overlap=False) == pytest.approx(58)
    # Beside messages there is less to hide it behind: 40 - 8.
    assert step_us(fetching(32.0)) == pytest.approx(40)
    assert step_us(fetching(33.0)) == pytest.approx(41)


def test_tiers_fetch_at_once_ahead_and_in_turn_otherwise():
    assert step_us(fetching(50.0, 20.0), overlap=False) == pytest.approx(58)
    assert step_us(fetching(5.0, 7.0), prefetch=False, overlap=False) == pytest.approx(53 + 12)


def test_the_rank_with_less_to_do_waits_in_its_messages():
    step = replay_training(build_training_graph(TWO_RANKS, prefetch=False))
    graph = step.graph
    sent = [name == "pooled rows" for name in graph.names]
    pooled = np.flatnonzero(np.array(sent)[graph.name] & (graph.trace == 1))
    waits = (graph.start_ns[pooled] - graph.start_ns[graph.arrival[pooled]]) / 1e3
    # It is through with its lookups 6 before, and began this step 1 before.
    assert waits[-1] == pytest.approx(7)
    assert step.rank_us == pytest.approx([40, 40])


def test_classes_of_tasks_add_up_to_the_parts():
    built = build_training_graph(fetching(20.0), steps=4)
    graph, durations = built.graph, built.durations_us

    def spent(which):
        mine = (graph.task_class == which) & (graph.trace == 0) & (graph.step == 3)
        return durations[mine].sum()

    assert spent(TaskClass.EMBEDDING) == 18
    assert spent(TaskClass.GEMM) == 21
    assert spent(TaskClass.COMMUNICATION) == 14
    assert spent(TaskClass.MEMCPY) == 20


times = st.floats(0.0, 100.0)


@st.composite
def one_rank(draw):
    values = {f.name: np.array([draw(times)]) for f in fields(StepParts)}
    return StepParts(**values | {"fetch_us": np.array([[draw(times) * 5, draw(times)]])})


def device_us(parts):
    names = [f.name for f in fields(StepParts) if f.name != "fetch_us"]
    return sum(float(getattr(parts, name)[0]) for name in names)


@settings(max_examples=40)
@given(one_rank())
def test_in_turn_with_prefetch_is_the_closed_form(parts):
    device, update = device_us(parts), float(parts.update_us[0])
    exposed = max(0.0, parts.fetch_us.max() - (device - update))
    assert step_us(parts, overlap=False) == pytest.approx(device + exposed)


@settings(max_examples=40)
@given(one_rank())
def test_what_runs_side_by_side_is_never_slower(parts):
    computed = device_us(parts) - sum(
        float(getattr(parts, name)[0])
        for name in ("indices_us", "pooled_us", "gradients_us", "all_reduce_us")
    )
    beside = step_us(parts, overlap=True)
    assert computed - 1e-6 <= beside <= step_us(parts, overlap=False) + 1e-6


def test_what_are_no_durations_is_refused():
    with pytest.raises(ConfigError, match="lookup_us"):
        build_training_graph(replace(TWO_RANKS, lookup_us=np.array([1.0, -1.0])))
    with pytest.raises(ConfigError, match="update_us"):
        build_training_graph(replace(TWO_RANKS, update_us=np.ones(3)))
    with pytest.raises(ConfigError, match="steps"):
        build_training_graph(TWO_RANKS, steps=2)
