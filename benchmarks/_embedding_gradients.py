"""Derivatives of step time, cost and power, against finite differences in float64."""

from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
from _tables import markdown
from embedding_nodes import random_designs

from jaxperf.config import load_tables
from jaxperf.embedding.hierarchy import (
    Design,
    ModelArrays,
    design_gradient,
    evaluate_designs,
    model_arrays,
)

DESIGNS = 8
SERVERS = ("zionex-nand", "zionex-pmem-nand")
QUANTITIES = ("step_us", "cost_usd", "memory_usd", "power_w", "energy_j_per_sample")
NUMBERS = {
    "cache sizes": ("cached_rows",),
    "bandwidths": (
        "machine.tiers.read_bytes_per_s",
        "machine.tiers.write_bytes_per_s",
        "machine.tiers.link_bytes_per_s",
    ),
    "prices": ("machine.tiers.price_usd_per_byte", "machine.price_usd"),
}
RELATIVE_STEP = 1e-5
ROUNDING = 1e-14  # of a value: what a difference of two leaves uncertain
BAR = 1e-4


@dataclass(frozen=True)
class Compared:
    """Derivatives to some numbers: by the gradient, by differences, and what those cannot tell."""

    gradient: np.ndarray
    difference: np.ndarray
    noise: np.ndarray

    @property
    def size(self) -> np.ndarray:
        """The larger of both."""
        return np.maximum(abs(self.difference), abs(self.gradient))

    @property
    def error(self) -> np.ndarray:
        """How far both are apart."""
        return abs(self.gradient - self.difference)


def table(_shared: Path) -> str:
    model = model_arrays(load_tables("dlrm-dcnv2"))
    found = defaultdict(list)
    for server in SERVERS:
        designs = random_designs(model, server)
        for index in range(DESIGNS):
            design = jax.tree.map(lambda leaf, i=index: np.asarray(leaf, float)[i], designs)
            # What wears sets the step of most designs; without it their bandwidths do.
            for each in (design, _lasting(design)):
                for key, compared in _compare(model, each).items():
                    found[key].append(compared)
    rows = []
    for (quantity, kind), compared in found.items():
        size, error, noise = (
            np.concatenate([getattr(each, name) for each in compared])
            for name in ("size", "error", "noise")
        )
        # Of a smaller one a difference does not tell that part.
        told = BAR * size > noise
        if not told.any():
            continue
        relative = error[told] / size[told]
        rows.append(
            (
                f"`{quantity}` to {kind}",
                f"{told.sum():,}",
                f"{(relative <= BAR).sum():,}",
                f"{np.median(relative):.0e}",
                f"{relative.max():.0e}",
                f"{(~told).sum():,}",
                f"{(error <= noise)[~told].sum():,}",
            )
        )
    columns = ("derivative", "told", "within 1e-4", "median error", "worst")
    return markdown((*columns, "0 or too small", "equal but for rounding"), rows)


def _lasting(design: Design) -> Design:
    tiers = design.machine.tiers
    forever = np.full(np.shape(tiers.drive_writes_per_day), np.inf)
    tiers = replace(tiers, drive_writes_per_day=forever)
    return replace(design, machine=replace(design.machine, tiers=tiers))


def _compare(model: ModelArrays, design: Design) -> dict[tuple[str, str], Compared]:
    places = [
        (kind, path, place)
        for kind, paths in NUMBERS.items()
        for path in paths
        for place in np.ndindex(_read(design, path).shape)
        if np.isfinite(_read(design, path)[place]) and _read(design, path)[place] != 0
    ]
    steps = np.array([RELATIVE_STEP * _read(design, path)[place] for _, path, place in places])
    moved = [
        _moved(design, path, place, sign * step)
        for (_, path, place), step in zip(places, steps, strict=True)
        for sign in (1, -1)
    ]
    stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(x, float) for x in leaves]), *moved)
    outcomes = evaluate_designs(model, stacked)
    kinds = np.array([kind for kind, _, _ in places])
    found = {}
    for quantity in QUANTITIES:
        gradient = design_gradient(model, design, quantity)
        of_place = np.array([_read(gradient, path)[place] for _, path, place in places])
        values = getattr(outcomes, quantity)
        difference = (values[::2] - values[1::2]) / (2 * steps)
        noise = ROUNDING * abs(values[::2]) / abs(steps)
        for kind in NUMBERS:
            of_kind = kinds == kind
            found[quantity, kind] = Compared(of_place[of_kind], difference[of_kind], noise[of_kind])
    return found


def _read(design: Design, path: str) -> np.ndarray:
    value = design
    for name in path.split("."):
        value = getattr(value, name)
    return np.asarray(value, float)


def _moved(design: Design, path: str, place: tuple[int, ...], by: float) -> Design:
    values = _read(design, path).copy()
    values[place] += by
    return _written(design, path, values)


def _written(noun, path: str, value: np.ndarray):
    name, _, rest = path.partition(".")
    return replace(noun, **{name: _written(getattr(noun, name), rest, value) if rest else value})
