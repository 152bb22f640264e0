"""What the tables of measured steps have in common: fits that are judged on what they did not see.

A set of measurements is a list of `MeasuredStep`. Parameters of the closed form are fitted to some
rows and tell the others: in five random folds (of a fixed seed), and with each group of rows, such
as a model, left out in its turn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from _tables import markdown, number

from jaxperf.config import Hardware
from jaxperf.cost import CostModel, default_model
from jaxperf.workload._fit_steps import (
    STEP_PRIORS,
    MeasuredStep,
    StepFit,
    computed_steps_us,
    fit_step_times,
    held_out_steps_us,
)

FOLDS = 5
SEED = 0
WORST = 8


@dataclass(frozen=True)
class Held:
    """Rows, and what fits that did not see them tell.

    Attributes:
        rows: what was measured.
        before_us: (rows,) with the defaults, nothing fitted.
        folds_us: (rows,) with four of five random folds.
        groups_us: by what is left out, such as `model`: (rows,) without all rows of the same one.
        fit: to all rows.
    """

    rows: list[MeasuredStep]
    before_us: np.ndarray
    folds_us: np.ndarray
    groups_us: dict[str, np.ndarray]
    fit: StepFit


def hold_out(
    rows: list[MeasuredStep],
    groups: Mapping[str, Callable[[MeasuredStep], object]],
    priors: Mapping[str, float] = STEP_PRIORS,
    model_of: Callable[[Hardware], CostModel] = default_model,
) -> Held:
    """Fit to parts of the rows and tell the rest.

    Args:
        rows: what was measured.
        groups: by name, of which group a row is.
        priors: see `fit_step_times`.
        model_of: see `fit_step_times`.

    Returns:
        What came of it.
    """

    def told_us(group: Sequence | np.ndarray) -> np.ndarray:
        numbers = np.unique(group, return_inverse=True)[1]
        return held_out_steps_us(rows, numbers, priors=priors, model_of=model_of)

    return Held(
        rows,
        computed_steps_us(rows, model_of=model_of),
        told_us(folds(len(rows))),
        {name: told_us([str(key(row)) for row in rows]) for name, key in groups.items()},
        fit_step_times(rows, priors=priors, model_of=model_of),
    )


def folds(rows: int) -> np.ndarray:
    """(rows,) the fold of each, at random."""
    return np.random.default_rng(SEED).permutation(rows) % FOLDS


def errors(rows: Sequence[MeasuredStep], found_us: np.ndarray) -> np.ndarray:
    """(rows,) computed over measured, less 1, in percent."""
    return 100 * (found_us / np.array([row.step_us for row in rows]) - 1)


def summary(held: Held) -> str:
    """A table with a line for each way of holding out."""
    ways = {
        "nothing fitted": held.before_us,
        f"{FOLDS} random folds": held.folds_us,
        **{f"each {name} left out": found for name, found in held.groups_us.items()},
    }
    return markdown(
        ["held out", "rows", "mean %", "median %", "worst %", "bias %"],
        [[way, len(held.rows), *_statistics(errors(held.rows, us))] for way, us in ways.items()],
    )


def by_group(held: Held, name: str, key: Callable[[MeasuredStep], object]) -> str:
    """A table with a line for each group: its rows in five folds, and as a group left out."""
    keys = np.array([str(key(row)) for row in held.rows])
    folded = errors(held.rows, held.folds_us)
    left = errors(held.rows, held.groups_us[name]) if name in held.groups_us else None
    lines = []
    for group in dict.fromkeys(keys):
        mine = keys == group
        cells = [group, int(mine.sum()), *_statistics(folded[mine])]
        if left is not None:
            cells.append(number(float(np.abs(left[mine]).mean()), 1))
        lines.append(cells)
    columns = [name, "rows", "mean %", "median %", "worst %", "bias %"]
    return markdown(columns + ["left out, mean %"] * (left is not None), lines)


def worst(held: Held, count: int = WORST) -> str:
    """A table of the rows that five folds tell worst."""
    found = errors(held.rows, held.folds_us)
    return markdown(
        ["row", "measured ms", "computed ms", "error %"],
        [
            [
                held.rows[row].label,
                number(held.rows[row].step_us / 1e3, 0),
                number(float(held.folds_us[row]) / 1e3, 0),
                f"{found[row]:+.1f}",
            ]
            for row in np.argsort(-np.abs(found))[:count]
        ],
    )


def factors(fit: StepFit) -> str:
    """A table of what was fitted to all rows, as multiples of the defaults."""
    sure = np.sqrt(np.diag(fit.covariance))
    return markdown(
        ["number", "of its default", "known to a factor of"],
        [
            [f"`{path}`", number(factor, 2), number(float(np.exp(sd)), 2)]
            for (path, factor), sd in zip(fit.factors.items(), sure, strict=True)
        ],
    )


def with_network(hardware: Hardware, bus_bytes_per_s: float) -> Hardware:
    """A machine with another network."""
    network = msgspec.structs.replace(hardware.links["network"], bus_bytes_per_s=bus_bytes_per_s)
    return msgspec.structs.replace(hardware, links={**hardware.links, "network": network})


def _statistics(error: np.ndarray) -> list[str]:
    size = np.abs(error)
    found = [size.mean(), np.median(size), size.max()]
    return [*(number(float(value), 1) for value in found), f"{error.mean():+.1f}"]
