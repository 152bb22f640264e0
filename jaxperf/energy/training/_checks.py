"""The rules of power in MLPerf Training, applied to a submission.

Source: mlcommons/training_policies, power_measurement.adoc.
"""

from collections.abc import Sequence

import numpy as np

from jaxperf.energy._score_types import Check, Outcome
from jaxperf.energy._series import SLOWEST_S, longest_interval
from jaxperf.energy.training._notes import missing_nodes, switch_as_readings
from jaxperf.energy.training._olympic import RUNS
from jaxperf.energy.training._power_logs import PowerLog
from jaxperf.energy.training._run_logs import LoggedRun
from jaxperf.energy.training._window_energy import node_powers

_FEWEST_READINGS = 60
_LARGEST_DIFFERENCE = 0.01
_COVERED, _MOSTLY_COVERED = 0.99, 0.9


def submission_checks(
    runs: Sequence[LoggedRun],
    benchmark: str | None,
    expected_nodes: int,
    official_j: float,
    run_window_j: float,
) -> tuple[Check, ...]:
    """Every rule with its outcome; texts name the file that is worst.

    Args:
        runs: of the submission.
        benchmark: as its logs name it.
        expected_nodes: of the system.
        official_j, run_window_j: the scores.
    """
    nodes = [log for run in runs for log in run.nodes]
    return (
        _interval(nodes),
        _gaps(nodes),
        _readings(nodes),
        _stop(nodes),
        _order(nodes),
        _zeros(nodes),
        _switches(runs),
        _efficiency(nodes),
        _all_nodes(runs, expected_nodes),
        _coverage(runs),
        _windows_agree(official_j, run_window_j),
        _enough_runs(runs, benchmark),
    )


def _interval(nodes: Sequence[PowerLog]) -> Check:
    name = "a reading every second"
    typical = np.array(
        [np.median(np.diff(log.time_ms)) if len(log.time_ms) > 1 else np.inf for log in nodes]
    )
    slow = typical > 1e3 * SLOWEST_S
    if not slow.any():
        return Check(name, "pass", "")
    worst = int(np.argmax(typical))
    text = f"{slow.sum()} of {len(nodes)} logs are slower, {nodes[worst].name} the slowest:"
    return Check(name, "fail", f"{text} one every {typical[worst] / 1e3:.3f} s")


def _gaps(nodes: Sequence[PowerLog]) -> Check:
    name = "no gaps between readings"
    found = [(log, np.diff(log.time_ms), longest_interval(log.time_ms)) for log in nodes]
    hurt = [(log, since_ms[since_ms > most_ms]) for log, since_ms, most_ms in found]
    hurt = [(log, gaps_ms) for log, gaps_ms in hurt if len(gaps_ms)]
    if not hurt:
        return Check(name, "pass", "")
    worst, gaps_ms = max(hurt, key=lambda pair: pair[1].max())
    text = f"{sum(len(each) for _, each in hurt)} in {len(hurt)} of {len(nodes)} logs; the longest:"
    text += f" {worst.name} has no reading for {gaps_ms.max() / 1e3:.1f} s"
    return Check(name, "warning", text)


def _readings(nodes: Sequence[PowerLog]) -> Check:
    counts = np.array([len(log.time_ms) for log in nodes])
    few = counts < _FEWEST_READINGS
    if not few.any():
        return Check("at least 60 readings", "pass", "")
    worst = int(np.argmin(counts))
    text = f"{few.sum()} of {len(nodes)} logs have fewer; {nodes[worst].name} has {counts[worst]}"
    return Check("at least 60 readings", "fail", text)


def _stop(nodes: Sequence[PowerLog]) -> Check:
    name = "the measurement stops after it starts"
    none = [log for log in nodes if np.isnan(log.stop_ms)]
    if not none:
        return Check(name, "pass", "")
    why = "stops as it starts or before" if none[0].stop_not_after_start else "has no stop"
    return Check(name, "fail", f"{len(none)} of {len(nodes)} logs do not; {none[0].name} {why}")


