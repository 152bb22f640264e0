"""The linear part of a fit: what each number of a power description adds to a reading."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import msgspec
import numpy as np

from jaxperf.config import PowerDescription
from jaxperf.energy.calibration._meter import CumulativeEnergy, cumulative_energy
from jaxperf.energy.power._model import power_model, static_power_w, task_energy_j
from jaxperf.energy.power._tasks import SHORTEST_US, PowerTasks
from jaxperf.replay import double_precision

_HOST = "node.host_w"
HELD = (
    "idle_w",
    "voltage.minimum",
    "voltage.slope",
    "node.fan_share",
    "node.conversion_efficiency",
)
"""What no log at one clock tells: other numbers take any change of these up."""

_STATIC = ("static.constant_w", "static.leakage_w", "static.clock_w")
_BYTES = ("memory_byte_j", "node_byte_j", "network_byte_j")
_TABLES = ("flop_j", "class_w", "unknown_w")


@dataclass(frozen=True, eq=False)
class TimedTasks:
    """The tasks of one run, and when its time zero was.

    Attributes:
        tasks: of its accelerators, one or more of a node.
        zero_ns: of the tasks' clock, on the clock that all runs of a fit share.
    """

    tasks: PowerTasks
    zero_ns: int

    @property
    def span_ns(self) -> tuple[int, int]:
        """From when to when its power is known, on the shared clock."""
        begin_us, end_us = self.tasks.begin_us, self.tasks.end_us
        return self.zero_ns + round(begin_us * 1e3), self.zero_ns + round(end_us * 1e3)


@dataclass(frozen=True, eq=False)
class Design:
    """What each number adds to the power that a meter sees, for each unit of the number.

    Attributes:
        keys: (numbers,) as a power description has them, such as `flop_j.bf16`.
        prior: (numbers,) what the description says.
        energy: cumulative, of each number.
        begin_s, end_s: (runs,) spans in which the power is known, ascending.
        without_work: numbers of the description that nothing in the traces depends on.
    """

    keys: tuple[str, ...]
    prior: np.ndarray
    energy: CumulativeEnergy
    begin_s: np.ndarray
    end_s: np.ndarray
    without_work: dict[str, float]


def design_of(
    runs: Sequence[TimedTasks],
    description: PowerDescription,
    gpus_per_node: float | None,
    from_ns: int,
) -> Design:
    """The design of a fit, at the nominal clock.

    A number that the description has as 0, or does not name, stays out.

    Args:
        runs: tasks, in order of time, none beside another.
        description: of an accelerator and its node.
        gpus_per_node: accelerators of the job in the node that was measured at its supplies; `None`
            where accelerators were, themselves. The recorded ranks stand for all of them.
        from_ns: of the runs' shared clock, what the design's times count from.

    Returns:
        The design.
    """
    wanted = _fitted_keys(description, gpus_per_node is not None)
    found = [_run_powers(run, description, wanted, gpus_per_node, from_ns) for run in runs]
    keys = tuple(key for key in wanted if any(key in each.power_w for each in found))
    energy = cumulative_energy(
        np.concatenate([each.start_s for each in found]),
        np.concatenate([each.end_s for each in found]),
        np.concatenate([each.columns(keys) for each in found]),
    )
    with double_precision():
        # Once: a fit looks at it hundreds of times.
        energy = jax.device_put(energy)
    spans_s = (np.array([run.span_ns for run in runs]) - from_ns) * 1e-9
    return Design(
        keys=keys,
        prior=np.array([_value(description, key) for key in keys]),
        energy=energy,
        begin_s=spans_s[:, 0],
        end_s=spans_s[:, 1],
        without_work={key: _value(description, key) for key in wanted if key not in keys},
    )


def is_covered(design: Design, begin_s: np.ndarray, end_s: np.ndarray) -> np.ndarray:
    """Whether windows (as `begin_s`) lie inside one span of the design."""
    at = np.searchsorted(design.begin_s, begin_s, side="right") - 1
    return (at >= 0) & (end_s <= design.end_s[np.maximum(at, 0)])


def with_values(description: PowerDescription, values: dict[str, float]) -> PowerDescription:
    """A description with some of its numbers replaced.

    Example:
        >>> from jaxperf.config import load_power
        >>> with_values(load_power("h100"), {"static.clock_w": 40.0}).static.clock_w
        40.0
    """
    plain = msgspec.to_builtins(description)
    for key, value in values.items():
        table, name = _place(plain, key)
        table[name] = value
    return msgspec.convert(plain, PowerDescription)


def nonnegative_shares(
    columns: np.ndarray, reading: np.ndarray, prior_spread: np.ndarray
) -> np.ndarray:
    """The non-negative least squares of readings and of what is believed before.

    Args:
        columns: (readings, numbers) what each prior adds to each reading, in the reading's spread.
        reading: (readings,) likewise.
        prior_spread: (numbers,) standard deviation of each, in shares of its prior.

    Returns:
        (numbers,) of each prior, 0 or more.

    Example:
        >>> nonnegative_shares(np.array([[1e6]]), np.array([2e6]), np.ones(1)).round(6).tolist()
        [2.0]
    """
    from scipy.optimize import nnls

    rows = np.concatenate([columns, np.diag(1.0 / prior_spread)])
    share, _ = nnls(rows, np.concatenate([reading, 1.0 / prior_spread]))
    return share


def _fitted_keys(description: PowerDescription, of_node: bool) -> tuple[str, ...]:
    plain = msgspec.to_builtins(description)
    tables = [f"{table}.{name}" for table in _TABLES for name in plain[table]]
    keys = (*_STATIC, *tables, *_BYTES, *((_HOST,) if of_node else ()))
    return tuple(key for key in keys if _value(description, key) > 0)


@dataclass(frozen=True, eq=False)
class _RunPowers:
    """The tasks of a run, and as a last one what draws power all the time.

    Attributes:
        start_s, end_s: (n + 1,).
        power_w: (n + 1,) by key, for each unit of a number; without those that add none.
    """

    start_s: np.ndarray
    end_s: np.ndarray
    power_w: dict[str, np.ndarray]

    def columns(self, keys: Sequence[str]) -> np.ndarray:
        none = np.zeros(len(self.start_s))
        return np.stack([self.power_w.get(key, none) for key in keys], axis=1)


def _run_powers(
    run: TimedTasks,
    description: PowerDescription,
    keys: Sequence[str],
    gpus_per_node: float | None,
    from_ns: int,
) -> _RunPowers:
    tasks, node = run.tasks, description.node
    accelerators = 1 if gpus_per_node is None else gpus_per_node
    gain = 1.0 if gpus_per_node is None else (1.0 + node.fan_share) / node.conversion_efficiency
    duration_s = np.maximum(tasks.duration_us, SHORTEST_US) * 1e-6
    start_s = (run.zero_ns - from_ns) * 1e-9 + tasks.start_us * 1e-6
    share = gain * accelerators * tasks.ranks_alike / tasks.ranks_alike.sum()
    by_joule = share[tasks.rank] / duration_s
    powers_w = {}
    with double_precision():
        for key in keys:
            unit = power_model(_unit(description, key))
            task_j, static_w = _task_and_static(unit, tasks, description.nominal_clock_hz)
            always_w = gain if key == _HOST else gain * accelerators * float(static_w)
            power_w = np.append(np.asarray(task_j) * by_joule, always_w)
            if power_w.any():
                powers_w[key] = power_w
    begin_s, end_s = ((moment_ns - from_ns) * 1e-9 for moment_ns in run.span_ns)
    return _RunPowers(np.append(start_s, begin_s), np.append(start_s + duration_s, end_s), powers_w)


@jax.jit
def _task_and_static(model, tasks, clock_hz):
    return task_energy_j(model, tasks, clock_hz), static_power_w(model, clock_hz)


def _unit(description: PowerDescription, key: str) -> PowerDescription:
    """The description with every number that adds power 0, but one that is 1."""
    plain = msgspec.to_builtins(description)
    for name in (*_STATIC, *_BYTES, *(f"{t}.{name}" for t in _TABLES for name in plain[t])):
        table, last = _place(plain, name)
        table[last] = 0.0
    table, last = _place(plain, key)
    table[last] = 1.0
    return msgspec.convert(plain, PowerDescription)


def _value(description: PowerDescription, key: str) -> float:
    table, name = _place(msgspec.to_builtins(description), key)
    return float(table[name])


def _place(plain: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
    table, _, name = key.rpartition(".")
    return (plain[table] if table else plain), name
