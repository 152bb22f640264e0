"""What a training submission's power logs made a score repair, guess or set aside."""

from collections.abc import Callable, Sequence

import numpy as np

from jaxperf.energy._log_files import LogFiles
from jaxperf.energy._series_order import is_suspect
from jaxperf.energy.training._power_logs import PowerLog
from jaxperf.energy.training._run_logs import LoggedRun, runs_without_result
from jaxperf.energy.training._window_energy import node_powers
from jaxperf.trace import Note

_LEAST_NODE_W, _MOST_NODE_W = 20.0, 200e3
"""A training node takes kilowatts, a rack that counts as a node about 130 kW."""

_UNIT_RATIO = 100.0
"""Nodes of one submission are alike: their units differ where their powers do so much."""


def _beyond(log: PowerLog) -> np.ndarray:
    beyond = is_suspect(log.power_w)
    # A log of which most is suspect is told of as a whole.
    return log.line[beyond] if 2 * beyond.sum() < len(beyond) else log.line[:0]


_PER_LOG: tuple[tuple[str, Callable[[PowerLog], np.ndarray], str], ...] = (
    (
        "stop-at-start",
        lambda log: np.array([log.stop_line] if log.stop_not_after_start else []),
        "power_measurement_stop is not after power_measurement_start; the measurement was taken to"
        " end with the last reading",
    ),
    (
        "no-power-stop",
        lambda log: log.line[-1:] if not log.stop_line else log.line[:0],
        "no power_measurement_stop; the measurement was taken to end with the last reading",
    ),
    (
        "unsorted-readings",
        lambda log: log.disordered_lines,
        "power readings after a later one ({count}); sorted by time",
    ),
    (
        "duplicate-readings",
        lambda log: log.line[1:][np.diff(log.time_ms) == 0],
        "power readings with the time of the one before ({count}); each such one has no weight",
    ),
    (
        "readings-outside-measurement",
        lambda log: log.set_aside_lines,
        "power readings before power_measurement_start or after power_measurement_stop ({count});"
        " left out",
    ),
    (
        "zero-readings",
        lambda log: log.line[log.power_w <= 0],
        "power readings of 0 W or less ({count}); counted as logged",
    ),
    (
        "power-unit-suspect",
        _beyond,
        "power readings beyond what one meter reads of a node, or far beyond its others ({count});"
        " counted as W",
    ),
    (
        "unreadable-lines",
        lambda log: log.unreadable_lines,
        "lines that are no events ({count}); left out",
    ),
)
"""Kinds of faults of single lines: code, the lines at fault of a log, text."""


def submission_notes(
    logs: LogFiles, runs: Sequence[LoggedRun], expected_nodes: int
) -> tuple[Note, ...]:
    """Notes of a whole submission: one per kind, naming the first place and how many there are."""
    meters = [log for run in runs for log in (*run.nodes, *run.switches)]
    found = [
        _note(logs, code, [(log, at_fault(log)) for log in meters], text)
        for code, at_fault, text in _PER_LOG
    ]
    found += [_units(logs, runs), _nodes(logs, runs, expected_nodes), _apart(logs, runs)]
    found += [_switches(logs, runs), _efficiencies(logs, runs)]
    for run in runs:
        if not run.result.converged:
            found.append(
                Note(
                    "run-not-converged",
                    f"the run has {_why_not(run)}; it counts as one of the slowest",
                    logs.where(f"{run.result.name}.txt"),
                )
            )
    for name in runs_without_result(logs):
        found.append(
            Note(
                "power-without-result",
                f"power logs without {name}.txt; set aside",
                logs.where(f"power/{name}"),
            )
        )
    return tuple(note for note in found if note is not None)


def _note(
    logs: LogFiles, code: str, faults: list[tuple[PowerLog, np.ndarray]], text: str
) -> Note | None:
    """One note for faulty lines of several logs, at the first; none where no line is at fault."""
    faults = [(log, lines) for log, lines in faults if len(lines)]
    if not faults:
        return None
    first, lines = faults[0]
    text = text.format(count=sum(len(lines) for _, lines in faults))
    more = f" (first of {len(faults)} logs)" if len(faults) > 1 else ""
    return Note(code, text + more, logs.where(first.name, int(lines.min())))


