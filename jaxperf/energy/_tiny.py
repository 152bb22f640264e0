"""Energy per inference of one benchmark of MLPerf Tiny, by its rules."""

import re
from collections.abc import Sequence

import numpy as np

from jaxperf.energy._efficiency import inferences_per_joule
from jaxperf.energy._log_files import LogFiles, is_archive
from jaxperf.energy._score_types import Check, EnergyScore, MeasuredWindow, Metric, Outcome
from jaxperf.energy._tiny_results import PrintedResult, read_printed_result
from jaxperf.energy._tiny_traces import TracedWindow, traced_windows
from jaxperf.errors import LogError
from jaxperf.trace import Note

_RESULT = "energy/results.txt"
_BENCH = re.compile(r"(?:(?P<folder>.*)/)?energy/results\.txt")
_MODEL = re.compile(r"(?:m-model-\[|Device model retrieved: )(?P<name>[A-Za-z]+)")
_DEVICE = re.compile(r"Device name retrieved: (?P<name>.*\S)")

_WINDOWS, _SHORTEST_S, _STREAMED_S = 5, 10.0, 1200.0
_LARGEST_DIFFERENCE = 1e-3
"""An edge falls within one sample of at least 10,000, and that twice a window."""

_NOT_MEASURED = MeasuredWindow(np.nan, np.nan, np.nan, np.nan, 0)


def tiny_benches(logs: LogFiles) -> list[str]:
    """Folders of benchmarks of MLPerf Tiny with an energy run; `.` where these files are one.

    Example:
        >>> tiny_benches(LogFiles("results", {"kws/energy/results.txt": bytes}))
        ['kws']
    """
    found = (_BENCH.fullmatch(name) for name in logs.names)
    return [match["folder"] or "." for match in found if match]


def score_tiny(logs: LogFiles) -> EnergyScore:
    """Energy per inference of one benchmark: the median of its five windows.

    The official window is what the runner printed; the run window is integrated from the energy
    trace between the edges of the timestamp pin. Both are those of the median window. A streaming
    benchmark has one window, and its metric is average power.

    Args:
        logs: of one benchmark: `energy/results.txt`, and where they are, `energy/log.txt` and the
            trace; or a folder or archive with one such folder.

    Returns:
        The score.

    Raises:
        LogError: there is none or more than one benchmark, or a file of it is damaged.

    Example:
        >>> printed = "\\n".join([
        ...     "Energy data for window 0 at time 2.0 for 10.0 sec.:",
        ...     "Energy : 5000.0 uJ",
        ...     "# Inferences : 20",
        ...     "Median energy cost is 250.0 uJ/inf.",
        ... ])
        >>> score_tiny(LogFiles("kws", {"energy/results.txt": printed.encode})).metric.value
        250.0
    """
    logs, folder = _one_bench(logs)
    printed = read_printed_result(logs.text(_RESULT), logs.where(_RESULT))
    traced = traced_windows(logs)
    log = logs.text("energy/log.txt") if "energy/log.txt" in logs else ""
    model, device = _MODEL.search(log), _DEVICE.search(log)
    streaming = not np.isnan(printed.duty_cycle)
    official, run_window = _official(printed, traced), _median_traced(printed, traced)
    if streaming:
        metric = Metric("average_power", 1e3 * official.average_power_w, "mW")
        efficiency = None
    else:
        joules = printed.median_uj / 1e6
        if joules == 0:
            raise LogError(
                "no energy was measured",
                where=logs.where(_RESULT),
                got="a median of 0 uJ an inference",
                expected="more than 0",
            )
        metric = Metric("energy_per_inference", printed.median_uj, "uJ")
        efficiency = Metric("inferences_per_joule", inferences_per_joule(joules), "1/J")
    return EnergyScore(
        source=logs.source,
        division="tiny",
        benchmark=model["name"] if model else folder,
        scenario=None,
        system=device["name"] if device else None,
        metric=metric,
        efficiency=efficiency,
        average_power_w=official.average_power_w,
        energy_j=official.energy_j,
        duration_s=official.duration_s,
        official=official,
        run_window=run_window,
        runs=(),
        checks=_checks(logs, printed, traced, streaming),
        notes=_notes(logs, printed, traced, streaming),
    )


