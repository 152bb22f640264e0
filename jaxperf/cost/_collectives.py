"""How long a collective takes: what NCCL would choose, and the time of each choice."""

from dataclasses import dataclass, fields
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxperf.cost._device import Device
from jaxperf.cost._protocols import (
    ALGORITHMS,
    CHOICE_ALGORITHM,
    CHOICE_PROTOCOL,
    PROTOCOLS,
    TREE_CORRECTION,
    TUNER_BASE_US,
    TUNER_BUS_SHARE,
    TUNER_LL_ALL_REDUCE_SHARE,
    TUNER_NETWORK_STEP_US,
    TUNER_NODE_STEP_US,
    TUNER_POST_US,
)
from jaxperf.cost._work import COLLECTIVE_OPERATIONS, PRECISIONS, Work

_ALL_REDUCE, _ALL_GATHER, _REDUCE_SCATTER, _ALL_TO_ALL, _BROADCAST, _SEND_RECEIVE = range(
    len(COLLECTIVE_OPERATIONS)
)
_SUMMED_IN_SWITCH = tuple(PRECISIONS.index(p) for p in ("fp64", "fp32", "tf32", "fp16", "bf16"))
_RING, _TREE, _NVLS, _DIRECT = (CHOICE_ALGORITHM == a for a in range(len(ALGORITHMS)))
_SIMPLE = CHOICE_PROTOCOL == PROTOCOLS.index("Simple")


@dataclass(frozen=True, eq=False)
class CollectiveParameters:
    """What is fitted of collectives; all positive. Latencies are shares of the device's own.

    Attributes:
        launch_share: (choices,) of the node's latency, whatever is sent.
        step_share: (choices,) of the node's latency, per step inside a node.
        full_step_share: (choices,) what such a step adds once its slices are full.
        network_step_share: (choices,) of the network's latency, per step between nodes.
        slice_bytes: (choices,) part of a rank at which slices are half full.
        bus_share: (choices,) of a link's bus bandwidth, that the choice reaches.
        part_share: (choices,) of the node's bus bandwidth, at which a rank's part alone passes:
            copied by a ring or tree, sent to one peer by a direct exchange.
        preference: (choices,) factor by which NCCL takes a choice to be slower than its tuner's
            published numbers say; has no effect on direct exchanges.
        sharpness: () of the choice; the higher, the harder it is.
    """

    launch_share: ArrayLike
    step_share: ArrayLike
    full_step_share: ArrayLike
    network_step_share: ArrayLike
    slice_bytes: ArrayLike
    bus_share: ArrayLike
    part_share: ArrayLike
    preference: ArrayLike
    sharpness: ArrayLike


jax.tree_util.register_dataclass(
    CollectiveParameters, [f.name for f in fields(CollectiveParameters)], []
)


def default_collective_parameters() -> CollectiveParameters:
    """Parameters for a device of which nothing but its hardware file is known.

    Returns:
        Float64 arrays. docs/cost.md says where they come from.

    Example:
        >>> default_collective_parameters().launch_share.shape
        (9,)
    """
    return CollectiveParameters(
        launch_share=np.array([0.58, 0.7, 1.3, 0.52, 0.68, 1.2, 2.0, 0.73, 1.3]),
        step_share=np.array([0.084, 0.094, 0.34, 0.093, 0.1, 0.25, 0.1, 0.024, 0.0093]),
        full_step_share=np.array([0.033, 0.038, 0.43, 0.047, 0.04, 0.4, 4.7, 0.0078, 0.28]),
        network_step_share=np.array([0.11, 0.17, 0.58, 0.21, 0.35, 0.58, 0.87, 0.11, 0.58]),
        slice_bytes=np.array([2.1e3, 31e3, 480e3, 4e3, 30e3, 1e6, 810e3, 4.3e3, 2e6]),
        bus_share=np.array([0.57, 1.0, 0.96, 0.25, 0.7, 0.9, 0.7, 0.31, 0.84]),
        part_share=np.array([0.5, 2.0, 1.6, 0.6, 1.5, 1.5, 2.6, 0.019, 2.7]),
        preference=np.array([0.91, 1.0, 1.0, 0.91, 0.95, 1.0, 1.2, 1.0, 1.0]),
        sharpness=np.float64(14.0),
    )


