"""The verb: score a power log by the rules of its benchmark."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from jaxperf.energy._log_files import LogFiles, is_archive, open_logs
from jaxperf.energy._score_types import EnergyScore
from jaxperf.energy._series import PowerSeries
from jaxperf.energy._series_files import read_power_series, read_window
from jaxperf.energy._series_score import score_series
from jaxperf.energy._tiny import score_tiny, tiny_benches
from jaxperf.energy.inference import score_inference, session_folders
from jaxperf.energy.training import is_training_submission, score_training
from jaxperf.errors import ConfigError, LogError

Source = str | os.PathLike[str]

_READINGS = (".csv", ".csv.gz", ".csv.xz")
_WINDOW = "window.json"
_EXPECTED = (
    "an MLPerf Power session (power/, ranging/, run_1/), a training submission (result_*.txt and "
    "power/), a tiny benchmark (energy/ and performance/), or a CSV file of time and watts"
)


def score(logs: Source, *, window: Source | None = None, zone: str | None = None) -> EnergyScore:
    """Score a power log: energy, the benchmark's metric, and every rule with its outcome.

    What kind of log it is follows from its files: a session of MLPerf Power for inference, a
    submission to MLPerf Training or HPC, a benchmark of MLPerf Tiny, or plain readings.

    Args:
        logs: the folder, a tar archive of one, or a file of time and watts. A folder of such files
            is one run on several hosts.
        window: of plain readings, the part that counts: a JSON file with `start` and `stop`; by
            default `window.json` beside the readings, else all of them.
        zone: of plain readings, the zone of times that do not name one, such as `Europe/Berlin`.

    Returns:
        The score.

    Raises:
        LogError: there is no such log, it is of no known kind, or something in it is broken.
        ConfigError: there is no such zone, or a window or zone was given for a benchmark's logs.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     readings = Path(folder) / "node.csv"
        ...     _ = readings.write_text("time,watts\\n0,100\\n1,100\\n2,300\\n")
        ...     score(readings).energy_j
        300.0
    """
    path = Path(logs)
    if path.is_file() and not is_archive(path):
        return _score_readings([path], path, window, zone)
    files = open_logs(path)
    rules = _rules_of(files)
    if rules is not None:
        for option, value in (("window", window), ("zone", zone)):
            if value is not None:
                raise ConfigError(
                    "for plain readings only",
                    where=option,
                    got=str(value),
                    expected=f"nothing: {path} holds the logs of a benchmark, which tell it",
                )
        return rules(files)
    readings = [path / name for name in files.names if name.endswith(_READINGS)]
    if not (path.is_dir() and readings):
        raise LogError(
            "no power log that is known", where=str(path), got=_names(files), expected=_EXPECTED
        )
    beside = path / _WINDOW
    return _score_readings(readings, path, window or (beside if beside.exists() else None), zone)


def _rules_of(files: LogFiles) -> Callable[[LogFiles], EnergyScore] | None:
    if session_folders(files):
        return score_inference
    if is_training_submission(files):
        return score_training
    return score_tiny if tiny_benches(files) else None


def _score_readings(
    paths: list[Path], source: Path, window: Source | None, zone: str | None
) -> EnergyScore:
    window_ns, notes = (None, ()) if window is None else read_window(window, zone=zone)
    series: list[PowerSeries] = []
    for path in paths:
        found, told = read_power_series(path, zone=zone)
        alone = len(paths) == 1
        series += found if alone else (replace(s, host=_host(path, s.host)) for s in found)
        notes += told
    return score_series(series, window_ns, notes, str(source))


def _host(path: Path, host: str | None) -> str:
    name = path.name.split(".")[0]
    return name if host is None else f"{name}/{host}"


def _names(files: LogFiles) -> str:
    names = files.names
    return f"{', '.join(names[:3])} and more" if len(names) > 3 else ", ".join(names) or "no file"
