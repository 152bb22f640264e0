"""From tasks and readings to a fit of the power model, judged on readings held out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from jaxperf.config import PowerDescription
from jaxperf.energy._series import PowerSeries
from jaxperf.energy.calibration._clock_profile import Readings
from jaxperf.energy.calibration._clock_search import ClockStart, clock_starts
from jaxperf.energy.calibration._design import (
    HELD,
    Design,
    TimedTasks,
    design_of,
    is_covered,
    with_values,
)
from jaxperf.energy.calibration._fit import Posterior, fit_readings
from jaxperf.energy.calibration._identify import Z, condition_of, parameters_of, sums_of
from jaxperf.energy.calibration._meter import metered_w
from jaxperf.energy.calibration._types import FittedPower, PowerFit, ReadingErrors
from jaxperf.errors import ConfigError, LogError
from jaxperf.replay import double_precision
from jaxperf.trace import Note

_MOST_SKEW_S = 5.0
"""Clocks that both count from the epoch are believed to differ by less."""

_NEARLY = 0.95
_WINDOW_TOLD = 0.5
"""An accelerator's window is taken over where its interval is within this of it."""
_TOLD_AT_ALL = 0.25
"""A fit tells something where the interval of one number is within this of it."""
_BEYOND = 0.1
"""Of the shorter of log and traces, the part that may lie outside the other."""
_NOTHING = 1e-3
"""Of what was believed: a number below it is none."""
_LEAST_READINGS = 10
_HELD_OUT = 5
"""Every so many-th reading is held out."""
_METER_SHARE, _METER_W = 0.01, 5.0
"""How the scatter of a reading grows with it; the fit finds by what factor it is larger."""
_AT_LIMIT, _OFTEN = 0.97, 0.05
"""Of the power limit, from where a reading is at it; and the part of readings that is noted."""


