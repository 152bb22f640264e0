"""The score of plain series of power: energy of a window, and whether the readings carry it."""

import math
from collections.abc import Sequence

import numpy as np

from jaxperf.energy._score_types import Check, EnergyScore, HostEnergy, MeasuredWindow, Metric
from jaxperf.energy._series import (
    SLOWEST_S,
    PowerSeries,
    Window,
    check_window,
    covered,
    energy_j,
    gaps,
    gaps_within,
    median_interval_s,
)
from jaxperf.energy._series_gaps import gap_note
from jaxperf.energy._series_order import of_host
from jaxperf.errors import LogError
from jaxperf.trace import Note

Measured = Sequence[tuple[PowerSeries, Window]]
"""Hosts with readings in the window, each with the part of it that they cover."""

_UNITS_APART = 300.0
"""Hosts that differ by more differ in their units, which are a thousand apart."""


def score_series(
    series: Sequence[PowerSeries],
    window_ns: Window | None,
    notes: Sequence[Note],
    source: str,
) -> EnergyScore:
    """The energy of one or several hosts in a window.

    Of a host whose readings do not reach the window's edges the part between its first and last
    reading counts, and of a host without readings in it nothing: notes and the check `coverage` say
    so, and how much is missing. Time between readings is bridged, and where that is much longer
    than between the others, a note tells how much of the energy that is. No rule averages plain
    readings, so both windows of the score are the same.

    Args:
        series: of each host, or of each accelerator.
        window_ns: begin and end; by default from the first reading of any host to the last of any.
            Where all hosts begin and end together, each within an interval between its readings,
            the duration is then that of the longest.
        notes: of the reading.
        source: the log.

    Returns:
        The score, with the notes `gap-bridged`, `window-not-covered`, `host-not-measured`,
        `power-unit-suspect` and `zero-energy` added where they apply.

    Raises:
        LogError: the window ends before it begins, no host has readings in it, the energy is more
            than a number holds, or accelerators stand among hosts: what a node draws has theirs in
            it, and would count it twice.

    Example:
        >>> from jaxperf.energy._series import power_series
        >>> series, notes = power_series([0, 10**9, 2 * 10**9], [50, 50, 50], None, "power.csv")
        >>> score_series([series], (0, 2 * 10**9), notes, "power.csv").energy_j
        100.0
    """
    _refuse_twice(series, source)
    if window_ns is not None:
        check_window(window_ns, source)
    asked = window_ns or _time_of_all(series)
    parts = [covered(host, asked) for host in series]
    measured = [(host, part) for host, part in zip(series, parts, strict=True) if part]
    if not measured:
        raise LogError(
            "no host has readings on both sides of any moment of the window",
            where=source,
            got=f"a window {_range(asked)}, readings {_range(_time_of_all(series))}",
            expected="a window within the time of the readings, and their time zone",
        )
    together = window_ns is None and all(_reaches(host, part, asked) for host, part in measured)
    official = _measured_window(measured, None if together else asked, source)
    coverage, uncovered = _coverage(series, parts, None if together else asked, source)
    gap_check, bridged = _gaps(measured)
    return EnergyScore(
        source=source,
        division="series",
        benchmark=None,
        scenario=None,
        system=None,
        metric=Metric("energy", official.energy_j, "J"),
        efficiency=None,
        average_power_w=official.average_power_w,
        energy_j=official.energy_j,
        duration_s=official.duration_s,
        official=official,
        run_window=official,
        runs=(),
        checks=(coverage, gap_check, _sampling([host for host, _ in measured])),
        notes=(
            *(*notes, *uncovered, *bridged, *_apart(measured, source)),
            *_zero(official.energy_j, notes, source),
        ),
        hosts=tuple(_host_energy(host, part) for host, part in zip(series, parts, strict=True)),
    )


def _range(window_ns: Window) -> str:
    begin, end = (
        str(np.datetime64(at_ns, "ns").astype("datetime64[ms]")) + "Z" for at_ns in window_ns
    )
    return f"from {begin} to {end}"


def _host_energy(series: PowerSeries, part: Window | None) -> HostEnergy:
    if part is None:
        return HostEnergy(series.host, math.nan, math.nan, 0, 0.0)
    energy, inside = energy_j(series, *part), gaps_within(gaps(series), part)
    longest_s = float(np.diff(inside).max(initial=0)) * 1e-9
    seconds = (part[1] - part[0]) * 1e-9
    return HostEnergy(series.host, energy, energy / seconds, len(inside), longest_s)


def _apart(measured: Measured, source: str) -> list[Note]:
    """A note where one host draws so much less than another that its unit may be another."""
    usual = [(float(np.median(host.power_w)), host) for host, _ in measured]
    drawing = [pair for pair in usual if pair[0] > 0]
    if not drawing:
        return []
    (least_w, least), (most_w, most) = (
        choose(drawing, key=lambda pair: pair[0]) for choose in (min, max)
    )
    if most_w <= _UNITS_APART * least_w:
        return []
    text = (
        f"typically {least_w:.6g} W{of_host(_name(least))} and {most_w:.6g} W{of_host(_name(most))}"
        ": one of them may be in another unit; both were counted as W"
    )
    return [Note("power-unit-suspect", text, source)]


