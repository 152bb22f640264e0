"""Logs as they are found: units, zones, hosts, lines that are damaged."""

import gzip
import json
import lzma

import numpy as np
import pytest
from hypothesis import given, strategies as st

from jaxperf.energy._series import energy_j, energy_of, gaps, mean_power_w, share_in_gaps
from jaxperf.energy._series_files import parse_power_series, read_power_series, read_window
from jaxperf.errors import ConfigError, LogError

NOON_NS = 1_717_243_200_000_000_000  # 2024-06-01T12:00:00Z
SECOND = 1_000_000_000


def parse(text, **options):
    return parse_power_series(text.encode(), "power.csv", **options)


def codes(notes):
    return [note.code for note in notes]


def log(power, header="timestamp,power.draw [W]"):
    rows = [f"2024-06-01T12:00:{second:02d}Z,{value}" for second, value in enumerate(power)]
    return "\n".join([header, *rows]) + "\n"


@pytest.fixture
def case(shared):
    folder = shared / "cases" / "18-power-log"
    values = json.loads((folder / "expected.json").read_text())["values"]
    return folder, {value["name"]: (value["value"], value["tol_abs"]) for value in values}


def right(case, name, value):
    wanted, tolerance = case[1][name]
    return value == pytest.approx(wanted, abs=tolerance)


def test_the_energy_of_a_window_in_another_time_zone(case):
    window, _ = read_window(case[0] / "window.json")
    (series,), (note,) = read_power_series(case[0] / "power_utc.csv")
    assert right(case, "power_utc.energy_in_window", energy_j(series, *window))
    assert right(case, "power_utc.mean_power", mean_power_w(series, *window))
    assert note.code == "missing-readings"
    assert note.text.startswith("1 missing")
    assert note.where is not None and note.where.endswith("power_utc.csv, line 5")


def test_a_long_gap_is_found(case):
    (series,), _ = read_power_series(case[0] / "gap.csv")
    found = gaps(series)
    assert right(case, "gap.energy_if_bridged", energy_j(series, *series.window))
    assert right(case, "gap.gaps_flagged", len(found))
    assert right(case, "gap.longest_gap", np.diff(found).max() * 1e-9)
    assert share_in_gaps(series, series.window) == pytest.approx(12 / 15)


def test_times_without_zone_are_taken_as_utc_with_a_note_unless_the_zone_is_given(case):
    (series,), notes = read_power_series(case[0] / "naive.csv")
    assert codes(notes) == ["zone-assumed"]
    assert series.power_w.tolist() == [100, 100]
    assert series.time_ns[0] == NOON_NS + 2 * 3600 * SECOND
    (series,), notes = read_power_series(case[0] / "naive.csv", zone="Europe/Berlin")
    assert codes(notes) == []
    assert series.time_ns[0] == NOON_NS


def test_interleaved_hosts_are_taken_apart(case):
    series, _ = read_power_series(case[0] / "two_hosts.csv")
    energy = {host.host: energy_j(host, *host.window) for host in series}
    assert right(case, "two_hosts.energy.a", energy["a"])
    assert right(case, "two_hosts.energy.b", energy["b"])
    assert right(case, "two_hosts.energy.total", energy_of(series))


def test_nvidia_smi_with_units_missing_values_and_several_gpus():
    text = (
        "timestamp, index, power.draw [W]\n"
        "2024/06/01 12:00:00.000, 0, 70.25 W\n"
        "2024/06/01 12:00:00.002, 1, [N/A]\n"
        "2024/06/01 12:00:01.000, 0, 71.75 W\n"
        "2024/06/01 12:00:01.002, 1, [Not Supported]\n"
    )
    (series,), notes = parse(text, zone="UTC")
    assert series.host == "GPU 0"
    assert series.power_w.tolist() == [70.25, 71.75]
    (note,) = notes
    assert (note.code, note.where) == ("missing-readings", "power.csv, line 3")
    assert note.text == "none of the 2 readings of GPU 1 has a value"


def test_hosts_and_gpus_together_name_a_series():
    text = (
        "timestamp,hostname,gpu,power_w\n2024-06-01T12:00:00Z,n1,0,7\n2024-06-01T12:00:00Z,n2,0,8\n"
    )
    assert [series.host for series in parse(text)[0]] == ["n1 GPU 0", "n2 GPU 0"]