def fit_power(
    runs: Sequence[TimedTasks],
    series: PowerSeries,
    description: PowerDescription,
    *,
    gpus_per_node: float | None = None,
    idle_gpus: float = 0.0,
    same_clock: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> PowerFit:
    """Fit the numbers of a power description to a measured series.

    Args:
        runs: tasks of one or more runs, none at the same time as another.
        series: of one accelerator (the recorded ranks' mean), or of a node at its power supplies.
        description: the numbers before the fit.
        gpus_per_node: accelerators of the node that was measured, those that run the job; `None`
            where one accelerator was measured.
        idle_gpus: of that node, others.
        same_clock: whether the tasks' shared clock and the series' both count from the epoch; else
            the fit looks for the traces anywhere in the series.
        progress: called with the number of rounds done, and of all.

    Returns:
        The fit.

    Raises:
        LogError: all readings are 0, too few of them fall into the traces, or they tell no number,
            alone or in sum.
    """
    if not series.power_w.any():
        raise LogError(
            f"all {len(series.power_w)} readings are 0 W",
            where=series.source,
            remedy="the meter did not read; measure again",
        )
    runs = sorted(runs, key=lambda run: run.span_ns)
    _check_apart(runs)
    runs_from_ns = runs[0].span_ns[0]
    log_from_ns = runs_from_ns if same_clock else int(series.time_ns[0])
    design = design_of(runs, description, gpus_per_node, runs_from_ns)
    idle_w = _idle_w(description, idle_gpus)
    readings = _readings(series, log_from_ns, idle_w)
    meter_delay_s = 0.0 if gpus_per_node else description.meter.delay_s
    least_s, most_s = _delay_range(design, readings, meter_delay_s, same_clock)
    agreeing_s = meter_delay_s + (runs_from_ns - log_from_ns) * 1e-9
    held = np.arange(len(readings.time_s)) % _HELD_OUT == _HELD_OUT - 1
    fitted = readings.rows(~held)
    least = max(_LEAST_READINGS, len(design.keys) + 1)
    _check_enough(len(fitted.time_s), least, series.source)
    starts = clock_starts(design, fitted, least_s, most_s, agreeing_s)
    _check_overlap(runs, series, starts)
    enough = [start for start in starts if start.used.sum() >= least]
    _check_enough(max(int(start.used.sum()) for start in starts), least, series.source)
    posterior, untold = _fitted(design, fitted, enough, progress)
    skew_s = posterior.delay_s - meter_delay_s
    clock_notes = _clock_notes(posterior, skew_s, same_clock)
    skew_s += (log_from_ns - runs_from_ns) * 1e-9
    fit = _power_fit(
        design, readings.rows(held), posterior, untold, description, gpus_per_node, skew_s, idle_w
    )
    _check_told(fit, series.source)
    at_limit = _limit_note(
        fit.description, fitted.power_w[posterior.used], gpus_per_node, series.source
    )
    said = (*_zero_number_notes(fit, series.source), *_worse_note(fit, series.source))
    return replace(fit, notes=(*_zero_note(series), *at_limit, *clock_notes, *said))


def _fitted(
    design: Design,
    readings: Readings,
    starts: list[ClockStart],
    progress: Callable[[int, int], None] | None,
) -> tuple[Posterior, np.ndarray]:
    """What the readings say, with the numbers that they do not tell as they were believed.

    Returns:
        What was found, and (numbers,) bool, those that are not told.
    """
    free = fit_readings(design, readings, starts, progress)
    untold = np.array([_is_untold(each) for each in parameters_of(design, free)])
    if not untold.any():
        return free, untold
    # How sure the others are depends on those that are held, which are not known.
    found = fit_readings(design, readings, starts, held=untold)
    return replace(free, value=np.where(untold, design.prior, found.value)), untold


def _is_untold(each: FittedPower) -> bool:
    # Where nothing is as likely as what was believed, the fit has no reason to take it away.
    nothing = each.told == "loosely" and _is_zero(each) and each.interval[1] >= each.prior
    return nothing or each.told == "prior"


def _check_apart(runs: Sequence[TimedTasks]) -> None:
    for before, after in pairwise(runs):
        if after.span_ns[0] < before.span_ns[1]:
            raise ConfigError(
                "two runs at the same time",
                where="traces",
                expected="runs one after another, all ranks of one in one folder",
            )


def _idle_w(description: PowerDescription, idle_gpus: float) -> float:
    """What accelerators that do not run the job add to a reading of their node."""
    node = description.node
    return idle_gpus * description.idle_w * (1.0 + node.fan_share) / node.conversion_efficiency


def _readings(series: PowerSeries, from_ns: int, idle_w: float = 0.0) -> Readings:
    time_s, power_w = (series.time_ns - from_ns) * 1e-9, series.power_w
    interval_s = np.diff(time_s, prepend=np.nan) if series.averaged else None
    spread_w = np.hypot(_METER_SHARE * power_w, _METER_W)
    readings = Readings(time_s, power_w - idle_w, spread_w, interval_s)
    # Of what came before its first reading a counter says nothing; and what a program holds draws
    # power, so a meter that says 0 has not read.
    known = power_w > 0
    known[0] &= not series.averaged
    return readings.rows(known)


def _delay_range(
    design: Design, readings: Readings, meter_delay_s: float, same_clock: bool
) -> tuple[float, float]:
    if same_clock:
        return meter_delay_s - _MOST_SKEW_S, meter_delay_s + _MOST_SKEW_S
    ends_s = readings.time_s[0] - design.begin_s[0], readings.time_s[-1] - design.end_s[-1]
    # The steps that are logged may end when the last rank does, the traces where the first does.
    spans_s = readings.time_s[-1] - readings.time_s[0], design.end_s[-1] - design.begin_s[0]
    beyond_s = _BEYOND * min(spans_s)
    return min(ends_s) - beyond_s, max(ends_s) + beyond_s


def _check_enough(found: int, least: int, where: str) -> None:
    if found < least:
        raise LogError(
            "too few readings fall into the traces",
            where=where,
            got=f"{found} to fit to",
            expected=f"{least} or more",
            remedy="record for longer, or read the meter more often",
        )


def _check_overlap(
    runs: Sequence[TimedTasks], series: PowerSeries, starts: list[ClockStart]
) -> None:
    if not starts:
        first, last = (_moment(moment_ns) for moment_ns in series.window)
        begin, end = _moment(runs[0].span_ns[0]), _moment(runs[-1].span_ns[1])
        raise LogError(
            "no reading falls into the traces",
            where=series.source,
            got=f"readings from {first} to {last}, traces from {begin} to {end}",
            remedy="name the time zone of the log, if it names none",
        )


def _check_told(fit: PowerFit, source: str) -> None:
    told = [each for each in fit.parameters if each.told in ("log", "loosely")]
    if fit.sums or any(each.interval[1] <= (1.0 + _TOLD_AT_ALL) * each.value for each in told):
        return
    errors = fit.errors
    raise LogError(
        "tells no number of the power model, alone or in sum with others",
        where=source,
        got=f"{fit.readings} readings, which the fit models to {errors.after_percent:.3g} %",
        expected="what the traced run drew, with readings of the same time",
        remedy="see that log and traces are of one run, and --per says what was measured; record"
        " for longer, or read the meter more often",
    )


def _is_zero(each: FittedPower) -> bool:
    return each.value < _NOTHING * each.prior


def _zero_number_notes(fit: PowerFit, source: str) -> tuple[Note, ...]:
    found = [each for each in fit.parameters if each.told == "loosely" and _is_zero(each)]
    if not found:
        return ()
    below = ", ".join(f"{each.key} (below {each.interval[1]:.3g})" for each in found)
    text = f"fitted as 0, where log and traces are of one run: {below}"
    return (Note("number-at-zero", text, source),)


def _worse_note(fit: PowerFit, source: str) -> tuple[Note, ...]:
    before, after = fit.errors.before_percent, fit.errors.after_percent
    if not after >= before:
        return ()
    text = (
        f"readings held out are modelled to {after:.2g} % with the fitted numbers, and to"
        f" {before:.2g} % before: the description as it was explains this log as well"
    )
    return (Note("fit-no-better", text, source),)


def _moment(moment_ns: int) -> str:
    return str(np.datetime64(moment_ns, "ns").astype("datetime64[ms]")) + "Z"


def _zero_note(series: PowerSeries) -> tuple[Note, ...]:
    count = int((series.power_w == 0).sum())
    text = f"{count} readings of 0 W were left out: what a program holds draws power"
    return (Note("zero-readings", text, series.source),) if count else ()


def _limit_note(
    description: PowerDescription, power_w: np.ndarray, gpus_per_node: float | None, source: str
) -> tuple[Note, ...]:
    """Where readings are at the power limit, the clock is not the nominal one, which is assumed."""
    if gpus_per_node is not None:
        node = description.node
        inside_w = power_w * node.conversion_efficiency / (1.0 + node.fan_share)
        power_w = (inside_w - node.host_w) / gpus_per_node
    at_limit = power_w >= _AT_LIMIT * description.power_limit_w
    if at_limit.mean() < _OFTEN:
        return ()
    text = (
        f"{int(at_limit.sum())} of {len(power_w)} readings are at the power limit of"
        f" {description.power_limit_w:g} W: the clock was likely lower there, and so the energies"
        " found are those at a lower voltage, too low for the nominal clock"
    )
    return (Note("log-at-power-limit", text, source),)


def _clock_notes(posterior: Posterior, skew_s: float, same_clock: bool) -> tuple[Note, ...]:
    notes = []
    if not same_clock:
        text = "the traces and the log are on clocks of their own: the fit laid one on the other"
        notes.append(Note("log-aligned-by-fit", text))
    elif abs(skew_s) > _NEARLY * _MOST_SKEW_S:
        text = f"the clocks seem to differ by {skew_s:+.1f} s, as much as was looked at"
        notes.append(Note("skew-at-limit", text))
    if posterior.rivals_s:
        more_s = sorted(rival_s - posterior.delay_s for rival_s in posterior.rivals_s)
        text = (
            f"{' and '.join(f'{each_s:+.2f} s' for each_s in more_s)} more than the skew found fit"
            " nearly as well: the log does not determine it, as where all steps are alike"
        )
        notes.append(Note("skew-ambiguous", text))
    return tuple(notes)


def _power_fit(
    design: Design,
    held: Readings,
    posterior: Posterior,
    untold: np.ndarray,
    description: PowerDescription,
    gpus_per_node: float | None,
    skew_s: float,
    idle_w: float,
) -> PowerFit:
    values = dict(zip(design.keys, posterior.value.tolist(), strict=True))
    window_s = posterior.window * posterior.unit_window_s
    half_s = Z * posterior.delay_spread_s
    more_s = [rival_s - posterior.delay_s for rival_s in (posterior.delay_s, *posterior.rivals_s)]
    half_window_s = Z * posterior.window_spread * posterior.unit_window_s
    if gpus_per_node is None and half_window_s < _WINDOW_TOLD * window_s:
        values["meter.window_s"] = window_s
    found = tuple(
        replace(each, told="prior") if not_told else each
        for each, not_told in zip(parameters_of(design, posterior), untold.tolist(), strict=True)
    )
    unused = tuple(
        FittedPower(key, value, value, (np.nan, np.nan), "no-work")
        for key, value in design.without_work.items()
    )
    return PowerFit(
        description=with_values(description, values),
        per="node" if gpus_per_node else "gpu",
        parameters=found + unused,
        sums=sums_of(design, posterior),
        held=HELD,
        errors=_errors(design, held, posterior, idle_w),
        readings=int(posterior.used.sum()),
        spread_percent=100.0 * posterior.spread_w / (posterior.mean_reading_w + idle_w),
        condition=condition_of(design, posterior),
        skew_s=skew_s,
        skew_interval_s=(skew_s + min(more_s) - half_s, skew_s + max(more_s) + half_s),
        window_s=window_s,
        window_interval_s=(max(window_s - half_window_s, 0.0), window_s + half_window_s),
        notes=(),
    )


def _errors(design: Design, held: Readings, posterior: Posterior, idle_w: float) -> ReadingErrors:
    end_s = held.time_s - posterior.delay_s
    window_s = posterior.window * held.unit_window_s
    seen = is_covered(design, end_s - window_s, end_s)
    if not seen.any():
        return ReadingErrors(0, *[float("nan")] * 4)
    with double_precision():
        columns = np.asarray(
            metered_w(design.energy, held.time_s[seen], posterior.delay_s, window_s[seen])
        )
    reading_w = held.power_w[seen] + idle_w
    each, total = [], []
    for number in (design.prior, posterior.value):
        modelled_w = columns @ number + idle_w
        read = reading_w > 0
        each.append(100.0 * float(np.mean(np.abs(modelled_w[read] / reading_w[read] - 1.0))))
        total.append(100.0 * float(modelled_w.sum() / reading_w.sum() - 1.0))
    return ReadingErrors(int(seen.sum()), *each, *total)
