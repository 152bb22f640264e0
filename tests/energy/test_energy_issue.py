"""The energy verbs as a stranger meets them: what issue and docs promise, and broken logs."""

import csv
import gzip
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxperf.energy
from jaxperf.cli import main
from jaxperf.simulator import Noise, SimulatedJob, simulate, write_traces

VERBS = ("score", "predict", "calibrate", "trends")
H100 = ("--hardware", "h100", "--power", "h100")


def not_json(word):
    raise AssertionError(f"{word} is no JSON")


@pytest.fixture
def call(capsys):
    def run(*arguments):
        code = main(["energy", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def answer(call):
    def run(*arguments):
        code, out, error = call(*arguments, "--json")
        assert code == 0, error
        return json.loads(out, parse_constant=not_json)

    return run


@pytest.fixture
def complaint(call):
    def run(*arguments):
        code, out, error = call(*arguments, "--json")
        assert code == 2, (code, out[:300], error[-300:])
        assert out == ""
        assert error.count("\n") == 1 and error.endswith("\n") and "Traceback" not in error
        return error

    return run


def codes(result):
    return {note["code"] for note in result["notes"]}


def outcomes(result):
    return {check["name"]: check["outcome"] for check in result["checks"]}


def is_flagged(result, *, beyond=()):
    """A note or a check that is not in a good log."""
    return bool(codes(result) - set(beyond)) or any(
        check["outcome"] == "fail" for check in result["checks"]
    )


def readings(times_s, watts, head="time,watts"):
    lines = (
        f"2026-03-01T12:{s // 60:02d}:{s % 60:02d}Z,{w}"
        for s, w in zip(times_s, watts, strict=True)
    )
    return "\n".join([head, *lines]) + "\n"


# Help and arguments


def test_help_of_no_verb_imports_jax():
    program = (
        "import sys\n"
        "from jaxperf.cli import main\n"
        f"for verb in {VERBS}:\n"
        "    assert main(['energy', verb, '--help']) == 0\n"
        "assert main(['energy', '--help']) == 0\n"
        "assert not {'jax', 'scipy', 'matplotlib'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["scores"],
        ["score"],
        ["score", "a", "b"],
        ["score", "nothing-here"],
        ["score", "x", "--zone"],
        ["predict"],
        ["predict", "nothing-here", *H100],
        ["calibrate", "nothing-here"],
        ["calibrate", "nothing-here", "--readings", "x.csv"],
        ["calibrate", "x", "--readings", "x.csv", "--per", "rack"],
        ["trends"],
        ["trends", "nothing-here.csv"],
    ],
)
def test_what_the_user_can_mend_is_one_line_and_exit_2(arguments, complaint):
    complaint(*arguments)


# Plain readings


def test_json_of_plain_readings_has_the_keys_of_the_issue(tmp_path, answer):
    log = tmp_path / "node.csv"
    log.write_text(readings(range(3), (100, 100, 300)))
    result = answer("score", log)
    wanted = "division benchmark scenario metric average_power_w energy_j duration_s official"
    assert set(result) >= set(f"{wanted} run_window checks notes".split())
    assert set(result["metric"]) == {"name", "value", "unit"}
    assert all(set(check) == {"name", "outcome", "text"} for check in result["checks"])
    assert all(set(note) == {"code", "text", "where"} for note in result["notes"])
    assert result["energy_j"] == pytest.approx(300)
    assert result["average_power_w"] == pytest.approx(150)
    assert result["duration_s"] == pytest.approx(2)
    assert result["benchmark"] is None


@pytest.mark.parametrize(
    "text",
    [
        "time,watts\r\n0,100\r\n1,100\r\n2,300\r\n",
        "\ufefftime,watts\n0,100\n1,100\n2,300\n",
        "time;watts\n0;100\n1;100\n2;300\n",
        "time\twatts\n0\t100\n1\t100\n2\t300\n",
        "time,watts\n\n0,100\n\n1,100\n2,300\n\n",
        "time_ms,watts\n0,100\n1000,100\n2000,300\n",
        "time,watts\n1717243200000,100\n1717243201000,100\n1717243202000,300\n",
        "time,watts\n1717243200000000000,100\n1717243201000000000,100\n1717243202000000000,300\n",
        "time,kW\n0,0.1\n1,0.1\n2,0.3\n",
        "time,watts\n0,100 W\n1,0.1 kW\n2,300000 mW\n",
        "time,watts\n0,100\n2,300\n1,100\n",
        "time,watts\n0,100\n1,100\n1,100\n2,300\n",
        "time,energy_j\n0,1000\n1,1100\n2,1300\n",
        "time,total_energy_consumption [mJ]\n0,1000000\n1,1100000\n2,1300000\n",
        "time,energy_uj\n0,4194967296\n1,50000000\n2,200000000\n",
        "timestamp, index, power.limit [W], power.draw [W]\n2026/03/01 12:00:00.000, 0, 700.00 W, "
        "100.00 W\n2026/03/01 12:00:01.000, 0, 700.00 W, 100.00 W\n2026/03/01 12:00:02.000, 0, "
        "700.00 W, 300.00 W\n",
    ],
)
def test_the_same_readings_in_many_spellings(text, tmp_path, answer):
    log = tmp_path / "node.csv"
    log.write_text(text, encoding="utf-8", newline="")
    assert answer("score", log)["energy_j"] == pytest.approx(300, rel=1e-6)


@pytest.mark.parametrize("word", ["[N/A]", "[Not Supported]", "[Unknown Error]", "nan", "-", ""])
def test_a_missing_reading_is_left_out_and_said_where(word, tmp_path, answer):
    log = tmp_path / "node.csv"
    log.write_text(readings(range(4), (100, 200, word, 400)))
    result = answer("score", log)
    assert result["energy_j"] == pytest.approx(150 + 600)
    assert any(note["where"].endswith("node.csv, line 4") for note in result["notes"])


def test_a_counter_of_a_processor_wraps_where_the_kernel_says(tmp_path, answer):
    # Linux gives max_energy_range_uj = 262143328850 of Intel processors.
    log = tmp_path / "package.csv"
    log.write_text("time,energy_uj\n0,262043328850\n1,262143328850\n2,100000000\n3,200000000\n")
    assert answer("score", log)["energy_j"] == pytest.approx(300, rel=1e-6)


def test_a_quoted_number_with_a_separator_is_not_1_watt(tmp_path, call):
    # "1,000" was 1 W in silence.
    log = tmp_path / "node.csv"
    log.write_text('"time","watts"\n"0","1,000"\n"1","1,000"\n')
    code, out, _ = call("score", log, "--json")
    assert code == 2 or json.loads(out)["energy_j"] == pytest.approx(1000)


def test_quotes_around_a_host_with_a_comma(tmp_path, answer):
    # a CSV file has quotes.
    log = tmp_path / "node.csv"
    log.write_text(
        'time,host,watts\n"2026-03-01T12:00:00Z","a,b",100\n"2026-03-01T12:00:01Z","a,b",100\n'
    )
    assert answer("score", log)["energy_j"] == pytest.approx(100)


@pytest.mark.parametrize("cut", ["2", "2,", "2026-03-01T12:0"])
def test_a_last_line_that_is_cut_is_noted(cut, tmp_path, answer):
    log = tmp_path / "node.csv"
    log.write_text(f"time,watts\n0,100\n1,100\n{cut}")
    result = answer("score", log)
    assert result["energy_j"] == pytest.approx(100)
    assert any("node.csv, line 4" in note["where"] for note in result["notes"])


def test_a_last_number_that_may_be_cut_is_noted(tmp_path, answer):
    log = tmp_path / "node.csv"
    log.write_text("time,watts\n0,300.0\n1,300.0\n2,30")
    result = answer("score", log)
    assert any("node.csv, line 4" in (note["where"] or "") for note in result["notes"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "time,watts\n",
        "time,watts\n0,100\n",
        "time,watts\n0,[N/A]\n1,[N/A]\n",
        "time,watts\n0,100\n1,-5\n2,300\n",
        "time,watts\n0,100 A\n1,100 A\n",
        "time;watts\n0;100,5\n1;100,5\n",
        "time,amperes\n0,1\n1,1\n",
        "timestamp, index, power.limit [W]\n2026/03/01 12:00:00, 0, 700 W\n",
        "time,energy_j\n0,1000\n1,900\n2,800\n",
        "time,watts\n2026-02-30 12:00:00,100\n2026-02-30 12:00:01,100\n",
        "hello world\n",
    ],
)
def test_readings_that_tell_nothing_are_refused_by_name(text, tmp_path, complaint):
    log = tmp_path / "node.csv"
    log.write_text(text)
    assert "node.csv" in complaint("score", log)


def test_other_files_are_refused_by_name(tmp_path, complaint):
    (tmp_path / "noise.csv").write_bytes(np.random.default_rng(0).bytes(400))
    assert "noise.csv" in complaint("score", tmp_path / "noise.csv")
    (tmp_path / "empty").mkdir()
    assert "empty" in complaint("score", tmp_path / "empty")


def test_energy_of_zero_is_never_silent(tmp_path, call):
    log = tmp_path / "node.csv"
    for text in (readings(range(3), (0, 0, 0)), "time,energy_j\n0,5\n1,5\n2,5\n"):
        log.write_text(text)
        code, out, error = call("score", log, "--json")
        assert (code == 2 and "node.csv" in error) or "zero-energy" in codes(json.loads(out))


def test_power_beyond_what_a_number_holds_is_not_silent(tmp_path, call):
    # null with a warning of numpy on standard error.
    log = tmp_path / "node.csv"
    log.write_text("time,watts\n0,100\n1,1e308\n2,1e308\n")
    code, out, error = call("score", log, "--json")
    assert (code == 2 and error.count("\n") == 1) or is_flagged(
        json.loads(out), beyond=["relative-time"]
    )


def test_a_gap_is_flagged_with_its_length_and_its_energy(shared, answer):
    result = answer("score", shared / "cases/18-power-log/gap.csv")
    assert result["energy_j"] == pytest.approx(3000)
    (gap,) = (note for note in result["notes"] if "gap" in note["code"])
    assert "12 s" in gap["text"] and "80" in gap["text"] and "2400 J" in gap["text"]


def test_the_case_of_power_logs(shared, tmp_path, answer):
    case = shared / "cases/18-power-log"
    result = answer("score", case / "power_utc.csv", "--window", case / "window.json")
    assert result["energy_j"] == pytest.approx(1650, abs=0.5)
    assert result["average_power_w"] == pytest.approx(253.846154, abs=0.1)
    assert "missing-readings" in codes(result)
    assert "zone-assumed" in codes(answer("score", case / "naive.csv"))
    assert "zone-assumed" not in codes(answer("score", case / "naive.csv", "--zone", "Asia/Tokyo"))
    series, _ = jaxperf.energy.read_power_series(case / "two_hosts.csv")
    by_host = {one.host: jaxperf.energy.energy_of([one]) for one in series}
    assert by_host == pytest.approx({"a": 200, "b": 600})
    assert answer("score", case / "two_hosts.csv")["energy_j"] == pytest.approx(800, abs=0.5)


def test_json_has_the_energy_of_every_host(shared, answer):
    # case 18 asks for two_hosts.energy.a and .b, gap.gaps_flagged and gap.longest_gap.
    case = shared / "cases/18-power-log"
    hosts = answer("score", case / "two_hosts.csv")["hosts"]
    energies = {host["host"]: host["energy_j"] for host in hosts}
    assert energies == pytest.approx({"a": 200, "b": 600}, abs=0.5)
    (host,) = answer("score", case / "gap.csv")["hosts"]
    assert (host["host"], host["gaps"], host["longest_gap_s"]) == ("GPU 0", 1, 12.0)


def test_hosts_that_are_not_measured_for_most_of_the_time_are_flagged(tmp_path, answer):
    log = tmp_path / "nodes.csv"
    rows = [
        f"2026-03-01T12:00:{s:02d}Z,{h},100" for s in range(10) for h in "ab" if h == "a" or s < 3
    ]
    log.write_text("\n".join(["time,host,watts", *rows]) + "\n")
    assert is_flagged(answer("score", log))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a.csv").write_text(readings(range(10), [100] * 10))
    (tmp_path / "run" / "b.csv").write_text(readings(range(3), [200] * 3))
    assert is_flagged(answer("score", tmp_path / "run"))


def test_hosts_that_were_measured_at_other_times_are_flagged(tmp_path, answer):
    (tmp_path / "a.csv").write_text(readings(range(10), [100] * 10))
    (tmp_path / "b.csv").write_text(readings(range(20, 30), [200] * 10))
    assert is_flagged(answer("score", tmp_path))


def test_a_host_in_other_units_is_flagged(tmp_path, call):
    # one host in kW beside one in W.
    log = tmp_path / "nodes.csv"
    rows = [
        f"2026-03-01T12:00:{s:02d}Z,{h},{w}" for s in range(9) for h, w in (("a", 6000), ("b", 6.1))
    ]
    log.write_text("\n".join(["time,host,watts", *rows]) + "\n")
    code, out, error = call("score", log, "--json")
    assert code == 2 or is_flagged(json.loads(out))


def test_two_supplies_of_one_node_are_not_merged_into_one(tmp_path, call):
    # a column `sensor` is not known: 600 W were 300 W, with a note of duplicates.
    log = tmp_path / "ipmi.csv"
    rows = [f"2026-03-01T12:00:{s:02d}Z,PSU{k},300" for s in range(5) for k in (1, 2)]
    log.write_text("\n".join(["time,sensor,watts", *rows]) + "\n")
    code, out, _ = call("score", log, "--json")
    assert code == 2 or json.loads(out)["average_power_w"] == pytest.approx(600)


@pytest.mark.parametrize("pack", ["w:", "w:gz", "w:xz"])
def test_an_archive_of_plain_readings(pack, tmp_path, answer):
    # the docs say "a folder or a tar archive of one".
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(readings(range(10), [100] * 10))
    with tarfile.open(tmp_path / "run.tar", pack) as archive:
        for name in "ab":
            archive.add(tmp_path / f"{name}.csv", f"run/{name}.csv")
    assert answer("score", tmp_path / "run.tar")["energy_j"] == pytest.approx(1800)


def test_a_compressed_file_of_readings(tmp_path, answer, complaint):
    text = readings(range(10), [100] * 10).encode()
    (tmp_path / "a.csv").write_bytes(gzip.compress(text))
    assert answer("score", tmp_path / "a.csv")["energy_j"] == pytest.approx(900)
    with tarfile.open(tmp_path / "whole.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a.csv", "a.csv")
    cut = (tmp_path / "whole.tar.gz").read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(cut[: len(cut) // 2])
    complaint("score", tmp_path / "cut.tar.gz")


def test_files_that_a_desktop_leaves_are_passed_over(tmp_path, answer):
    # an archive made on macOS has ._ files.
    (tmp_path / "a.csv").write_text(readings(range(10), [100] * 10))
    (tmp_path / "._a.csv").write_bytes(b"\0\5\x16\7\0\2\0\0Mac OS X")
    result = answer("score", tmp_path)
    assert result["energy_j"] == pytest.approx(900)
    assert [n["where"] for n in result["notes"] if n["code"] == "hidden-files"] == [
        f"{tmp_path}/._a.csv"
    ]


@pytest.mark.parametrize(
    "window",
    [
        '{"start": "2026-03-01T12:00:05Z", "stop": "2026-03-01T12:00:02Z"}',
        '{"start": "2026-03-01T12:00:05Z", "stop": "2026-03-01T12:00:05Z"}',
        '{"start": "2026-03-02T12:00:05Z", "stop": "2026-03-02T12:00:09Z"}',
        '{"start": null, "stop": "2026-03-01T12:00:05Z"}',
        '{"start": "2026-03-01T12:00:02Z"}',
        '{"start":',
        "[1, 2]",
    ],
)
def test_a_window_that_is_none_is_refused(window, tmp_path, complaint):
    (tmp_path / "a.csv").write_text(readings(range(10), [100] * 10))
    (tmp_path / "w.json").write_text(window)
    complaint("score", tmp_path / "a.csv", "--window", tmp_path / "w.json")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd"])
def test_a_zone_that_is_none_is_refused(zone, tmp_path, complaint):
    (tmp_path / "a.csv").write_text("time,watts\n2026-03-01 12:00:00,1\n2026-03-01 12:00:01,1\n")
    complaint("score", tmp_path / "a.csv", "--zone", zone)


def test_an_offset_beyond_a_day_is_refused(tmp_path, complaint):
    # exit 1 with a traceback of datetime.
    (tmp_path / "a.csv").write_text("time,watts\n2026-03-01 12:00:00,1\n2026-03-01 12:00:01,1\n")
    complaint("score", tmp_path / "a.csv", "--zone", "+99:00")


def test_an_empty_zone_is_not_utc_in_silence(tmp_path, call):
    (tmp_path / "a.csv").write_text("time,watts\n2026-03-01 12:00:00,1\n2026-03-01 12:00:01,1\n")
    code, out, _ = call("score", tmp_path / "a.csv", "--zone", "", "--json")
    assert code == 2 or "zone-assumed" in codes(json.loads(out))


def test_an_hour_that_comes_twice_is_no_gap(tmp_path, answer):
    # at the end of summer time three seconds became an hour, bridged.
    log = tmp_path / "a.csv"
    log.write_text(
        "time,watts\n2026-10-25 02:59:58,100\n2026-10-25 02:59:59,100\n"
        "2026-10-25 02:00:00,100\n2026-10-25 02:00:01,100\n"
    )
    assert answer("score", log, "--zone", "Europe/Berlin")["duration_s"] == pytest.approx(3)


def test_the_hour_that_summer_time_leaves_out(tmp_path, answer):
    log = tmp_path / "a.csv"
    log.write_text("time,watts\n2026-03-29 01:59:59,100\n2026-03-29 03:00:00,100\n")
    assert answer("score", log, "--zone", "Europe/Berlin")["duration_s"] == pytest.approx(1)
    log.write_text("time,watts\n2026-10-25T02:59:59+02:00,100\n2026-10-25T02:00:00+01:00,100\n")
    assert answer("score", log)["duration_s"] == pytest.approx(1)


def test_the_integral_is_over_time_and_not_over_samples(tmp_path, answer):
    random = np.random.default_rng(1)
    times = np.cumsum(random.uniform(0.1, 1.0, 300)).round(3)
    watts = random.uniform(100, 700, 300).round(2)
    log = tmp_path / "a.csv"
    log.write_text(
        "time,watts\n" + "".join(f"{t},{w}\n" for t, w in zip(times, watts, strict=True))
    )
    expected = float(np.sum(np.diff(times) * (watts[1:] + watts[:-1]) / 2))
    assert answer("score", log)["energy_j"] == pytest.approx(expected, rel=1e-9)


# Sessions of inference


@pytest.fixture(scope="session")
def session_archive(shared):
    logs = shared / "power/inference_logs"
    return logs / "v1-0-krai-rpi4coral-fan-off-tflite-v2-4-1-ruy-resnet50-singlestream.tar.xz"


@pytest.fixture
def session(session_archive, tmp_path):
    folder = tmp_path / "closed/Krai/results/rpi4/resnet50/SingleStream/performance"
    with tarfile.open(session_archive) as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_a_session_is_the_same_packed_unpacked_and_in_a_repository(
    session_archive, session, answer
):
    packed, unpacked = answer("score", session_archive), answer("score", session)
    assert unpacked["average_power_w"] == packed["average_power_w"]
    assert unpacked["checks"] == packed["checks"]
    for folder in (session.parent, session.parents[2], session.parents[5]):
        assert answer("score", folder)["energy_j"] == packed["energy_j"]
    assert len(packed["checks"]) == 11
    assert (packed["benchmark"], packed["scenario"]) == ("resnet50", "SingleStream")
    metric = packed["metric"]
    assert metric["unit"] == "mJ"
    assert packed["official"]["energy_j"] == packed["energy_j"]
    assert packed["energy_j"] == pytest.approx(packed["average_power_w"] * packed["duration_s"])


@pytest.mark.parametrize(
    "name",
    ["power/client.json", "power/server.json", "run_1/spl.txt", "run_1/mlperf_log_detail.txt"],
)
@pytest.mark.parametrize("left", [None, 0, 0.4])
def test_a_session_without_what_it_needs_is_refused_by_name(name, left, session, call):
    path = session / name
    content = path.read_bytes()
    path.unlink()
    if left is not None:
        path.write_bytes(content[: int(len(content) * left)])
    code, out, error = call("score", session, "--json")
    if name == "run_1/spl.txt" and left:
        assert any("spl.txt" in note["where"] for note in json.loads(out)["notes"])
    else:
        assert code == 2 and error.count("\n") == 1 and name in error


@pytest.mark.parametrize("name", ["ranging", "power/ptd_logs.txt", "power/server.log"])
def test_what_the_checks_alone_need_fails_a_check(name, session, answer):
    path = session / name
    if path.is_dir():
        path.rename(session / "gone")
    else:
        path.unlink()
    result = answer("score", session)
    assert result["average_power_w"] == pytest.approx(5.834231404958678)
    assert any(c["outcome"] == "fail" and name in c["text"] for c in result["checks"])


def change(path, pattern, with_what, count=0):
    text, changes = re.subn(pattern, with_what, path.read_text(), count=count, flags=re.M)
    assert changes
    path.write_text(text)


def test_samples_of_a_session_that_are_no_watts(session, call):
    spl = session / "run_1/spl.txt"
    good = spl.read_text()
    for pattern, word in (
        ("Watts,[^,]*", "Watts,0.0"),
        ("Watts,", "Watts,-"),
        ("Watts,", "kW,"),
        ("Watts,([^,]*)", r"Watts,\1kW"),
        (r"^Time,(..)-(..)-", r"Time,\1-29-"),
    ):
        spl.write_text(good)
        change(spl, pattern, word)
        code, _, error = call("score", session, "--json")
        assert code == 2 and "spl.txt" in error and error.count("\n") == 1, (pattern, error)


def test_samples_of_a_session_in_kilowatts_fail_a_check(session, answer):
    def less(match):
        return f"Watts,{float(match[1]) / 1000:.7f}"

    change(session / "run_1/spl.txt", "Watts,([^,]*)", less)
    assert outcomes(answer("score", session))["Check time difference"] == "fail"


def test_a_session_that_ends_before_it_begins(session, complaint):
    detail = session / "run_1/mlperf_log_detail.txt"
    text = detail.read_text()
    begin, end = (
        re.findall(f'"power_{word}", "value": "([^"]*)"', text)[0] for word in ("begin", "end")
    )
    detail.write_text(text.replace(begin, "@").replace(end, begin).replace("@", end))
    assert "mlperf_log_detail.txt, line" in complaint("score", session)


@pytest.mark.parametrize("damage", ["swap", "repeat", "gap", "cut"])
def test_damaged_samples_of_a_session_are_noted_with_their_line(damage, session, answer):
    spl = session / "run_1/spl.txt"
    lines = spl.read_text().splitlines(keepends=True)
    match damage:
        case "swap":
            lines[300], lines[301] = lines[301], lines[300]
        case "repeat":
            lines[300:300] = [lines[299]] * 20
        case "gap":
            del lines[300:330]
        case "cut":
            lines[300] = lines[300][:37] + "\n"
    spl.write_text("".join(lines))
    notes = answer("score", session)["notes"]
    assert any(re.search(r"run_1/spl.txt, line 30\d$", n["where"]) for n in notes)


def test_garbage_between_samples_is_noted(session, answer):
    # a line that is no sample is dropped, and only the checksum fails.
    spl = session / "run_1/spl.txt"
    lines = spl.read_text().splitlines(keepends=True)
    lines[300] = "@@@@\n"
    spl.write_text("".join(lines))
    assert any("spl.txt, line 301" in n["where"] for n in answer("score", session)["notes"])


def test_an_overflow_of_the_analyzer_is_noted(session, answer):
    # 9.9E30 W is what an analyzer writes beyond its range; 1.6e28 W in the mean.
    spl = session / "run_1/spl.txt"
    lines = spl.read_text().splitlines(keepends=True)
    lines[300] = re.sub("Watts,[^,]*", "Watts,9.9E30", lines[300])
    spl.write_text("".join(lines))
    assert any("spl.txt, line 301" in n["where"] for n in answer("score", session)["notes"])


def test_a_broken_description_of_the_system_is_noted(session, session_archive, answer):
    # the system's name becomes that of a folder.
    (session / "system.json").write_text('{"system_name"')
    result = answer("score", session)
    assert any("system.json" in n["where"] for n in result["notes"])


# Submissions of training

COLUMNS = ("energy_kJ_official", "energy_kJ_windowed")


@pytest.fixture
def submission(shared, tmp_path):
    def unpack(name):
        with tarfile.open(shared / f"power/training_logs/{name}.tar.xz") as archive:
            archive.extractall(tmp_path / name, filter="data")
        return tmp_path / name

    return unpack


def nodes(folder):
    return sorted(folder.glob("power/*/node_*.txt"))


@pytest.mark.parametrize(
    ("name", "system", "benchmark"),
    [
        ("lenovo_1x8b200_bert_v50", "SR780aV3-8xB200_SXM_180GB", "bert"),
        ("dell_8x8h100_llama2_70b_lora_v41", "8xXE9680x8H100-SXM-80GB-POWER", "llama2_70b_lora"),
    ],
)
def test_energy_to_train_is_that_of_the_tables(name, system, benchmark, shared, answer):
    power = shared / "power"
    result = answer("score", power / f"training_logs/{name}.tar.xz")
    with open(power / "tables/mlperf_training_power_summary.csv") as file:
        (row,) = (
            row
            for row in csv.DictReader(file)
            if (row["system"], row["benchmark"]) == (system, benchmark)
        )
    assert result["official"]["energy_j"] == pytest.approx(float(row[COLUMNS[0]]) * 1e3, rel=1e-4)
    assert result["run_window"]["energy_j"] == pytest.approx(float(row[COLUMNS[1]]) * 1e3, rel=1e-4)
    assert len(result["runs"]) == int(row["runs"])
    with open(power / "tables/mlperf_training_power_runs.csv") as file:
        rows = {
            row["run"]: row
            for row in csv.DictReader(file)
            if (row["system"], row["benchmark"]) == (system, benchmark)
        }
    for run in result["runs"]:
        row = rows[run["name"]]
        for window in ("official", "windowed"):
            got = run["official" if window == "official" else "run_window"]["energy_j"]
            assert got == pytest.approx(float(row[f"total_kJ_{window}"]) * 1e3, rel=1e-4)


@pytest.mark.parametrize(
    ("pattern", "word"),
    [
        (r'("power_reading", "value": )[\d.]+', r"\g<1>0"),
        (r'("power_reading", "value": )([\d.]+)', r"\1-\2"),
        (r'("power_reading", "value": )([\d.]+)', r"\1null"),
        (r'("conversion_eff", "value": )[\d.]+', r"\g<1>94"),
        (r'("conversion_eff", "value": )[\d.]+', r"\g<1>0"),
        (r"^.*power_measurement_start.*\n", ""),
        (r'("time_ms": )(\d+)\d{3}(.*power_reading)', r"\1\2\3"),
    ],
)
def test_a_log_of_a_node_that_is_broken_is_refused_by_name(pattern, word, submission, complaint):
    folder = submission("lenovo_1x8b200_bert_v50")
    change(nodes(folder)[1], pattern, word)
    assert "power/result_1/node_0.txt" in complaint("score", folder)


def test_a_run_that_stops_before_it_starts(submission, complaint):
    folder = submission("lenovo_1x8b200_bert_v50")
    log = folder / "result_1.txt"
    text = log.read_text()
    stop, start = (
        re.findall(rf'"time_ms": (\d+)[^\n]*"key": "run_{word}"', text)[0]
        for word in ("stop", "start")
    )
    log.write_text(text.replace(stop, "@").replace(start, stop).replace("@", start))
    assert "result_1.txt, line" in complaint("score", folder)


def test_runs_nodes_and_switches_that_lack_are_flagged(submission, answer, complaint):
    folder = submission("smc_dc_8x8h100_llama2_70b_lora_v40")
    whole = answer("score", folder)
    for path in nodes(folder):
        if int(path.stem[5:]) % 2:
            path.unlink()
    half = answer("score", folder)
    assert half["energy_j"] < 0.7 * whole["energy_j"]
    assert outcomes(half)["all nodes in every run"] == "fail"
    assert "nodes-missing" in codes(half)
    for path in folder.glob("power/*/sw_0.txt"):
        path.unlink()
    assert outcomes(answer("score", folder))["switches logged as estimates"] != "pass"
    for path in nodes(folder)[:4]:
        path.unlink()
    assert "without power logs" in complaint("score", folder)


@pytest.mark.parametrize("shift_ms", [3_600_000, 86_400_000])
def test_logs_on_another_clock_are_flagged(shift_ms, submission, answer):
    folder = submission("lenovo_1x8b200_bert_v50")

    def later(match):
        return f"{match[1]}{int(match[2]) + shift_ms}"

    for path in nodes(folder):
        change(path, r'("time_ms": ?)(\d+)', later)
    result = answer("score", folder)
    assert result["run_window"]["energy_j"] is None
    assert outcomes(result)["readings cover the run"] == "fail"


def test_power_of_a_node_in_kilowatts_is_flagged(submission, answer):
    folder = submission("lenovo_1x8b200_bert_v50")

    def less(match):
        return f"{match[1]}{float(match[2]) / 1000}"

    change(nodes(folder)[0], r'("power_reading", "value": )([\d.]+)', less)
    assert "power-unit-suspect" in codes(answer("score", folder))


def test_a_gap_in_the_log_of_a_node_is_flagged(submission, answer):
    folder = submission("lenovo_1x8b200_bert_v50")
    lines = nodes(folder)[2].read_text().splitlines(keepends=True)
    nodes(folder)[2].write_text("".join(lines[:30] + lines[150:]))
    result = answer("score", folder)
    assert any(
        "result_2/node_0.txt" in c["text"] for c in result["checks"] if c["outcome"] != "pass"
    )


def test_a_gap_in_a_slow_log_of_a_node_is_flagged(submission, answer):
    # three minutes without a reading, in silence, where the log has one every 2 s.
    folder = submission("smc_dc_1x8h100_bert_v40")
    path = nodes(folder)[1]
    before = answer("score", folder)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:30] + lines[120:]))
    after = answer("score", folder)
    assert after["energy_j"] != before["energy_j"]
    said = json.dumps([after["notes"], after["checks"]])
    assert said.count(path.parent.name) > json.dumps([before["notes"], before["checks"]]).count(
        path.parent.name
    )


