"""The power of a GPU while one kernel runs, from what hardware counters say of the kernel."""

from dataclasses import astuple, dataclass

import numpy as np

from jaxperf.errors import ConfigError


@dataclass(frozen=True, slots=True, eq=False)
class KernelCounters:
    """What kernels do to a GPU, as rates.

    Attributes:
        active_share: (kernels,) of the multiprocessors: those that run the kernel.
        issue_share: (kernels,) of the cycles of all multiprocessors: those with their pipelines
            busy.
        near_per_cycle: (kernels,) accesses of first-level, shared and constant memory, of all
            multiprocessors together.
        memory_per_cycle: (kernels,) sectors read from and written to device memory.
    """

    active_share: np.ndarray
    issue_share: np.ndarray
    near_per_cycle: np.ndarray
    memory_per_cycle: np.ndarray


@dataclass(frozen=True, slots=True)
class KernelPower:
    """What a GPU draws, at one clock and voltage.

    Attributes:
        static_w: while a kernel runs anywhere.
        active_w: more, where all multiprocessors run it.
        issue_w: more, where all their pipelines are busy.
        near_w: more, for one access of near memory a cycle.
        memory_w: more, for one sector of device memory a cycle.
    """

    static_w: float
    active_w: float
    issue_w: float
    near_w: float
    memory_w: float


def fit_kernel_power(counters: KernelCounters, power_w: np.ndarray) -> KernelPower:
    """The powers that explain measured kernels best.

    Non-negative least squares of the relative error, as energies are never negative and a kernel
    of 100 W is to be known as well as one of 250 W. The form is that of AccelWattch (Kandiah et
    al., MICRO 2021) with its components gathered into what a few dozen kernels can tell apart.

    Args:
        counters: of the kernels.
        power_w: (kernels,) mean, while each of them runs.

    Returns:
        The powers.

    Raises:
        ConfigError: fewer kernels than numbers, or a measured power that is not above 0.

    Example:
        >>> share = np.array([0.0, 0.5, 1.0, 1.0, 1.0])
        >>> counters = KernelCounters(
        ...     share, np.array([0, 0, 0.2, 0.8, 0.8]), np.array([0, 0, 0, 10.0, 20.0]), share * 0
        ... )
        >>> power = fit_kernel_power(counters, np.array([60.0, 85.0, 130.0, 205.0, 220.0]))
        >>> round(power.static_w), round(power.active_w), round(power.near_w, 2)
        (60, 50, 1.5)
    """
    from scipy.optimize import nnls

    columns = _columns(counters)
    power_w = np.asarray(power_w, np.float64)
    if len(power_w) < columns.shape[1] or not (power_w > 0.0).all():
        raise ConfigError(
            "not enough to fit",
            where="power_w",
            got=f"{int((power_w > 0.0).sum())} powers above 0 of {len(power_w)}",
            expected=f"{columns.shape[1]} or more, all above 0 W",
        )
    found = nnls(columns / power_w[:, None], np.ones(len(power_w)))[0]
    return KernelPower(*found.tolist())


def kernel_power_w(power: KernelPower, counters: KernelCounters) -> np.ndarray:
    """What a GPU draws while each kernel runs.

    Args:
        power: of the GPU.
        counters: of the kernels.

    Returns:
        (kernels,) watts.

    Example:
        >>> counters = KernelCounters(*np.array([[1.0], [0.5], [10.0], [4.0]]))
        >>> kernel_power_w(KernelPower(60.0, 50.0, 80.0, 0.5, 1.5), counters)
        array([161.])
    """
    return _columns(counters) @ np.array(astuple(power))


def _columns(counters: KernelCounters) -> np.ndarray:
    """(kernels, numbers), in the order of `KernelPower`."""
    rates = (
        counters.active_share,
        counters.issue_share,
        counters.near_per_cycle,
        counters.memory_per_cycle,
    )
    return np.stack([np.ones(len(counters.active_share)), *rates], axis=1).astype(np.float64)
