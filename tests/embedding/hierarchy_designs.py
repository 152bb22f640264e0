"""A small model on three tiers that the tests of the hierarchy share: one shape to compile."""

from dataclasses import replace

import numpy as np

from jaxperf.config import load_server, load_tables
from jaxperf.embedding.hierarchy import Design, machine_of, model_arrays

MODEL = model_arrays(load_tables("demo"))
"""items, history, words, countries."""

HOME_SHARE = np.array([[0.0, 0.3, 0.7], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
"""Rows of `items` in two places, `history` on drives, the small ones in HBM."""

CACHED_ROWS = np.array([[3e5, 2e6, 0.0], [4e5, 1e6, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])

DESIGN = Design(
    machine=machine_of(load_server("zionex-nand")),
    nodes=np.float64(2),
    batch_size=np.float64(8192),
    home_share=HOME_SHARE,
    cached_rows=CACHED_ROWS,
    by_popularity=np.zeros(4),
    admits=np.ones(4),
)


def with_tiers(design: Design, **values) -> Design:
    """The design with other numbers of its tiers."""
    tiers = replace(design.machine.tiers, **values)
    return replace(design, machine=replace(design.machine, tiers=tiers))
