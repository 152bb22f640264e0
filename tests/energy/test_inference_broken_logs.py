"""Logs that are cut, mixed up or empty: one line that names the file, or a note; never a zero."""

from collections.abc import Callable

import pytest

from jaxperf.energy.inference import score_inference
from jaxperf.errors import LogError
from tests.energy.inference_sessions import MadeSession, detail, made_session

SPL, DETAIL = "run_1/spl.txt", "run_1/mlperf_log_detail.txt"
SERVER = "power/server.json"

Change = Callable[[MadeSession], object]


def replaced(name: str, old: str, new: str) -> Change:
    def change(made: MadeSession) -> None:
        assert old.encode() in made.files[name]
        made.files[name] = made.files[name].replace(old.encode(), new.encode())

    return change


def contains(name: str, content: bytes) -> Change:
    return lambda made: made.files.update({name: content})


def missing(name: str) -> Change:
    return lambda made: made.files.pop(name)


def end_before_start(made: MadeSession) -> None:
    made.files[DETAIL] = detail(10_050.0, -60.0)


def another_day(made: MadeSession) -> None:
    made.files[DETAIL] = detail(500_000.0, 60.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (missing(SPL), r"made/run_1/spl.txt: missing file"),
        (missing(DETAIL), r"made/run_1/mlperf_log_detail.txt: missing file"),
        (contains(SPL, b""), r"made/run_1/spl.txt: no power sample; expected Time"),
        (contains(SPL, b"\x00\xff\x00"), r"made/run_1/spl.txt: no power sample"),
        (contains(DETAIL, b""), r"mlperf_log_detail.txt: power_begin is missing"),
        (replaced(DETAIL, "power_end", "power_ends"), r"detail.txt: power_end is missing"),
        (replaced(DETAIL, '"value": "08', '"value": "98'), r"line 1: power_begin is not a time"),
        (replaced(DETAIL, '"key": "power_end",', ""), r"detail.txt: power_end is missing"),
        (end_before_start, r"line 2: power_end is not after power_begin; got 2025-08-01 02:47:30"),
        (another_day, r"spl.txt: no sample between power_begin and power_end; got samples from"),
        (replaced(SPL, "Watts", "Milliwatts"), r"spl.txt, line 1: not the columns.*Milliwatts"),
        (replaced(SPL, "Watts,500.000000", "Watts,0.0"), r"spl.txt, line 31: no power above 0 W"),
        (replaced(SPL, "Watts,500.000000", "Watts,nan"), r"spl.txt, line 31: no power above 0 W"),
        (replaced(SPL, "Watts,500.000000", "Watts,?"), r"spl.txt, line 1: a value.*'\?'"),
        (replaced(SPL, "Time,08-01", "Time,08/01"), r"spl.txt, line 1: a value.*expected a time"),
    ],
)  # fmt: skip
def test_a_run_of_no_use_is_refused_in_one_line_that_names_the_place(change, message):
    made = made_session()
    change(made)
    with pytest.raises(LogError, match=message) as caught:
        score_inference(made.logs())
    assert "\n" not in str(caught.value)


def test_a_cut_event_names_its_line():
    made = made_session()
    made.files[DETAIL] = made.files[DETAIL][:130]
    with pytest.raises(LogError, match=r"detail.txt, line 2: not a whole MLLOG event"):
        score_inference(made.logs())


def test_a_cut_sample_at_the_end_is_left_out_with_a_note():
    made = made_session()
    made.files[SPL] = made.files[SPL][:-60]
    score = score_inference(made.logs())
    (note,) = score.notes
    assert (note.code, note.where) == ("unreadable-lines", "made/run_1/spl.txt, line 110")
    assert {check.outcome for check in score.checks} == {"pass"}


def test_a_cut_sample_under_load_fails_the_rule_that_reads_it():
    made = made_session()
    lines = made.files[SPL].splitlines()
    lines[49] = lines[49][:50]
    made.files[SPL] = b"\n".join(lines)
    score = score_inference(made.logs())
    failed = {check.name: check.text for check in score.checks if check.outcome == "fail"}
    assert failed == {"Check time difference": "run_1/spl.txt, line 50 is cut short"}
    assert score.energy_j == pytest.approx(30_000.0)


