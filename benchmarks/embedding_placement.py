"""Placement of 856 tables over 4 tiers and 64 devices; and of random tables with giant ones.

    python benchmarks/embedding_placement.py SHARED [--part meta|random|caches] [--limit SECONDS]

Tables are made from the published statistics of Meta's data set of 2021 (856 tables, batches of
65,536): lookups of a batch as published; each table's part of them, its rows and its popularity are
drawn, and the power of popularity is moved until the distinct rows of a batch are those published.
"""

import argparse
import math
import re
import time
from pathlib import Path

import numpy as np

from jaxperf.config import EmbeddingTable, RecommendationModel, load_server
from jaxperf.embedding.hierarchy import (
    HierarchyRules,
    evaluate_designs,
    model_arrays,
    waterfall_designs,
    zipf_curve,
)
from jaxperf.embedding.placement._gradient import polish_caches
from jaxperf.embedding.placement._solve import Solver
from jaxperf.embedding.placement._study import design_of, outcome_of, study_of
from jaxperf.replay import double_precision

TABLES, BATCH, NODES = 856, 65536, 8
SERVER = "zionex-pmem-nand"
STATISTICS = Path("dlrm/stats/meta_dlrm_datasets_2021_locality_stats.txt")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--part", choices=("meta", "random", "caches"), action="append")
    parser.add_argument("--limit", type=float, default=60.0)
    arguments = parser.parse_args()
    parts = arguments.part or ["meta", "random", "caches"]
    lookups, distinct = published(arguments.shared / STATISTICS)
    print(f"published: {lookups:,} lookups a batch, {distinct:,} distinct rows", flush=True)
    if "meta" in parts:
        for terabytes in (50, 200, 300, 400):
            model = meta_model(lookups, distinct, terabytes * 1e12)
            report(f"856 tables, {terabytes} TB", model, NODES, arguments.limit)
        for terabytes in (50, 200, 400):
            model = meta_model(lookups, distinct, terabytes * 1e12, middle=0.8)
            name = f"856 tables, {terabytes} TB, less local than published"
            report(name, model, NODES, arguments.limit)
    if "random" in parts:
        for seed in range(5):
            model = random_model(seed, tables=200, giants=3 + seed)
            report(f"200 tables, {3 + seed} giant", model, 2, arguments.limit)
    if "caches" in parts:
        polished(meta_model(lookups, distinct, 200e12, middle=0.8), NODES)
    return 0


def published(path: Path) -> tuple[int, int]:
    """Lookups and distinct rows of the first batch of the set."""
    text = path.read_text().split("fbgemm_t856_bs65536_0.pt")[1]
    numbers = [re.search(rf"{key}: (\d+)", text) for key in ("# of indices", "# of unique cols")]
    lookups, distinct = (int(number.group(1)) for number in numbers if number)
    return lookups, distinct


def meta_model(
    lookups: int, distinct: int, table_bytes: float, middle: float | None = None
) -> RecommendationModel:
    """As many lookups and distinct rows as published; rows scaled to so many bytes.

    With a `middle` of the exponents, the distinct rows are what follows.
    """
    rng = np.random.default_rng(2021)
    pooling = rng.lognormal(0.0, 1.2, TABLES)
    pooling *= lookups / BATCH / pooling.sum()
    dimension = rng.choice([32, 64, 128, 256], TABLES)
    weight = rng.lognormal(0.0, 2.2, TABLES)
    # Powers of two and few exponents: tables alike share the work of their curves.
    rows = weight * table_bytes / (weight * (dimension * 2 + 4)).sum()
    rows = 2.0 ** np.round(np.log2(rows)).clip(10, 36)
    steps = rng.integers(-2, 3, TABLES) * 0.1
    if middle is None:
        middle = middle_exponent(rows, pooling, steps, distinct)
    exponent = middle + steps
    tables = [
        EmbeddingTable(
            name=f"t{index}",
            rows=int(rows[index]),
            dimension=int(dimension[index]),
            pooling=float(pooling[index]),
            element_bytes=2.0,
            optimizer_row_bytes=4.0,
            zipf_exponent=float(max(exponent[index], 0.0)),
        )
        for index in range(TABLES)
    ]
    return RecommendationModel(
        name="856 tables",
        batch_size=BATCH,
        dense_flops_per_sample=96e6,
        dense_parameters=16e6,
        tables=tables,
    )


def middle_exponent(rows, pooling, steps, distinct: int) -> float:
    """The power around which tables' own lie, for a batch to have so many distinct rows."""
    low, high = 0.2, 2.0
    for _ in range(30):
        middle = (low + high) / 2
        met = sum(
            distinct_of_zipf(n, BATCH * p, max(middle + s, 0.0))
            for n, p, s in zip(rows, pooling, steps, strict=True)
        )
        low, high = (middle, high) if met > distinct else (low, middle)
    return round((low + high) / 2, 3)