def test_a_cut_line_in_the_log_of_a_node_is_noted(submission, call):
    # a line that is cut before its key is dropped in silence.
    folder = submission("smc_dc_1x8h100_bert_v40")
    path = nodes(folder)[1]
    lines = path.read_text().splitlines(keepends=True)
    lines[60] = lines[60][:70] + "\n"
    path.write_text("".join(lines))
    code, out, error = call("score", folder, "--json")
    assert "node_0.txt, line 61" in (error if code == 2 else json.dumps(json.loads(out)["notes"]))


# Tiny


@pytest.fixture
def tiny(shared, tmp_path):
    with tarfile.open(shared / "power/tiny_logs/krai_h7a3zi_xcubeai73_v11.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "kws"


def test_energy_of_an_inference(tiny, answer):
    result = answer("score", tiny)
    assert result["division"] == "tiny" and result["benchmark"] == "kws"
    assert result["metric"]["value"] == pytest.approx(2367.474, rel=1e-4)
    per_inference_j = result["run_window"]["energy_j"] / 800
    assert per_inference_j * 1e6 == pytest.approx(2367.474, rel=1e-4)


def test_the_archive_of_a_tiny_system_tells_how_to_score_one(shared, complaint):
    # "name the folder of one" cannot be done in an archive.
    archive = shared / "power/tiny_logs/krai_h7a3zi_xcubeai73_v11.tar.xz"
    assert "unpack" in complaint("score", archive)


def test_broken_traces_of_energy_are_refused(tiny, complaint):
    trace = tiny / "energy/trace1-energy.bin"
    good = trace.read_bytes()
    for bad in (
        good[: len(good) // 2],
        good[:-3],
        b"\0" + good[1:],
        good[:1] + np.float32(0).tobytes() + good[5:],
        good[:5] + bytes(len(good) - 5),
        b"",
    ):
        trace.write_bytes(bad)
        assert "trace1-energy.bin" in complaint("score", tiny)


def test_a_trace_in_other_units_fails_a_check(tiny, answer):
    trace = tiny / "energy/trace1-energy.bin"
    good = trace.read_bytes()
    samples = np.frombuffer(good[5:], dtype="<f4") / np.float32(1000)
    trace.write_bytes(good[:5] + samples.astype("<f4").tobytes())
    assert outcomes(answer("score", tiny))["trace gives the reported energy"] == "fail"


# Trends

TABLE = "power/tables/mlperf_published_power_facts.csv"


def test_trends_are_those_of_the_paper(shared, answer):
    result = answer("trends", shared / TABLE)
    figures = json.loads((shared / "power/tables/paper_figures_expected.json").read_text())
    got = {
        (one["scale"], one["benchmark"], one["scenario"], one["unit"], one["rules_since"]): one
        for one in result["series"]
    }
    bert = got["datacenter", "bert-99", "offline", "samples/J", None]["points"]
    for point in bert:
        expected = figures["fig5a_datacenter_offline_best_samples_per_joule"]["BERT-99.0"]
        if point["round"] in expected:
            best, improvement = expected[point["round"]]
            assert point["best"] == pytest.approx(best, abs=1e-6)
            assert point["improvement"] == pytest.approx(improvement, abs=1e-4)


def test_broken_tables_are_refused_by_name_and_line(shared, tmp_path, complaint):
    lines = (shared / TABLE).read_text().splitlines(keepends=True)
    fields = lines[1].strip().split(",")
    table = tmp_path / "table.csv"
    for text, where in (
        ("", "table.csv"),
        (lines[0], "table.csv"),
        ("round,scale\nv1.0,edge\n", "missing columns"),
        ("".join(lines[:20]) + lines[20][:30], "line 21"),
        *(
            (lines[0] + ",".join([*fields[:-1], bad]) + "\n", "line 2")
            for bad in ("-3", "nan", "x")
        ),
    ):
        table.write_text(text)
        assert where in complaint("trends", table)
    complaint("trends", tmp_path)


def test_a_drawing_is_svg_and_says_so(shared, tmp_path, call, complaint):
    plot = tmp_path / "trends.svg"
    code, _, error = call("trends", shared / TABLE, "--plot", plot)
    assert code == 0 and plot.read_text().startswith("<svg")
    assert "exists" in complaint("trends", shared / TABLE, "--plot", plot)
    complaint("trends", shared / TABLE, "--plot", tmp_path / "no" / "trends.svg")


def test_a_drawing_of_another_kind_is_refused(shared, tmp_path, complaint):
    # SVG was written into trends.png.
    complaint("trends", shared / TABLE, "--plot", tmp_path / "trends.png")


# Predict


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_traces(simulate(SimulatedJob(layers=2, data_parallel=2, steps=3)), folder)
    return folder


@pytest.fixture
def predict(run, answer):
    return lambda *arguments: answer("predict", run, *H100, *arguments)


def test_energy_of_a_step_adds_up_in_every_way(predict):
    result = predict()
    step_j = result["boundaries"][0]["energy_per_step_j"]
    assert sum(result["by_class_j"].values()) == pytest.approx(step_j, rel=1e-6)
    assert sum(result["by_phase_j"].values()) == pytest.approx(step_j, rel=1e-6)
    by_power = result["average_power_w"]["accelerator"] * result["gpus"] * result["step_us"] * 1e-6
    assert by_power == pytest.approx(step_j, rel=1e-6)
    ranks = np.mean([rank["average_power_w"] for rank in result["by_rank"]])
    assert ranks == pytest.approx(result["average_power_w"]["accelerator"], rel=1e-6)
    series = result["series"]
    begin, end = series["begin_us"], series["end_us"]
    edges = np.minimum(begin + series["cell_us"] * np.arange(len(series["accelerator_w"]) + 1), end)
    energy = np.sum(np.diff(edges) * series["accelerator_w"])
    mean = energy / (end - begin)
    assert mean == pytest.approx(result["average_power_w"]["accelerator"], rel=1e-4)
    watts = result["average_power_w"]
    assert watts["accelerator"] * result["gpus"] < watts["node_dc"] < watts["node_ac"]


def test_factors_stay_apart(predict):
    result = predict(
        *("--steps", "1000", "--tokens-per-step", "8192", "--samples-per-step", "8"),
        *("--pue", "1.2", "--carbon-g-per-kwh", "300"),
    )
    by_name = {one["boundary"]: one for one in result["boundaries"]}
    nodes_ac, facility = by_name["nodes_ac"], by_name["facility"]
    assert facility["energy_per_step_j"] == pytest.approx(1.2 * nodes_ac["energy_per_step_j"])
    assert nodes_ac["energy_to_train_j"] == pytest.approx(1000 * nodes_ac["energy_per_step_j"])
    assert nodes_ac["energy_per_token_j"] == pytest.approx(nodes_ac["energy_per_step_j"] / 8192)
    assert nodes_ac["energy_per_sample_j"] == pytest.approx(nodes_ac["energy_per_step_j"] / 8)
    assert result["facility_energy_j"] == pytest.approx(facility["energy_to_train_j"])
    assert result["carbon_g"] == pytest.approx(result["facility_energy_j"] / 3.6e6 * 300)


def test_a_lower_limit_is_slower(predict):
    answers = [predict("--power-limit", w)["clocks"]["answers"][0] for w in (1000, 500, 300)]
    assert answers[0]["ratio"] == pytest.approx(1)
    assert np.all(np.diff([one["step_us"] for one in answers]) > 0)
    for one, limit in zip(answers[1:], (500, 300), strict=True):
        assert one["average_power_w"] / 2 <= limit * 1.001
    low = predict("--power-limit", 50)
    assert low["clocks"]["answers"][0]["step_us"] is None and "power-limit-too-low" in codes(low)


@pytest.mark.slow
def test_a_clock_of_a_rank_as_help_and_docs_name_it(predict):
    # help says `rank:N/`, the docs "a rank".
    assert predict("--clock", "rank:0/=1.2e9")["clocks"]["answers"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--clock", "all=5e9"),
        ("--clock", "all=nan"),
        ("--clock", "all"),
        ("--clock", "nothing=1e9"),
        ("--frontier", "x"),
        ("--steps", "-1"),
        ("--pue", "0.5"),
        ("--pue", "nan"),
        ("--carbon-g-per-kwh", "-1"),
        ("--switches-w", "-5"),
        ("--grid-us", "0"),
        ("--step", "99"),
        ("--job", "absent.toml"),
        ("--series-out", "absent/x.csv"),
    ],
)
def test_what_cannot_be_predicted_is_refused(arguments, run, complaint):
    complaint("predict", run, *H100, *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--frontier", "-1"),
        ("--tokens-per-step", "0"),
        ("--samples-per-step", "0"),
        ("--power-limit", "nan"),
        ("--power-limit", "-3"),
        ("--power-limit", "0"),
    ],
)
def test_numbers_that_are_none_are_refused(arguments, run, complaint):
    complaint("predict", run, *H100, *arguments)


