"""The eleven rules: a session that keeps them all, then one rule broken at a time."""

from collections.abc import Callable

import pytest

from jaxperf.energy.inference import check_session, read_session
from jaxperf.errors import LogError
from tests.energy.inference_sessions import (
    FIRST_LOAD_S,
    MadeSession,
    clock,
    detail,
    made_session,
    samples,
)

CLIENT, SERVER = "Check client sources checksum", "Check server sources checksum"
COMMANDS = "Check PTD commands and replies"
UUID, NAMES = "Check UUID", "Check session name"
TIMES = "Check time difference"
MESSAGES = "Check client server messages"
RESULTS = "Check results checksum"
LOG = "Check errors and warnings from PTD logs"
CONFIG = "Check PTD configuration"
DEBUG = "Check debug is disabled on server-side"

Change = Callable[[MadeSession], object]


def outcomes(made: MadeSession, seal: bool = True) -> dict[str, str]:
    checks = check_session(read_session(made.logs(seal)))
    return {check.name: check.outcome for check in checks}


def not_passed(made: MadeSession, seal: bool = True) -> dict[str, str]:
    return {name: word for name, word in outcomes(made, seal).items() if word != "pass"}


def set_in(*keys: object, to: object) -> Change:
    """A change of one value of a session's records, by its path from `client` or `server`."""

    def change(made: MadeSession) -> None:
        at = getattr(made, str(keys[0]))
        for key in keys[1:-1]:
            at = at[key]
        at[keys[-1]] = to

    return change


def daemon_says(second: float, words: str) -> Change:
    return lambda made: made.daemon_lines.append(f"{clock(second)}: {words}")


def move_checkpoint(side: str, phase: str, index: int, by_s: float) -> Change:
    def change(made: MadeSession) -> None:
        getattr(made, side)["phases"][phase][index][0] += by_s

    return change


def load_at(phase: str, first_s: float, load_s: float = 60.0) -> Change:
    """Loadgen's clock puts the load elsewhere; the samples follow it."""

    def change(made: MadeSession) -> None:
        made.files[f"{phase}/mlperf_log_detail.txt"] = detail(first_s, load_s)
        made.files[f"{phase}/spl.txt"] = samples(first_s, load_s, lambda at: 500.0, "any")

    return change


def run_draws(power_w: float) -> Change:
    def change(made: MadeSession) -> None:
        first_s = FIRST_LOAD_S["run_1"]
        made.files["run_1/spl.txt"] = samples(first_s, made.load_s, lambda at: power_w, "testing")

    return change


def device(kind: int, channel: list[int] | None, option: str) -> Change:
    command = ["ptd", "-c", option, str(kind)]
    analyzer = {"command": command, "device_type": kind, "channel": channel}
    return set_in("server", "ptd_config", to=[analyzer])


def reply(index: int, to: str) -> Change:
    return set_in("server", "ptd_messages", index, "reply", to=to)


def command(index: int, to: str) -> Change:
    return set_in("server", "ptd_messages", index, "cmd", to=to)


def without_line(index: int) -> Change:
    return lambda made: made.daemon_lines.pop(index)


def on_both_sides(change: Callable[[list], object]) -> Change:
    return lambda made: [change(side["messages"]) for side in (made.client, made.server)]


def checked_while_ranging(made: MadeSession) -> None:
    line = made.daemon_lines.pop(1)
    made.daemon_lines.insert(3, line.replace(clock(1), clock(21)))


RANGING_S, TESTING_S = FIRST_LOAD_S["ranging"], FIRST_LOAD_S["run_1"]
UNCERTAIN = "WARNING: Uncertainty 1.50%, which is above 1.00% limit for the last sample!"

