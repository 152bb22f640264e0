"""The governor beside measured sweeps of the power limit: time and power of held-out limits."""

import contextlib
import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

from jaxperf.energy.clocks._governor import (
    PowerWindows,
    limited_clock_hz,
    tasks_us,
    window_power_w,
)
from jaxperf.energy.power._model import PowerModel
from jaxperf.energy.power._tasks import PowerTasks
from jaxperf.graph import TaskClass
from jaxperf.replay import double_precision

# Lowest and highest clock of each device, from its data sheet.
CLOCKS_HZ = {
    "v100": (135e6, 1530e6),
    "a40": (210e6, 1740e6),
    "p100": (544e6, 1328e6),
    "rtx6000": (300e6, 1770e6),
}


@dataclass(frozen=True, eq=False)
class Sweeps:
    """(jobs, limits) seconds an epoch and watts, NaN where not measured."""

    limit_w: np.ndarray
    time_s: np.ndarray
    power_w: np.ndarray


def read_sweeps(path: Path) -> Sweeps:
    """Jobs by data set, network, batch size and optimizer; those with four limits or more."""
    rows = list(csv.DictReader(path.open()))
    limits = sorted({float(row["power_limit"]) for row in rows})
    names = ("dataset", "network", "batch_size", "optimizer")
    jobs: dict[tuple[str, ...], np.ndarray] = {}
    for row in rows:
        job = jobs.setdefault(tuple(row[n] for n in names), np.full((2, len(limits)), np.nan))
        job[:, limits.index(float(row["power_limit"]))] = (
            float(row["time_per_epoch"]),
            float(row["average_power"]),
        )
    found = np.array([job for job in jobs.values() if np.isfinite(job[0]).sum() >= 4])
    return Sweeps(np.array(limits), found[:, 0], found[:, 1])


def table(shared: Path) -> str:
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        compare_limits(shared / "power" / "gpu_power")
    return f"```\n{told.getvalue()}```"


def compare_limits(folder: Path) -> None:
    """Print, of each device, the errors where a job was fitted and of each limit held out."""
    for device, (lowest_hz, highest_hz) in CLOCKS_HZ.items():
        sweeps = read_sweeps(folder / f"zeus_nsdi23_power_{device}.csv")
        with double_precision():
            _compare(device, sweeps, lowest_hz, highest_hz)