@pytest.mark.parametrize(
    ("header", "suffix", "factor"),
    [
        ("timestamp,power.draw [W]", "", 1),
        ("timestamp,power.draw [W]", " W", 1),
        ("timestamp,power_kw", "", 1e-3),
        ("time,Power (mW)", "", 1e3),
        ("time,watts", "", 1),
        ("Time,power", " kW", 1e-3),
        ("time,power", "mW", 1e3),
    ],
)
@given(power=st.lists(st.integers(1, 10**6), min_size=2, max_size=5))
def test_units_do_not_matter(header, suffix, factor, power):
    written = [f"{value / 1e3 * factor:.9g}{suffix}" for value in power]
    (series,), _ = parse(log(written, header))
    assert series.power_w == pytest.approx(np.array(power) / 1e3, rel=1e-8)


@given(st.permutations(range(6)))
def test_the_order_of_lines_does_not_matter(order):
    header, *rows = log([100, 300, 200, 500, 400, 600]).splitlines()
    (series,), _ = parse("\n".join([header, *(rows[i] for i in order)]) + "\n")
    assert series.power_w.tolist() == [100, 300, 200, 500, 400, 600]


@pytest.mark.parametrize(
    "times",
    [
        ("1717243200", "1717243201"),
        ("1717243200.0", "1717243201.0"),
        ("1717243200000", "1717243201000"),
        ("1717243200000000", "1717243201000000"),
        ("1717243200000000000", "1717243201000000000"),
        ("2024-06-01T12:00:00Z", "2024-06-01T14:00:01+02:00"),
        ("2024-06-01 12:00:00.000+0000", "2024-06-01 08:00:01.000-0400"),
        ("2024-06-01 12:00:00 UTC", "2024-06-01 12:00:01 UTC"),
        ("06/01/2024 12:00:00 UTC", "06/01/2024 12:00:01 UTC"),
    ],
)
def test_times_of_every_kind(times):
    (series,), notes = parse(f"{times[0]},100 W\n{times[1]},100 W\n")
    assert series.time_ns.tolist() == [NOON_NS, NOON_NS + SECOND]
    assert not notes


def test_whole_nanoseconds_keep_all_their_digits():
    (series,), _ = parse("time_ns,power_w\n1717243200000000001,1\n1717243200000000002,1\n")
    assert series.time_ns.tolist() == [NOON_NS + 1, NOON_NS + 2]


def test_small_numbers_for_times_are_noted():
    (series,), notes = parse("time,power_w\n0,100\n0.5,100\n")
    assert codes(notes) == ["relative-time"]
    assert energy_of([series]) == 50