def test_the_machine_must_be_known(run, complaint):
    assert "--power" in complaint("predict", run)
    complaint("predict", run, "--hardware", "h100", "--power", "nothing")


@pytest.mark.slow
def test_a_written_series_is_read_again(run, tmp_path, answer, call):
    # what --series-out writes has no column of time for score and calibrate.
    out = tmp_path / "series.csv"
    assert call("predict", run, *H100, "--series-out", out)[0] == 0
    with open(out) as file:
        names = ("begin_ns", "end_ns", "nodes_ac_w")
        rows = [
            {name: float(row[name]) if name == "nodes_ac_w" else int(row[name]) for name in names}
            for row in csv.DictReader(file)
        ]
    result = answer("score", out)
    energy = sum((row["end_ns"] - row["begin_ns"]) * 1e-9 * row["nodes_ac_w"] for row in rows)
    assert result["energy_j"] == pytest.approx(energy, rel=1e-6)
    duration_s = (rows[-1]["end_ns"] - rows[0]["begin_ns"]) * 1e-9
    assert result["duration_s"] == pytest.approx(duration_s, abs=1e-6)
    # The accelerators are in the nodes: one is counted, and the others are named.
    assert "columns-left-out" in codes(result)


@pytest.mark.slow
def test_recorded_ranks_of_a_node(shared, answer):
    result = answer("predict", shared / "traces/nanogpt_dp8_h100_8rank_4step")
    assert (result["gpus"], result["nodes"], len(result["by_rank"])) == (8, 1, 8)
    step_j = result["boundaries"][0]["energy_per_step_j"]
    assert sum(result["by_class_j"].values()) == pytest.approx(step_j, rel=1e-6)
    assert 117 < result["average_power_w"]["accelerator"] < 700
    assert result["average_power_w"]["node_ac"] < 10_200


