"""Columns of text as numbers: times of several kinds, and quantities with their units."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from jaxperf.errors import ConfigError

POWER_UNITS_W = {
    "w": 1.0,
    "watt": 1.0,
    "watts": 1.0,
    "kw": 1e3,
    "kilowatts": 1e3,
    "mw": 1e-3,
    "milliwatts": 1e-3,
    "uw": 1e-6,
    "µw": 1e-6,
    "microwatts": 1e-6,
}
ENERGY_UNITS_J = {
    "j": 1.0,
    "joules": 1.0,
    "kj": 1e3,
    "mj": 1e-3,
    "millijoules": 1e-3,
    "uj": 1e-6,
    "µj": 1e-6,
    "microjoules": 1e-6,
    "wh": 3.6e3,
    "kwh": 3.6e6,
}
TIME_UNITS_NS = {
    "s": 1_000_000_000,
    "sec": 1_000_000_000,
    "seconds": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}

_MISSING = {"", "n/a", "not supported", "unknown error", "gpu is lost", "nan", "none", "null", "-"}

_LARGEST = 1e18
"""Watts or joules beyond which a number is no reading of anything on earth."""

_TOLD_BY = 100
"""The first readings tell whether times are numbers or dates."""

_LATEST_NS = 9e18
"""Of signed 64-bit nanoseconds: the year 2255."""

EARLIEST_NS = 10**17
"""Of 1973: numbers below it count from a start of their own, and not from the epoch."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_OTHER_FORMATS = ("%a %b %d %H:%M:%S %Y", "%m/%d/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S%z")
"""What C's `ctime` and ipmitool write."""


@dataclass(frozen=True, eq=False)
class Times:
    """A column of times.

    Attributes:
        time_ns: (n,) int64, since the epoch.
        bad: (n,) bool: those that are none.
        naive: how many are dates without a zone.
        again: (n,) bool: dates of an hour that comes twice that were taken as of its second time.
    """

    time_ns: np.ndarray
    bad: np.ndarray
    naive: int
    again: np.ndarray


def unit_factor(unit: str, factors: Mapping[str, float]) -> float | None:
    """What to multiply a value by; `None` where the unit is unknown. `MW` and `MJ` are mega.

    Example:
        >>> unit_factor("kW", POWER_UNITS_W), unit_factor("MJ", ENERGY_UNITS_J)
        (1000.0, 1000000.0)
    """
    if unit in ("MW", "MJ"):
        return 1e6 if unit.lower() in factors else None
    return factors.get(unit.lower())


def zone_of(name: str | None) -> tzinfo:
    """A time zone.

    Args:
        name: of the IANA database, such as `Europe/Berlin`; `UTC`, as by default; or an offset such
            as `+02:00`.

    Raises:
        ConfigError: there is no such zone.

    Example:
        >>> zone_of("+02:00").utcoffset(None)
        datetime.timedelta(seconds=7200)
    """
    if name in (None, "UTC", "Z"):
        return UTC
    try:
        if re.fullmatch(r"[+-]\d\d:?\d\d", name):
            offset = datetime.strptime(name, "%z").tzinfo
            assert offset is not None
            return offset
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            "no such time zone", where="zone", got=name, expected="Europe/Berlin, UTC or +02:00"
        ) from None


