"""How many servers a capacity-bound model needs, with and without slower memories; and how fast.

    python benchmarks/embedding_nodes.py [--write docs/embedding.md]

The model is configs/tables/capacity-12t.toml, the servers those of configs/servers; both say in
comments what is assumed. The second and third table change the assumptions that matter most.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
from _tables import markdown, write

from jaxperf.config import RecommendationModel, built_in_servers, load_server, load_tables
from jaxperf.embedding.hierarchy import (
    Design,
    HierarchyRules,
    NodePlan,
    evaluate_designs,
    least_nodes,
    machine_of,
    model_arrays,
    repeat_design,
    savings,
    waterfall_designs,
)
from jaxperf.replay import double_precision

BASELINE = "zionex"
COMPARED = ("zionex", "zionex-pmem", "zionex-optane", "zionex-nand", "zionex-pmem-nand")
RATES = (50e3, 100e3, 200e3, 400e3, 800e3, 1600e3)
DESIGNS = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    model = load_tables("capacity-12t")
    text = "\n\n".join([catalogue(model), rates(model), assumptions(model), speed()])
    print(text)
    if arguments.write:
        write(arguments.write, "nodes", text)


def catalogue(model: RecommendationModel) -> str:
    servers = {BASELINE: load_server(BASELINE), **built_in_servers()}
    plans = {name: least_nodes(model, server) for name, server in servers.items()}
    rows = []
    for name in sorted(plans, key=lambda name: -(plans[name].nodes or 0)):
        plan = plans[name]
        saved = savings(plan, plans[BASELINE])
        outcome = plan.outcome
        rows.append(
            [
                f"`{name}`",
                str(plan.nodes),
                f"{saved.nodes:.1f}",
                binding(plan),
                f"{outcome.samples_per_s / 1e3:,.0f}",
                f"{outcome.cost_usd / 1e6:.2f}",
                f"{plan.target_power_w / 1e3:.1f}",
                f"{plan.target_power_w / plan.target_samples_per_s * 1e3:.0f}",
                f"{saved.cost:.1f}",
                f"{saved.power:.1f}",
            ]
        )
    header = ["server", "nodes", "times fewer", "one node less fails for"]
    header += ["reaches, thousand samples/s", "million USD", "kW at the target"]
    header += ["mJ a sample", "times cheaper", "times less power"]
    return markdown(header, rows)


def rates(model: RecommendationModel) -> str:
    rows = []
    for rate in RATES:
        asked = msgspec.structs.replace(model, target_samples_per_s=rate)
        rows.append([f"{rate / 1e3:,.0f}", *counts(asked, HierarchyRules())])
    return markdown(["thousand samples/s", *COMPARED], rows)


def assumptions(model: RecommendationModel) -> str:
    rules = HierarchyRules()
    flatter = msgspec.structs.replace(
        model, tables=[_with_exponent(table, -0.2) for table in model.tables]
    )
    steeper = msgspec.structs.replace(
        model, tables=[_with_exponent(table, 0.1) for table in model.tables]
    )
    cases = {
        "as above": (model, rules),
        "exponents 0.2 lower": (flatter, rules),
        "exponents 0.1 higher": (steeper, rules),
        "a store that writes 4 times": (model, replace(rules, log_write_amplification=4.0)),
        "a store that writes 20 times": (model, replace(rules, log_write_amplification=20.0)),
        "exclusive caches": (model, replace(rules, inclusive=False)),
        "no prefetch": (model, replace(rules, prefetch=False)),
    }
    rows = [[name, *counts(changed, other)] for name, (changed, other) in cases.items()]
    return markdown(["assumption", *COMPARED], rows)


def counts(model: RecommendationModel, rules: HierarchyRules) -> list[str]:
    plans = [least_nodes(model, load_server(name), rules=rules) for name in COMPARED]
    shown = [
        f"{plan.nodes} ({savings(plan, plans[0]).nodes:.1f}, {plan.binding})" for plan in plans
    ]
    return shown


def speed() -> str:
    model = model_arrays(load_tables("dlrm-dcnv2"))
    rows = []
    for name in ("zionex-nand", "zionex-pmem-nand"):
        designs = random_designs(model, name)
        seconds = []
        for _ in range(2):
            begin = time.perf_counter()
            evaluate_designs(model, designs)
            seconds.append(time.perf_counter() - begin)
        tiers = np.shape(designs.cached_rows)[2]
        rows.append(
            [f"{DESIGNS:,} designs, 26 tables, {tiers} tiers", *(f"{s:.1f}" for s in seconds)]
        )
    return markdown(["one batched run", "seconds, first", "seconds, warm"], rows)


def random_designs(model, name: str) -> Design:
    """Caches, bandwidths, prices, nodes and batches drawn at random around a waterfall."""
    random = np.random.default_rng(0)
    rules = HierarchyRules()
    with double_precision():
        candidates = waterfall_designs(model, machine_of(load_server(name)), 1, 65536, rules)
    designs = repeat_design(_first(candidates), DESIGNS)
    machine = designs.machine
    tiers = replace(
        machine.tiers,
        read_bytes_per_s=machine.tiers.read_bytes_per_s * _around(random, machine.tiers),
        price_usd_per_byte=machine.tiers.price_usd_per_byte * _around(random, machine.tiers),
    )
    # Every table on the last tier, with caches of any size above.
    home = np.zeros(np.shape(designs.home_share))
    home[:, :, -1] = 1.0
    cached = random.uniform(0, 1, home.shape) * np.asarray(model.rows)[None, :, None]
    cached[:, :, -1] = 0.0
    return replace(
        designs,
        machine=replace(machine, tiers=tiers),
        nodes=random.integers(1, 65, DESIGNS).astype(float),
        batch_size=random.uniform(8192, 131072, DESIGNS),
        home_share=home,
        cached_rows=cached,
    )


def _first(designs: Design) -> Design:
    import jax

    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], designs)


def _around(random: np.random.Generator, tiers) -> np.ndarray:
    return np.exp(random.normal(0, 0.5, np.shape(tiers.read_bytes_per_s)))


def _with_exponent(table, change: float):
    return msgspec.structs.replace(table, zipf_exponent=table.zipf_exponent + change)


def binding(plan: NodePlan) -> str:
    return plan.binding if plan.binding_tier is None else f"{plan.binding}, {plan.binding_tier}"


if __name__ == "__main__":
    main()
