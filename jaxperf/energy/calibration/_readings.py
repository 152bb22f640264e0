"""The one series that a fit is made to, from whatever holds readings."""

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jaxperf.energy._log_files import LogFiles, is_archive, open_logs
from jaxperf.energy._mllog import MARK
from jaxperf.energy._series import PowerSeries, Window, power_series
from jaxperf.energy._series_files import read_power_series
from jaxperf.energy.training._power_logs import PowerLog, read_power_log
from jaxperf.errors import LogError
from jaxperf.trace import Note

Source = str | os.PathLike[str]
Found = tuple[PowerSeries, tuple[Note, ...]]


def readings_of(
    source: Source | PowerSeries,
    zone: str | None,
    conversion_efficiency: float,
    *,
    of_accelerator: bool = False,
) -> Found:
    """The mean of what a source has of accelerators or nodes.

    Args:
        source: a table of readings; a power log of MLPerf Training, such as `node_0.txt`, or a
            folder or archive with those of one run; or a series.
        zone: of times that name none.
        conversion_efficiency: of the power supplies, as the power description has it. Where a log
            of MLPerf names its own, its readings become what such supplies would draw.
        of_accelerator: which of the columns that `energy predict` writes is meant: of an
            accelerator, or of a node at its supplies.

    Returns:
        One series, and notes.

    Raises:
        LogError: it cannot be read, or holds no reading.
    """
    if isinstance(source, PowerSeries):
        return source, ()
    if os.path.isdir(source) or is_archive(source):
        return _of_folder(open_logs(source), conversion_efficiency)
    if _is_mllog(source):
        with open(source, "rb") as file:
            log = read_power_log(file.read(), str(source), os.path.basename(source))
        return _of_nodes([log], str(source), conversion_efficiency)
    wanted = "accelerator" if of_accelerator else "node_ac"
    found, notes = read_power_series(source, zone=zone, wanted=wanted)
    series, of_mean = mean_series(found)
    return series, notes + of_mean


def mean_series(series: Sequence[PowerSeries]) -> Found:
    """The mean of several series, at the times of the first.

    Powers of a moment are interpolated there; of series of averages, such as counters, the energy
    since the time before is. Times that any series does not cover are left out.

    Raises:
        LogError: they have no time in common, or only some are averages.

    Example:
        >>> from jaxperf.energy._series_counter import series_of_counter
        >>> each_second, _ = series_of_counter([0, 10**9, 2 * 10**9], [0, 60, 160], "a", "a.csv")
        >>> every_other, _ = series_of_counter([0, 2 * 10**9], [0, 240], "b", "a.csv")
        >>> mean, _ = mean_series([each_second, every_other])
        >>> mean.power_w.tolist()
        [90.0, 90.0, 110.0]
    """
    first, others = series[0], series[1:]
    if not others:
        return first, ()
    if len({each.averaged for each in series}) > 1:
        raise LogError(
            "some series are powers of a moment, and some averages since the reading before",
            where=first.source,
            remedy="fit to those of one kind",
        )
    window_ns = max(each.window[0] for each in series), min(each.window[1] for each in series)
    time_ns = first.time_ns[_inside(first, window_ns)]
    if len(time_ns) < 1 + first.averaged:
        raise LogError("the series have no time in common", where=first.source)
    take = _averages_w if first.averaged else _powers_w
    power_w = np.mean([take(each, time_ns) for each in series], axis=0)
    text = f"the mean of {len(series)} series is taken, at the times of the first"
    notes = (Note("series-averaged", text, first.source),)
    outside = sum(int((~_inside(each, window_ns)).sum()) for each in series)
    if outside:
        text = f"{outside} readings at times that not all of the series cover were left out"
        notes += (Note("readings-outside-overlap", text, first.source),)
    return replace(first, host=None, time_ns=time_ns, power_w=power_w), notes


def _inside(series: PowerSeries, window_ns: Window) -> np.ndarray:
    """(n,) bool."""
    return (series.time_ns >= window_ns[0]) & (series.time_ns <= window_ns[1])


def _powers_w(series: PowerSeries, time_ns: np.ndarray) -> np.ndarray:
    """The power at each time."""
    return _interpolated(series, time_ns, series.power_w)


def _averages_w(series: PowerSeries, time_ns: np.ndarray) -> np.ndarray:
    """The mean power since the time before, as differences of a counter; the first as the second.

    Between the edges of its averages the energy so far is linear: interpolated, it is `energy_j`.
    """
    drawn_j = np.cumsum(series.power_w[1:] * np.diff(series.time_ns) / 1e9)
    so_far_j = _interpolated(series, time_ns, np.append(0.0, drawn_j))
    average_w = np.diff(so_far_j) / (np.diff(time_ns) / 1e9)
    return np.append(average_w[:1], average_w)


def _interpolated(series: PowerSeries, time_ns: np.ndarray, value: np.ndarray) -> np.ndarray:
    # From the first moment: of nanoseconds since 1970 a float64 keeps only every 256th.
    first_ns = series.time_ns[0]
    return np.interp(time_ns - first_ns, series.time_ns - first_ns, value)


def _is_mllog(source: Source) -> bool:
    try:
        with open(source, "rb") as file:
            return file.read(len(MARK)) == MARK
    except OSError as error:
        raise LogError("cannot be read", where=str(source), got=error.strerror) from None


def _of_folder(files: LogFiles, conversion_efficiency: float) -> Found:
    names = [name for name in files.names if name.rpartition("/")[2].startswith("node_")]
    folders = sorted({name.rpartition("/")[0] for name in names})
    if len(folders) != 1:
        raise LogError(
            "not the power logs of one run",
            where=files.source,
            got=f"node_*.txt in {len(folders)} folders",
            expected="one folder such as power/result_0",
        )
    logs = [read_power_log(files.read(name), files.where(name), name) for name in names]
    return _of_nodes(logs, files.source, conversion_efficiency)


def _of_nodes(logs: Sequence[PowerLog], source: str, conversion_efficiency: float) -> Found:
    found, notes = [], ()
    for log in logs:
        logged = log.conversion_efficiency
        factor = 1.0 if np.isnan(logged) else log.factor / conversion_efficiency
        time_ns = np.rint(log.time_ms * 1e6).astype(np.int64)
        series, said = power_series(time_ns, log.power_w * factor, log.name, source)
        found.append(series)
        notes += said
        if not np.isnan(logged) and logged != conversion_efficiency:
            text = (
                f"readings are taken to {conversion_efficiency:g}, the efficiency of power supplies"
                f" in the power description, from the log's {logged:g}"
            )
            notes += (Note("conversion-efficiency-logged", text, log.name),)
    series, of_mean = mean_series(found)
    return series, notes + of_mean