def _order(nodes: Sequence[PowerLog]) -> Check:
    mixed = [log for log in nodes if len(log.disordered_lines)]
    if not mixed:
        return Check("readings in order of time", "pass", "")
    count = sum(len(log.disordered_lines) for log in mixed)
    text = f"{count} readings in {len(mixed)} logs come after a later one, first in {mixed[0].name}"
    return Check("readings in order of time", "warning", text)


def _zeros(nodes: Sequence[PowerLog]) -> Check:
    zero = [(log, int((log.power_w <= 0).sum())) for log in nodes if (log.power_w <= 0).any()]
    if not zero:
        return Check("readings above zero", "pass", "")
    text = f"{sum(count for _, count in zero)} readings of 0 W or less, first in {zero[0][0].name}"
    return Check("readings above zero", "warning", text)


def _switches(runs: Sequence[LoggedRun]) -> Check:
    name = "switches logged as estimates"
    switches = [log for run in runs for log in run.switches]
    measured = [log for log in switches if switch_as_readings(log)]
    if measured:
        text = f"{len(measured)} of {len(switches)} logs hold power_reading, first"
        text += f" {measured[0].name}; the rules' program counts 0 J for them"
        return Check(name, "fail", text)
    most = max(len(run.switches) for run in runs)
    short = [run for run in runs if run.nodes and len(run.switches) < most]
    if short:
        text = f"{len(short)} of {len(runs)} runs lack logs of switches;"
        text += f" power/{short[0].result.name} has {len(short[0].switches)} of {most}"
        return Check(name, "fail", text)
    many = [run for run in runs if len(run.nodes) > 1 and not run.switches]
    if many:
        text = f"power/{many[0].result.name} has {len(many[0].nodes)} nodes and no log of a switch"
        return Check(name, "warning", text)
    return Check(name, "pass", "")


def _efficiency(nodes: Sequence[PowerLog]) -> Check:
    without = [log for log in nodes if np.isnan(log.conversion_efficiency)]
    if not without:
        return Check("conversion efficiency given", "pass", "")
    text = f"{len(without)} of {len(nodes)} logs have none, first {without[0].name}; 1 was taken"
    return Check("conversion efficiency given", "warning", text)


def _all_nodes(runs: Sequence[LoggedRun], expected: int) -> Check:
    short = [run for run in runs if run.nodes and missing_nodes(run, expected)]
    if not short:
        return Check("all nodes in every run", "pass", "")
    text = f"{len(short)} of {len(runs)} runs lack nodes;"
    text += f" power/{short[0].result.name} has {len(short[0].nodes)} of {expected}"
    return Check("all nodes in every run", "fail", text)


def _coverage(runs: Sequence[LoggedRun]) -> Check:
    covered = [
        (power.coverage, node.name)
        for run in runs
        if run.result.converged
        for node, power in zip(run.nodes, node_powers(run), strict=True)
    ]
    least, name = min(covered)
    outcome: Outcome = (
        "pass" if least >= _COVERED else "warning" if least >= _MOSTLY_COVERED else "fail"
    )
    text = "" if outcome == "pass" else f"{name} covers {100 * least:.1f} % of its run"
    return Check("readings cover the run", outcome, text)


def _windows_agree(official_j: float, run_window_j: float) -> Check:
    name = "official energy is that of the run"
    difference = run_window_j / official_j - 1.0
    if np.isnan(difference):
        return Check(name, "fail", "no readings within a run that counts: its energy is unknown")
    if abs(difference) <= _LARGEST_DIFFERENCE:
        return Check(name, "pass", "")
    text = f"the run alone took {run_window_j / 1e3:.2f} kJ, {100 * difference:+.1f} %"
    text += f" against the official {official_j / 1e3:.2f} kJ"
    return Check(name, "warning", text)


def _enough_runs(runs: Sequence[LoggedRun], benchmark: str | None) -> Check:
    name = "enough runs"
    needed = RUNS.get(benchmark or "")
    if needed is None:
        return Check(name, "warning", f"{len(runs)} runs of {benchmark}, which the rules lack")
    if len(runs) < needed:
        return Check(name, "fail", f"{len(runs)} runs; {benchmark} needs {needed}")
    return Check(name, "pass", "")