# Calibrate


def log_of(folder, power, path, call, *, skew_s=0.0, grid_us=100_000):
    """A meter's log of the run of a folder, as a description would draw it."""
    series = path.with_suffix(".series.csv")
    arguments = ("--hardware", "h100", "--power", power, "--series-out", series, "--overwrite")
    assert call("predict", folder, *arguments, "--grid-us", grid_us)[0] == 0
    with open(series) as rows:
        lines = [
            f"{int(row['end_ns']) / 1e3 + skew_s * 1e6:.0f},{row['accelerator_w']}\n"
            for row in csv.DictReader(rows)
        ]
    path.write_text("time_us,watts\n" + "".join(lines[:-1]))


LONG: dict[str, Any] = {
    "layers": 4,
    "hidden_size": 8192,
    "attention_heads": 64,
    "sequence_length": 4096,
}


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    noise = Noise(kernel=0.05, host=0.05, latency=0.05)
    write_traces(simulate(SimulatedJob(**LONG, steps=20, micro_batch_size=8, noise=noise)), folder)
    return folder


@pytest.fixture(scope="module")
def unlimited(tmp_path_factory):
    """The H100 without a limit that the run would reach."""
    from jaxperf.config._toml import config_folder

    text = (Path(str(config_folder("power"))) / "h100.toml").read_text()
    path = tmp_path_factory.mktemp("power") / "unlimited.toml"
    path.write_text(re.sub("(?m)^power_limit_w.*", "power_limit_w = 2000.0", text))
    return path