def _units(logs: LogFiles, runs: Sequence[LoggedRun]) -> Note | None:
    nodes = [(log, float(np.median(log.power_w))) for run in runs for log in run.nodes]
    switches = [
        (log, log.interconnect_power_w)
        for run in runs
        for log in run.switches
        if not np.isnan(log.interconnect_power_w)
    ]
    typical_w = float(np.median([power_w for _, power_w in nodes])) if nodes else np.nan
    odd = [
        (log, power_w)
        for log, power_w in nodes
        if not _LEAST_NODE_W <= power_w <= _MOST_NODE_W
        or not typical_w / _UNIT_RATIO < power_w < typical_w * _UNIT_RATIO
    ] + [(log, power_w) for log, power_w in switches if power_w < _LEAST_NODE_W]
    if not odd:
        return None
    log, power_w = odd[0]
    return _note(
        logs,
        "power-unit-suspect",
        [(log, _first_line(log)) for log, _ in odd],
        f"typically {power_w:.6g} W: not what a node or switch takes; the log may be in kW or mW,"
        " and was counted as W",
    )


def _first_line(log: PowerLog) -> np.ndarray:
    return log.line[:1] if len(log.line) else np.array([1])


def missing_nodes(run: LoggedRun, expected: int) -> int:
    """How many of the nodes of a system a run has no power log of."""
    return max(expected - len(run.nodes), 0)


def _nodes(logs: LogFiles, runs: Sequence[LoggedRun], expected: int) -> Note | None:
    short = [run for run in runs if run.nodes and missing_nodes(run, expected)]
    if not short:
        return None
    more = f", the first of {len(short)} runs" if len(short) > 1 else ""
    return Note(
        "nodes-missing",
        f"power logs of {len(short[0].nodes)} of {expected} nodes{more}; the energy of the others"
        " is not in the score",
        logs.where(f"power/{short[0].result.name}"),
    )


def _apart(logs: LogFiles, runs: Sequence[LoggedRun]) -> Note | None:
    apart = [
        (node, node.line[:1])
        for run in runs
        if run.result.converged
        for node, power in zip(run.nodes, node_powers(run), strict=True)
        if not power.readings
    ]
    return _note(
        logs,
        "no-readings-in-run",
        apart,
        "no power reading between run_start and run_stop: clocks or time zones differ; the energy"
        " of the run's own window is unknown",
    )


def _switches(logs: LogFiles, runs: Sequence[LoggedRun]) -> Note | None:
    measured = [log for run in runs for log in run.switches if switch_as_readings(log)]
    if not measured:
        return None
    mean_w = float(np.mean([log.power_w.mean() for log in measured]))
    return _note(
        logs,
        "switch-not-counted",
        [(log, log.line[:1]) for log in measured],
        f"a switch logged as power_reading ({mean_w:.0f} W in the mean), not as"
        " interconnect_power_est; the rules' program counts 0 J for it, and so does this score",
    )


def switch_as_readings(log: PowerLog) -> bool:
    """Whether the log of a switch has readings and no estimate."""
    return bool(np.isnan(log.interconnect_power_w))


def _efficiencies(logs: LogFiles, runs: Sequence[LoggedRun]) -> Note | None:
    return _note(
        logs,
        "conversion-efficiency-assumed",
        [
            (log, log.line[:1])
            for run in runs
            for log in run.nodes
            if np.isnan(log.conversion_efficiency)
        ],
        "no conversion_eff; taken as 1, as of power measured in direct current",
    )


def _why_not(run: LoggedRun) -> str:
    if np.isnan(run.result.start_ms):
        return "no run_start"
    if np.isnan(run.result.stop_ms):
        return "no run_stop"
    return f"status {run.result.status!r}"
