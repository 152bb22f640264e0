"""Means of power over stretches of time that follow one another."""

import numpy as np
import pytest

from jaxperf.energy._series import energy_j, energy_of
from jaxperf.energy._series_averages import series_of_averages
from jaxperf.energy._series_files import parse_power_series
from jaxperf.errors import LogError

SECOND = 1_000_000_000


def parse(text):
    return parse_power_series(text.encode(), "series.csv")


def test_a_mean_counts_for_its_stretch_and_not_for_the_readings_around_it():
    series, _ = series_of_averages([0, 4, 5], [4, 5, 7], [100.0, 200.0, 50.0], None, "series.csv")
    assert energy_j(series, 0, 7) == pytest.approx((4 * 100 + 200 + 2 * 50) * 1e-9)
    # Cut within the first stretch and within the last.
    assert energy_j(series, 1, 6) == pytest.approx((3 * 100 + 200 + 50) * 1e-9)


@pytest.mark.parametrize("head", ["begin_s,end_s,watts", "start [s],stop [s],power [W]"])
def test_a_table_with_begin_and_end_is_of_means(head):
    (series,), _ = parse(f"{head}\n0.5,1.5,100\n1.5,2,300\n")
    assert series.averaged
    assert series.window == (SECOND // 2, 2 * SECOND)
    assert energy_of([series]) == pytest.approx(100 + 150)


def test_dates_may_tell_begin_and_end():
    (series,), _ = parse(
        "begin,end,watts\n2024-06-01T12:00:00Z,2024-06-01T12:00:02Z,100\n"
        "2024-06-01T12:00:02Z,2024-06-01T12:00:03Z,50\n"
    )
    assert energy_of([series]) == pytest.approx(250)


def test_a_table_of_a_single_mean_has_its_energy():
    (series,), _ = parse("begin_ms,end_ms,nodes_ac_w\n0,500,3000\n")
    assert energy_of([series]) == pytest.approx(1500)


@pytest.mark.parametrize(
    "rows",
    ["0,1,100\n2,3,100\n", "0,1,100\n0,1,100\n", "1,0,100\n0,2,100\n", "0,1,100\nx,2,100\n"],
)
def test_stretches_that_do_not_follow_one_another_are_refused_with_their_line(rows):
    with pytest.raises(LogError, match=r"series\.csv, line [23]: .*do not follow one another"):
        parse("begin_s,end_s,watts\n" + rows)


def test_energies_of_stretches_are_not_taken_for_a_counter():
    with pytest.raises(LogError, match="no column of power"):
        parse("begin_s,end_s,energy_j\n0,1,100\n1,2,200\n")


def test_a_missing_mean_is_bridged_and_said():
    (series,), notes = parse("begin_s,end_s,watts\n0,1,100\n1,2,n/a\n2,3,200\n")
    assert [note.code for note in notes] == ["missing-readings"]
    assert np.array_equal(series.time_ns, [0, SECOND, 3 * SECOND])
    assert energy_of([series]) == pytest.approx(100 + 2 * 200)
