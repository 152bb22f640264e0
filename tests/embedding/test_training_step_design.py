"""Durations of steps from designs of the hierarchy, and the step in closed form."""

from dataclasses import replace

import numpy as np
import pytest

from jaxperf.config import EmbeddingTable, RecommendationModel, load_hardware
from jaxperf.cost import default_model
from jaxperf.embedding.hierarchy import HierarchyRules, example_design, model_arrays
from jaxperf.embedding.training import (
    DenseLayers,
    build_training_graph,
    dense_times,
    replay_training,
    step_parts,
)
from jaxperf.embedding.training._durations import _evaluated
from jaxperf.errors import ConfigError
from jaxperf.replay import double_precision

RULES = HierarchyRules()
TABLES = [
    EmbeddingTable(name=name, rows=10**7, dimension=64, pooling=20, optimizer_row_bytes=4)
    for name in "ab"
]


@pytest.fixture(scope="module")
def model():
    description = RecommendationModel(
        name="two", batch_size=4096, tables=TABLES, dense_parameters=1e6, dense_flops_per_sample=6e6
    )
    return model_arrays(description)


def outcome_of(model, design):
    with double_precision():
        return _evaluated(model, design, RULES)[0]


def slower_dram(design, factor):
    tiers = design.machine.tiers
    rates = {
        name: np.asarray(getattr(tiers, name)) * np.array([1.0, 1 / factor])
        for name in ("read_bytes_per_s", "write_bytes_per_s", "link_bytes_per_s")
    }
    return replace(design, machine=replace(design.machine, tiers=replace(tiers, **rates)))


@pytest.mark.parametrize("factor", [1.0, 100.0])
def test_a_step_in_turn_is_that_of_the_closed_form(model, factor):
    design = slower_dram(example_design(), factor)
    outcome, parts = outcome_of(model, design), step_parts(model, design, RULES)
    assert (outcome.exposed_us > 0) == (factor > 1)
    step = replay_training(build_training_graph(parts, overlap=False))
    assert step.step_us == pytest.approx(float(outcome.step_us), rel=1e-9)

    device_us = float(outcome.step_us - outcome.exposed_us)
    step = replay_training(build_training_graph(parts, prefetch=False, overlap=False))
    assert step.step_us == pytest.approx(device_us + float(outcome.busy_us[1]), rel=1e-9)


def test_messages_and_dense_part_add_up_to_the_closed_form(model):
    design = example_design()
    outcome, parts = outcome_of(model, design), step_parts(model, design, RULES)
    sent = parts.indices_us + parts.pooled_us + parts.gradients_us + parts.all_reduce_us
    assert sent == pytest.approx(float(outcome.communication_us), rel=1e-9)
    dense = parts.bottom_forward_us + parts.top_forward_us
    dense = dense + parts.top_backward_us + parts.bottom_backward_us
    assert dense == pytest.approx(float(outcome.dense_us), rel=1e-9)


def test_ranks_with_a_table_have_more_than_their_part(model):
    held = np.zeros((8, 2))
    held[0, 0] = held[5, 1] = 1.0
    even = step_parts(model, example_design(), RULES)
    skewed = step_parts(model, example_design(), RULES, held=held)
    # Two of eight ranks share two tables alike: each has four times its even part.
    assert skewed.lookup_us / even.lookup_us == pytest.approx([4, 0, 0, 0, 0, 4, 0, 0])
    # All ranks are of one server, and wait for its DRAM together.
    assert skewed.fetch_us == pytest.approx(np.repeat(even.fetch_us, 8, axis=0))
    assert (skewed.pooled_us > even.pooled_us).all()
    spread = step_parts(model, example_design(), RULES, held=np.full((8, 2), 1 / 8))
    assert spread.lookup_us == pytest.approx(np.repeat(even.lookup_us, 8))
    steps = [
        replay_training(build_training_graph(parts)).step_us for parts in (even, spread, skewed)
    ]
    assert steps[0] == pytest.approx(steps[1])
    assert steps[2] > steps[1]


@pytest.mark.parametrize("held", [np.ones((8, 2)), np.full((4, 2), 1 / 4)])
def test_parts_that_do_not_make_up_the_tables_are_refused(model, held):
    with pytest.raises(ConfigError, match="held"):
        step_parts(model, example_design(), RULES, held=held)


def test_the_dense_part_is_its_layers():
    layers = DenseLayers((2, 3), (4, 1))
    assert layers.parameters == 3 * (2 + 1) + 1 * (4 + 1)
    a100 = default_model(load_hardware("a100"))
    large = DenseLayers((1024, 1024), (1024, 1024, 1024))
    times = dense_times(large, 8192, a100)
    # Two layers alike to one; and no layer is faster than its flops at the peak.
    assert times.top_forward_us == pytest.approx(2 * times.bottom_forward_us)
    assert times.bottom_forward_us > 2 * 8192 * 1024**2 / 156e12 * 1e6
    assert times.bottom_backward_us > times.bottom_forward_us
    with pytest.raises(ConfigError, match="bottom"):
        dense_times(DenseLayers((8,), (8, 1)), 1, a100)
