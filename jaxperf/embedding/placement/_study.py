"""A model on servers of one kind as placement problems of any number of servers."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxperf.config import EmbeddingTable, RecommendationModel, Server, load_memory
from jaxperf.embedding.hierarchy._designs import evaluate_designs
from jaxperf.embedding.hierarchy._model import Design, HierarchyRules, ModelArrays
from jaxperf.embedding.hierarchy._step import (
    Outcome,
    besides_bytes,
    communication_us,
    dense_us,
)
from jaxperf.embedding.hierarchy._tiers import Machine, machine_of
from jaxperf.embedding.placement._options import RESOURCES, OptionLoads, TableOptions
from jaxperf.embedding.placement._problem import PlacementProblem
from jaxperf.replay import double_precision

UPDATES = "updates"
"""A tier that is none: the part of the first one's time that prefetching waits for."""
DEVICE = "device"
"""The stage of the accelerators themselves."""
_COLUMNS = 4  # that shards by columns are multiples of


class Constants(NamedTuple):
    """What a number of servers has for any placement.

    Attributes:
        free_bytes: (tiers,) for rows.
        dense_us: the dense part.
        communication_us: all-to-all and all-reduce.
    """

    free_bytes: np.ndarray
    dense_us: float
    communication_us: float


@dataclass(frozen=True, eq=False)
class Study:
    """A model, a kind of server, and the rules.

    Attributes:
        model: the description.
        arrays: the same as arrays.
        server: the description.
        machine: the same as arrays.
        rules: of the hierarchy.
    """

    model: RecommendationModel
    arrays: ModelArrays
    server: Server
    machine: Machine
    rules: HierarchyRules

    @property
    def tiers(self) -> tuple[str, ...]:
        """Names of the memories."""
        return tuple(load_memory(tier.memory).name for tier in self.server.tiers)

    @property
    def units(self) -> np.ndarray:
        """(tiers,) of one server: each accelerator's own memory; the others are shared."""
        return np.array([int(np.asarray(self.machine.gpus)), *[1] * (len(self.server.tiers) - 1)])


def study_of(
    model: RecommendationModel, arrays: ModelArrays, server: Server, rules: HierarchyRules
) -> Study:
    """Gather what placement problems are made of.

    Args:
        model: the description.
        arrays: of the model.
        server: of `load_server`.
        rules: of the hierarchy.

    Returns:
        The study.
    """
    return Study(model, arrays, server, machine_of(server), rules)


def outcome_of(study: Study, design: Design) -> Outcome:
    """What comes of one design, as numpy arrays."""
    many = jax.tree.map(lambda leaf: np.asarray(leaf, float)[None], design)
    outcomes = evaluate_designs(study.arrays, many, study.rules)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], outcomes)


def constants_of(study: Study, nodes: int) -> Constants:
    """What so many servers have for any placement.

    Args:
        study: the model and the server.
        nodes: servers.

    Returns:
        Room, and times that no placement changes.
    """
    with double_precision():
        free, dense_us, communication_us = _constants(
            study.arrays, study.machine, float(nodes), float(study.model.batch_size), study.rules
        )
    return Constants(np.asarray(free), float(dense_us), float(communication_us))


@jax.jit
def _constants(model: ModelArrays, machine: Machine, nodes, batch_size, rules: HierarchyRules):
    nothing = jnp.zeros(1)
    design = Design(machine, nodes, batch_size, nothing, nothing, nothing, nothing)
    free_bytes = nodes * jnp.asarray(machine.tiers.capacity_bytes) - besides_bytes(
        model, design, rules
    )
    return free_bytes, dense_us(model, design, rules), communication_us(model, design, rules)


