"""One session of MLPerf Power: two runs of a benchmark, and the records of client and server."""

import re
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np

from jaxperf._json import NOT_READABLE
from jaxperf.energy._log_files import LogFiles
from jaxperf.energy.inference._clock import clock_text, zone_shifts_us
from jaxperf.energy.inference._loadgen import LoadgenRun, read_loadgen, read_summary
from jaxperf.energy.inference._ptdaemon import AnalyzerSamples, read_samples
from jaxperf.errors import LogError
from jaxperf.trace import Note

PhaseName = Literal["ranging", "run_1"]

_FINDABLE = ("power/server.json", "power/client.json", "run_1/spl.txt", "ranging/spl.txt")


class Message(msgspec.Struct, frozen=True):
    """A command and its reply, between client and server or server and PTDaemon."""

    cmd: str
    reply: str


class SessionRecord(msgspec.Struct, frozen=True):
    """What `client.json` or `server.json` records.

    Attributes:
        version, timezone, modules: of the program; no rule reads them.
        sources: SHA-1 of each of its files.
        messages: between client and server.
        uuid: of `client` and `server`.
        session_name: names both runs' marks.
        results: SHA-1 of each file the run left.
        phases: for `ranging` and `testing`, each checkpoint's time since 1970 and since boot, in
            seconds.
        ptd_messages: between server and PTDaemon; a server's only.
        ptd_config: how PTDaemon was started, one table per analyzer; a server's only.
        debug: whether it ran without its safeguards.
    """

    version: Any
    timezone: Any
    modules: Any
    sources: dict[str, str]
    messages: list[Message]
    uuid: dict[str, str]
    session_name: str
    results: dict[str, str]
    phases: dict[str, list[list[float]]]
    ptd_messages: list[Message] | None = None
    ptd_config: Any = None
    debug: Any = False


@dataclass(frozen=True)
class Phase:
    """One of the two runs of a session.

    Attributes:
        name: `ranging`, which finds the ranges of the analyzer, or `run_1`, which counts.
        run: what loadgen logged.
        samples: of the analyzer.
        shift_us: to add to loadgen's clock to reach the analyzer's; 0 unless they ran in different
            time zones.
        notes: on its files.
    """

    name: PhaseName
    run: LoadgenRun
    samples: AnalyzerSamples
    shift_us: int
    notes: tuple[Note, ...]

    @property
    def begin_us(self) -> int:
        """Start of the window on the analyzer's clock."""
        return self.run.begin_us + self.shift_us

    @property
    def end_us(self) -> int:
        """End of the window on the analyzer's clock."""
        return self.run.end_us + self.shift_us

    @property
    def inside(self) -> np.ndarray:
        """bool (n): which samples lie strictly inside the window."""
        return (self.samples.time_us > self.begin_us) & (self.samples.time_us < self.end_us)


@dataclass(frozen=True)
class Session:
    """A session.

    Attributes:
        files: of its folder.
        client, server: their records.
        testing: the run that counts.
        ranging: the run before it; `None` where its files are missing or of no use.
        notes: what was repaired or set aside.
    """

    files: LogFiles
    client: SessionRecord
    server: SessionRecord
    testing: Phase
    ranging: Phase | None
    notes: tuple[Note, ...]


def read_session(logs: LogFiles) -> Session:
    """The session in a folder or archive, at any depth.

    Args:
        logs: with `power/`, `ranging/` and `run_1/` in one folder.

    Returns:
        The session.

    Raises:
        LogError: there is none, or more than one; a record or the run that counts is missing or of
            no use.
    """
    files = _session_files(logs)
    client = _read_record(files, "power/client.json")
    server = _read_record(files, "power/server.json")
    testing = _read_phase(files, "run_1")
    notes = list(testing.notes)
    ranging = None
    try:
        ranging = _read_phase(files, "ranging")
        notes += ranging.notes
    except LogError as error:
        text = f"the ranging run cannot be used: {error}"
        notes.append(Note("ranging-unusable", text, files.where("ranging")))
    notes += _zone_notes(testing, server)
    return Session(files, client, server, testing, ranging, tuple(notes))


