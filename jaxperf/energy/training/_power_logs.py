"""Power of one node or one switch during one run: `node_<k>.txt`, `sw_<k>.txt`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np

from jaxperf._json import NOT_READABLE
from jaxperf.energy._mllog import MARK, read_events
from jaxperf.errors import LogError

_KEYS = (
    "power_measurement_start",
    "power_measurement_stop",
    "power_reading",
    "conversion_eff",
    "interconnect_power_est",
)


@dataclass(frozen=True, slots=True, eq=False)
class PowerLog:
    """Readings of one meter during one run, in order of time. NaN is what the log does not tell.

    Attributes:
        name: of the file, below the submission.
        index: of the node or switch, as its file counts: from 0 or 1.
        time_ms: float64[readings], since the epoch, ascending.
        power_w: float64[readings], as logged: before the conversion.
        start_ms: of the measurement.
        stop_ms: of the measurement; NaN where it is not logged or not after its start.
        end_ms: `stop_ms`, or the last reading where there is none.
        stop_not_after_start: whether a stop is logged at the time of the start, or before it.
        conversion_efficiency: from what was measured to direct current.
        interconnect_power_w: what a switch was estimated to take.
        line: int64[readings], of the file, counted from 1.
        stop_line: of the stop; 0 where none is logged.
        disordered_lines: of readings that the file has after a later one.
        set_aside_lines: of readings outside the measurement, which are not kept here.
        unreadable_lines: that are no events.
    """

    name: str
    index: int
    time_ms: np.ndarray
    power_w: np.ndarray
    start_ms: float
    stop_ms: float
    end_ms: float
    stop_not_after_start: bool
    conversion_efficiency: float
    interconnect_power_w: float
    line: np.ndarray
    stop_line: int
    disordered_lines: np.ndarray
    set_aside_lines: np.ndarray
    unreadable_lines: np.ndarray

    @property
    def factor(self) -> float:
        """What readings are multiplied by: the conversion efficiency, 1 where none is given."""
        return 1.0 if np.isnan(self.conversion_efficiency) else self.conversion_efficiency


class _Event(msgspec.Struct, gc=False):
    key: str
    time_ms: float
    value: Any = None


class _AnyEvent(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def time_ms(self) -> float: ...
    @property
    def value(self) -> Any: ...


_DECODER = msgspec.json.Decoder(_Event)


def read_power_log(content: bytes, where: str, name: str = "", index: int = 0) -> PowerLog:
    """The readings of one power log.

    Args:
        content: of the file.
        where: the file, for messages.
        name: of the file, below the submission.
        index: of the node or switch.

    Returns:
        The log. It has readings, an estimate, or both.

    Raises:
        LogError: a line is cut, a value is no number of watts, the measurement has no start or two,
            no reading lies in it, or none is above 0.

    Example:
        >>> line = ':::MLLOG {{"key": "{}", "time_ms": {}, "value": {}}}'.format
        >>> text = "\\n".join([
        ...     line("power_measurement_start", 0, "null"),
        ...     line("power_reading", 1000, 70),
        ...     line("power_measurement_stop", 1000, "null"),
        ... ])
        >>> read_power_log(text.encode(), "node_0.txt").power_w
        array([70.])
    """
    events, lines, unreadable = _events(content, where)

    def place(i: int) -> str:
        return f"{where}, line {lines[i]}"

    time_ms = np.array([event.time_ms for event in events], np.float64)
    at = {key: [i for i, event in enumerate(events) if event.key == key] for key in _KEYS}
    measured = _measurement(at, time_ms, lines, place)
    estimate_w, efficiency = _estimate_and_efficiency(events, at, place)
    logged = at["power_reading"]
    power_w = _powers(events, logged, place)
    if logged and np.isnan(measured.start_ms):
        raise LogError("no power_measurement_start", where=where)
    if not logged and np.isnan(estimate_w):
        raise LogError("no power readings", where=where, expected="power_reading events")
    line, logged_ms = lines[logged], time_ms[logged]
    order = np.argsort(logged_ms, kind="stable")
    kept = _within(logged_ms[order], line[order], measured, where)
    kept_ms = logged_ms[order][kept]
    last_ms = float(kept_ms[-1]) if len(kept_ms) else np.nan
    return PowerLog(
        name=name,
        index=index,
        time_ms=kept_ms,
        power_w=power_w[order][kept],
        start_ms=measured.start_ms,
        stop_ms=measured.stop_ms,
        end_ms=last_ms if np.isnan(measured.stop_ms) else measured.stop_ms,
        stop_not_after_start=bool(measured.stop_line and np.isnan(measured.stop_ms)),
        conversion_efficiency=efficiency,
        interconnect_power_w=estimate_w,
        line=line[order][kept],
        stop_line=measured.stop_line,
        disordered_lines=line[1:][np.diff(logged_ms) < 0],
        set_aside_lines=line[order][~kept],
        unreadable_lines=unreadable,
    )


@dataclass(frozen=True, slots=True)
class _Measurement:
    """Start and stop, NaN where not logged; a stop that is not after the start is NaN too."""

    start_ms: float
    stop_ms: float
    stop_line: int


def _measurement(
    at: Mapping[str, list[int]], time_ms: np.ndarray, lines: np.ndarray, place: Callable[[int], str]
) -> _Measurement:
    start = _only(at["power_measurement_start"], "start", place)
    stop = _only(at["power_measurement_stop"], "stop", place)
    start_ms = np.nan if start is None else float(time_ms[start])
    stop_ms = np.nan if stop is None or time_ms[stop] <= start_ms else float(time_ms[stop])
    return _Measurement(start_ms, stop_ms, 0 if stop is None else int(lines[stop]))


def _estimate_and_efficiency(
    events: Sequence[_AnyEvent], at: Mapping[str, list[int]], place: Callable[[int], str]
) -> tuple[float, float]:
    """What a switch was estimated to take, and the conversion efficiency; NaN where not logged."""
    estimate_w, efficiency = np.nan, np.nan
    for i in at["interconnect_power_est"][:1]:
        estimate_w = _power(events[i], place(i))
        if estimate_w < 0:
            raise LogError("an estimate below 0 W", where=place(i), got=f"{estimate_w:g} W")
    for i in at["conversion_eff"]:
        efficiency = _efficiency(events[i].value, place(i))
    return estimate_w, efficiency


def _events(content: bytes, where: str) -> tuple[Sequence[_AnyEvent], np.ndarray, np.ndarray]:
    """All events, the line of each, and the lines that are none."""
    # Nearly every power log is events alone: then one call decodes it, thrice as fast.
    try:
        plain = content.removeprefix(MARK).replace(b"\n" + MARK, b"\n")
        events = _DECODER.decode_lines(plain)
    except NOT_READABLE:
        events = None
    if events is not None and len(events) == content.count(b"\n") + (content[-1:] != b"\n"):
        return events, np.arange(1, len(events) + 1), np.array([], np.int64)
    found = read_events(content, where)
    others = [
        number
        for number, line in enumerate(content.split(b"\n"), start=1)
        if MARK not in line and line.strip()
    ]
    lines = np.array([event.line for event in found], np.int64)
    return found, lines, np.array(others, np.int64)


def _only(positions: list[int], what: str, place: Callable[[int], str]) -> int | None:
    if len(positions) > 1:
        raise LogError(
            f"two power_measurement_{what} in one log",
            where=place(positions[1]),
            expected="one measurement a file",
            remedy="split the file",
        )
    return positions[0] if positions else None


def _power(event: _AnyEvent, where: str) -> float:
    if type(event.value) not in (int, float):
        raise LogError(
            f"{event.key} is no power", where=where, got=repr(event.value), expected="watts"
        )
    return float(event.value)


def _efficiency(value: Any, where: str) -> float:
    if type(value) not in (int, float) or not 0 < value <= 1:
        raise LogError(
            "conversion_eff is no efficiency",
            where=where,
            got=repr(value),
            expected="more than 0, at most 1",
        )
    return float(value)


def _powers(
    events: Sequence[_AnyEvent], logged: list[int], place: Callable[[int], str]
) -> np.ndarray:
    for i in logged:
        if type(events[i].value) not in (int, float):
            _power(events[i], place(i))
    # Meters do log a negative reading now and then; it is noted, and counts as logged.
    power_w = np.array([events[i].value for i in logged], np.float64)
    if logged and not (power_w > 0).any():
        raise LogError(
            f"all {len(logged)} power readings are 0 W or less",
            where=place(logged[0]),
            remedy="the meter did not read; measure again",
        )
    return power_w


def _within(
    time_ms: np.ndarray, line: np.ndarray, measured: _Measurement, where: str
) -> np.ndarray:
    """Which readings, in order of time, are of the measurement."""
    kept = time_ms >= measured.start_ms
    if not np.isnan(measured.stop_ms):
        # The program of the rules sorts events by time and keeps the file's order among equals.
        at_stop = (time_ms == measured.stop_ms) & (line < measured.stop_line)
        kept &= (time_ms < measured.stop_ms) | at_stop
    if len(time_ms) and not (time_ms[kept] > measured.start_ms).any():
        if measured.stop_line and np.isnan(measured.stop_ms):
            raise LogError(
                "the measurement ends before it starts, and no reading is after its start",
                where=f"{where}, line {measured.stop_line}",
            )
        raise LogError(
            "no power reading within the measurement",
            where=where,
            got=f"start at {measured.start_ms:.0f} ms, last reading at {time_ms[-1]:.0f} ms",
        )
    return kept
