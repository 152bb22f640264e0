import json
from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.embedding.hierarchy import (
    HierarchyRules,
    Outcome,
    design_gradient,
    evaluate,
    evaluate_designs,
    repeat_design,
    stack_curves,
    zipf_curve,
)
from jaxperf.embedding.hierarchy._flows import Flows, lookup_bytes, update_bytes
from jaxperf.errors import ConfigError
from tests.embedding.hierarchy_designs import DESIGN, MODEL, with_tiers

TIERS = DESIGN.machine.tiers
LASTING = with_tiers(DESIGN, drive_writes_per_day=np.full(3, np.inf))
_RULES = HierarchyRules()


def outcomes(designs, rules=_RULES):
    stacked = jax.tree.map(
        lambda *leaves: np.stack([np.asarray(x, float) for x in leaves]), *designs
    )
    result = evaluate_designs(MODEL, stacked, rules)
    return [jax.tree.map(lambda leaf, i=i: leaf[i], result) for i in range(len(designs))]


def outcome(design, rules=_RULES):
    return outcomes([design], rules)[0]


def test_a_step_with_prefetch_is_the_device_and_what_it_waits_for():
    found = outcome(LASTING)
    device_us = sum(
        (found.dense_us, found.lookup_us, found.update_us, found.fill_us, found.communication_us)
    )
    assert found.prefetch_us == found.busy_us[1:].max()
    assert found.exposed_us == pytest.approx(found.prefetch_us - (device_us - found.update_us))
    assert found.step_us == pytest.approx(device_us + found.exposed_us)
    assert found.samples_per_s == pytest.approx(8192e6 / found.step_us)


@pytest.mark.slow
def test_without_prefetch_everything_adds_up():
    alone = jax.jit(evaluate)(MODEL, LASTING, replace(_RULES, prefetch=False))
    overlapped = outcome(LASTING)
    device_us = overlapped.step_us - overlapped.exposed_us
    assert alone.exposed_us == pytest.approx(overlapped.busy_us[1:].sum())
    assert alone.step_us == pytest.approx(device_us + overlapped.busy_us[1:].sum())


def test_no_step_is_faster_than_the_endurance_of_drives():
    found = outcome(DESIGN)
    assert found.step_us == found.endurance_us > outcome(LASTING).step_us
    assert found.rated_writes.max() == pytest.approx(1.0)
    assert found.drive_writes_per_day[2] == pytest.approx(1.3)
    assert found.life_years[2] == pytest.approx(5.0)
    assert np.isinf(found.life_years[1])


def test_cost_and_power_by_hand():
    found = outcome(LASTING)
    assert found.cost_usd == pytest.approx(2 * (150e3 + 24 * 256 + 8 * 900))
    device = 1 - found.exposed_us / found.step_us
    busy = found.busy_us / found.step_us
    node_w = 1500 + 8 * (55 + device * 345) + 24 * (1.5 + busy[1] * 3.5) + 8 * (4 + busy[2] * 8)
    assert found.power_w == pytest.approx(2 * node_w)
    assert found.energy_j_per_sample == pytest.approx(found.power_w / found.samples_per_s)


def test_bytes_used_by_hand():
    found = outcome(DESIGN)
    # The drives keep a log-structured store, 1.11 times the bytes of its rows.
    drives = (0.7 * 20e6 + 5e6) * 64 * 4 * 1.11
    host = (0.3 * 20e6 + 2e6 + 1e6) * 64 * 4 + 0.05 * 1.536e12 * 2
    assert found.used_bytes[1:] == pytest.approx([host, drives])
    assert found.free_bytes[2] == pytest.approx(2 * 61.44e12 - drives)


def test_hit_ratios_are_of_what_comes_as_far_and_missing_where_nothing_does():
    found = outcome(DESIGN)
    assert found.hit_ratio[2] == pytest.approx(1.0)
    home = np.array([[1.0, 0.0, 0.0]] * 4)
    in_hbm = outcome(replace(DESIGN, home_share=home, cached_rows=np.zeros((4, 3))))
    assert in_hbm.hit_ratio[0] == pytest.approx(1.0)
    assert np.isnan(in_hbm.hit_ratio[1:]).all()


@settings(max_examples=10)
@given(st.lists(st.floats(1, 64), min_size=2, max_size=8))
def test_of_more_servers_each_has_less_to_do(nodes):
    """Their collectives alone may take longer."""
    found = outcomes([replace(LASTING, nodes=n) for n in sorted(nodes)])
    for name in ("dense_us", "lookup_us", "update_us", "fill_us", "prefetch_us"):
        assert np.all(np.diff([getattr(o, name) for o in found]) <= 0), name


@settings(max_examples=10)
@given(st.lists(st.floats(0.5, 4), min_size=2, max_size=8))
def test_more_bandwidth_of_drives_is_never_slower(factors):
    designs = [
        with_tiers(LASTING, read_bytes_per_s=np.multiply(TIERS.read_bytes_per_s, [1, 1, factor]))
        for factor in sorted(factors)
    ]
    steps = np.array([o.step_us for o in outcomes(designs)])
    assert np.all(np.diff(steps) <= 1e-9 * steps[0])