def session_folders(logs: LogFiles) -> tuple[str, ...]:
    """Folders that hold a session, or part of one, sorted.

    Args:
        logs: a folder or archive.

    Returns:
        Paths below it; an empty one for itself.

    Example:
        >>> session_folders(LogFiles("results", {"a/power/server.json": bytes}))
        ('a',)
    """
    found = set()
    for name in logs.names:
        for ending in _FINDABLE:
            if name == ending or name.endswith(f"/{ending}"):
                found.add(name.removesuffix(ending).removesuffix("/"))
    return tuple(sorted(found))


def _session_files(logs: LogFiles) -> LogFiles:
    folders = list(session_folders(logs))
    if not folders:
        raise LogError(
            "no MLPerf Power session",
            where=logs.source,
            expected="a folder with power/, ranging/ and run_1/",
        )
    if len(folders) > 1:
        raise LogError(
            f"{len(folders)} sessions",
            where=logs.source,
            got=", ".join(folders[:3]) + (", .." if len(folders) > 3 else ""),
            expected="one",
            remedy="name one of these folders",
        )
    return logs.below(folders[0]) if folders[0] else logs


def _read_record(files: LogFiles, name: str) -> SessionRecord:
    content = files.read(name)
    try:
        return msgspec.json.decode(content, type=SessionRecord)
    except NOT_READABLE as error:
        # A value of a wrong kind is named by its key, damaged JSON by its place.
        place = re.search(r"byte (\d+)|truncated", str(error))
        line = content.count(b"\n", 0, int(place[1] or len(content))) + 1 if place else None
        raise LogError(
            "not a record of a session", where=files.where(name, line), got=str(error)
        ) from None


def _read_phase(files: LogFiles, name: PhaseName) -> Phase:
    detail, summary = f"{name}/mlperf_log_detail.txt", f"{name}/mlperf_log_summary.txt"
    notes = []
    if summary not in files:
        text = "missing; what it says was read from the detailed log where that has it"
        notes.append(Note("summary-missing", text, files.where(summary)))
    run = read_loadgen(
        files.read(detail),
        files.where(detail),
        read_summary(files.read(summary)) if summary in files else {},
    )
    samples = read_samples(files.read(f"{name}/spl.txt"), files.where(f"{name}/spl.txt"))
    notes += samples.notes
    shift_us = _shift_us(run, samples)
    if shift_us:
        text = (
            f"the analyzer's clock is {shift_us / 3.6e9:+g} h from loadgen's; taken as another "
            "time zone"
        )
        notes.append(Note("clock-zones-differ", text, samples.where))
    return Phase(name, run, samples, shift_us, tuple(notes))


def _shift_us(run: LoadgenRun, samples: AnalyzerSamples) -> int:
    """Time zones between loadgen's clock and the analyzer's: 0 where any sample is inside."""
    times = samples.time_us
    if np.any((times > run.begin_us) & (times < run.end_us)):
        return 0
    fits = zone_shifts_us(run.begin_us, run.end_us, times.min(), times.max())
    if len(fits) != 1:
        raise LogError(
            "no sample between power_begin and power_end",
            where=samples.where,
            got=f"samples from {clock_text(times.min())} to {clock_text(times.max())}",
            expected=f"from {clock_text(run.begin_us)} to {clock_text(run.end_us)}, as {run.where}",
        )
    return int(fits[0])


def _zone_notes(testing: Phase, server: SessionRecord) -> list[Note]:
    """A note where loadgen's clock shows another zone than the server's checkpoints, in UTC."""
    checkpoints = server.phases.get("testing", [])
    if len(checkpoints) < 3 or not all(checkpoints[:3]):
        return []
    first_us, last_us = checkpoints[1][0] * 1e6, checkpoints[2][0] * 1e6
    fits = zone_shifts_us(testing.run.begin_us, testing.run.end_us, first_us, last_us)
    if 0 in fits or len(fits) != 1:
        return []
    text = (
        f"loadgen's clock is {-fits[0] / 3.6e9:+g} h from UTC, in which the server recorded its "
        "checkpoints"
    )
    return [Note("clock-not-utc", text, testing.run.where)]
