"""Collectives: bandwidths of nccl-tests, time against a formula by hand, properties, gradients."""

import gzip
import json
import math
from csv import DictReader
from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.cost._collectives import (
    CollectiveParameters,
    chosen_protocol,
    collective_us,
    default_collective_parameters,
)
from jaxperf.cost._device import Device
from jaxperf.cost._protocols import (
    CHOICES,
    algorithm_bandwidth_bytes_per_s,
    bus_bandwidth_bytes_per_s,
)
from jaxperf.cost._work import (
    COLLECTIVE_OPERATIONS,
    PRECISIONS,
    Work,
    select_work,
    unknown_work,
)
from jaxperf.errors import ConfigError

PARAMETERS = default_collective_parameters()
PEAKS = np.array([67e12, 67e12, 495e12, 989e12, 989e12, 1979e12, 1979e12, 1979e12])
HOPPER = Device(PEAKS, *(np.float64(x) for x in (3.35e12, 50e6, 132, 8, 390e9, 8.5, 1, 42e9, 24.0)))
AMPERE = replace(HOPPER, node_sums_in_switch=np.float64(0))
NAMES = {
    "allreduce": "all_reduce",
    "_allgather_base": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "all_to_all": "all_to_all",
    "broadcast": "broadcast",
    "send": "send_receive",
}
ELEMENT_BYTES = {"Float": 4, "Half": 2, "BFloat16": 2, "Byte": 1}


def work_of(operation, message_bytes, ranks, stride=1.0, precision="bf16"):
    """One row a message size."""
    size = np.atleast_1d(np.asarray(message_bytes, np.float64))
    rows = len(size)
    return replace(
        unknown_work(rows),
        precision=np.full(rows, PRECISIONS.index(precision), np.int8),
        operation=np.full(rows, COLLECTIVE_OPERATIONS.index(operation), np.int8),
        message_bytes=size,
        ranks=np.full(rows, float(ranks)),
        stride=np.full(rows, float(stride)),
    )


def only(algorithm, protocol):
    """Parameters under which nothing else is chosen."""
    preference = np.full(len(CHOICES), 1e30)
    preference[CHOICES.index((algorithm, protocol))] = 1e-30
    return replace(PARAMETERS, preference=preference)


@jax.jit
def _compiled(parameters, device, columns):
    return collective_us(parameters, device, Work(**columns))


def us(parameters, device, work):
    """Times of the rows, padded to one shape so that the model is compiled once."""
    padded = select_work(work, np.arange(256) % len(work))
    return np.asarray(_compiled(parameters, device, vars(padded)))[: len(work)]


def by_hand(choice, operation, message_bytes, ranks, nodes):
    """Time of one choice in scalar arithmetic; nodes are full and neighbours adjacent."""
    p = {f.name: getattr(PARAMETERS, f.name) for f in fields(CollectiveParameters)}
    at = {name: value[CHOICES.index(choice)] for name, value in p.items() if np.ndim(value)}
    local = ranks // nodes
    peer_bytes = message_bytes / (ranks - 1 if operation == "send_receive" else ranks)
    if choice[0] == "ring":
        passes = 2 if operation == "all_reduce" else 1
        sent = message_bytes if operation == "broadcast" else passes * (ranks - 1) * peer_bytes
        node_steps, network_steps = passes * (ranks - nodes), passes * (nodes - 1)
        node_bytes = sent if local > 1 else 0
        network_bytes = sent / local if nodes > 1 else 0
    elif choice[0] == "direct":
        node_steps, network_steps = ranks - 1, 1 if nodes > 1 else 0
        node_bytes, network_bytes = (local - 1) * peer_bytes, (ranks - local) * peer_bytes
    else:
        network_steps = 2 * math.log2(nodes)
        network_bytes = 2 * (nodes - 1) / nodes * message_bytes / local
        chain = choice[0] == "tree"
        node_steps = 2 * (local - 1) if chain else int(local > 1)
        node_bytes = message_bytes * (2 if chain else 1) if local > 1 else 0
    full = peer_bytes / (peer_bytes + at["slice_bytes"])
    step_us = 8.5 * (at["step_share"] + at["full_step_share"] * full)
    latency_us = 8.5 * at["launch_share"] + node_steps * step_us
    latency_us += network_steps * 24.0 * at["network_step_share"]
    node_s = node_bytes / at["bus_share"] / 390e9
    if not (operation == "send_receive" and choice[1] == "Simple"):
        node_s += peer_bytes / at["part_share"] / 390e9
    network_s = network_bytes / at["bus_share"] / 42e9
    return latency_us + max(node_s, network_s) * 1e6


