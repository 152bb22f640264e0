"""The files of a training submission, run by run."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from jaxperf.energy._log_files import LogFiles
from jaxperf.energy.training._power_logs import PowerLog, read_power_log
from jaxperf.energy.training._result_logs import ResultLog, read_result_log
from jaxperf.errors import LogError

_RESULT = re.compile(r"(?:.*/)?result_[^/]*\.txt")
_POWER = re.compile(r"power/(?P<run>[^/]+)/(?P<kind>node|sw)_(?P<index>\d+)\.txt")


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """One run: its performance log, and the power logs of its nodes and switches.

    Attributes:
        result: its performance log.
        nodes, switches: its power logs, in order of their indices.
    """

    result: ResultLog
    nodes: tuple[PowerLog, ...]
    switches: tuple[PowerLog, ...]


def is_training_submission(logs: LogFiles) -> bool:
    """Whether there are logs of training runs, here or below.

    Example:
        >>> is_training_submission(LogFiles("a", {"gpt3/result_0.txt": bytes}))
        True
    """
    return any(_RESULT.fullmatch(name) for name in logs.names)


def submission_folder(logs: LogFiles) -> LogFiles:
    """The one folder with `result_*.txt`: these files, or one below.

    Raises:
        LogError: there is none, or there are several.

    Example:
        >>> submission_folder(LogFiles("a", {"gpt3/result_0.txt": bytes})).names
        ('result_0.txt',)
    """
    folders = sorted(
        {PurePosixPath(name).parent.as_posix() for name in logs.names if _RESULT.fullmatch(name)}
    )
    if not folders:
        raise LogError(
            "no result logs", where=logs.source, expected="result_<id>.txt and power/result_<id>/"
        )
    if len(folders) > 1:
        raise LogError(
            "several submissions",
            where=logs.source,
            got=", ".join(folders[:8]) + (" ..." if len(folders) > 8 else ""),
            remedy="name the folder of one",
        )
    return logs if folders == ["."] else logs.below(folders[0])


def read_runs(logs: LogFiles) -> tuple[LoggedRun, ...]:
    """All runs of a submission, in order of their names.

    Args:
        logs: `result_<id>.txt`, `power/result_<id>/node_<k>.txt` and `sw_<k>.txt`.

    Returns:
        The runs.

    Raises:
        LogError: there are none, or a log of a run is damaged.

    Example:
        >>> line = ':::MLLOG {{"key": "{}", "time_ms": {}, "value": {}, "metadata": {}}}'.format
        >>> result = [line("run_start", 0, 1, "{}"),
        ...           line("run_stop", 4000, 1, '{"status": "success"}')]
        >>> node = [line("power_measurement_start", 0, 0, "{}"),
        ...         line("power_reading", 4000, 70, "{}"),
        ...         line("power_measurement_stop", 4000, 0, "{}")]
        >>> logs = LogFiles("a", {"result_0.txt": "\\n".join(result).encode,
        ...                       "power/result_0/node_0.txt": "\\n".join(node).encode})
        >>> read_runs(logs)[0].nodes[0].power_w.tolist()
        [70.0]
    """
    power: dict[str, list[tuple[str, int, str]]] = {}
    for name in logs.names:
        if found := _POWER.fullmatch(name):
            power.setdefault(found["run"], []).append((found["kind"], int(found["index"]), name))
    return tuple(
        _run(logs, name, sorted(power.get(name.removesuffix(".txt"), [])))
        for name in logs.names
        if "/" not in name and _RESULT.fullmatch(name)
    )


def runs_without_result(logs: LogFiles) -> list[str]:
    """Folders of power logs that no result log goes with.

    Example:
        >>> runs_without_result(LogFiles("a", {"power/result_7/node_0.txt": bytes}))
        ['result_7']
    """
    found = (_POWER.fullmatch(name) for name in logs.names)
    runs = {match["run"] for match in found if match}
    return sorted(run for run in runs if f"{run}.txt" not in logs)


def _run(logs: LogFiles, result_name: str, power: list[tuple[str, int, str]]) -> LoggedRun:
    where = logs.where(result_name)
    result = read_result_log(logs.read(result_name), where, result_name.removesuffix(".txt"))
    meters = {
        wanted: tuple(
            read_power_log(logs.read(name), logs.where(name), name, index)
            for kind, index, name in power
            if kind == wanted
        )
        for wanted in ("node", "sw")
    }
    for node in meters["node"]:
        if not len(node.time_ms):
            raise LogError("no power readings", where=logs.where(node.name))
    if result.converged and not meters["node"]:
        raise LogError(
            "a run without power logs",
            where=where,
            expected=f"power/{result.name}/node_<k>.txt: every run is measured",
        )
    return LoggedRun(result, meters["node"], meters["sw"])