@pytest.mark.slow
def test_what_a_log_tells_is_recovered(long_run, unlimited, tmp_path, call, answer, complaint):
    log_of(long_run, unlimited, tmp_path / "log.csv", call, skew_s=1.7)
    hardware = ("--hardware", "h100", "--power", unlimited)
    arguments = ("calibrate", long_run, "--readings", tmp_path / "log.csv", *hardware)
    fit = tmp_path / "mine.toml"
    result = answer(*arguments, "--output", fit)
    assert result["skew_s"] == pytest.approx(1.7, abs=0.2)
    told = [one for one in result["parameters"] if one["told"] == "log"]
    assert len(told) >= 5
    assert all(one["value"] == pytest.approx(one["prior"], rel=0.03) for one in told)
    assert all(one["interval"][0] <= one["value"] <= one["interval"][1] for one in told)
    assert any("static.constant_w" in one["keys"] for one in result["sums"])
    assert "exists" in complaint(*arguments, "--output", fit)
    assert call("predict", long_run, "--hardware", "h100", "--power", fit)[0] == 0


@pytest.mark.slow
def test_a_log_of_a_run_at_its_power_limit_is_noted(long_run, tmp_path, call, answer):
    # At the limit power says nothing of energies, and the fit's interval of bf16,
    # 5.0 to 5.7e-13, leaves out what the log was made with, 8.75e-13, without a word.
    log_of(long_run, "h100", tmp_path / "log.csv", call)
    result = answer("calibrate", long_run, "--readings", tmp_path / "log.csv", *H100)
    by_key = {one["key"]: one for one in result["parameters"]}
    low, high = by_key["flop_j.bf16"]["interval"]
    assert low <= 8.75e-13 <= high or any("limit" in note["text"] for note in result["notes"])