def times_of(
    texts: Sequence[str], unit_ns: int | None, zone: tzinfo, owner: Sequence[str]
) -> Times:
    """Times since the epoch of a column: numbers, or dates with or without zone.

    Where the clocks of a zone go back, an hour comes twice: its dates without a zone are of the
    second time from where those of one owner go back.

    Args:
        texts: (n) as written.
        unit_ns: of numbers; told by their magnitude where it is `None`.
        zone: of dates without one.
        owner: (n) whose times they are.

    Example:
        >>> times_of(["1970-01-01T00:00:01Z", "soon"], None, UTC, ["a", "a"]).time_ns.tolist()
        [1000000000, 0]
    """
    nowhere = np.zeros(len(texts), bool)
    if np.isfinite(_numbers(texts[:_TOLD_BY])).mean() > 0.5:
        return Times(*_epoch_ns(texts, unit_ns), 0, nowhere)
    moments = [_moment(text) for text in texts]
    bad = np.array([moment is None for moment in moments])
    local = [
        (index, moment.replace(tzinfo=zone))
        for index, moment in enumerate(moments)
        if moment is not None and moment.tzinfo is None
    ]
    again = _second_times(local, owner)
    for index, moment in local:
        moments[index] = moment.replace(fold=1) if index in again else moment
    micros = [0 if moment is None else (moment - _EPOCH) // _MICROSECOND for moment in moments]
    nowhere[sorted(again)] = True
    return Times(np.array(micros, np.int64) * 1_000, bad, len(local), nowhere)


def quantities(
    texts: Sequence[str], unit: float | None, factors: Mapping[str, float]
) -> tuple[np.ndarray, np.ndarray, list[tuple[int, str]]]:
    """Values of a column, with a unit after each or one for all.

    Args:
        texts: (n) as written; `[N/A]` and the like are missing values.
        unit: the factor of a value without its own; NaN leaves such a value unreadable.
        factors: of each unit, in lower case.

    Returns:
        (n,) float64, NaN where missing or unreadable; (n,) bool unreadable; unknown units, each
        with the index where it is first.

    Example:
        >>> value, bad, unknown = quantities(["0.5 kW", "[N/A]", "many"], 1.0, POWER_UNITS_W)
        >>> value.tolist(), bad.tolist(), unknown
        ([500.0, nan, nan], [False, False, True], [])
    """
    column = np.array([text.strip("[] ") for text in texts])
    digits = np.char.rstrip(column, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZµ/% ")
    words = np.char.strip(np.char.lstrip(column, "0123456789+-.eE "))
    value = _numbers(digits)
    scale = np.full(len(column), 1.0 if unit is None else unit)
    unknown = []
    for word in np.unique(words):
        if word == "":
            continue
        own = words == word
        factor = unit_factor(str(word), factors)
        if factor is None and np.isfinite(value[own]).any():
            unknown.append((int(np.argmax(own & np.isfinite(value))), str(word)))
        scale[own] = np.nan if factor is None else factor
    with np.errstate(over="ignore"):
        value = value * scale
    value[~(np.abs(value) < _LARGEST)] = np.nan
    lowered = np.char.lower(column)
    bad = np.isnan(value) & ~np.isin(lowered, sorted(_MISSING))
    return value, bad, unknown


def _epoch_ns(texts: Sequence[str], unit_ns: int | None) -> tuple[np.ndarray, np.ndarray]:
    numbers = _numbers(texts)
    if unit_ns is None:
        # Of this century: 1e9 seconds, 1e12 ms, 1e15 us, 1e18 ns.
        sizes = np.abs(numbers)
        possible = sizes[sizes < _LATEST_NS]
        magnitude = np.log10(max(1.0, float(np.median(possible)))) if len(possible) else 0.0
        unit_ns = (10**9, 10**6, 10**3, 1)[int(np.clip((magnitude - 8) // 3, 0, 3))]
    bad = ~(np.abs(numbers) < _LATEST_NS / unit_ns)
    try:
        # Whole nanoseconds since the epoch have more digits than a float64 holds.
        whole = np.array(texts).astype(np.int64)
    except (ValueError, OverflowError):
        return np.rint(np.where(bad, 0.0, numbers) * unit_ns).astype(np.int64), bad
    return np.where(bad, 0, whole) * unit_ns, bad


def _numbers(texts: Sequence[str] | np.ndarray) -> np.ndarray:
    """Each text as a number, NaN where it is none."""
    try:
        return np.asarray(texts).astype(np.float64)
    except ValueError:
        return np.array([_number(text) for text in texts])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


def _moment(text: str) -> datetime | None:
    text = text.replace("/", "-", 2) if text[4:5] == "/" else text
    if text.endswith(" UTC"):
        text = text.removesuffix(" UTC") + "+00:00"
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    # Slow, and rare: a column of these is of readings by hand or by ipmitool.
    for form in _OTHER_FORMATS:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            pass
    return None


def _second_times(local: Sequence[tuple[int, datetime]], owner: Sequence[str]) -> set[int]:
    """Of dates, each with its index, those of the second time of an hour that comes twice."""
    before: dict[str, datetime] = {}
    back: set[str] = set()
    again = set()
    for index, moment in local:
        host = owner[index]
        # A subtraction of one zone is of what its clocks show.
        last = before.get(host, moment)
        before[host] = moment
        if last > moment and last - moment > _repeated(last) / 2 > timedelta(0):
            back.add(host)
        if host in back:
            if _repeated(moment):
                again.add(index)
            else:
                back.remove(host)
    return again


def _repeated(moment: datetime) -> timedelta:
    """How much time comes twice, of which a moment is; 0 of every other moment."""
    first, second = (moment.replace(fold=fold).utcoffset() for fold in (0, 1))
    return max((first or timedelta(0)) - (second or timedelta(0)), timedelta(0))