class _Group(NamedTuple):
    """Rows with what is unknown replaced, so that no NaN can reach a gradient. All (n,)."""

    known: jax.Array
    operation: jax.Array
    message_bytes: jax.Array
    ranks: jax.Array
    nodes: jax.Array
    in_switch: jax.Array  # the device can sum in its switch, and this type


class _Route(NamedTuple):
    """What each algorithm does: steps in turn, and bytes over a link by message bytes. (n, 4).

    Of two nodes each root of a double tree sends half; NCCL's tuner does not count on that.
    """

    node_steps: jax.Array
    network_steps: jax.Array
    node_traffic: jax.Array
    network_traffic: jax.Array
    tuner_network_traffic: jax.Array


def collective_us(parameters: CollectiveParameters, device: Device, work: Work) -> jax.Array:
    """Time of each collective once all its ranks are there.

    NCCL takes the algorithm and protocol that its tuner's published numbers make the quickest
    (NVIDIA/nccl src/graph/tuning.cc); here each has a weight, so that there are gradients. What it
    then takes is the choice's own time: launch + steps x latency + bytes / bandwidth.

    Args:
        parameters: fitted, or `default_collective_parameters()`.
        device: the machine.
        work: of n tasks; rows that are no collectives may hold anything.

    Returns:
        (n,) microseconds; NaN where the operation, bytes, ranks or stride are unknown.

    Example:
        >>> from dataclasses import replace
        >>> from jaxperf.cost import unknown_work
        >>> device = Device(np.ones(8), 1.0, 1.0, 108.0, 8.0, 234e9, 13.0, 0.0, 21e9, 24.0)
        >>> gather = np.array([COLLECTIVE_OPERATIONS.index("all_gather")])
        >>> work = replace(
        ...     unknown_work(1), operation=gather, message_bytes=2.0**29 * np.ones(1),
        ...     ranks=np.array([8.0]), stride=np.ones(1))
        >>> [f"{us:.0f}" for us in collective_us(default_collective_parameters(), device, work)]
        ['2312']
    """
    group = _group(device, work)
    times_us, weights = _times_and_weights(parameters, device, group)
    return jnp.where(group.known, jnp.sum(times_us * weights, axis=1), jnp.nan)


def chosen_protocol(parameters: CollectiveParameters, device: Device, work: Work) -> np.ndarray:
    """Which algorithm and protocol the model takes NCCL to choose.

    Args:
        parameters: as of `collective_us`.
        device: the machine.
        work: of n tasks.

    Returns:
        (n,) int8, index into `CHOICES`; -1 where `collective_us` is NaN.

    Example:
        >>> from dataclasses import replace
        >>> from jaxperf.cost import unknown_work
        >>> device = Device(np.ones(8), 1.0, 1.0, 108.0, 8.0, 234e9, 13.0, 0.0, 21e9, 24.0)
        >>> work = replace(
        ...     unknown_work(2), operation=np.zeros(2, np.int8), message_bytes=np.array([1e3, 1e9]),
        ...     ranks=np.array([8.0, 8.0]), stride=np.ones(2))
        >>> from jaxperf.cost._protocols import CHOICES
        >>> [CHOICES[i] for i in chosen_protocol(default_collective_parameters(), device, work)]
        [('ring', 'LL'), ('ring', 'Simple')]
    """
    group = _group(device, work)
    _, weights = _times_and_weights(parameters, device, group)
    best = np.asarray(jnp.argmax(weights, axis=1))
    return np.where(np.asarray(group.known), best, -1).astype(np.int8)


def _times_and_weights(parameters, device, group) -> tuple[jax.Array, jax.Array]:
    """(n, choices) time of each choice, and how much of the choice falls on it."""
    route = _route(group)
    times_us = _choice_us(parameters, device, group, route)
    believed_us = _tuner_us(device, group, route)
    believed_us = believed_us * _float(parameters.preference)[None, :]
    # The tuner never weighs the protocols of a direct exchange; the quicker is taken.
    believed_us = jnp.where(jnp.asarray(_DIRECT)[None, :], times_us, believed_us)
    score = -_float(parameters.sharpness) * jnp.log(believed_us)
    weights = jax.nn.softmax(jnp.where(_allowed(group), score, -jnp.inf), axis=1)
    return times_us, weights


