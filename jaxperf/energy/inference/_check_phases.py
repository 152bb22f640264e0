"""Rules on the session: one client and one server, in step, and two runs that are alike."""

import re
import uuid
from collections.abc import Iterator

from jaxperf.energy.inference._findings import Finding, fail, warning
from jaxperf.energy.inference._session import Phase, Session
from jaxperf.energy.inference._windows import average_power_factor, official_window
from jaxperf.errors import LogError

_LARGEST_DIFFERENCE_S = 0.8
_LARGEST_SHORTFALL = 0.5
"""Of testing, by the duration of ranging."""
_LARGEST_LOSS_PERCENT = 5.0

_VERSIONS = tuple(re.compile(rf"mlcommons/power {side} v(\d+)$") for side in ("client", "server"))


def same_uuids(session: Session) -> Iterator[Finding]:
    """Client and server recorded each other's identity."""
    for side in ("client", "server"):
        first, second = session.client.uuid.get(side), session.server.uuid.get(side)
        try:
            same = uuid.UUID(first) == uuid.UUID(second)
        except (ValueError, TypeError, AttributeError):
            yield fail(f"{first!r} or {second!r} is not the identity of a {side}")
            continue
        if not same:
            yield fail(f"client.json and server.json name different {side}s")


def same_session_name(session: Session) -> Iterator[Finding]:
    """Client and server recorded the same session."""
    first, second = session.client.session_name, session.server.session_name
    if first != second:
        yield fail(f"client.json names {first!r}, server.json {second!r}")


def same_messages(session: Session) -> Iterator[Finding]:
    """Client and server recorded the same messages, and are of one version."""
    client, server = session.client.messages, session.server.messages
    if len(client) != len(server):
        yield fail(f"the client recorded {len(client)} commands, the server {len(server)}")
    for count, (sent, received) in enumerate(zip(client, server, strict=False), start=1):
        if sent.cmd != received.cmd:
            yield fail(f"command {count}: client {sent.cmd!r}, server {received.cmd!r}")
        elif sent.cmd != "time" and sent.reply != received.reply:
            yield fail(f"reply to {sent.cmd!r}: client {sent.reply!r}, server {received.reply!r}")
    greeting = (server[0].cmd, server[0].reply) if server else ("", "")
    versions = [pattern.search(text) for pattern, text in zip(_VERSIONS, greeting, strict=True)]
    numbers = {version and version[1] for version in versions}
    if None in numbers:
        yield fail(f"the first message names no versions of client and server: {greeting}")
    elif len(numbers) > 1:
        yield fail(f"client and server are of different versions: {greeting}")


def no_debugging(session: Session) -> Iterator[Finding]:
    """The server ran with its safeguards."""
    if session.server.debug is not False:
        yield fail("the server ran in debug mode")


def phases_alike(session: Session) -> Iterator[Finding]:
    """Clocks agree, each run lies within its phase, and testing drew what ranging drew."""
    largest_s = 0.0
    for name in ("ranging", "testing"):
        client, server = session.client.phases.get(name), session.server.phases.get(name)
        if not client or not server or not all(client) or not all(server):
            yield fail(f"client.json or server.json lacks checkpoints of {name}")
            return
        if len(client) != len(server):
            yield fail(f"{name}: client.json has {len(client)} checkpoints, not {len(server)}")
            return
        difference_s = max(abs(a[0] - b[0]) for a, b in zip(client, server, strict=True))
        largest_s = max(largest_s, difference_s)
        if difference_s > _LARGEST_DIFFERENCE_S:
            yield fail(
                f"{name}: checkpoints of client and server differ by {difference_s:.3f} s, more "
                f"than {_LARGEST_DIFFERENCE_S} s"
            )
    ranging, testing = session.ranging, session.testing
    if ranging is None:
        yield fail("the ranging run cannot be used")
        return
    for name, phase in (("ranging", ranging), ("testing", testing)):
        yield from _outside(name, phase, session.client.phases[name])
    yield from _unlike(ranging, testing)
    yield "pass", f"checkpoints of client and server differ by at most {largest_s:.3f} s"


def _outside(name: str, phase: Phase, checkpoints: list[list[float]]) -> Iterator[Finding]:
    if len(checkpoints) < 3:
        yield fail(f"client.json has {len(checkpoints)} checkpoints of {name}, not 4")
        return
    first_s, last_s = checkpoints[1][0], checkpoints[2][0]
    for word, time_us in (("begins", phase.run.begin_us), ("ends", phase.run.end_us)):
        # An hour too late passes: loadgen's clock may run in summer time.
        if not any(first_s < time_us / 1e6 - shift_s < last_s for shift_s in (0, 3600)):
            early_s, late_s = first_s - time_us / 1e6, time_us / 1e6 - last_s
            way = f"{early_s:.1f} s before" if early_s > 0 else f"{late_s:.1f} s after"
            yield fail(f"{name}: the load {word} {way} its phase by the client's clock")


def _unlike(ranging: Phase, testing: Phase) -> Iterator[Finding]:
    first_s, second_s = ranging.run.duration_s, testing.run.duration_s
    if (first_s - second_s) / first_s > _LARGEST_SHORTFALL:
        yield warning(f"testing took {second_s:.1f} s, less than half of ranging's {first_s:.1f} s")
    for phase in (ranging, testing):
        for line, time_us in phase.samples.broken:
            if time_us is None or phase.begin_us < time_us < phase.end_us:
                yield fail(f"{phase.name}/spl.txt, line {line} is cut short")
    try:
        first_w, second_w = (
            round(official_window(phase).average_power_w, 5) for phase in (ranging, testing)
        )
    except LogError as error:
        yield fail(str(error))
        return
    change = round((second_w / first_w - 1) * 100, 2) if first_w else -100.0
    if not change > -_LARGEST_LOSS_PERCENT:
        yield fail(
            f"average power fell by {-change} %, from {first_w} W while ranging to {second_w} W "
            f"while testing; power factors {average_power_factor(ranging):.5f} and "
            f"{average_power_factor(testing):.5f}"
        )