@pytest.mark.slow
def test_steps_that_are_alike_leave_a_skew_open(unlimited, tmp_path, call, answer):
    # a skew of -4.2 s with an interval of 0.1 ms where 1.7 s was true: steps alike.
    folder = tmp_path / "run"
    write_traces(simulate(SimulatedJob(**LONG, steps=24, micro_batch_size=8)), folder)
    log_of(folder, unlimited, tmp_path / "log.csv", call, skew_s=1.7)
    hardware = ("--hardware", "h100", "--power", unlimited)
    result = answer("calibrate", folder, "--readings", tmp_path / "log.csv", *hardware)
    assert abs(result["skew_s"] - 1.7) < 0.2 or "skew-ambiguous" in codes(result)


@pytest.mark.slow
def test_logs_that_cannot_be_fitted_are_refused(long_run, tmp_path, call, complaint):
    log = tmp_path / "log.csv"
    log_of(long_run, "h100", log, call)
    lines = log.read_text().splitlines(keepends=True)
    rows = [line.strip().split(",") for line in lines[1:]]
    for text in (
        lines[0] + "".join(f"{at},0\n" for at, _ in rows),
        "".join(lines[:4]),
        lines[0] + "".join(f"{int(at) + 3_600_000_000},{watts}\n" for at, watts in rows),
        "",
    ):
        log.write_text(text)
        assert "log.csv" in complaint("calibrate", long_run, "--readings", log, *H100)