def _one_bench(logs: LogFiles) -> tuple[LogFiles, str | None]:
    benches = tiny_benches(logs)
    if not benches:
        raise LogError("no energy run of a tiny benchmark", where=logs.source, expected=_RESULT)
    if len(benches) > 1:
        raise LogError(
            "several benchmarks",
            where=logs.source,
            got=", ".join(benches),
            remedy="name the folder of one"
            + ("; an archive has to be unpacked first" if is_archive(logs.source) else ""),
        )
    if benches == ["."]:
        return logs, None
    return logs.below(benches[0]), benches[0].rpartition("/")[2]


def _official(printed: PrintedResult, traced: Sequence[TracedWindow] | None) -> MeasuredWindow:
    median = _median_position([window.per_inference_uj for window in printed.windows])
    window = printed.windows[median]
    matches = traced is not None and len(traced) == len(printed.windows)
    return MeasuredWindow(
        energy_j=window.energy_uj / 1e6,
        average_power_w=window.energy_uj / 1e6 / window.duration_s,
        duration_s=window.duration_s,
        interconnect_energy_j=np.nan,
        readings=traced[median].samples if traced is not None and matches else 0,
    )


def _median_traced(printed: PrintedResult, traced: Sequence[TracedWindow] | None) -> MeasuredWindow:
    if traced is None:
        return _NOT_MEASURED
    window = traced[_median_position([window.energy_uj for window in traced])]
    return MeasuredWindow(
        energy_j=window.energy_uj / 1e6,
        average_power_w=window.energy_uj / 1e6 / window.duration_s,
        duration_s=window.duration_s,
        interconnect_energy_j=np.nan,
        readings=window.samples,
    )


def _median_position(values: Sequence[float]) -> int:
    """Position of the median, of the lower one where their number is even."""
    return int(np.argsort(values, kind="stable")[(len(values) - 1) // 2])


def _checks(
    logs: LogFiles,
    printed: PrintedResult,
    traced: Sequence[TracedWindow] | None,
    streaming: bool,
) -> tuple[Check, ...]:
    count = len(printed.windows)
    expected, least_s = (1, _STREAMED_S) if streaming else (_WINDOWS, _SHORTEST_S)
    shortest_s = min(window.duration_s for window in printed.windows)
    median_uj = float(np.median([window.per_inference_uj for window in printed.windows]))
    has_performance = any(name.startswith("performance/") for name in logs.names)
    return (
        _check("measured windows", count == expected, f"{_RESULT} has {count}, not {expected}"),
        _check(
            "length of windows",
            shortest_s >= least_s,
            f"the shortest of {_RESULT} is {shortest_s:.3f} s, less than {least_s:.0f} s",
        ),
        _check(
            "reported median",
            abs(printed.median_uj / median_uj - 1.0) <= _LARGEST_DIFFERENCE,
            f"{_RESULT} reports {printed.median_uj:g} uJ, its windows give {median_uj:g} uJ",
        ),
        _trace_check(printed, traced),
        _check("performance run given", has_performance, "no file in performance/", "warning"),
    )


def _check(name: str, passed: bool, text: str, otherwise: Outcome = "fail") -> Check:
    return Check(name, "pass", "") if passed else Check(name, otherwise, text)


def _trace_check(printed: PrintedResult, traced: Sequence[TracedWindow] | None) -> Check:
    name = "trace gives the reported energy"
    if traced is None:
        return Check(name, "warning", "no trace in energy/")
    if len(traced) != len(printed.windows):
        text = f"the trace has {len(traced)} windows, {_RESULT} has {len(printed.windows)}"
        return Check(name, "fail", text)
    ratio = np.array(
        [
            window.energy_uj / reported.energy_uj
            for window, reported in zip(traced, printed.windows, strict=True)
        ]
    )
    worst = int(np.argmax(np.abs(ratio - 1.0)))
    text = f"window {worst + 1} of the trace has {traced[worst].energy_uj:.3f} uJ,"
    text += f" {_RESULT} reports {printed.windows[worst].energy_uj:.3f} uJ"
    return _check(name, bool(abs(ratio[worst] - 1.0) <= _LARGEST_DIFFERENCE), text)


def _notes(
    logs: LogFiles,
    printed: PrintedResult,
    traced: Sequence[TracedWindow] | None,
    streaming: bool,
) -> tuple[Note, ...]:
    notes = []
    if traced is None:
        text = "no energy trace; the energy is as the runner printed it"
        notes.append(Note("no-energy-trace", text, logs.where(_RESULT)))
    if streaming:
        text = "a streaming benchmark: its metric is average power; duty cycle"
        text += f" {printed.duty_cycle:g}; {printed.accuracy or 'no accuracy printed'}"
        notes.append(Note("streaming-benchmark", text, logs.where(_RESULT)))
    return tuple(notes)
