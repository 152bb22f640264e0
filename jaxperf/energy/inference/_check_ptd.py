"""Rules on the power analyzer: commands and replies of PTDaemon, its log, its configuration."""

import re
from collections.abc import Iterator

from jaxperf.energy.inference._findings import Finding, fail, warning
from jaxperf.energy.inference._ptdaemon import DaemonMessage, read_daemon_messages
from jaxperf.energy.inference._session import Message, Session

_VERSIONS = ("1.11.1",)

_DEVICES = {
    "YokogawaWT210": 8,
    "YokogawaWT500": 35,
    "YokogawaWT500_multichannel": 48,
    "YokogawaWT310": 49,
    "YokogawaWT310E": 49,
    "YokogawaWT330": 52,
    "YokogawaWT330E": 52,
    "YokogawaWT330_multichannel": 77,
    "YokogawaWT210_DC": 508,
    "YokogawaWT310_DC": 549,
    "YokogawaWT330_DC": 586,
}
"""Numbers of accepted analyzers by name, as PTDaemon gives both."""

_TWO_CHANNELS = 77

_REPLIES = (
    ("SR,A", "Range A changed"),
    ("SR,V", "Range V changed"),
    (
        "Go,1000,",
        "Starting untimed measurement, maximum 500000 samples at 1000ms with 0 rampup samples",
    ),
)
_STOP_REPLIES = ("Stopping untimed measurement", "Error: no measurement to stop")

_USUAL_WHILE_RANGING = (
    "Can't evaluate uncertainty of this sample!",
    "Bad watts reading nan from ",
    "Bad amps reading nan from ",
    "Bad pf reading nan from ",
    "Bad volts reading nan from ",
    "Current appears to be too high for set range",
)
_ACCEPTED_ERROR = "USB."

_TOO_UNCERTAIN = re.compile(
    r"Uncertainty \d+.\d+%, which is above 1.00% limit for the last sample!"
)
_ACTIVATED = re.compile(r"Uncertainty checking for Yokogawa\S+ is activated")

_EDGE_US = 800_000_000
"""Warnings this near to an end of the load are passed over. The rule speaks of 0.8 s, but its
program adds 800 to times in seconds, and what that program says is what counts."""


def commands_and_replies(session: Session) -> Iterator[Finding]:
    """PTDaemon's version and analyzer are accepted, it obeyed, and its ranges were restored."""
    messages = session.server.ptd_messages
    if messages is None:
        yield fail("power/server.json has no ptd_messages")
        return
    identity = next((each.reply for each in messages if each.cmd == "Identify"), "")
    if not identity:
        yield fail("PTDaemon did not answer the command 'Identify'")
    version = re.search(r"version=(.+?)-", identity)
    if version is None or version[1] not in _VERSIONS:
        named = repr(version[1]) if version else "no version"
        yield fail(f"PTDaemon is {named}; accepted is {', '.join(_VERSIONS)}")
    analyzer = identity.split(",")[0]
    if analyzer not in _DEVICES:
        yield fail(f"the analyzer {analyzer!r} is not among {', '.join(_DEVICES)}")
    yield from _wrong_replies(messages)
    yield from _ranges_kept(messages)


def daemon_log(session: Session) -> Iterator[Finding]:
    """PTDaemon logged no error but while ranging, and it checked how uncertain samples are."""
    name = "power/ptd_logs.txt"
    if name not in session.files:
        yield fail(f"{name} is missing")
        return
    messages = read_daemon_messages(session.files.read(name))
    mark = f"{session.server.session_name}_ranging"
    span = _ranging_span_us(messages, f"Go with mark {mark!r}")
    if span is None:
        yield fail(f"{name} does not tell when ranging started and ended")
        return
    activated = next((each for each in messages if _ACTIVATED.search(each.text)), None)
    if activated is None:
        yield fail(f"{name}: uncertainty checking was not activated")
    elif activated.time_us is None or activated.time_us >= span[0]:
        yield fail(f"{name}, line {activated.line}: activated, but not before ranging started")
    run = session.testing.run
    load_us = (run.begin_us + _EDGE_US, run.end_us - _EDGE_US)
    for message in messages:
        for outcome, text in _complaints(message, span, load_us):
            yield outcome, f"{name}, line {message.line}: {text}"
    passed_over = sum(
        message.time_us is not None
        and run.begin_us < message.time_us < run.end_us
        and _TOO_UNCERTAIN.search(message.text) is not None
        for message in messages
    )
    if passed_over:
        yield "pass", f"{passed_over} uncertain samples near an end of the load were passed over"