FAILS: dict[str, dict[str, Change]] = {
    CLIENT: {"another file": set_in("client", "sources", "client.py", to="0" * 40)},
    SERVER: {"a file more": set_in("server", "sources", "lib/x.py", to="0")},
    COMMANDS: {
        "no messages": set_in("server", "ptd_messages", to=None),
        "no Identify": command(1, "Hello"),
        "PTDaemon 1.10.0": reply(1, "YokogawaWT310E,1000,version=1.10.0-ed9a21d2"),
        "an unknown analyzer": reply(1, "Hioki3334,1000,version=1.11.1-69286632"),
        "amperes refused": reply(9, "Error"),
        "volts refused": reply(8, "Error"),
        "no start": reply(6, "Error"),
        "no stop": reply(11, "Error"),
        "a third measurement to stop": reply(12, "Stopping untimed measurement"),
        "amperes kept": command(14, "SR,A,15.0"),
        "volts kept": command(13, "SR,V,240.0"),
        "three SR,A": lambda made: made.server["ptd_messages"].pop(5),
        "unreadable ranges": reply(2, "Ranges,0"),
    },
    UUID: {
        "another server": set_in("client", "uuid", "server", to=f"{3:032x}"),
        "no identity": set_in("server", "uuid", "client", to="none"),
    },
    NAMES: {"another session": set_in("client", "session_name", to="another")},
    TIMES: {
        "clocks 0.9 s apart": move_checkpoint("server", "testing", 3, 0.9),
        "a checkpoint less": lambda made: made.client["phases"]["testing"].pop(),
        "no checkpoints": lambda made: made.server["phases"].pop("ranging"),
        "load before its phase": load_at("ranging", RANGING_S - 31),
        "load after its phase": load_at("run_1", TESTING_S + 11),
        "load an hour early": load_at("run_1", TESTING_S - 3600),
        "5 % less power": run_draws(475.0),
    },
    MESSAGES: {
        "a command more": lambda made: made.server["messages"].append({"cmd": "a", "reply": "b"}),
        "another command": set_in("client", "messages", 2, "cmd", to="start"),
        "another reply": set_in("client", "messages", 2, "reply", to="Error"),
        "versions differ": on_both_sides(
            lambda messages: messages[0].update(reply="mlcommons/power server v2")
        ),
        "no version": on_both_sides(lambda messages: messages.pop(0)),
    },
    RESULTS: {"a log is missing": lambda made: made.files.pop("power/client.log")},
    LOG: {
        "an error while testing": daemon_says(TESTING_S, "ERROR: Can't evaluate uncertainty"),
        "an error between runs": daemon_says(TESTING_S - 100, "ERROR: Bad amps"),
        "no time": lambda made: made.daemon_lines.append("WARNING: Missed 2 samples"),
        "uncertainty unchecked": without_line(1),
        "checked too late": checked_while_ranging,
        "no start of ranging": without_line(2),
        "no end of ranging": without_line(4),
    },
    CONFIG: {
        "one table": set_in("server", "ptd_config", to={"device_type": 49}),
        "an unknown device": device(59, [1], "1"),
        "one channel of two": device(77, [1], "1"),
        "channels not listed": device(77, None, "1,2"),
    },
    DEBUG: {"debugging": set_in("server", "debug", to=True)},
}

WARNS: dict[str, dict[str, Change]] = {
    TIMES: {"testing too short": load_at("run_1", TESTING_S, 29.9)},
    LOG: {
        "an unusual error in ranging": daemon_says(RANGING_S, "ERROR: Bad watts reading inf"),
        "USB": daemon_says(TESTING_S, "ERROR: USB."),
    },
}


def cases(outcome: str, changes: dict[str, dict[str, Change]]) -> list:
    return [
        pytest.param(name, outcome, change, id=words)
        for name, changes_of_rule in changes.items()
        for words, change in changes_of_rule.items()
    ]


def test_a_session_that_keeps_every_rule_passes_all_eleven():
    kept = outcomes(made_session())
    assert len(kept) == 11
    assert set(kept.values()) == {"pass"}