def _refuse_twice(series: Sequence[PowerSeries], source: str) -> None:
    part = next((each for each in series if each.of_accelerator), None)
    whole = next((each for each in series if not each.of_accelerator), None)
    if part is not None and whole is not None:
        raise LogError(
            "readings of accelerators and of what holds them: their sum counts energy twice",
            where=source,
            got=f"{_name(part)} and {_name(whole)}",
            expected="either",
            remedy="score them apart, or leave one of them out",
        )


def _name(series: PowerSeries) -> str:
    return series.host or series.source


def _time_of_all(series: Sequence[PowerSeries]) -> Window:
    windows = np.array([host.window for host in series])
    return int(windows[:, 0].min()), int(windows[:, 1].max())


def _missing_s(part: Window, window_ns: Window) -> tuple[float, float]:
    """What a part leaves out of a window: seconds at its start, and at its end."""
    return (part[0] - window_ns[0]) * 1e-9, (window_ns[1] - part[1]) * 1e-9


def _reaches(host: PowerSeries, part: Window, window_ns: Window) -> bool:
    """Whether a host's readings leave out no more than an interval at either edge."""
    return max(_missing_s(part, window_ns)) <= median_interval_s(host)


def _measured_window(measured: Measured, window_ns: Window | None, source: str) -> MeasuredWindow:
    """Energy of all hosts; by default over the longest time of one."""
    try:
        energy = math.fsum(energy_j(host, *part) for host, part in measured)
    except OverflowError:
        raise LogError(
            "more energy than a number holds", where=source, expected="power in W, kW or mW"
        ) from None
    windows = [part for _, part in measured] if window_ns is None else [window_ns]
    duration_s = max(end - begin for begin, end in windows) * 1e-9
    return MeasuredWindow(
        energy_j=energy,
        average_power_w=energy / duration_s,
        duration_s=duration_s,
        interconnect_energy_j=math.nan,
        readings=sum(_readings(host, part) for host, part in measured),
    )


def _readings(series: PowerSeries, part: Window) -> int:
    begin, end = np.searchsorted(series.time_ns, [part[0], part[1] + 1])
    return int(end - begin)


def _coverage(
    series: Sequence[PowerSeries],
    parts: Sequence[Window | None],
    window_ns: Window | None,
    source: str,
) -> tuple[Check, list[Note]]:
    """Whether all hosts were measured all the time; less than an interval at an edge only warns."""
    absent = [_name(host) for host, part in zip(series, parts, strict=True) if not part]
    notes = []
    outcome = "fail" if absent else "pass"
    if absent:
        text = (
            f"{len(absent)} of {len(series)} have no readings in the window, and add nothing to the"
            f" energy: {', '.join(absent)}"
        )
        notes.append(Note("host-not-measured", text, source))
    for host, part in zip(series, parts, strict=True):
        if part is None or window_ns is None or part == window_ns:
            continue
        begin_s, end_s = _missing_s(part, window_ns)
        share = (begin_s + end_s) / ((window_ns[1] - window_ns[0]) * 1e-9)
        text = (
            f"readings{of_host(host.host)} leave out {begin_s:.6g} s at the start and {end_s:.6g} s"
            f" at the end of the window, {share:.2%} of it; their energy is not counted"
        )
        notes.append(Note("window-not-covered", text, host.source))
        within = _reaches(host, part, window_ns)
        outcome = "warning" if within and outcome != "fail" else "fail"
    return Check("coverage", outcome, "; ".join(note.text for note in notes)), notes


def _gaps(measured: Measured) -> tuple[Check, list[Note]]:
    """Whether readings were lost, and what of the energy is a straight line in their place."""
    found = [(host, part, gaps_within(gaps(host), part)) for host, part in measured]
    hurt = [(host, part, inside) for host, part, inside in found if len(inside)]
    if not hurt:
        return Check("gaps", "pass", ""), []
    notes = [gap_note(host, part, host.source) for host, part, _ in hurt]
    total_s = sum((end - begin) * 1e-9 for _, (begin, end) in measured)
    inside_s = sum(float(np.diff(inside).sum()) * 1e-9 for *_, inside in hurt)
    host, longest_s = max(
        ((host, float(np.diff(inside).max()) * 1e-9) for host, _, inside in hurt),
        key=lambda pair: pair[1],
    )
    text = (
        f"{sum(len(inside) for *_, inside in hurt)} gaps, the longest{of_host(host.host)}"
        f" {longest_s:.6g} s; {inside_s / total_s:.2%} of the window lies inside gaps"
    )
    return Check("gaps", "warning", text), [note for note in notes if note is not None]


def _sampling(series: Sequence[PowerSeries]) -> Check:
    """Whether there is a reading every second, as MLPerf asks."""
    slowest = max(series, key=median_interval_s)
    interval_s = median_interval_s(slowest)
    text = f"a reading{of_host(slowest.host)} every {interval_s:.6g} s"
    if interval_s <= SLOWEST_S:
        return Check("sampling-interval", "pass", text)
    return Check("sampling-interval", "warning", f"{text}; one per second or more is expected")


def _zero(energy: float, notes: Sequence[Note], source: str) -> list[Note]:
    if energy or any(note.code == "zero-energy" for note in notes):
        return []
    return [Note("zero-energy", "all power in the window is 0 W: the energy is 0 J", source)]
