"""Rules on files: programs that are accepted, and results that nobody changed since."""

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping

from jaxperf.config import config_folder
from jaxperf.energy.inference._findings import Finding, fail
from jaxperf.energy.inference._session import Session, SessionRecord

_RESULTS = tuple(
    ["power/client.log", "power/ptd_logs.txt", "power/server.log"]
    + [
        f"{phase}/{name}"
        for phase in ("ranging", "run_1")
        for name in ("mlperf_log_detail.txt", "mlperf_log_summary.txt", "spl.txt")
    ]
)


def client_sources(session: Session) -> Iterator[Finding]:
    """The client is a version that is accepted."""
    yield from _sources(session.client)


def server_sources(session: Session) -> Iterator[Finding]:
    """The server is a version that is accepted."""
    yield from _sources(session.server)


def results_unchanged(session: Session) -> Iterator[Finding]:
    """Every file that a submission needs is there, with the SHA-1 that was recorded."""
    client, server = _needed(session.client.results), _needed(session.server.results)
    for name in sorted(client.keys() & server.keys()):
        if client[name] != server[name]:
            yield fail(f"{name}: client.json and server.json recorded different checksums")
    recorded = client | server
    files = session.files
    for name in _RESULTS:
        if name not in files:
            yield fail(f"{name} is missing")
        if name not in recorded:
            yield fail(f"{name}: neither client.json nor server.json recorded its checksum")
    for name in _RESULTS:
        if hashlib.sha1(files.read(name), usedforsecurity=False).hexdigest() != recorded.get(name):
            yield fail(f"{name} is not the file whose checksum was recorded")


def _sources(record: SessionRecord) -> Iterator[Finding]:
    accepted = _accepted_sources()
    if record.sources not in accepted:
        near = min(accepted, key=lambda known: len(_different(known, record.sources)))
        different = _different(near, record.sources)
        names = ", ".join(different[:3]) + (", .." if len(different) > 3 else "")
        yield fail(f"not an accepted version: {len(different)} files differ ({names})")


def _different(known: Mapping[str, str], sources: Mapping[str, str]) -> list[str]:
    names = sorted(known.keys() | sources.keys())
    return [name for name in names if known.get(name) != sources.get(name)]


def _needed(results: Mapping[str, str]) -> dict[str, str]:
    return {name: results[name] for name in _RESULTS if name in results}


@functools.cache
def _accepted_sources() -> tuple[dict[str, str], ...]:
    path = config_folder("power") / "ptd_sources.json"
    return tuple(json.loads(path.read_text(encoding="utf-8"))["accepted"])