@pytest.mark.parametrize(
    ("name", "outcome", "change"), cases("fail", FAILS) + cases("warning", WARNS)
)
def test_one_rule_broken_is_the_only_one_not_passed(name, outcome, change):
    made = made_session()
    change(made)
    assert not_passed(made) == {name: outcome}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(move_checkpoint("server", "testing", 3, 0.79), id="clocks 0.79 s apart"),
        pytest.param(load_at("run_1", TESTING_S + 3600), id="summer time"),
        pytest.param(load_at("run_1", TESTING_S, 30.0), id="half as long"),
        pytest.param(run_draws(475.1), id="4.98 % less power"),
        pytest.param(run_draws(900.0), id="more power"),
        pytest.param(set_in("client", "messages", 1, "reply", to="2"), id="another time"),
        pytest.param(set_in("client", "results", "x", to="0"), id="a file that is not needed"),
        pytest.param(daemon_says(TESTING_S + 30, UNCERTAIN), id="uncertain within 800 s of an end"),
        pytest.param(daemon_says(RANGING_S + 1, "ERROR: Bad pf reading nan from WT310"), id="nan"),
        pytest.param(device(77, [1, 3], "1,3"), id="two channels"),
        pytest.param(set_in("server", "debug", to=False), id="no debug"),
    ],
)
def test_what_a_rule_allows_passes(change):
    made = made_session()
    change(made)
    assert not_passed(made) == {}


@pytest.mark.parametrize(
    ("words", "outcome"), [(UNCERTAIN, "fail"), ("WARNING: Missed 2 samples", "warning")]
)
def test_a_warning_counts_800_s_from_either_end_of_the_load(words, outcome):
    made = made_session(load_s=1610.0)
    daemon_says(TESTING_S + 799, words)(made)
    daemon_says(TESTING_S + 811, words)(made)
    assert not_passed(made) == {}
    daemon_says(TESTING_S + 805, words)(made)
    assert not_passed(made) == {LOG: outcome}


@pytest.mark.parametrize(
    "name", ["power/server.log", "ranging/spl.txt", "run_1/mlperf_log_detail.txt"]
)
def test_a_file_changed_after_its_checksum_was_recorded_fails(name):
    made = made_session()
    made.seal()
    made.files[name] += b"\n"
    assert not_passed(made, seal=False) == {RESULTS: "fail"}


def test_a_checksum_that_was_not_recorded_fails():
    made = made_session()
    made.seal()
    del made.server["results"]["power/server.log"]
    assert not_passed(made, seal=False) == {RESULTS: "fail"}


def test_client_and_server_must_have_recorded_the_same_checksum():
    made = made_session()
    made.seal()
    made.client["results"]["power/server.log"] = "0" * 40
    assert not_passed(made, seal=False) == {RESULTS: "fail"}


def test_without_a_ranging_run_what_compares_with_it_fails():
    made = made_session()
    made.files = {name: text for name, text in made.files.items() if not name.startswith("ranging")}
    session = read_session(made.logs())
    failed = {check.name for check in check_session(session) if check.outcome == "fail"}
    assert failed == {TIMES, RESULTS}
    assert [note.code for note in session.notes] == ["ranging-unusable"]


def test_a_check_names_the_file_and_the_line():
    made = made_session()
    made.daemon_lines.append(f"{clock(TESTING_S)}: ERROR: Bad amps")
    text = {check.name: check.text for check in check_session(read_session(made.logs()))}[LOG]
    assert text == f"power/ptd_logs.txt, line {len(made.daemon_lines)}: 'Bad amps' outside ranging"


def test_clocks_of_client_and_server_are_compared_even_when_they_agree():
    made = made_session()
    move_checkpoint("client", "ranging", 0, 0.125)(made)
    text = {check.name: check.text for check in check_session(read_session(made.logs()))}[TIMES]
    assert "0.125 s" in text


def test_a_record_without_a_field_of_its_format_is_refused():
    made = made_session()
    del made.client["phases"]
    with pytest.raises(LogError, match=r"power/client\.json: not a record of a session.*phases"):
        read_session(made.logs())


def test_uncertain_samples_that_the_rule_passes_over_are_counted():
    made = made_session()
    for second in (1, 2):
        daemon_says(TESTING_S + second, UNCERTAIN)(made)
    text = {check.name: check.text for check in check_session(read_session(made.logs()))}[LOG]
    assert text == "2 uncertain samples near an end of the load were passed over"
