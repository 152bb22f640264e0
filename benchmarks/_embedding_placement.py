"""Placements of 856 tables, and of tables with giant ones, each given a minute in all."""

import time
from pathlib import Path

from _tables import markdown
from _timed import machine_load, timed
from embedding_placement import (
    NODES,
    SERVER,
    STATISTICS,
    meta_model,
    published,
    random_model,
    waterfall_step_us,
)

from jaxperf.config import RecommendationModel, load_server
from jaxperf.embedding.hierarchy import HierarchyRules, model_arrays
from jaxperf.embedding.placement._solve import Solution, Solver
from jaxperf.embedding.placement._study import Study, study_of

LIMIT_S = 60.0
LOCAL_TB, LESS_LOCAL_TB = (50, 200, 300, 400), (50, 200, 400)
LESS_LOCAL = 0.8  # middle of the exponents
GIANTS = (3, 4, 5, 6, 7)
FEW_TABLES, FEW_NODES = 200, 2
COLUMNS = ("tables", "devices", "gap", "wall s", "user s", "greedy", "waterfall", "wear", "binds")


def table(shared: Path) -> str:
    load = machine_load()
    lookups, distinct = published(shared / STATISTICS)
    cases = [
        (f"856, {terabytes} TB", meta_model(lookups, distinct, terabytes * 1e12), NODES)
        for terabytes in LOCAL_TB
    ]
    cases += [
        (
            f"856, {terabytes} TB, less local",
            meta_model(lookups, distinct, terabytes * 1e12, middle=LESS_LOCAL),
            NODES,
        )
        for terabytes in LESS_LOCAL_TB
    ]
    cases += [
        (
            f"{FEW_TABLES}, {giants} giant",
            random_model(seed, tables=FEW_TABLES, giants=giants),
            FEW_NODES,
        )
        for seed, giants in enumerate(GIANTS)
    ]
    rows = [_row(*case) for case in cases]
    return f"{load}\n\n{markdown(COLUMNS, rows)}"


def _row(name: str, model: RecommendationModel, nodes: int) -> tuple[str, ...]:
    (study, solution), seconds = timed(_placed, model, nodes)
    placement = solution.placement
    step = placement.packing.step
    # Drives of a tier together: their writes as a part of the rated ones.
    wear = (solution.shares @ solution.problem.wear_us).max() / step.step_us
    waterfall = waterfall_step_us(study, nodes) / step.step_us
    return (
        name,
        str(nodes * 8),
        f"{100 * placement.gap:.2f} %",
        f"{seconds.wall:.0f}",
        f"{seconds.user:.0f}",
        f"{placement.greedy_us / step.step_us:.3f}",
        f"{waterfall:.3f}",
        f"{100 * wear:.0f} %",
        ", ".join(each for each in (step.stage, step.tier, step.resource) if each),
    )


def _placed(model: RecommendationModel, nodes: int) -> tuple[Study, Solution]:
    deadline = time.monotonic() + LIMIT_S
    study = study_of(model, model_arrays(model), load_server(SERVER), HierarchyRules())
    solution = Solver(study).solve(nodes, deadline)
    assert solution is not None  # no step is asked for that a bound could exclude
    return study, solution
