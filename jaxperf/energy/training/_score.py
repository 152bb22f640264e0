"""Energy to train of a submission, by the rules of MLPerf Training and HPC."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from jaxperf._json import NOT_READABLE
from jaxperf.energy._log_files import LogFiles
from jaxperf.energy._score_types import EnergyScore, MeasuredWindow, Metric, RunScore
from jaxperf.energy.training._checks import submission_checks
from jaxperf.energy.training._notes import missing_nodes, submission_notes, switch_as_readings
from jaxperf.energy.training._olympic import HPC_BENCHMARKS, kept_runs, scaling_factor
from jaxperf.energy.training._run_logs import LoggedRun, read_runs, submission_folder
from jaxperf.energy.training._window_energy import official_window, run_window
from jaxperf.errors import LogError
from jaxperf.trace import Note

_MOST_DIGITS = 9  # of a number of nodes


class _System(msgspec.Struct):
    system_name: str | None = None
    number_of_nodes: str | int | None = None


def score_training(logs: LogFiles) -> EnergyScore:
    """Energy to train of one benchmark's submission, in two windows.

    The official energy of a run is mean power from start to stop of the measurement, times the
    time of the run; that of the run window is the mean between `run_start` and `run_stop` alone.
    Both are averaged over the runs that the Olympic scoring by time keeps, and multiplied by the
    factor of `scaling.json`.

    Args:
        logs: `result_<id>.txt`, `power/result_<id>/{node,sw}_<k>.txt`, and where they are,
            `scaling.json` and `system.json`.

    Returns:
        The score, with one entry per run.

    Raises:
        LogError: a log is damaged, a run has no power logs, too many runs did not converge, or
            there is no energy.

    Example:
        >>> line = ':::MLLOG {{"key": "{}", "time_ms": {}, "value": {}, "metadata": {}}}'.format
        >>> result = [line("run_start", 0, 1, "{}"),
        ...           line("run_stop", 4000, 1, '{"status": "success"}')]
        >>> node = [line("power_measurement_start", 0, 0, "{}"),
        ...         line("power_reading", 4000, 70, "{}"),
        ...         line("power_measurement_stop", 4000, 0, "{}")]
        >>> logs = LogFiles("a", {"result_0.txt": "\\n".join(result).encode,
        ...                       "power/result_0/node_0.txt": "\\n".join(node).encode})
        >>> score_training(logs).energy_j
        280.0
    """
    logs = submission_folder(logs)
    runs = read_runs(logs)
    benchmark = _benchmark(logs, runs)
    system = _system(logs)
    expected_nodes = max(_nodes(system), *(len(run.nodes) for run in runs))
    kept, notes = _kept(runs, benchmark, logs.source)
    scored = tuple(
        _run_score(run, bool(counted), expected_nodes)
        for run, counted in zip(runs, kept, strict=True)
    )
    counted = [run for run in scored if run.counted]
    factor = scaling_factor(logs)
    official = _mean([run.official for run in counted], factor)
    window = _mean([run.run_window for run in counted], factor)
    # That of the run alone may be unknown: NaN.
    if not 0.0 < official.energy_j < np.inf or np.isinf(window.energy_j):
        raise LogError(
            "no energy",
            where=logs.source,
            got=f"{official.energy_j:g} J, {window.energy_j:g} J of the run alone",
            expected="more than 0",
        )
    return EnergyScore(
        source=logs.source,
        division="hpc" if benchmark in HPC_BENCHMARKS else "training",
        benchmark=benchmark,
        scenario=None,
        system=system.system_name or runs[0].result.platform,
        metric=Metric("energy_to_train", official.energy_j, "J"),
        efficiency=None,
        average_power_w=official.average_power_w,
        energy_j=official.energy_j,
        duration_s=official.duration_s,
        official=official,
        run_window=window,
        runs=scored,
        checks=submission_checks(
            runs, benchmark, expected_nodes, official.energy_j, window.energy_j
        ),
        notes=(*_factor_note(logs, factor), *notes, *submission_notes(logs, runs, expected_nodes)),
    )


def _factor_note(logs: LogFiles, factor: float) -> tuple[Note, ...]:
    if factor == 1.0:
        return ()
    text = (
        f"the mean of the runs that count is multiplied by {factor:.6g}, the factor of scaling.json"
    )
    return (Note("convergence-factor", text, logs.where("scaling.json")),)


def _kept(
    runs: Sequence[LoggedRun], benchmark: str | None, source: str
) -> tuple[np.ndarray, tuple[Note, ...]]:
    """Which runs count; all that converged where too few are left, with a note."""
    kept = kept_runs([_duration_s(run) for run in runs], benchmark, source)
    if kept.any():
        return kept, ()
    text = (
        f"{len(runs)} runs are too few to leave out the fastest and the slowest; all that"
        " converged count"
    )
    converged = np.array([run.result.converged for run in runs])
    return converged, (Note("too-few-runs", text, source),)


def _benchmark(logs: LogFiles, runs: Sequence[LoggedRun]) -> str | None:
    named = sorted({run.result.benchmark for run in runs if run.result.benchmark})
    if len(named) > 1:
        raise LogError(
            "runs of several benchmarks",
            where=logs.source,
            got=", ".join(named),
            expected="one benchmark a folder",
        )
    return named[0] if named else None


def _system(logs: LogFiles) -> _System:
    if "system.json" not in logs:
        return _System()
    try:
        return msgspec.json.decode(logs.read("system.json"), type=_System)
    except NOT_READABLE as error:
        raise LogError(
            "not a system description", where=logs.where("system.json"), got=str(error)
        ) from None


def _nodes(system: _System) -> int:
    count = str(system.number_of_nodes or "").strip()
    return int(count) if count.isdecimal() and len(count) <= _MOST_DIGITS else 0


def _duration_s(run: LoggedRun) -> float:
    return run.result.duration_s if run.result.converged else np.nan


def _run_score(run: LoggedRun, counted: bool, expected_nodes: int) -> RunScore:
    flagged = (
        ("stop<=start", any(node.stop_not_after_start for node in run.nodes)),
        (
            "switch_as_readings_ignored_by_summarizer",
            any(switch_as_readings(log) for log in run.switches),
        ),
        ("nodes_missing", bool(missing_nodes(run, expected_nodes))),
        ("not_converged", not run.result.converged),
    )
    return RunScore(
        name=run.result.name,
        counted=counted,
        duration_s=run.result.duration_s,
        official=official_window(run),
        run_window=run_window(run),
        flags=tuple(flag for flag, present in flagged if present),
    )


def _mean(windows: Sequence[MeasuredWindow], factor: float) -> MeasuredWindow:
    """Mean energy and time of runs, scaled; readings are those of all of them."""
    energy_j = factor * float(np.mean([window.energy_j for window in windows]))
    duration_s = factor * float(np.mean([window.duration_s for window in windows]))
    network_j = factor * float(np.mean([window.interconnect_energy_j for window in windows]))
    return replace(
        windows[0],
        energy_j=energy_j,
        average_power_w=energy_j / duration_s,
        duration_s=duration_s,
        interconnect_energy_j=network_j,
        readings=sum(window.readings for window in windows),
    )