def test_a_summer_time_zone_follows_the_date():
    text = "time,power_w\n2024-01-01 12:00:00,1\n2024-07-01 12:00:00,1\n"
    (series,), _ = parse(text, zone="Europe/Berlin")
    winter, summer = (np.array(series.time_ns) // SECOND % 86_400) / 3600
    assert (winter, summer) == (11, 10)


def local_rows(*rows):
    return "time,host,watts\n" + "".join(f"2026-10-25 {row},100\n" for row in rows)


def test_an_hour_that_comes_twice_is_told_by_the_order_of_each_host():
    text = local_rows(
        *("02:59:58,a", "02:59:58,b", "02:59:59,a", "02:00:00,a", "02:59:59,b", "02:00:00,b"),
        *("02:59:59,a", "03:00:00,a", "02:59:59,b", "03:00:00,b"),
    )
    hosts, notes = parse(text, zone="Europe/Berlin")
    for host in hosts:
        assert np.diff(host.time_ns).tolist() == [10**9, 10**9, 3599 * 10**9, 10**9]
    (found,) = (note for note in notes if note.code == "hour-repeated")
    assert found.where == "power.csv, line 5"
    assert found.text.startswith("4 times")


@pytest.mark.parametrize(
    "rows",
    [
        # The first time of the hour alone; readings out of order; another log behind.
        ("02:59:58,a", "02:59:59,a"),
        ("02:00:01,a", "02:00:00,a"),
        ("04:00:00,a", "01:00:00,a", "02:30:00,a"),
    ],
)
def test_an_hour_that_could_come_twice_is_its_first_time_unless_times_go_back(rows):
    hosts, notes = parse(local_rows(*rows), zone="Europe/Berlin")
    summer, _ = parse(local_rows(*rows).replace(",a", "+02:00,a"))
    assert "hour-repeated" not in codes(notes)
    if "04:00:00,a" not in rows:
        assert hosts[0].time_ns.tolist() == summer[0].time_ns.tolist()


def test_a_zone_that_keeps_its_clocks_repeats_no_hour():
    rows = local_rows("02:59:59,a", "02:00:00,a")
    assert "hour-repeated" not in codes(parse(rows, zone="Asia/Tokyo")[1])


def test_parts_of_a_host_are_refused_until_they_are_named_as_hosts():
    rows = "".join(f"{t},PSU{k},300\n" for t in range(5) for k in (1, 2))
    for name in ("sensor", "PSU", "Supply Name", "power_meter_id"):
        with pytest.raises(LogError, match=rf"line 1: .* column {name}; got PSU1, PSU2"):
            parse(f"time,{name},watts\n" + rows)
    series, _ = parse("time,host,watts\n" + rows)
    assert energy_of(series) == pytest.approx(4 * 600)
    one, _ = parse("time,sensor,watts\n" + "".join(f"{t},PSU1,300\n" for t in range(5)))
    assert energy_of(one) == pytest.approx(4 * 300)


def test_an_unknown_zone_is_refused():
    with pytest.raises(ConfigError, match="no such time zone; got Mars/Olympus"):
        parse(log([1, 2]), zone="Mars/Olympus")


IPMI = """
    Instantaneous power reading:                   {power} Watts
    Minimum during sampling period:                  4 Watts
    Average power reading over sample period:      230 Watts
    IPMI timestamp:                           Sat Jun  1 12:00:0{second} 2024
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   activated

"""


def test_the_output_of_ipmitool_is_a_log():
    text = "".join(IPMI.format(power=200 + 10 * i, second=i) for i in range(3))
    (series,), notes = parse(text)
    assert series.power_w.tolist() == [200, 210, 220]
    assert series.time_ns[-1] - series.time_ns[0] == 2 * SECOND
    assert codes(notes) == ["zone-assumed"]


def test_the_output_of_ipmitool_may_end_within_a_reading():
    text = "".join(IPMI.format(power=200, second=i) for i in range(3))
    (series,), notes = parse(text[: text.rindex("IPMI")], zone="UTC")
    assert len(series.time_ns) == 2
    assert [(note.code, note.where) for note in notes] == [("truncated", "power.csv, line 18")]


def test_a_table_without_header_is_time_power_and_host():
    series, _ = parse("1717243200,100,a\n1717243200,200,b\n1717243201,100,a\n1717243201,200,b\n")
    assert [(host.host, host.power_w.tolist()) for host in series] == [
        ("a", [100, 100]),
        ("b", [200, 200]),
    ]
    (series,), _ = parse("2024-06-01T12:00:00Z, 3, 100 W\n2024-06-01T12:00:01Z, 3, 100 W\n")
    assert series.host == "GPU 3"


def test_numbers_without_header_that_could_be_either_are_refused():
    with pytest.raises(LogError, match="line 1: columns that cannot be told without a header"):
        parse("1717243200,0,100\n1717243201,0,100\n")


def test_a_counter_of_energy_becomes_power():
    text = "timestamp,total_energy_consumption [mJ]\n" + "".join(
        f"{1717243200 + i},{4294967000 + 100 * i if i < 3 else 100 * (i - 2) - 96}\n"
        for i in range(5)
    )
    # 2**32 = 4294967296, so the third reading, at ..200, is followed by 4.
    (series,), notes = parse(text)
    assert codes(notes) == ["counter-wrapped"]
    assert series.power_w == pytest.approx(np.full(5, 0.1))
    assert notes[0].where == "power.csv, line 5"


@pytest.mark.parametrize("turn", [262_143_328_850, 65_712_999_613, 65_532_610_987])
def test_a_counter_of_a_processor_wraps_where_linux_says(turn):
    counter = [(turn - 150_000_000 + i * 100_000_000) % turn for i in range(4)]
    (series,), (note,) = parse(log(counter, "timestamp,energy_uj"))
    assert (note.code, note.where) == ("counter-wrapped", "power.csv, line 4")
    assert series.power_w == pytest.approx(np.full(4, 100.0), rel=1e-4)


def test_a_counter_that_wraps_where_its_unit_does_not_say_needs_the_energy():
    turn = 200_000_000_000
    counter = [(turn - 150_000_000 + i * 100_000_000) % turn for i in range(4)]
    text = log(counter, "timestamp,energy_uj")
    with pytest.raises(LogError, match=r"power.csv, line 4: the energy counter falls"):
        parse(text)
    (series,), _ = parse(text, wrap_j=turn * 1e-6)
    assert series.power_w == pytest.approx(np.full(4, 100.0))


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_compression_is_told_by_content(compress):
    text = log(range(100, 150)).encode()
    (series,), notes = parse_power_series(compress(text), "power.csv")
    assert len(series.time_ns) == 50
    assert not notes


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_a_compressed_log_that_is_cut_is_read_as_far_as_it_goes(compress):
    whole = compress(log(np.random.default_rng(0).random(60)).encode())
    (series,), notes = parse_power_series(whole[: len(whole) * 3 // 4], "power.csv")
    assert 2 < len(series.time_ns) < 60
    assert codes(notes) == ["truncated"]


@pytest.mark.parametrize("cut", ["2024-06-01T12:00:03Z", "2024-06-01T12:00:03Z,", "2024-0"])
def test_a_cut_last_line_is_left_out_and_named(cut):
    (series,), (note,) = parse(log([100, 110, 120]) + cut)
    assert len(series.time_ns) == 3
    assert (note.code, note.where) == ("truncated", "power.csv, line 5")


def test_a_number_that_is_cut_is_no_reading():
    for whole, cut in [("123.4 W", "12"), ("123.4", "12"), ("123.45 W", "123.45")]:
        (series,), notes = parse(log([whole] * 4) + f"2024-06-01T12:00:04Z,{cut}")
        assert len(series.time_ns) == 4, cut
        assert codes(notes) == ["truncated"]


def test_a_last_line_without_line_end_may_be_whole():
    (series,), notes = parse(log([100.5, 110.5, 120.5]).rstrip("\n"))
    assert len(series.time_ns) == 3
    assert not notes


def test_few_unreadable_lines_are_noted_and_many_refused():
    good = log(np.full(40, 100))
    (series,), (note,) = parse(good + "--- restarted ---\n" + "2024-06-01T12:00:59Z,100\n")
    assert len(series.time_ns) == 41
    assert (note.code, note.where) == ("unreadable-lines", "power.csv, line 42")
    with pytest.raises(LogError, match=r"power.csv, line 42: 5 of 45 lines are not readings"):
        parse(good + "what, is this\n" * 5)


def test_a_repeated_header_is_no_reading():
    (series,), notes = parse(log([100, 110]) + "timestamp,power.draw [W]\n")
    assert len(series.time_ns) == 2
    assert not notes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (log(["230 V", "230 V"]), r"line 2: not a unit of power; got 'V'; expected W, kW or mW"),
        (log([1, 2], "time,power [V]"), r"line 1: not a unit of power; got 'V'"),
        (log(["1 W", "2 A"], "time,power"), r"line 3: not a unit of power; got 'A'"),
        (log([1, 2], "time,energy [kg]"), r"line 1: not a unit of energy; got 'kg'"),
        (log([1, 2], "time,voltage [V]"), r"line 1: no column of power; got time, voltage"),
        (log([1, 2], "when,power [W]"), r"line 1: no column of time"),
        (log([1, -2]), r"line 3: negative power"),
        (log(["[N/A]", "[N/A]"]), r"no reading has a value"),
        ("", r"an empty log"),
        ("timestamp,power.draw [W]\n", r"no readings"),
    ],
)
def test_what_cannot_be_used_is_refused_with_file_and_line(text, message):
    with pytest.raises(LogError, match=rf"^power.csv(, )?:? ?{message}"):
        parse(text)


def test_text_of_windows_is_read():
    text = log([100, 110]).replace("\n", "\r\n")
    for content in (b"\xef\xbb\xbf" + text.encode(), text.encode("utf-16")):
        (series,), notes = parse_power_series(content, "power.csv")
        assert series.power_w.tolist() == [100, 110]
        assert not notes


def window_file(tmp_path, content):
    path = tmp_path / "window.json"
    path.write_text(content)
    return path


def test_a_window_may_be_numbers_or_dates(tmp_path):
    for content in (
        '{"start": "2024-06-01T12:00:00Z", "stop": "2024-06-01T12:00:02Z"}',
        '{"start": 1717243200, "stop": 1717243202}',
    ):
        window, notes = read_window(window_file(tmp_path, content))
        assert window == (NOON_NS, NOON_NS + 2 * SECOND)
        assert not notes


def test_a_window_without_zone_says_so(tmp_path):
    path = window_file(tmp_path, '{"start": "2024-06-01 14:00", "stop": "2024-06-01 14:01"}')
    assert codes(read_window(path)[1]) == ["zone-assumed"]
    window, notes = read_window(path, zone="+02:00")
    assert window == (NOON_NS, NOON_NS + 60 * SECOND)
    assert not notes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"start": 1717243202, "stop": 1717243200}', "does not end after it begins"),
        ('{"start": 1717243202}', "no 'stop'"),
        ('{"start": "noon", "stop": "one"}', "not a time; got 'noon'"),
        ("[1, 2]", "not a window"),
        ('{"start": 1717', "not a window"),
    ],
)
def test_what_is_no_window_is_refused_with_its_file(tmp_path, content, message):
    with pytest.raises(LogError, match=rf"window.json: .*{message}"):
        read_window(window_file(tmp_path, content))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(LogError, match="power.csv: cannot be read"):
        read_power_series(tmp_path / "power.csv")
