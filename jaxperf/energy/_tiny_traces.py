"""Energy traces of MLPerf Tiny, cut into measured windows at the edges of the timestamp pin.

Two forms: up to v1.2 `trace1-energy.bin` with `trace1-timestamps.json`, from v1.3 `results.json`.
"""

from dataclasses import dataclass

import msgspec
import numpy as np

from jaxperf._json import NOT_READABLE
from jaxperf.energy._log_files import LogFiles
from jaxperf.errors import LogError

_BINARY, _EDGES, _JSON = (
    "energy/trace1-energy.bin",
    "energy/trace1-timestamps.json",
    "energy/results.json",
)
_FIRST_BYTE = 0xF1
_HEADER_BYTES = 5
_JSON_RATE_HZ = 1000.0
"""`results.json` does not name its rate; its edges count samples of 1 ms."""


@dataclass(frozen=True, slots=True)
class TracedWindow:
    """Energy between two edges.

    Attributes:
        energy_uj: all of it.
        duration_s: from edge to edge.
        samples: of the trace, between them.
    """

    energy_uj: float
    duration_s: float
    samples: int


class _Power(msgspec.Struct):
    samples: list[float]
    timestamps: list[tuple[str, float]]


class _Trial(msgspec.Struct):
    power: _Power


def traced_windows(logs: LogFiles) -> tuple[TracedWindow, ...] | None:
    """The measured windows of a benchmark's energy trace.

    Args:
        logs: of one benchmark, with `energy/` in it.

    Returns:
        The windows in order of time; `None` where there is no trace.

    Raises:
        LogError: the trace is cut, is none, has no pair of edges, or holds no energy.
    """
    if _BINARY in logs:
        windows = _binary_windows(logs)
        place = _BINARY
    elif _JSON in logs:
        windows = _json_windows(logs)
        place = _JSON
    else:
        return None
    for number, window in enumerate(windows):
        if not window.energy_uj > 0.0:
            raise LogError(
                f"no energy in measured window {number + 1}",
                where=logs.where(place),
                got=f"{window.energy_uj:g} uJ in {window.samples} samples",
            )
    return tuple(windows)


def decode_trace(content: bytes, where: str) -> tuple[float, np.ndarray]:
    """The samples of a binary trace.

    Args:
        content: byte 0xF1, the sample rate, then the samples; numbers are little-endian float32.
        where: the file, for messages.

    Returns:
        The rate in Hz, and float64[samples]: microjoules since the sample before.

    Raises:
        LogError: it begins otherwise, is cut, or holds what is no energy.

    Example:
        >>> decode_trace(b"\\xf1" + np.array([1000, 2.5, 3], "<f4").tobytes(), "trace1-energy.bin")
        (1000.0, array([2.5, 3. ]))
    """
    if not content or content[0] != _FIRST_BYTE:
        raise LogError(
            "not an energy trace",
            where=where,
            got=f"first byte {content[0]:#04x}" if content else "no bytes",
            expected=f"first byte {_FIRST_BYTE:#04x}",
        )
    rest = len(content) - _HEADER_BYTES
    if rest < 4 or rest % 4:
        raise LogError(
            "the trace is cut",
            where=where,
            got=f"{len(content)} bytes",
            expected=f"{_HEADER_BYTES} bytes and 4 for every sample",
        )
    numbers = np.frombuffer(content, "<f4", offset=1).astype(np.float64)
    rate_hz, energy_uj = float(numbers[0]), numbers[1:]
    if not 0.0 < rate_hz < np.inf:
        raise LogError("the trace has no sample rate", where=where, got=f"{rate_hz:g} Hz")
    if not np.isfinite(energy_uj).all():
        sample = int(np.argmin(np.isfinite(energy_uj)))
        raise LogError("a sample is no energy", where=where, got=f"{energy_uj[sample]} at {sample}")
    return rate_hz, energy_uj


def _binary_windows(logs: LogFiles) -> list[TracedWindow]:
    rate_hz, energy_uj = decode_trace(logs.read(_BINARY), logs.where(_BINARY))
    try:
        edges_s = np.array(msgspec.json.decode(logs.read(_EDGES), type=list[float]))
    except NOT_READABLE as error:
        raise LogError("not a list of edges", where=logs.where(_EDGES), got=str(error)) from None
    # The pin falls once as the trace starts, then where each measured window begins and ends.
    if len(edges_s) < 3 or len(edges_s) % 2 == 0 or (np.diff(edges_s) <= 0).any():
        raise LogError(
            "no pairs of edges",
            where=logs.where(_EDGES),
            got=f"{len(edges_s)} times",
            expected="rising times: one at the start, then two for every window",
        )
    if edges_s[-1] > len(energy_uj) / rate_hz:
        raise LogError(
            "the trace ends before the last edge",
            where=logs.where(_BINARY),
            got=f"{len(energy_uj) / rate_hz:.3f} s",
            expected=f"{edges_s[-1]:.3f} s",
        )
    cumulative_uj = np.concatenate([[0.0], np.cumsum(energy_uj)])
    at_edge_uj = np.interp(edges_s * rate_hz, np.arange(len(cumulative_uj)), cumulative_uj)
    return [
        TracedWindow(
            float(at_edge_uj[i + 1] - at_edge_uj[i]),
            float(edges_s[i + 1] - edges_s[i]),
            round((edges_s[i + 1] - edges_s[i]) * rate_hz),
        )
        for i in range(1, len(edges_s), 2)
    ]


def _json_windows(logs: LogFiles) -> list[TracedWindow]:
    where = logs.where(_JSON)
    try:
        trials = msgspec.json.decode(logs.read(_JSON), type=list[_Trial])
    except NOT_READABLE as error:
        raise LogError("not a list of traced trials", where=where, got=str(error)) from None
    windows = []
    for number, trial in enumerate(trials):
        # The first trial has one edge more, from when the device was switched on.
        edges = [int(sample) for _, sample in trial.power.timestamps[-2:]]
        if len(edges) < 2 or not 0 <= edges[0] < edges[1] <= len(trial.power.samples):
            raise LogError(
                f"no pair of edges in trial {number}",
                where=where,
                got=f"{edges} of {len(trial.power.samples)} samples",
            )
        energy_j = float(np.sum(trial.power.samples[edges[0] : edges[1]]))
        samples = edges[1] - edges[0]
        windows.append(TracedWindow(1e6 * energy_j, samples / _JSON_RATE_HZ, samples))
    if not windows:
        raise LogError("no traced trials", where=where)
    return windows
