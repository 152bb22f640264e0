"""Small training submissions with hand-made power logs."""

import json
from collections.abc import Mapping, Sequence

from jaxperf.energy._log_files import LogFiles


def event(key: str, time_s: float, value: object = None, **metadata: object) -> str:
    """One line of a log."""
    return ":::MLLOG " + json.dumps(
        {"key": key, "value": value, "time_ms": round(1e3 * time_s), "metadata": metadata}
    )


def node_log(
    readings: Sequence[tuple[float, object]],
    start_s: float | None = 0.0,
    stop_s: float | None = None,
    efficiency: object = 1.0,
) -> str:
    """A `node_<k>.txt`: readings of time and watts, in the order given."""
    lines = [] if start_s is None else [event("power_measurement_start", start_s)]
    lines += [] if efficiency is None else [event("conversion_eff", start_s or 0.0, efficiency)]
    lines += [event("power_reading", time_s, power_w) for time_s, power_w in readings]
    lines += [] if stop_s is None else [event("power_measurement_stop", stop_s)]
    return "\n".join(lines) + "\n"


def steady_node(power_w: float = 1000.0, seconds: int = 70, **other) -> str:
    """A node that takes the same power at every second, measured from 0 to its end."""
    readings = [(float(second), power_w) for second in range(1, seconds + 1)]
    return node_log(readings, stop_s=float(seconds), **other)


def switch_log(power_w: object = 50.0) -> str:
    """A `sw_<k>.txt` with an estimate."""
    return event("interconnect_power_est", 0.0, power_w) + "\n"


def result_log(
    start_s: float | None, stop_s: float | None, benchmark: str = "gpt3", status: str = "success"
) -> str:
    """A `result_<id>.txt`, with the prefix that ranks leave."""
    lines = [event("submission_benchmark", 0.0, benchmark), event("global_batch_size", 0.0, 8)]
    lines += [] if start_s is None else [event("run_start", start_s)]
    lines += [event("tracked_stats", 1.0, {"throughput": rate}) for rate in (2.0, 4.0, 3.0)]
    lines += [] if stop_s is None else [event("run_stop", stop_s, status=status)]
    return "".join(f" 0: {line}\n" for line in lines)


def log_files(files: Mapping[str, str]) -> LogFiles:
    """Files by name, from their text."""
    return LogFiles(
        "submission", {name: (lambda text=text: text.encode()) for name, text in files.items()}
    )


def one_run(node: str, start_s: float, stop_s: float, switch: str | None = None) -> LogFiles:
    """A submission of one run on one node."""
    files = {"result_0.txt": result_log(start_s, stop_s), "power/result_0/node_0.txt": node}
    return log_files(files | ({} if switch is None else {"power/result_0/sw_0.txt": switch}))


def many_runs(durations_s: Sequence[float], benchmark: str) -> dict[str, str]:
    """Files of runs on one node of 1 W for each second that the run takes: run `i` of `d` seconds
    takes `d * d` joules."""
    files = {}
    for run, duration_s in enumerate(durations_s):
        files[f"result_{run}.txt"] = result_log(0.0, duration_s, benchmark)
        node = node_log([(duration_s, duration_s)], stop_s=duration_s)
        files[f"power/result_{run}/node_0.txt"] = node
    return files