def distinct_of_zipf(rows: float, accesses: float, exponent: float) -> float:
    """Distinct rows by a sum over bins of ranks."""
    edges = np.unique(np.floor(np.geomspace(1, rows + 1, 200)))
    number, rank = np.diff(edges), np.sqrt(edges[1:] * edges[:-1])
    share = rank**-exponent
    share /= number @ share
    return float(-(number @ np.expm1(-accesses * share)))


def random_model(seed: int, tables: int, giants: int) -> RecommendationModel:
    """Tables of which a few have most of the bytes and many lookups."""
    rng = np.random.default_rng(seed)
    rows = 2.0 ** rng.integers(14, 30, tables)
    rows[:giants] = 2.0 ** rng.integers(33, 36, giants)
    pooling = rng.lognormal(1.0, 1.0, tables)
    pooling[:giants] *= 20
    exponent = rng.choice([0.6, 0.8, 1.0, 1.2], tables)
    return RecommendationModel(
        name=f"random {seed}",
        batch_size=BATCH,
        tables=[
            EmbeddingTable(
                name=f"t{index}",
                rows=int(rows[index]),
                dimension=64,
                pooling=float(pooling[index]),
                zipf_exponent=float(exponent[index]),
            )
            for index in range(tables)
        ],
    )


def study(model: RecommendationModel):
    start = time.perf_counter()
    zipf_curve(1e6, 1.0)
    arrays = model_arrays(model)
    print(f"  curves {time.perf_counter() - start:.1f} s", flush=True)
    return study_of(model, arrays, load_server(SERVER), HierarchyRules())


def report(name: str, model: RecommendationModel, nodes: int, limit_s: float) -> None:
    """Gap and seconds of one model, against greedy and against the hierarchy's waterfall."""
    print(f"{name}, {nodes * 8} devices", flush=True)
    what = study(model)
    start = time.perf_counter()
    solver = Solver(what)
    loads_s = time.perf_counter() - start
    solution = solver.solve(nodes, time.monotonic() + limit_s)
    assert solution is not None, "the tables fit"
    placement = solution.placement
    step = placement.packing.step
    print(
        f"  gap {100 * placement.gap:.3f} %, {time.perf_counter() - start:.1f} s"
        f" ({loads_s:.1f} s of loads, {solution.problem.options:,} options),"
        f" {len(placement.packing.option):,} shards; step {placement.step_us / 1e3:.2f} ms"
        f" by {step.stage}, {step.tier}, {step.resource}"
    )
    waterfall_us = waterfall_step_us(what, nodes)
    print(
        f"  greedy {placement.greedy_us / placement.step_us:.3f} times as long,"
        f" waterfall {waterfall_us / placement.step_us:.3f}",
        flush=True,
    )


def waterfall_step_us(what, nodes: int) -> float:
    """The fastest of the hierarchy's waterfalls that fit, devices taken to share evenly."""
    import jax

    with double_precision():
        place = jax.jit(
            lambda: waterfall_designs(
                what.arrays, what.machine, float(nodes), float(BATCH), what.rules
            )
        )
        designs = place()
    outcomes = evaluate_designs(what.arrays, designs, what.rules)
    room = np.asarray(what.machine.tiers.capacity_bytes) * nodes
    fits = (np.asarray(outcomes.free_bytes) >= -1e-6 * room).all(axis=1)
    return float(np.where(fits, np.asarray(outcomes.step_us), math.inf).min())


def polished(model: RecommendationModel, nodes: int) -> None:
    """What descent on continuous sizes gains, from the coarse grid and from the fine sizes."""
    print(f"cache sizes by descent, {nodes * 8} devices")
    solver = Solver(study(model))
    for name in ("coarse", "fine"):
        start = time.perf_counter()
        relaxed = solver.bound(nodes) if name == "coarse" else None
        _, relaxed = relaxed or solver.fine_bound(nodes, math.inf)
        found_s = time.perf_counter() - start
        design = design_of(solver.study, nodes, solver._options, relaxed.shares)
        start = time.perf_counter()
        _, polished_us = polish_caches(solver.study.arrays, design, solver.study.rules)
        own_us = float(outcome_of(solver.study, design).step_us)
        print(
            f"  {name} grid: bound {relaxed.bound_us / 1e3:.3f} ms in {found_s:.1f} s; its design"
            f" {own_us / 1e3:.3f} ms, polished {polished_us / 1e3:.3f} ms in"
            f" {time.perf_counter() - start:.1f} s, compilation included",
            flush=True,
        )


if __name__ == "__main__":
    raise SystemExit(main())