# Estimates


@pytest.mark.slow
def test_an_estimate_prints_its_energy(capsys):
    # CLI.md and the docs: "step time, memory and energy"; JSON and text have none.
    assert main(["estimate", "gpt3-15b", "--json"]) == 0
    result = json.loads(capsys.readouterr().out, parse_constant=not_json)
    assert any("energy" in key for key in result)


@pytest.mark.slow
def test_an_estimate_has_a_plausible_energy():
    estimate = jaxperf.estimate("gpt3-15b", hardware="h100")
    energy = estimate.energy
    assert energy is not None
    assert energy.gpus == estimate.gpus == 16 and energy.nodes == 2
    assert 300 < energy.accelerator_w < 700
    assert energy.node_ac_w < 10_200
    accelerators = energy.boundaries[0]
    by_power_j = energy.accelerator_w * energy.gpus * estimate.step_us * 1e-6
    assert accelerators.step_j == pytest.approx(by_power_j, rel=1e-6)
    assert sum(energy.by_class_j.values()) == pytest.approx(accelerators.step_j, rel=1e-6)
    tokens_per_s = estimate.tokens_per_s_per_gpu * estimate.gpus
    assert accelerators.token_j * tokens_per_s == pytest.approx(accelerators.average_w, rel=1e-6)