DIFFERENTIATED = (
    "cached_rows",
    "machine.tiers.read_bytes_per_s",
    "machine.tiers.write_bytes_per_s",
    "machine.tiers.link_bytes_per_s",
    "machine.tiers.read_iops",
    "machine.tiers.latency_us",
    "machine.tiers.capacity_bytes",
    "machine.tiers.drive_writes_per_day",
    "machine.tiers.price_usd_per_byte",
    "machine.tiers.active_w",
    "machine.price_usd",
    "machine.dense_flops_per_s",
    "machine.device.network_bus_bytes_per_s",
    "machine.gpu_active_w",
    "batch_size",
)


def read(design, path):
    for name in path.split("."):
        design = getattr(design, name)
    return np.asarray(design, float)


def written(design, path, value):
    name, _, rest = path.partition(".")
    inside = value if not rest else written(getattr(design, name), rest, value)
    return replace(design, **{name: inside})


def numbers():
    """Each finite number that is not 0: its path and place."""
    for path in DIFFERENTIATED:
        values = read(DESIGN, path)
        for place in np.ndindex(values.shape):
            if np.isfinite(values[place]) and values[place] != 0:
                yield path, place


@pytest.mark.slow
@pytest.mark.parametrize("lasting", [True, False])
def test_gradients_are_those_of_finite_differences(lasting):
    base = LASTING if lasting else DESIGN
    places = [(p, place) for p, place in numbers() if np.isfinite(read(base, p)[place])]
    quantities = ("step_us", "cost_usd", "power_w", "energy_j_per_sample", "memory_usd")
    steps, designs = [], []
    for path, place in places:
        values = read(base, path)
        steps.append(1e-5 * values[place])
        for sign in (1, -1):
            moved = values.copy()
            moved[place] += sign * steps[-1]
            designs.append(written(base, path, moved))
    # By 64 as all other tests, for one compilation.
    found = [o for i in range(0, len(designs), 64) for o in outcomes(designs[i : i + 64])]
    for quantity in quantities:
        gradient = design_gradient(MODEL, base, quantity)
        values = np.array([getattr(o, quantity) for o in found])
        by_difference = (values[::2] - values[1::2]) / (2 * np.array(steps))
        by_gradient = np.array([read(gradient, path)[place] for path, place in places])
        # Below this a difference of two values of 1e-16 precision says nothing.
        noise = 1e-10 * np.abs(values[0]) / np.abs(steps)
        wrong = np.abs(by_gradient - by_difference) > 1e-4 * np.abs(by_difference) + noise
        assert not wrong.any(), [(quantity, places[i]) for i in np.flatnonzero(wrong)]


def test_many_designs_at_once_know_nothing_of_each_other():
    designs = replace(repeat_design(DESIGN, 40), nodes=np.arange(1.0, 41.0))
    backwards = jax.tree.map(lambda leaf: leaf[::-1], designs)
    once, again = evaluate_designs(MODEL, designs), evaluate_designs(MODEL, backwards)
    for field in fields(Outcome):
        one, other = getattr(once, field.name), getattr(again, field.name)[::-1]
        # Which lane of a vector an element falls into changes its last digits.
        np.testing.assert_allclose(one, other, rtol=1e-9, err_msg=field.name)


def test_designs_of_several_numbers_are_refused():
    with pytest.raises(ConfigError, match="one leading axis"):
        evaluate_designs(MODEL, replace(repeat_design(DESIGN, 3), nodes=np.ones(2)))
    with pytest.raises(ConfigError, match="no such quantity"):
        design_gradient(MODEL, DESIGN, "speed")


@pytest.mark.parametrize(("optimizer", "state"), [("sgd", 0.0), ("adam", 1024.0)])
def test_lookups_of_an_h100_take_what_was_measured(shared, optimizer, state):
    """Check value 8: 1,048,570 lookups of rows of 512 bytes, each written out again."""
    path = shared / "dlrm" / "bench" / "nvidia_dynamicemb_h100_benchmark_results.json"
    results = json.loads(path.read_text())
    measured = next(
        r
        for r in results
        if r["label"] == f"T10_totalB1048570_D128_{optimizer}_gpu_pool=none_cap=1M"
    )
    lookups, distinct = jnp.array([[measured["avg_n_total"]], [measured["avg_n_unique"]]])
    nothing = jnp.zeros((1, 1))
    flows = Flows(lookups, distinct, nothing, nothing, nothing, nothing, lookups, lookups)
    model = replace(
        MODEL,
        rows=np.array([1.6e6]),
        pooling=np.ones(1),
        dimension=np.array([128.0]),
        weight_bytes=np.array([512.0]),
        state_bytes=np.array([state]),
        curves=stack_curves([zipf_curve(100, 1.0)]),
    )
    design = replace(DESIGN, batch_size=lookups[0])
    rules = replace(_RULES, pooled_element_bytes=4.0)
    forward_ms = float(lookup_bytes(model, flows, design, rules)) / 3.35e12 * 1e3
    backward_ms = float(update_bytes(model, flows, design, rules)) / 3.35e12 * 1e3
    assert forward_ms == pytest.approx(measured["trc_forward_ms"], rel=0.08)
    assert backward_ms == pytest.approx(measured["trc_backward_ms"], rel=0.15)