def test_a_line_that_is_no_sample_is_noted_and_no_rule_reads_it():
    made = made_session()
    lines = made.files[SPL].splitlines()
    lines[49] = b"@@@@"
    made.files[SPL] = b"\n".join(lines)
    score = score_inference(made.logs())
    (note,) = score.notes
    assert (note.code, note.where) == ("unreadable-lines", "made/run_1/spl.txt, line 50")
    assert {check.outcome for check in score.checks} == {"pass"}


def test_a_sample_beyond_the_range_of_the_analyzer_is_suspected_and_counted():
    made = made_session()
    lines = made.files[SPL].split(b"\n")
    before, _, after = lines[49].partition(b"Watts,")
    lines[49] = before + b"Watts,9.9E30" + after[after.index(b",") :]
    made.files[SPL] = b"\n".join(lines)
    score = score_inference(made.logs())
    (note,) = (note for note in score.notes if note.code == "power-unit-suspect")
    assert note.where == "made/run_1/spl.txt, line 50"
    assert score.average_power_w > 1e28


@pytest.mark.parametrize("text", [b'{"system_name"', b"[]", b'{"system_name": 3}', b"\xff"])
def test_a_broken_description_of_the_system_is_a_note(text):
    made = made_session()
    made.files["system.json"] = text
    score = score_inference(made.logs())
    (note,) = score.notes
    assert (note.code, note.where) == ("system-unreadable", "made/system.json")
    assert score.system is None


def test_a_broken_ranging_run_is_a_note_that_names_its_file():
    made = made_session()
    made.files["ranging/spl.txt"] = b""
    score = score_inference(made.logs())
    (note,) = score.notes
    assert note.code == "ranging-unusable"
    assert "ranging/spl.txt: no power sample" in note.text
    assert score.energy_j == pytest.approx(30_000.0)


def test_a_ranging_run_without_power_fails_the_rule_that_compares_with_it():
    made = made_session()
    replaced("ranging/spl.txt", "Watts,500.000000", "Watts,0.0")(made)
    score = score_inference(made.logs())
    failed = {check.name: check.text for check in score.checks if check.outcome == "fail"}
    assert list(failed) == ["Check time difference"]
    assert "ranging/spl.txt, line 31: no power above 0 W" in failed["Check time difference"]


def test_a_missing_summary_is_a_note():
    made = made_session()
    del made.files["run_1/mlperf_log_summary.txt"]
    score = score_inference(made.logs())
    assert score.scenario == "Offline"
    (note,) = score.notes
    assert (note.code, note.where) == ("summary-missing", "made/run_1/mlperf_log_summary.txt")


def test_a_missing_log_of_the_analyzer_fails_its_rule():
    made = made_session()
    logs = made.logs()
    readers = {name: read for name, read in logs.readers.items() if "ptd_logs" not in name}
    score = score_inference(type(logs)(logs.source, readers))
    failed = {check.name: check.text for check in score.checks if check.outcome == "fail"}
    assert failed == {
        "Check results checksum": "power/ptd_logs.txt is missing",
        "Check errors and warnings from PTD logs": "power/ptd_logs.txt is missing",
    }


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (lambda content: content[:200], r"power/server.json, line 1: not a record.*truncated"),
        (lambda content: b"{\n\n?" + content, r"power/server.json, line 3: not a record of a"),
        (lambda content: b"[]", r"power/server.json: not a record of a session; got Expected"),
    ],
)
def test_a_damaged_record_is_refused(cut, message):
    logs = made_session().logs()
    content = cut(logs.read(SERVER))
    with pytest.raises(LogError, match=message):
        score_inference(type(logs)(logs.source, {**logs.readers, SERVER: lambda: content}))


def test_a_missing_record_is_refused():
    logs = made_session().logs()
    readers = {name: read for name, read in logs.readers.items() if name != SERVER}
    with pytest.raises(LogError, match=r"made/power/server.json: missing file"):
        score_inference(type(logs)(logs.source, readers))


def test_a_folder_without_a_session_is_refused():
    logs = made_session().logs()
    readers = {"notes.txt": logs.readers[SPL]}
    with pytest.raises(LogError, match=r"made: no MLPerf Power session; expected a folder with"):
        score_inference(type(logs)(logs.source, readers))