def _group(device: Device, work: Work) -> _Group:
    operation = jnp.asarray(work.operation, jnp.int32)
    size, ranks, stride = (_float(c) for c in (work.message_bytes, work.ranks, work.stride))
    known = (operation >= 0) & (size >= 0) & (ranks >= 1) & ((stride > 0) | (ranks == 1))
    size, ranks = jnp.where(known, size, 1.0), jnp.where(known, ranks, 1.0)
    stride = jnp.where(known & (ranks > 1), stride, 1.0)
    local = jnp.clip(_float(device.gpus_per_node) / stride, 1.0, ranks)
    # A count has no gradient; the tolerance keeps a full node from being counted as two.
    nodes = jnp.ceil(jax.lax.stop_gradient(ranks / local) - 1e-3)
    switch = _float(device.node_sums_in_switch) > 0.5
    precision = jnp.asarray(work.precision, jnp.int32)
    summed = (precision < 0) | jnp.isin(precision, jnp.asarray(_SUMMED_IN_SWITCH, jnp.int32))
    operation = jnp.where(known, operation, _ALL_REDUCE)
    return _Group(known, operation, size, ranks, nodes, switch & summed)


def _route(group: _Group) -> _Route:
    """Steps and traffic, from NCCL's tuner; of direct exchanges, from who has what for whom."""
    ranks, nodes, operation = group.ranks, group.nodes, group.operation
    local = ranks / nodes
    one, none = jnp.ones_like(ranks), jnp.zeros_like(ranks)
    others, other_nodes = ranks - 1, nodes - 1
    passes = jnp.where(operation == _ALL_REDUCE, 2.0, 1.0)
    inside, between = local > 1, nodes > 1
    ring = jnp.where(operation == _BROADCAST, jnp.minimum(others, 1.0), passes * others / ranks)
    peers = _peers(group)
    depth = jnp.log2(nodes)
    # A node's ranks share what a ring or tree sends between nodes, each with its own adapter.
    shared = jnp.where(between, 1 / local, 0.0)
    return _Route(
        _by_algorithm(
            passes * (others - other_nodes), 2 * (local - 1), jnp.where(inside, one, none), others
        ),
        _by_algorithm(passes * other_nodes, 2 * depth, 2 * depth, jnp.where(between, one, none)),
        _by_algorithm(
            jnp.where(inside, ring, none),
            jnp.where(inside, 2 * one, none),
            jnp.where(inside, one, none),
            (local - 1) / peers,
        ),
        _by_algorithm(
            ring * shared,
            2 * other_nodes / nodes * shared,
            2 * other_nodes / nodes * shared,
            (ranks - local) / peers,
        ),
        _by_algorithm(ring * shared, 2 * shared, ring * shared, (ranks - local) / peers),
    )


def _peers(group: _Group) -> jax.Array:
    """(n,) in how many parts a message falls: one per rank, but of a pair all is for the peer."""
    others = jnp.maximum(group.ranks - 1, 1.0)
    return jnp.where(group.operation == _SEND_RECEIVE, others, group.ranks)


