"""Rates of lookups that measured ones tell."""

from collections.abc import Sequence
from dataclasses import astuple, fields

import numpy as np

from jaxperf.embedding.torchrec._corrected import LookupRates, LookupTimes, lookup_times
from jaxperf.embedding.torchrec._measured import MeasuredLookups
from jaxperf.errors import ConfigError

_TIMES = ("forward_ms", "backward_ms", "training_ms", "evaluation_ms")
_PRIOR_WEIGHT = 0.02
"""A rate off its prior by a factor counts as a time that is off by 2 % of that."""


def lookup_errors(measured: Sequence[MeasuredLookups], rates: LookupRates) -> np.ndarray:
    """How far the model's times are from measured ones.

    Args:
        measured: configurations.
        rates: of the device.

    Returns:
        (configurations, 4) model / measured - 1 of forward, backward, training and evaluation.

    Example:
        >>> from jaxperf.embedding.torchrec import H100_RATES, LookupWork
        >>> work = LookupWork(1e6, 4e5, 1e6, row_bytes=512, state_row_bytes=0, table_rows=2**28)
        >>> times = lookup_times(work, "fused")
        >>> known = [times.forward_ms, times.backward_ms, times.training_ms, times.evaluation_ms]
        >>> lookup_errors([MeasuredLookups("own", "fused", work, *known, 0.0)], H100_RATES).tolist()
        [[0.0, 0.0, 0.0, 0.0]]
    """
    return np.array([_ratios(each, rates) for each in measured]) - 1


def fit_lookup_rates(measured: Sequence[MeasuredLookups], prior: LookupRates) -> LookupRates:
    """The rates that explain measured lookups best, near the prior where those do not tell.

    Least squares of the logarithms of times; `repeat_share` is kept below 1.

    Args:
        measured: configurations, of one device.
        prior: rates that a data sheet suggests.

    Returns:
        The rates.

    Raises:
        ConfigError: nothing is measured.

    Example:
        >>> from jaxperf.embedding.torchrec import H100_RATES, LookupWork
        >>> work = LookupWork(1e6, 4e5, 1e6, row_bytes=512, state_row_bytes=0, table_rows=2**28)
        >>> times = lookup_times(work, "fused")
        >>> known = [times.forward_ms, times.backward_ms, times.training_ms, times.evaluation_ms]
        >>> measured = MeasuredLookups("own", "fused", work, *known, 0.0)
        >>> rates = fit_lookup_rates([measured], H100_RATES)
        >>> round(rates.repeat_share, 3) == H100_RATES.repeat_share
        True
    """
    from scipy.optimize import least_squares

    if not measured:
        raise ConfigError("no measured lookups to fit", expected="at least one")
    start = np.log(astuple(prior))
    highest = np.full(len(start), np.inf)
    highest[[field.name for field in fields(prior)].index("repeat_share")] = 0.0

    def residuals(logarithms: np.ndarray) -> np.ndarray:
        rates = LookupRates(*np.exp(logarithms).tolist())
        logs = [np.log(_ratios(each, rates)) for each in measured]
        return np.concatenate([*logs, _PRIOR_WEIGHT * (logarithms - start)])

    found = least_squares(residuals, start, bounds=(-np.inf, highest))
    return LookupRates(*np.exp(found.x).tolist())


def _ratios(measured: MeasuredLookups, rates: LookupRates) -> np.ndarray:
    times: LookupTimes = lookup_times(measured.work, measured.compute_kernel, rates)
    pairs = [(getattr(times, name), getattr(measured, name)) for name in _TIMES]
    return np.array([float(model / truth) for model, truth in pairs])