def daemon_configuration(session: Session) -> Iterator[Finding]:
    """Analyzers are of accepted kinds, and one that needs two channels has two."""
    config = session.server.ptd_config
    if not isinstance(config, list):
        yield fail("ptd_config is not the list of analyzers that the accepted server writes")
        return
    for analyzer in config:
        kind = analyzer.get("device_type") if isinstance(analyzer, dict) else None
        if kind not in _DEVICES.values():
            known = ", ".join(str(number) for number in sorted(set(_DEVICES.values())))
            yield fail(f"device type {kind} is not among {known}")
        elif kind == _TWO_CHANNELS and not _has_two_channels(analyzer):
            yield fail(f"device type {kind} was not started with two channels")


def _wrong_replies(messages: list[Message]) -> Iterator[Finding]:
    for command, reply in _REPLIES:
        for message in messages:
            if message.cmd.startswith(command) and message.reply != reply:
                yield fail(f"{message.cmd!r} was answered {message.reply!r}, not {reply!r}")
    stops = [message for message in messages if message.cmd.startswith("Stop")]
    for count, message in enumerate(stops):
        # The measurement has ended by the third command to stop.
        reply = _STOP_REPLIES[count >= 2]
        if message.reply != reply:
            yield fail(f"{message.cmd!r} was answered {message.reply!r}, not {reply!r}")


def _ranges_kept(messages: list[Message]) -> Iterator[Finding]:
    """The last commands set the ranges that PTDaemon had at first."""
    reply = messages[2].reply.split(",") if len(messages) > 2 else []
    try:
        amps, volts = _initial_range(reply, 1), _initial_range(reply, 3)
    except (ValueError, IndexError):
        yield fail(f"the analyzer's initial ranges cannot be read from {','.join(reply)!r}")
        return
    set_amps = [message.cmd for message in messages if message.cmd.startswith("SR,A")]
    set_volts = [message.cmd for message in messages if message.cmd.startswith("SR,V")]
    # The first sessions of PTDaemon 1.11 set the amperes once more while ranging.
    if len(set_amps) < 4 or len(set_volts) < 3:
        yield fail(f"{len(set_amps)} SR,A and {len(set_volts)} SR,V; at least 4 and 3 are needed")
    elif f"SR,A,{amps}" not in set_amps[2:4]:
        yield fail(f"the range of amperes was not set back to {amps}: {set_amps[2:4]}")
    elif set_volts[2] != f"SR,V,{volts}":
        yield fail(f"the range of volts was not set back to {volts}: {set_volts[2]!r}")


def _initial_range(reply: list[str], place: int) -> str:
    """`Auto`, or the range that was set: after a 0 in `Ranges,<auto>,<A>,<auto>,<V>`."""
    return reply[place + 1] if reply[place] == "0" and float(reply[place + 1]) > 0 else "Auto"


def _ranging_span_us(messages: list[DaemonMessage], start: str) -> tuple[int, int] | None:
    dated = [(each.time_us, each.text) for each in messages if each.time_us is not None]
    began = next((row for row, (_, text) in enumerate(dated) if text == start), None)
    if began is None:
        return None
    end = next((time for time, text in dated[began:] if text == "Completed test"), None)
    return None if end is None else (dated[began][0], end)


def _complaints(
    message: DaemonMessage, ranging_us: tuple[int, int], load_us: tuple[int, int]
) -> Iterator[Finding]:
    caution = message.text.partition("WARNING:")[2].strip()
    error = message.text.partition("ERROR:")[2].strip()
    if not caution and not error:
        return
    if message.time_us is None:
        yield fail(f"{message.text!r} has no time")
        return
    if caution and load_us[0] < message.time_us < load_us[1]:
        finding = fail if _TOO_UNCERTAIN.search(caution) else warning
        yield finding(f"{caution!r} under load")
    if error == _ACCEPTED_ERROR:
        yield warning(f"{error!r}; accepted at any time")
    elif error and not ranging_us[0] < message.time_us < ranging_us[1]:
        yield fail(f"{error!r} outside ranging")
    elif error and not error.startswith(_USUAL_WHILE_RANGING):
        yield warning(f"{error!r} while ranging")


def _has_two_channels(analyzer: dict) -> bool:
    command = [str(word) for word in analyzer.get("command") or []]
    channels = command[command.index("-c") + 1 :][:1] if "-c" in command else []
    listed = analyzer.get("channel")
    return (
        bool(channels)
        and len(channels[0].split(",")) == 2
        and isinstance(listed, list)
        and len(listed) == 2
    )
