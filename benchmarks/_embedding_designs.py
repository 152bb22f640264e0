"""Seconds of 100,000 designs in one batched run."""

from pathlib import Path

import numpy as np
from _tables import markdown
from _timed import machine_load, timed
from embedding_nodes import DESIGNS, random_designs

from jaxperf.config import load_tables
from jaxperf.embedding.hierarchy import evaluate_designs, model_arrays

SERVERS = ("zionex-nand", "zionex-pmem-nand")


def table(_shared: Path) -> str:
    load = machine_load()
    model = model_arrays(load_tables("dlrm-dcnv2"))
    rows = []
    for server in SERVERS:
        designs = random_designs(model, server)
        tables, tiers = np.shape(designs.cached_rows)[1:]
        for which in ("first call, compiled then", "second call"):
            outcomes, seconds = timed(evaluate_designs, model, designs)
            finite = np.isfinite(outcomes.step_us).sum()
            rows.append(
                (
                    f"`{server}`, {tables} tables, {tiers} tiers, {which}",
                    f"{DESIGNS:,}",
                    f"{finite:,}",
                    f"{seconds.wall:.1f}",
                    f"{seconds.user:.1f}",
                    f"{1e6 * seconds.user / DESIGNS:.0f}",
                )
            )
    columns = ("", "designs", "with a step time", "wall s", "user s", "user us a design")
    return f"{load}\n\n{markdown(columns, rows)}"
