"""The fewest servers for a model that is bound by capacity, with each hierarchy of memories."""

from pathlib import Path

import numpy as np
from _tables import markdown
from _timed import machine_load, timed
from embedding_nodes import BASELINE, binding

from jaxperf.config import RecommendationModel, Server, built_in_servers, load_server, load_tables
from jaxperf.embedding.hierarchy import NodePlan, least_nodes, machine_of, savings

CLAIMED = (4.0, 8.0)
COLUMNS = ("server", "memories, TB", "TB a node", "nodes", "times fewer", "one node less fails for")
COLUMNS += ("times cheaper", "times less power")


def table(_shared: Path) -> str:
    load = machine_load()
    model = load_tables("capacity-12t")
    servers = {BASELINE: load_server(BASELINE), **built_in_servers()}
    plans, seconds = timed(
        lambda: {name: least_nodes(model, server) for name, server in servers.items()}
    )
    order = sorted(plans, key=lambda name: -(plans[name].nodes or 0))
    rows = [_row(name, servers[name], plans[name], plans[BASELINE]) for name in order]
    saved = {name: savings(plans[name], plans[BASELINE]).nodes for name in order}
    low, high = CLAIMED
    within = [name for name in order if low <= saved[name] <= high]
    told = (
        f"{_by_capacity(model, servers[BASELINE])} {len(within)} hierarchies take {low:.0f} to"
        f" {high:.0f} times fewer nodes than `{BASELINE}`: {', '.join(f'`{n}`' for n in within)}."
        f" All of the table took {seconds.wall:.0f} s ({seconds.user:.0f} s user). {load}"
    )
    return f"{markdown(COLUMNS, rows)}\n\n{told}"


def _row(name: str, server: Server, plan: NodePlan, baseline: NodePlan) -> tuple[str, ...]:
    saved = savings(plan, baseline)
    return (
        f"`{name}`",
        " + ".join(f"{each:.2f}" for each in _terabytes(server)),
        f"{_terabytes(server).sum():.2f}",
        str(plan.nodes),
        f"{saved.nodes:.1f}",
        binding(plan),
        f"{saved.cost:.1f}",
        f"{saved.power:.1f}",
    )


def _terabytes(server: Server) -> np.ndarray:
    """(tiers,) of one node."""
    return np.asarray(machine_of(server).tiers.capacity_bytes) / 1e12


def _by_capacity(model: RecommendationModel, server: Server) -> str:
    parameters = sum(table.rows * table.dimension for table in model.tables)
    room = _terabytes(server).sum()
    need = sum(table.rows * table.dimension * table.element_bytes for table in model.tables) / 1e12
    return (
        f"The tables have {parameters / 1e12:.2f} trillion parameters, {need:.1f} TB: by capacity"
        f" alone {need / room:.1f} nodes of {room:.2f} TB."
    )