def _choice_us(parameters, device, group, route) -> jax.Array:
    """(n, choices) launch + steps x latency + bytes / bandwidth, of the busier link."""
    p = parameters
    part_bytes = (group.message_bytes / _peers(group))[:, None]
    filled = part_bytes / _float(p.slice_bytes)[None, :]
    step_share = _float(p.step_share)[None, :]
    step_share = step_share + _float(p.full_step_share)[None, :] * filled / (1 + filled)
    launched = _float(p.launch_share)[None, :] + _by_choice(route.node_steps) * step_share
    networked = _by_choice(route.network_steps) * _float(p.network_step_share)[None, :]
    latency_us = _float(device.node_latency_us) * launched
    latency_us = latency_us + _float(device.network_latency_us) * networked

    share = _float(p.bus_share)[None, :]
    node_bytes = _by_choice(route.node_traffic) * group.message_bytes[:, None] / share
    # Of a pair neither has a part that stays and is copied.
    pair = (group.operation == _SEND_RECEIVE)[:, None] & jnp.asarray(_SIMPLE)[None, :]
    part_bytes = jnp.where((group.ranks > 1)[:, None] & ~pair, part_bytes, 0.0)
    node_bytes = node_bytes + part_bytes / _float(p.part_share)[None, :]
    network_bytes = _by_choice(route.network_traffic) * group.message_bytes[:, None] / share
    node_s = node_bytes / _float(device.node_bus_bytes_per_s)
    network_s = network_bytes / _float(device.network_bus_bytes_per_s)
    return latency_us + jnp.maximum(node_s, network_s) * 1e6


def _tuner_us(device, group, route) -> jax.Array:
    """(n, choices) what NCCL's tuner expects, in its published microseconds."""
    between = (group.nodes > 1)[:, None]
    post_us = jnp.where(between, jnp.asarray(TUNER_POST_US)[None, :], 0.0)
    step_us = jnp.maximum(jnp.asarray(TUNER_NODE_STEP_US)[None, :], post_us)
    latency_us = jnp.asarray(TUNER_BASE_US)[None, :] + _by_choice(route.node_steps) * step_us
    network_us = _by_choice(route.network_steps) * jnp.asarray(TUNER_NETWORK_STEP_US)[None, :]

    quarter = (group.operation == _ALL_REDUCE)[:, None] | between
    ring_ll = jnp.asarray(_RING & (CHOICE_PROTOCOL == PROTOCOLS.index("LL")))[None, :]
    share = jnp.where(
        quarter & ring_ll, TUNER_LL_ALL_REDUCE_SHARE, jnp.asarray(TUNER_BUS_SHARE)[None, :]
    )
    share = share * _tree_correction(group.message_bytes)
    node_s = _by_choice(route.node_traffic) / _float(device.node_bus_bytes_per_s)
    network_s = _by_choice(route.tuner_network_traffic) / _float(device.network_bus_bytes_per_s)
    transfer_us = group.message_bytes[:, None] * jnp.maximum(node_s, network_s) / share * 1e6
    return latency_us + network_us + transfer_us


def _tree_correction(message_bytes: jax.Array) -> jax.Array:
    """(n, choices) share of its bandwidth that NCCL takes a tree to reach; 1 of the others."""
    powers = jnp.log2(jnp.maximum(message_bytes, 64.0) / 64.0)
    grid = jnp.arange(TREE_CORRECTION.shape[1], dtype=powers.dtype)
    trees = [jnp.interp(powers, grid, jnp.asarray(row)) for row in TREE_CORRECTION]
    by_protocol = _columns(jnp.stack(trees, axis=1), CHOICE_PROTOCOL)
    return jnp.where(jnp.asarray(_TREE)[None, :], by_protocol, 1.0)


def _allowed(group: _Group) -> jax.Array:
    """(n, choices) what NCCL has for the operation."""
    operation = group.operation
    direct = (operation == _ALL_TO_ALL) | (operation == _SEND_RECEIVE)
    tree = (operation == _ALL_REDUCE) & (group.ranks > 2)
    nvls = tree & (group.ranks > 2 * group.nodes) & group.in_switch
    return _by_choice(_by_algorithm(~direct, tree, nvls, direct))


def _by_algorithm(ring, tree, nvls, direct) -> jax.Array:
    return jnp.stack([ring, tree, nvls, direct], axis=1)


def _by_choice(by_algorithm: jax.Array) -> jax.Array:
    return _columns(by_algorithm, CHOICE_ALGORITHM)


def _columns(array: jax.Array, index: np.ndarray) -> jax.Array:
    # An array as index fails where one process has compiled for both precisions (jax 0.10).
    return jnp.stack([array[:, column] for column in index.tolist()], axis=1)


def _float(value: ArrayLike) -> jax.Array:
    return jnp.asarray(value, jnp.result_type(float))