@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize(
    ("operation", "choice"),
    [("all_reduce", choice) for choice in CHOICES if choice[0] != "direct"]
    + [
        (operation, ("ring", p))
        for operation in ("all_gather", "broadcast")
        for p in ("LL", "Simple")
    ]
    + [("reduce_scatter", ("ring", "LL128"))],
)
def test_time_of_a_choice_is_that_of_its_formula_by_hand(operation, choice, nodes):
    size = np.array([1e2, 1e5, 1e9])
    time_us = us(only(*choice), HOPPER, work_of(operation, size, 8 * nodes))
    expected = [by_hand(choice, operation, float(s), 8 * nodes, nodes) for s in size]
    np.testing.assert_allclose(time_us, expected, rtol=1e-9)


@pytest.mark.parametrize(("operation", "ranks"), [("all_to_all", 32), ("send_receive", 2)])
@pytest.mark.parametrize("size", [1e2, 1e9])
def test_direct_exchange_takes_the_quicker_protocol(operation, ranks, size):
    nodes = max(1, ranks // 8)
    sharp = replace(PARAMETERS, sharpness=np.float64(1e3))
    expected = min(by_hand(("direct", p), operation, size, ranks, nodes) for p in ("LL", "Simple"))
    time_us = us(sharp, HOPPER, work_of(operation, size, ranks))
    np.testing.assert_allclose(time_us, [expected], rtol=1e-9)


def test_group_across_nodes_shares_as_many_adapters_as_it_has_ranks_in_a_node():
    simple = only("ring", "Simple")
    size = 1e12
    one = us(simple, HOPPER, work_of("all_gather", size, 8, stride=8))
    two = us(simple, HOPPER, work_of("all_gather", size, 8, stride=4))
    np.testing.assert_allclose(one / two, 2.0, rtol=1e-4)


def test_pair_in_different_nodes_uses_the_network():
    near, far = (us(PARAMETERS, HOPPER, work_of("send_receive", 1e9, 2, s)) for s in (1, 8))
    np.testing.assert_allclose(far / near, 390 / 42, rtol=0.02)


def test_larger_node_takes_a_group_off_the_network():
    work = work_of("all_gather", 1e9, 16)
    small = us(PARAMETERS, HOPPER, work)
    large = us(PARAMETERS, replace(HOPPER, gpus_per_node=np.float64(72)), work)
    assert large[0] < 0.9 * small[0]


@pytest.mark.parametrize("operation", COLLECTIVE_OPERATIONS)
def test_group_of_one_costs_a_launch_alone(operation):
    time_us = us(PARAMETERS, HOPPER, work_of(operation, [1.0, 1e10], 1, stride=np.nan))
    np.testing.assert_allclose(time_us[0], time_us[1])
    assert 0 < time_us[0] < 2 * 8.5


def test_unknown_rows_are_nan_and_no_gradient_is():
    work = work_of("all_reduce", [1e6, np.nan, 1e6, 1e6, 1e6], 8)
    for column, row in (("ranks", 2), ("stride", 3)):
        getattr(work, column)[row] = np.nan
    work.operation[4] = -1

    def total(parameters, device):
        time_us = collective_us(parameters, device, work)
        return jnp.sum(jnp.where(jnp.isnan(time_us), 0.0, time_us))

    assert np.isnan(us(PARAMETERS, HOPPER, work)).tolist() == [False] + [True] * 4
    for leaf in jax.tree.leaves(jax.jit(jax.grad(total, (0, 1)))(PARAMETERS, HOPPER)):
        assert np.isfinite(leaf).all()


OPERATIONS = st.sampled_from(COLLECTIVE_OPERATIONS)
GROUPS = st.sampled_from([(2, 1), (4, 1), (8, 1), (16, 1), (64, 1), (2, 8), (8, 8), (16, 4)])


# Where NCCL changes to a choice that is in truth quicker, time may fall a little: hence the slack.
@given(OPERATIONS, GROUPS)
@settings(max_examples=25)
def test_time_grows_with_bytes(operation, group):
    time_us = us(PARAMETERS, HOPPER, work_of(operation, np.logspace(1, 10, 200), *group))
    highest = np.maximum.accumulate(time_us)
    assert (time_us[1:] > 0.99 * highest[:-1]).all()
    assert time_us[-1] > 2 * time_us[0]


@given(OPERATIONS, GROUPS, st.floats(1.01, 4.0))
@settings(max_examples=25)
def test_quicker_links_are_never_slower(operation, group, factor):
    work = work_of(operation, np.logspace(1, 10, 50), *group)
    before = us(PARAMETERS, HOPPER, work)
    for link in ("node", "network"):
        for leaf, scale, slack in (
            ("bus_bytes_per_s", factor, 1.03),
            ("latency_us", 1 / factor, 1),
        ):
            name = f"{link}_{leaf}"
            device = replace(HOPPER, **{name: getattr(HOPPER, name) * scale})
            assert (us(PARAMETERS, device, work) <= before * slack * (1 + 1e-12)).all()


# Of small messages a tree over more nodes may be quicker than the chain in a larger one; and NCCL
# may choose better for more nodes, hence the slack.
@pytest.mark.parametrize("operation", [o for o in COLLECTIVE_OPERATIONS if o != "send_receive"])
def test_more_nodes_are_never_quicker_for_large_messages(operation):
    work = work_of(operation, np.logspace(7.5, 10, 20), 64)
    node_sizes = [64, 32, 16, 8, 4, 2, 1]
    devices = [replace(HOPPER, gpus_per_node=np.float64(size)) for size in node_sizes]
    times = np.array([us(PARAMETERS, device, work) for device in devices])
    assert (times[1:] >= 0.98 * times[:-1]).all()


def test_gradients_of_all_leaves_are_finite_differences():
    work = work_of("all_reduce", [3e3, 2e6, 3e8, 1e9, 5e6, 7e7, 1e4], 16)
    for row, name in enumerate(COLLECTIVE_OPERATIONS):
        work.operation[row] = COLLECTIVE_OPERATIONS.index(name)
    work.ranks[5] = 2.0
    work.stride[:] = [1, 4, 1, 1, 1, 8, 2]

    @jax.jit
    def total(parameters, device):
        return jnp.sum(jnp.log(collective_us(parameters, device, work)))

    at = (PARAMETERS, HOPPER)
    leaves, tree = jax.tree.flatten(at)
    gradients = jax.tree.leaves(jax.jit(jax.grad(total, (0, 1)))(*at))
    for i, (leaf, gradient) in enumerate(zip(leaves, gradients, strict=True)):
        for j in range(np.size(leaf)):
            values = []
            for sign in (1, -1):
                moved = np.array(leaf, np.float64)
                moved.flat[j] *= 1 + sign * 1e-6
                values.append(
                    total(*jax.tree.unflatten(tree, [*leaves[:i], moved, *leaves[i + 1 :]]))
                )
            difference = (values[0] - values[1]) / (2e-6 * np.ravel(leaf)[j])
            scale = 1 / np.ravel(leaf)[j]
            np.testing.assert_allclose(
                np.ravel(gradient)[j], difference, rtol=1e-5, atol=1e-7 * scale
            )


def test_switch_sums_only_where_the_device_can_and_the_type_is_summed():
    work = work_of("all_reduce", np.full(4, 3e7), 8)
    work.precision[1] = PRECISIONS.index("int8")
    work.ranks[2] = 2.0
    work.precision[3] = -1
    for device, expected in (
        (HOPPER, ["nvls", "ring", "ring", "nvls"]),
        (AMPERE, ["ring", "ring", "ring", "ring"]),
    ):
        chosen = chosen_protocol(PARAMETERS, device, work)
        assert [CHOICES[i][0] for i in chosen] == expected


def test_protocols_follow_the_size_of_a_message():
    work = work_of("all_gather", [1e3, np.nan, 6e6, 1e9], 8)
    chosen = chosen_protocol(PARAMETERS, HOPPER, work)
    assert chosen[1] == -1
    assert [CHOICES[i][1] for i in chosen[[0, 2, 3]]] == ["LL", "LL128", "Simple"]


def test_bandwidths_are_those_of_the_shared_case(shared):
    folder = shared / "cases" / "17-bus-bandwidth"
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    expected = json.loads((folder / "expected.json").read_text())["values"]
    for value in expected:
        index, what = value["name"].split(".")
        arguments = events[int(index)]["args"]
        elements = max(arguments["In msg nelems"], arguments["Out msg nelems"])
        function = {"algbw": algorithm_bandwidth_bytes_per_s, "busbw": bus_bandwidth_bytes_per_s}
        found = function[what](
            NAMES[arguments["Collective name"]],
            elements * ELEMENT_BYTES[arguments["dtype"]],
            arguments["Group size"],
            events[int(index)]["dur"],
        )
        if value["value"] is None:
            assert np.isnan(found)
        else:
            assert abs(float(found) / 1e9 - value["value"]) <= value["tol_abs"]


def test_bandwidth_of_columns_is_nan_where_something_is_unknown():
    operation = np.array([0, 1, -1, 0, 0, 0], np.int8)
    ranks = np.array([8.0, 8.0, 8.0, np.nan, 8.0, 8.0])
    time_us = np.array([1e3, 1e3, 1e3, 1e3, np.nan, 0.0])
    bus = bus_bandwidth_bytes_per_s(operation, 8e6, ranks, time_us)
    np.testing.assert_allclose(bus, [14e9, 7e9, *[np.nan] * 4])


@pytest.mark.parametrize("operation", ["gossip", np.array([6]), np.array([-2])])
def test_bandwidth_of_no_such_operation_is_refused(operation):
    with pytest.raises(ConfigError, match=r"no such collective operation.*all_reduce"):
        bus_bandwidth_bytes_per_s(operation, 1.0, 2.0, 1.0)


@pytest.mark.parametrize(
    ("folder", "device", "bus", "latency_us", "limit"),
    [
        ("h100_sxm/comm/nccl/2.29.2", HOPPER, 390e9, 8.5, 0.09),
        ("a100_sxm/comm/nccl/2.27.3", AMPERE, 234e9, 13.0, 0.12),
    ],
)
def test_defaults_are_near_measured_collectives(shared, folder, device, bus, latency_us, limit):
    path = shared / "groundtruth" / "aiconfigurator" / folder / "nccl_perf.csv.gz"
    device = replace(device, node_bus_bytes_per_s=bus, node_latency_us=latency_us)
    with gzip.open(path, "rt") as file:
        rows = list(DictReader(file))
    for name in ("all_reduce", "all_gather", "reduce_scatter", "alltoall"):
        errors = []
        for ranks in (2, 4, 8):
            for dtype, precision, element in (("half", "fp16", 2), ("int8", "int8", 1)):
                key = (name, dtype, str(ranks))
                some = [r for r in rows if (r["op_name"], r["nccl_dtype"], r["num_gpus"]) == key]
                size = [float(r["message_size"]) * element for r in some]
                measured_us = np.array([float(r["latency"]) * 1e3 for r in some])
                operation = name.replace("alltoall", "all_to_all")
                work = work_of(operation, size, ranks, precision=precision)
                errors += list(np.abs(us(PARAMETERS, device, work) / measured_us - 1))
        assert len(errors) == 126
        assert np.mean(errors) < limit
