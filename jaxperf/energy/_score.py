"""The verb: score a power log by the rules of its benchmark."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from jaxperf.energy._content import read_content
from jaxperf.energy._log_files import LogFiles, is_archive, open_logs
from jaxperf.energy._score_types import EnergyScore
from jaxperf.energy._series import PowerSeries
from jaxperf.energy._series_files import parse_power_series, parse_window, read_window
from jaxperf.energy._series_score import score_series
from jaxperf.energy._tiny import score_tiny, tiny_benches
from jaxperf.energy.inference import score_inference, session_folders
from jaxperf.energy.training import is_training_submission, score_training
from jaxperf.errors import ConfigError, LogError
from jaxperf.trace import Note

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
            default `window.json` in the folder of the readings where `logs` is a folder or an
            archive, else all of them.
        zone: of plain readings, the zone of times that do not name one, such as `Europe/Berlin`.

    Returns:
        The score.

    Raises:
        LogError: there is no such log, it is of no known kind, or something in it is broken.
        ConfigError: there is no such zone, or a window or zone was given for a benchmark's logs.

    Example:
        >>> import tempfile
        >>> from pathlib import Path, PurePosixPath
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     readings = Path(folder) / "node.csv"
        ...     _ = readings.write_text("time,watts\\n0,100\\n1,100\\n2,300\\n")
        ...     score(readings).energy_j
        300.0
    """
    path = Path(logs)
    if path.is_file() and not is_archive(path):
        # The name is the source's own: nothing lies below it.
        return _score_readings(
            {"": read_content(path)}, LogFiles(str(path), {}), window, None, zone
        )
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
    tables = [name for name in files.names if name.endswith(_READINGS)]
    names = [name for name in tables if not _is_hidden(name)]
    if not names:
        raise LogError(
            "no power log that is known",
            where=str(path),
            got=_names(files),
            expected=_EXPECTED,
            remedy="name one of the archives" if any(map(is_archive, files.names)) else None,
        )
    readings = {name: files.read(name) for name in names}
    found = _score_readings(
        readings, files, window, None if window else _window_beside(files, names), zone
    )
    return replace(found, notes=(*_hidden_notes(files, tables), *found.notes))


def _is_hidden(name: str) -> bool:
    # A desktop leaves hidden files beside those that it copies, an editor its own copies.
    return any(part.startswith(".") for part in PurePosixPath(name).parts)


def _hidden_notes(files: LogFiles, tables: Sequence[str]) -> tuple[Note, ...]:
    hidden = [name for name in tables if _is_hidden(name)]
    if not hidden:
        return ()
    text = f"{len(hidden)} files of readings that are hidden were set aside"
    return (Note("hidden-files", text, files.where(hidden[0])),)


def _window_beside(files: LogFiles, names: Sequence[str]) -> str | None:
    """The `window.json` in the folder that holds all readings, or in one that holds that."""
    common = PurePosixPath(os.path.commonpath([PurePosixPath(name).parent for name in names]))
    found = ((folder / _WINDOW).as_posix() for folder in (common, *common.parents))
    return next((name for name in found if name in files), None)


def _rules_of(files: LogFiles) -> Callable[[LogFiles], EnergyScore] | None:
    if session_folders(files):
        return score_inference
    if is_training_submission(files):
        return score_training
    return score_tiny if tiny_benches(files) else None


def _score_readings(
    readings: Mapping[str, bytes],
    files: LogFiles,
    window: Source | None,
    beside: str | None,
    zone: str | None,
) -> EnergyScore:
    window_ns, notes = None, ()
    if window is not None:
        window_ns, notes = read_window(window, zone=zone)
    elif beside is not None:
        window_ns, notes = parse_window(files.read(beside), files.where(beside), zone=zone)
    series: list[PowerSeries] = []
    by_file = _file_hosts(list(readings))
    for (name, content), file in zip(readings.items(), by_file, strict=True):
        found, told = parse_power_series(content, files.where(name), zone=zone)
        alone = len(readings) == 1
        series += found if alone else (replace(s, host=_host(file, s.host)) for s in found)
        notes += told
    return score_series(series, window_ns, notes, files.source)


def _file_hosts(names: Sequence[str]) -> list[str]:
    """Names of files without their endings; with their folders where they would be alike."""
    paths = [PurePosixPath(name) for name in names]
    short = [path.name.split(".")[0] for path in paths]
    if len(set(short)) == len(short):
        return short
    return [(path.parent / file).as_posix() for path, file in zip(paths, short, strict=True)]


def _host(file: str, host: str | None) -> str:
    return file if host is None else f"{file}/{host}"


def _names(files: LogFiles) -> str:
    names = files.names
    return f"{', '.join(names[:3])} and more" if len(names) > 3 else ", ".join(names) or "no file"
