"""The one series that a fit is made to, from whatever holds readings."""

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jaxperf.energy._log_files import LogFiles, is_archive, open_logs
from jaxperf.energy._series import PowerSeries, power_series
from jaxperf.energy._series_files import read_power_series
from jaxperf.energy.training._power_logs import PowerLog, read_power_log
from jaxperf.errors import LogError
from jaxperf.trace import Note

Source = str | os.PathLike[str]
Found = tuple[PowerSeries, tuple[Note, ...]]

_MARK = b":::MLLOG"


def readings_of(
    source: Source | PowerSeries, zone: str | None, conversion_efficiency: float
) -> Found:
    """The mean of what a source has of accelerators or nodes.

    Args:
        source: a table of readings; a power log of MLPerf Training, such as `node_0.txt`, or a
            folder or archive with those of one run; or a series.
        zone: of times that name none.
        conversion_efficiency: of the power supplies, as the power description has it. Where a log
            of MLPerf names its own, its readings become what such supplies would draw.

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
    found, notes = read_power_series(source, zone=zone)
    series, of_mean = mean_series(found)
    return series, notes + of_mean


def mean_series(series: Sequence[PowerSeries]) -> Found:
    """The mean of several series, at the times of the first.

    Others are interpolated there, and times that any of them does not cover are left out.

    Raises:
        LogError: they have no time in common.
    """
    first, others = series[0], series[1:]
    if not others:
        return first, ()
    begin_ns = max(each.window[0] for each in series)
    end_ns = min(each.window[1] for each in series)
    time_ns = first.time_ns[(first.time_ns >= begin_ns) & (first.time_ns <= end_ns)]
    if not len(time_ns):
        raise LogError("the series have no time in common", where=first.source)
    # From the first moment: of nanoseconds since 1970 a float64 keeps only every 256th.
    power_w = np.mean(
        [np.interp(time_ns - begin_ns, each.time_ns - begin_ns, each.power_w) for each in series],
        axis=0,
    )
    text = f"the mean of {len(series)} series is taken, at the times of the first"
    return (
        replace(first, host=None, time_ns=time_ns, power_w=power_w),
        (Note("series-averaged", text, first.source),),
    )


def _is_mllog(source: Source) -> bool:
    try:
        with open(source, "rb") as file:
            return file.read(len(_MARK)) == _MARK
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