def design_of(study: Study, nodes: int, options: TableOptions, shares: np.ndarray) -> Design:
    """Shares of options as a design of the hierarchy.

    Args:
        study: the model and the server.
        nodes: servers.
        options: of the tables.
        shares: (options,) of each table.

    Returns:
        The design; a table whose shards differ has their mean cache, and the policy of most.
    """
    tables, tiers = len(study.model.tables), len(study.server.tiers)
    home, cached, pinned = np.zeros((tables, tiers)), np.zeros((tables, tiers)), np.zeros(tables)
    np.add.at(home, (options.table, options.home), shares)
    np.add.at(cached, options.table, shares[:, None] * options.cached)
    votes = np.where(options.pinned, 1.0, -1.0) * (options.cached.max(axis=1) > 0)
    np.add.at(pinned, options.table, shares * votes)
    cached *= np.asarray(study.arrays.rows)[:, None]
    return _design(study, nodes, home, cached, (pinned > 0).astype(float))


def _design(study: Study, nodes: int, home, cached, pinned) -> Design:
    return Design(
        machine=study.machine,
        nodes=np.float64(nodes),
        batch_size=np.float64(study.model.batch_size),
        home_share=home,
        cached_rows=cached,
        by_popularity=pinned,
        admits=1 - pinned,
    )


def problem_of(
    study: Study, nodes: int, options: TableOptions, loads: OptionLoads
) -> PlacementProblem:
    """The placement problem of a number of servers.

    The stages are the accelerators' own time, and for each slower tier the time that it is busy
    and the update, which cannot run beside it; without prefetch there is one stage of all.

    Args:
        study: the model and the server.
        nodes: servers.
        options: of the tables.
        loads: of the options on one server.

    Returns:
        The problem; its last tier is `UPDATES`.
    """
    constants = constants_of(study, nodes)
    tiers = len(study.server.tiers)
    units = np.append(study.units, study.units[0]) * nodes
    busy_us = np.zeros((len(options.table), tiers + 1, len(RESOURCES)))
    busy_us[:, :tiers] = loads.busy_us / nodes
    busy_us[:, tiers, 0] = loads.update_us / nodes
    pad = ((0, 0), (0, 1))
    device = np.eye(1, tiers + 1)
    below = np.eye(tiers, tiers + 1)[1:]
    below[:, tiers] = 1.0
    if study.rules.prefetch:
        stage_tiers = np.concatenate([device, below])
    else:
        stage_tiers = np.ones((1, tiers + 1))
        stage_tiers[0, tiers] = 0.0
    fixed_us = np.zeros(len(stage_tiers))
    fixed_us[0] = constants.dense_us + constants.communication_us
    # Nothing takes room of a tier that is none; any number above 0 will do.
    capacity = np.append(np.maximum(constants.free_bytes, 1.0), study.model.table_bytes)
    return PlacementProblem(
        tables=tuple(table.name for table in study.model.tables),
        tiers=(*study.tiers, UPDATES),
        resources=RESOURCES,
        stages=(DEVICE, *study.tiers[1:])[: len(stage_tiers)],
        units=units,
        capacity_bytes=capacity,
        table=options.table,
        size_bytes=np.pad(loads.size_bytes, pad),
        busy_us=busy_us,
        wear_us=np.pad(loads.wear_us / nodes, pad),
        column_shards=_column_shards(study, options),
        stage_tiers=stage_tiers,
        fixed_us=fixed_us,
    )


def _column_shards(study: Study, options: TableOptions) -> np.ndarray:
    """Parts of a row that lies in the first tier: elsewhere every part of one moves a block.

    A part is whole blocks and a multiple of 4 elements, and divides the row: TorchRec's column-wise
    shards do (`_find_base_dim`), and FBGEMM's kernels ask for it (`local_cols % 4 == 0`).
    """
    block = float(np.asarray(study.machine.tiers.block_bytes)[0])
    shards = np.array([_parts_of_row(table, block) for table in study.model.tables])
    return np.where(options.home == 0, shards[options.table], 1).astype(np.int64)


def _parts_of_row(table: EmbeddingTable, block_bytes: float) -> int:
    for width in range(_COLUMNS, table.dimension, _COLUMNS):
        whole = table.dimension % width == 0
        if whole and (width * table.element_bytes) % block_bytes == 0:
            return table.dimension // width
    return 1
