"""What SPEC PTDaemon writes: an analyzer's samples in `spl.txt`, its messages in `ptd_logs.txt`.

A line of `spl.txt` is `Time,<t>,Watts,<W>,Volts,<V>,Amps,<A>,PF,<pf>,Mark,<mark>`. An analyzer of
several channels, and a director of several analyzers, append more groups; the rules read the first,
which is the sum.
"""

import re
from dataclasses import dataclass

import numpy as np

from jaxperf.energy.inference._clock import clock_time_us, clock_times_us
from jaxperf.errors import LogError
from jaxperf.trace import Note

_TIME, _WATTS_NAME, _WATTS, _FACTOR_NAME, _FACTOR = 1, 2, 3, 8, 9

_TELLING = ("WARNING:", "ERROR:", "Go with mark", "Completed test", "Uncertainty checking for")

_DATED = re.compile(r"\d\d-\d\d-\d{4} \d\d:\d\d:\d\d\.\d{3}")

_DATE_LENGTH = 23


@dataclass(frozen=True)
class AnalyzerSamples:
    """Samples of a power analyzer, in the order of the file.

    Attributes:
        where: the file, for messages.
        time_us: int64 (n), the clock of the director, as if it ran in UTC.
        power_w: float64 (n), of all channels; 0 or less, or not finite, where the analyzer failed.
        power_factor: float64 (n).
        line: int64 (n), counted from 1.
        broken: lines that are cut short, and were left out: their numbers, and times where they
            have one.
        notes: what was set aside.
    """

    where: str
    time_us: np.ndarray
    power_w: np.ndarray
    power_factor: np.ndarray
    line: np.ndarray
    broken: tuple[tuple[int, int | None], ...]
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True)
class DaemonMessage:
    """A line of `ptd_logs.txt` that the rules look at.

    Attributes:
        time_us: the clock of the director, as if it ran in UTC; `None` where the line has no time.
        text: what follows the time, without blanks around it.
        line: of the file, counted from 1.
    """

    time_us: int | None
    text: str
    line: int


def read_samples(content: bytes, where: str) -> AnalyzerSamples:
    """The samples of an `spl.txt`.

    Args:
        content: of the file.
        where: the file, for messages.

    Returns:
        The samples; lines that are none, or were cut short, are left out, with a note.

    Raises:
        LogError: the file has no sample, its power is not in watts, or a value is not a number.

    Example:
        >>> line = b"Time,08-01-2025 00:37:23.272,Watts,700.5,Volts,240,Amps,3,PF,0.96,Mark,a"
        >>> read_samples(line, "spl.txt").power_w
        array([700.5])
    """
    rows, numbers, broken, others = [], [], [], []
    for number, line in enumerate(_lines(content), start=1):
        if line.startswith("Time"):
            row = line.split(",", _FACTOR + 1)
            if len(row) > _FACTOR and _is_number(row[_FACTOR]):
                rows.append(row)
                numbers.append(number)
            else:
                broken.append((number, clock_time_us(row[_TIME]) if len(row) > _TIME else None))
        elif line.strip():
            others.append(number)
    if not rows:
        raise LogError("no power sample", where=where, expected="Time,..,Watts,..,PF,..")
    _refuse_other_units(rows, numbers, where)
    return AnalyzerSamples(
        where=where,
        time_us=_column(rows, numbers, _TIME, where, "a time", clock_times_us),
        power_w=_column(rows, numbers, _WATTS, where, "a power in watts", _numbers),
        power_factor=_column(rows, numbers, _FACTOR, where, "a power factor", _numbers),
        line=np.array(numbers, np.int64),
        broken=tuple(broken),
        notes=_unreadable_notes([number for number, _ in broken] + others, where),
    )


def read_daemon_messages(content: bytes) -> list[DaemonMessage]:
    """The lines of a `ptd_logs.txt` that the rules look at.

    Args:
        content: of the file.

    Returns:
        Warnings, errors, starts and ends of measurements, and whether uncertainty was checked.

    Example:
        >>> log = b"Analyzer 1\\n08-01-2025 00:37:23.272: Completed test"
        >>> [(message.text, message.line) for message in read_daemon_messages(log)]
        [('Completed test', 2)]
    """
    found = [
        (number, line)
        for number, line in enumerate(_lines(content), start=1)
        if any(words in line for words in _TELLING)
    ]
    dates = [line[:_DATE_LENGTH] if _DATED.match(line) else "" for _, line in found]
    times = _times_us(dates)
    return [
        DaemonMessage(time_us, line[len(date) :].removeprefix(":").strip(), number)
        for (number, line), date, time_us in zip(found, dates, times, strict=True)
    ]


def _lines(content: bytes) -> list[str]:
    text = content.decode("utf-8", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _times_us(dates: list[str]) -> list[int | None]:
    try:
        times = iter(clock_times_us([date for date in dates if date]).tolist())
    except ValueError:
        return [clock_time_us(date) for date in dates]
    return [next(times) if date else None for date in dates]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(texts: list[str]) -> np.ndarray:
    return np.array([float(text) for text in texts])


def _refuse_other_units(rows: list[list[str]], numbers: list[int], where: str) -> None:
    for row, number in zip(rows, numbers, strict=True):
        if row[_WATTS_NAME] != "Watts" or row[_FACTOR_NAME] != "PF":
            raise LogError(
                "not the columns of PTDaemon",
                where=f"{where}, line {number}",
                got=f"{row[_WATTS_NAME]}, {row[_FACTOR_NAME]}"[:60],
                expected="Watts, PF",
            )


def _column(rows, numbers, index, where, expected, read) -> np.ndarray:
    texts = [row[index] for row in rows]
    try:
        return read(texts)
    except ValueError:
        pass
    for text, number in zip(texts, numbers, strict=True):
        try:
            read([text])
        except ValueError:
            raise LogError(
                "a value that cannot be read",
                where=f"{where}, line {number}",
                got=repr(text[:40]),
                expected=expected,
            ) from None
    raise AssertionError("one of them cannot be read")


def _unreadable_notes(numbers: list[int], where: str) -> tuple[Note, ...]:
    if not numbers:
        return ()
    text = f"{len(numbers)} lines are no whole samples and were left out"
    return (Note("unreadable-lines", text, f"{where}, line {min(numbers)}"),)