def _compare(device: str, sweeps: Sweeps, lowest_hz: float, highest_hz: float) -> None:
    jobs, limits = sweeps.time_s.shape
    residual, slopes, answers = _functions(sweeps.limit_w, lowest_hz, highest_hz)
    # What is the device's own is fitted to every second job, and then stays.
    train, test = (_of_jobs(sweeps, np.arange(jobs) % 2 == k) for k in (0, 1))
    start = np.concatenate([np.log([30.0, 15.0, 15.0, 0.7, 0.75]), _job_start(train)])
    own = _fitted(residual, slopes, start, train, np.isfinite(train.time_s), 0)[:5]
    start, known = np.concatenate([own, _job_start(test)]), np.isfinite(test.time_s)

    def errors(kept: np.ndarray, asked: np.ndarray):
        fit = _fitted(residual, slopes, start, test, kept, 5)
        return fit, *_errors(answers, fit, test, asked)

    print(f"{device}: {jobs} jobs, of which every second is asked for")
    _, *found = errors(known, known)
    _print_errors("all limits fitted", *found)
    held = []
    for each in range(1, limits - 1):
        kept = known & (np.arange(limits) != each)
        held.append(errors(kept, known & ~kept)[1:])
    _print_errors("each limit held out", *(np.concatenate(x) for x in zip(*held, strict=True)))
    kept = known & np.isin(np.arange(limits), (0, limits // 2, limits - 1))
    fit, *found = errors(kept, known & ~kept)
    _print_errors("three limits fitted", *found)
    _print_choice(answers, fit, test)
    print("  constant {:.0f} W, leakage {:.0f} W, clock {:.0f} W".format(*np.exp(own[:3])), end="")
    print(", least voltage {:.2f}, slope {:.2f}".format(*np.exp(own[3:])))


def _print_errors(name: str, time: np.ndarray, power: np.ndarray) -> None:
    cells = [
        f"{what} {np.median(e):.1%} (nine in ten below {np.quantile(e, 0.9):.1%})"
        for what, e in (("time", time), ("power", power))
    ]
    print(f"  {name}: {', '.join(cells)}")


def _print_choice(answers, fit: np.ndarray, sweeps: Sweeps) -> None:
    """What the limit of least predicted energy takes, beside the best and the highest."""
    measured_j = sweeps.time_s * sweeps.power_w
    time_s, power_w = (np.asarray(x) for x in answers(fit))
    predicted_j = np.where(np.isfinite(measured_j), time_s * power_w, np.inf)
    jobs = np.arange(len(measured_j))
    chosen_j = measured_j[jobs, predicted_j.argmin(1)]
    highest = [np.flatnonzero(np.isfinite(row))[-1] for row in measured_j]
    saved = 1.0 - np.array([np.nanmin(measured_j, 1), chosen_j]) / measured_j[jobs, highest]
    best, found = np.median(saved, 1)
    print(f"  energy saved by the best limit {best:.1%}, by the predicted one {found:.1%}")


def _of_jobs(sweeps: Sweeps, which: np.ndarray) -> Sweeps:
    return Sweeps(sweeps.limit_w, sweeps.time_s[which], sweeps.power_w[which])


def _job_start(sweeps: Sweeps) -> np.ndarray:
    """Time at the highest limit, watts that follow the voltage and that do not, and the share."""
    time_s, power_w = np.nanmin(sweeps.time_s, 1), np.nanmax(sweeps.power_w, 1)
    above = np.maximum(power_w - 60.0, 5.0)
    return np.concatenate(
        [np.log(time_s), np.log(0.8 * above), np.log(0.2 * above), np.zeros(len(time_s))]
    )


def _functions(limit_w: np.ndarray, lowest_hz: float, highest_hz: float):
    """Residuals in logarithms, their slopes, and times and powers; of all parameters."""

    def answers(parameters):
        constant, leakage, clock, minimum, slope = jnp.exp(parameters[:5])
        log_time, log_switched, log_fixed, logit = parameters[5:].reshape(4, -1)
        n = logit.shape[0]
        none = jnp.zeros(len(TaskClass))
        model = PowerModel(
            constant, leakage, clock, minimum, slope, highest_hz,
            jnp.ones(8), 1.0, 0.0, 0.0, none, none,
        )  # fmt: skip
        index, zeros = np.arange(n, dtype=np.int32), np.zeros(n)
        tasks = PowerTasks(
            ranks=tuple(range(n)),
            ranks_alike=np.ones(n),
            begin_us=0.0,
            end_us=1.0,
            task=index,
            rank=index,
            task_class=np.zeros(n, np.int32),
            start_us=zeros,
            duration_us=np.ones(n),
            is_known=np.ones(n, bool),
            precision=np.zeros(n, np.int32),
            flops=zeros,
            memory_bytes=zeros,
            node_bytes=zeros,
            network_bytes=zeros,
            clock_share=zeros,
        )
        leaves = {
            "flops": 1e-6 * jnp.exp(log_switched),
            "memory_bytes": 1e-6 * jnp.exp(log_fixed),
            "clock_share": jax.nn.sigmoid(logit),
        }
        windows = PowerWindows(replace(tasks, **leaves), index, np.ones(()), 1)
        clock_hz = limited_clock_hz(windows, model, jnp.asarray(limit_w), lowest_hz, highest_hz)
        clock_hz = jnp.where(jnp.isnan(clock_hz), lowest_hz, clock_hz)
        time_s = jnp.exp(log_time)[:, None] * tasks_us(windows, model, clock_hz)
        return time_s, window_power_w(windows, model, clock_hz)

    def residual(parameters, time_s, power_w, known):
        found = answers(parameters)
        off = [jnp.log(f) - jnp.log(m) for f, m in zip(found, (time_s, power_w), strict=True)]
        return jnp.where(known[None], jnp.stack(off), 0.0).reshape(-1)

    return jax.jit(residual), jax.jit(jax.jacfwd(residual)), jax.jit(answers)


def _fitted(residual, slopes, start, sweeps: Sweeps, known: np.ndarray, fixed: int) -> np.ndarray:
    """Least squares in all but the first parameters."""
    time_s, power_w = (np.where(known, x, 1.0) for x in (sweeps.time_s, sweeps.power_w))

    def whole(free):
        return np.concatenate([start[:fixed], free])

    def jacobian(free):
        return np.nan_to_num(np.asarray(slopes(whole(free), time_s, power_w, known)))[:, fixed:]

    found = least_squares(
        lambda free: np.asarray(residual(whole(free), time_s, power_w, known)),
        start[fixed:],
        jacobian,  # pyright: ignore[reportArgumentType]
        loss="soft_l1",
        f_scale=0.05,
        max_nfev=60,
    )
    return whole(found.x)


def _errors(answers, parameters, sweeps: Sweeps, where: np.ndarray):
    time_s, power_w = (np.asarray(x) for x in answers(parameters))
    return (
        np.abs(time_s / sweeps.time_s - 1.0)[where],
        np.abs(power_w / sweeps.power_w - 1.0)[where],
    )
