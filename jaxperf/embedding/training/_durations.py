"""Durations of the parts of a training step: those of a design of the hierarchy, rank by rank."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from jaxperf.cost import (
    COLLECTIVE_OPERATIONS,
    Device,
    collective_us,
    default_collective_parameters,
    unknown_work,
)
from jaxperf.embedding.hierarchy._flows import Flows, flows_of
from jaxperf.embedding.hierarchy._model import Design, HierarchyRules, ModelArrays
from jaxperf.embedding.hierarchy._step import Outcome, evaluate
from jaxperf.embedding.training._dense import DenseTimes
from jaxperf.embedding.training._parts import StepParts
from jaxperf.errors import ConfigError
from jaxperf.replay import double_precision

_GRADIENT_BYTES = 4.0
_SENT = tuple(COLLECTIVE_OPERATIONS.index(name) for name in ("all_to_all",) * 2 + ("all_reduce",))
_FORWARD = 1 / 3
_BOTTOM = 0.1


@dataclass(frozen=True, eq=False)
class _Loads:
    """What each rank has to do, by what it would have if all had the same.

    Attributes:
        lookups: (ranks,) bytes of the device's memory.
        fills: (ranks,) bytes of rows that enter the device's cache.
        tiers: (ranks, tiers) bytes that the rank's server takes from each slower tier.
        pooled_bytes: () of the rank that sends or receives most.
        index_bytes: () of the rank that sends or receives most.
    """

    lookups: np.ndarray
    fills: np.ndarray
    tiers: np.ndarray
    pooled_bytes: float
    index_bytes: float


def step_parts(
    model: ModelArrays,
    design: Design,
    rules: HierarchyRules,
    *,
    held: ArrayLike | None = None,
    dense: DenseTimes | None = None,
) -> StepParts:
    """How long each part of a step of a design takes.

    Lookups, updates, fills and fetches are those of the closed form (`evaluate`), which are of
    ranks that share the work evenly, times what each rank has of them. An all-to-all takes as long
    as for the rank that sends or receives most. That drives may not be written more than they are
    rated for (`endurance_us`) is left out.

    Args:
        model: the tables.
        design: what is where.
        rules: how the hierarchy is run.
        held: (ranks, tables) part of each table's rows that each rank has, each table's adding up
            to 1, on `nodes x gpus` ranks, server after server; evenly, and one rank for all, where
            not given.
        dense: of the dense part by its layers; by flops at `rules.dense_utilization` where not
            given, a third of it forward and a tenth below the interaction, both assumptions.

    Returns:
        The durations.

    Raises:
        ConfigError: `held` is not of these ranks and tables.

    Example:
        >>> parts = step_parts(model_arrays(load_tables("demo")), design, rules)  # doctest: +SKIP
        >>> step = replay_training(build_training_graph(parts))  # doctest: +SKIP
    """
    with double_precision():
        outcome, flows = _evaluated(model, design, rules)
    ranks = round(float(np.asarray(design.nodes) * np.asarray(design.machine.gpus)))
    loads = _loads(model, design, rules, flows, _held(held, ranks, len(np.asarray(model.rows))))
    indices_us, pooled_us, all_reduce_us = _messages_us(model, design, loads, ranks)
    alike = np.ones(len(loads.lookups))
    dense = dense or _dense_of(outcome)
    return StepParts(
        indices_us=indices_us * alike,
        fetch_us=np.asarray(outcome.busy_us)[1:] * loads.tiers,
        fill_us=float(outcome.fill_us) * loads.fills,
        lookup_us=float(outcome.lookup_us) * loads.lookups,
        pooled_us=pooled_us * alike,
        bottom_forward_us=dense.bottom_forward_us * alike,
        top_forward_us=dense.top_forward_us * alike,
        top_backward_us=dense.top_backward_us * alike,
        bottom_backward_us=dense.bottom_backward_us * alike,
        gradients_us=pooled_us * alike,
        update_us=float(outcome.update_us) * loads.lookups,
        all_reduce_us=all_reduce_us * alike,
    )


@jax.jit
def _evaluated(model: ModelArrays, design: Design, rules: HierarchyRules) -> tuple[Outcome, Flows]:
    return evaluate(model, design, rules), flows_of(model, design, rules)


def _held(held: ArrayLike | None, ranks: int, tables: int) -> np.ndarray:
    if held is None:
        return np.full((1, tables), 1 / ranks)
    part = np.asarray(held, float)
    if part.shape != (ranks, tables) or (part < 0).any() or not np.allclose(part.sum(0), 1):
        raise ConfigError(
            "not the parts of tables on ranks",
            where="held",
            got=f"{part.shape}",
            expected=f"({ranks}, {tables}), 0 or more, each table adding up to 1",
        )
    return part


def _loads(
    model: ModelArrays, design: Design, rules: HierarchyRules, flows: Flows, held: np.ndarray
) -> _Loads:
    batch = float(np.asarray(design.batch_size))
    ranks = float(np.asarray(design.nodes) * np.asarray(design.machine.gpus))
    row_bytes = np.asarray(model.weight_bytes) + np.asarray(model.state_bytes)
    sent = batch * np.asarray(model.dimension) * float(np.asarray(rules.pooled_element_bytes))
    read = np.asarray(flows.lookups) * np.asarray(model.weight_bytes) + sent
    indices = batch * np.asarray(model.pooling) * float(np.asarray(rules.index_bytes))
    found = np.asarray(flows.found)[:, 1:] * row_bytes[:, None]
    tiers = _share(held, found, ranks)
    if len(held) > 1:
        # The ranks of a server share its slower tiers.
        servers = round(float(np.asarray(design.nodes)))
        of_server = tiers.reshape(servers, -1, tiers.shape[1]).mean(1)
        tiers = np.repeat(of_server, len(held) // servers, axis=0)
    return _Loads(
        lookups=_share(held, read[:, None], ranks)[:, 0],
        fills=_share(held, np.asarray(flows.filled)[:, :1] * row_bytes[:, None], ranks)[:, 0],
        tiers=tiers,
        pooled_bytes=_busiest(held, sent, ranks),
        index_bytes=_busiest(held, indices, ranks),
    )


def _share(held: np.ndarray, bytes_of_table: np.ndarray, ranks: float) -> np.ndarray:
    """(ranks, k) what each rank has of (tables, k), by its even part; 1 where there is nothing."""
    total = bytes_of_table.sum(0)
    share = held @ bytes_of_table * ranks / np.where(total > 0, total, 1.0)
    return np.where(total > 0, share, 1.0)


def _busiest(held: np.ndarray, bytes_of_table: np.ndarray, ranks: float) -> float:
    """Bytes that the busiest rank sends, but not less than each of them receives."""
    return float(max((held @ bytes_of_table).max(), bytes_of_table.sum() / ranks))


def _messages_us(
    model: ModelArrays, design: Design, loads: _Loads, ranks: int
) -> tuple[float, float, float]:
    """All-to-all of indices and of pooled rows, and all-reduce of the dense gradients."""
    dense_bytes = float(np.asarray(model.dense_parameters)) * _GRADIENT_BYTES
    messages = np.array([loads.index_bytes, loads.pooled_bytes, dense_bytes])
    with double_precision():
        times_us = _collectives_us(design.machine.device, messages, float(ranks))
    indices_us, pooled_us, all_reduce_us = np.asarray(times_us).tolist()
    return indices_us, pooled_us, all_reduce_us


@jax.jit
def _collectives_us(device: Device, messages: jax.Array, ranks: jax.Array) -> jax.Array:
    work = replace(
        unknown_work(len(_SENT)),
        operation=np.array(_SENT, np.int8),
        message_bytes=messages,
        ranks=jnp.full(len(_SENT), ranks),
        stride=np.ones(len(_SENT)),
    )
    return collective_us(default_collective_parameters(), device, work)


def _dense_of(outcome: Outcome) -> DenseTimes:
    dense_us = float(outcome.dense_us)
    forward, backward = dense_us * _FORWARD, dense_us * (1 - _FORWARD)
    return DenseTimes(
        bottom_forward_us=forward * _BOTTOM,
        top_forward_us=forward * (1 - _BOTTOM),
        top_backward_us=backward * (1 - _BOTTOM),
        bottom_backward_us=backward * _BOTTOM,
    )
