"""The power of kernels from their counters, and the AccelWattch kernels held out one by one."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from jaxperf.energy.calibration._kernel_power import (
    KernelCounters,
    KernelPower,
    fit_kernel_power,
    kernel_power_w,
)
from jaxperf.errors import ConfigError

TRUTH = KernelPower(static_w=60.0, active_w=50.0, issue_w=80.0, near_w=0.5, memory_w=1.5)
BAR_PERCENT = 12.0


def counters(count: int = 40) -> KernelCounters:
    random = np.random.default_rng(0)
    most = np.array([1.0, 1.0, 40.0, 16.0])
    return KernelCounters(*(random.random((count, 4)) * most).T)


def test_powers_are_found_again():
    found = fit_kernel_power(counters(), kernel_power_w(TRUTH, counters()))
    for name in ("static_w", "active_w", "issue_w", "near_w", "memory_w"):
        assert getattr(found, name) == pytest.approx(getattr(TRUTH, name))


def test_an_energy_is_never_negative():
    """Power that falls with memory traffic is explained by a constant at best."""
    rates = counters()
    falling_w = 200.0 - 2.0 * rates.memory_per_cycle
    found = fit_kernel_power(rates, falling_w)
    assert found.memory_w == 0.0
    assert min(found.static_w, found.active_w, found.issue_w, found.near_w) >= 0.0


def test_it_is_the_relative_error_that_is_least():
    """Of 100 W and 200 W at equal counters, p minimises (p/100 - 1)^2 + (p/200 - 1)^2: 120 W."""
    idle = KernelCounters(*np.zeros((4, 6)))
    found = fit_kernel_power(idle, np.array([100.0, 200.0] * 3))
    assert found.static_w == pytest.approx(120.0)


def test_too_few_kernels_are_refused():
    with pytest.raises(ConfigError, match="not enough to fit"):
        fit_kernel_power(counters(4), np.full(4, 100.0))
    with pytest.raises(ConfigError, match="not enough to fit"):
        fit_kernel_power(counters(6), np.array([100.0] * 5 + [0.0]))


@pytest.fixture(scope="module")
def kernels():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
        return importlib.import_module("_energy_kernels")


@pytest.mark.parametrize("groups", ["names", "programs"])
def test_held_out_kernels_are_within_the_bar(groups, kernels, shared):
    """One at a time, or all kernels of one program at a time."""
    found = kernels.read(shared)
    assert len(found.names) == len(set(found.names)) == 25
    held_out_w = kernels.held_out_w(found.counters, found.power_w, getattr(found, groups))
    assert kernels.error_percent(held_out_w, found.power_w) < BAR_PERCENT
