"""Integrals of power over windows, gaps, and counters that wrap."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from jaxperf.energy._series import (
    PowerSeries,
    energy_j,
    energy_of,
    gaps,
    mean_power_w,
    power_series,
    share_in_gaps,
)
from jaxperf.energy._series_counter import series_of_counter
from jaxperf.errors import LogError

SECOND = 1_000_000_000


def series_at(seconds, power_w, host=None) -> PowerSeries:
    time_ns = np.rint(np.asarray(seconds, float) * SECOND).astype(np.int64)
    return power_series(time_ns, power_w, host, "power.csv")[0]


def exact_energy_j(series, begin_ns, end_ns):
    """The integral by definition: the clipped trapezoid of every pair of readings, one by one."""
    time_ns, power_w = series.time_ns.tolist(), series.power_w.tolist()
    total = 0.0
    for t0, t1, p0, p1 in zip(time_ns, time_ns[1:], power_w, power_w[1:], strict=False):
        a, b = max(t0, begin_ns), min(t1, end_ns)
        if a < b:
            middle = ((a - t0) + (b - t0)) / 2 / (t1 - t0)
            mean = p1 if series.averaged else p0 + (p1 - p0) * middle
            total += mean * (b - a) * 1e-9
    return total


@st.composite
def random_series(draw):
    """A series of 2 to 30 readings, 1 ms to 20 s apart, on an epoch of today."""
    steps_ms = draw(st.lists(st.integers(1, 20_000), min_size=1, max_size=29))
    power = draw(
        st.lists(st.floats(0, 1e4), min_size=len(steps_ms) + 1, max_size=len(steps_ms) + 1)
    )
    time_ns = 1_717_243_200 * SECOND + np.cumsum([0, *steps_ms]) * 1_000_000
    return PowerSeries("a", time_ns, np.array(power), "power.csv", draw(st.booleans()))


@st.composite
def series_and_moments(draw, moments):
    series = draw(random_series())
    first, last = series.window
    picked = draw(
        st.lists(st.integers(first, last), min_size=moments, max_size=moments, unique=True)
    )
    return series, sorted(picked)


def test_power_between_readings_is_linear_and_the_window_cuts_it():
    series = series_at([0, 10], [100, 200])
    assert energy_j(series, 0, 10 * SECOND) == 1500
    assert energy_j(series, 2 * SECOND, 4 * SECOND) == pytest.approx(2 * 130)
    assert mean_power_w(series, 2 * SECOND, 4 * SECOND) == pytest.approx(130)


def test_uneven_readings_weigh_by_time_and_not_by_number():
    series = series_at([0, 9, 9.1, 9.2, 9.3, 10], [100, 100, 500, 500, 500, 500])
    assert energy_j(series, 0, 10 * SECOND) == pytest.approx(900 + 30 + 450)


@given(series_and_moments(2))
def test_energy_is_the_integral_by_definition(drawn):
    series, (begin, end) = drawn
    right = exact_energy_j(series, begin, end)
    assert energy_j(series, begin, end) == pytest.approx(right, rel=1e-9, abs=1e-9)


@given(series_and_moments(3))
def test_the_parts_of_a_window_add_up(drawn):
    series, (begin, middle, end) = drawn
    parts = energy_j(series, begin, middle) + energy_j(series, middle, end)
    assert energy_j(series, begin, end) == pytest.approx(parts, rel=1e-9, abs=1e-9)


@given(random_series(), st.randoms(use_true_random=False))
def test_the_order_of_readings_does_not_matter(series, random):
    order = list(range(len(series.time_ns)))
    random.shuffle(order)
    shuffled, notes = power_series(series.time_ns[order], series.power_w[order], "a", "power.csv")
    assert np.array_equal(shuffled.time_ns, series.time_ns)
    assert np.array_equal(shuffled.power_w, series.power_w)
    assert ("unsorted-readings" in {note.code for note in notes}) == (order != sorted(order))


def test_a_window_beyond_the_readings_is_refused():
    series = series_at([1, 2, 3], [100, 100, 100], "node1")
    for begin, end in [(0, 2), (2, 4), (5, 6)]:
        with pytest.raises(LogError, match=r"power.csv: the window reaches beyond .* of node1"):
            energy_j(series, begin * SECOND, end * SECOND)


def test_a_window_that_ends_before_it_begins_is_refused():
    series = series_at([1, 2, 3], [100, 100, 100])
    with pytest.raises(LogError, match="does not end after it begins"):
        energy_j(series, 3 * SECOND, 2 * SECOND)


def test_hosts_are_integrated_one_by_one():
    hosts = [series_at([0, 1, 2], [100] * 3, "a"), series_at([0.4, 1.4, 2.4], [300] * 3, "b")]
    assert energy_of(hosts) == pytest.approx(800)
    assert energy_of(hosts, (SECOND // 2, SECOND)) == pytest.approx(200)


def test_missing_readings_are_left_out_and_counted():
    series, notes = power_series(
        np.arange(4) * SECOND, [100, np.nan, np.nan, 100], "a", "power.csv", line=[2, 3, 4, 5]
    )
    assert energy_j(series, 0, 3 * SECOND) == 300
    (note,) = notes
    assert note.code == "missing-readings"
    assert note.text.startswith("2 missing readings of a")
    assert note.where == "power.csv, line 3"


def test_readings_at_one_time_become_their_mean():
    time_ns = np.array([0, 1, 1, 1, 2, 2]) * SECOND
    series, notes = power_series(time_ns, [10, 20, 30, 70, 50, 50], "a", "power.csv")
    assert series.power_w.tolist() == [10, 40, 50]
    (note,) = notes
    assert note.code == "duplicate-readings"
    assert note.text.startswith("3 readings of a")
    assert "at 1 times" in note.text


@given(random_series())
def test_a_log_that_is_written_twice_is_the_log(series):
    time_ns, power_w = np.tile(series.time_ns, 2), np.tile(series.power_w, 2)
    twice, _ = power_series(time_ns, power_w, "a", "power.csv")
    assert np.array_equal(twice.power_w, series.power_w)


def test_negative_power_is_refused_with_its_line():
    with pytest.raises(LogError, match=r"power.csv, line 7: negative power; got -5 W of a"):
        power_series([0, SECOND], [100, -5], "a", "power.csv", line=[6, 7])


def test_a_log_of_zeros_is_not_silent():
    series, (note,) = power_series([0, SECOND], [0, 0], "a", "power.csv")
    assert energy_j(series, 0, SECOND) == 0
    assert (note.code, note.where) == ("zero-energy", "power.csv")


def test_a_gap_is_an_interval_much_longer_than_the_median():
    series = series_at([0, 1, 2, 14, 15], [200] * 5)
    assert gaps(series).tolist() == [[2 * SECOND, 14 * SECOND]]
    assert len(gaps(series_at([0, 1, 2, 4.9, 6], [200] * 5))) == 0
    assert gaps(series, longest_s=0.5).shape == (4, 2)


def test_the_share_of_a_window_inside_gaps():
    series = series_at([0, 1, 2, 14, 15], [200] * 5)
    assert share_in_gaps(series, series.window) == pytest.approx(0.8)
    assert share_in_gaps(series, (SECOND, 3 * SECOND)) == pytest.approx(0.5)
    assert share_in_gaps(series, (0, SECOND)) == 0


def test_energy_of_a_counter_is_its_difference():
    time_ns = np.array([0, 1, 3, 4]) * SECOND
    series, notes = series_of_counter(time_ns, [5.0, 105.0, 505.0, 555.0], "a", "rapl")
    assert not notes
    assert energy_j(series, 0, 4 * SECOND) == pytest.approx(550)
    assert energy_j(series, SECOND, 3 * SECOND) == pytest.approx(400)
    # Between readings the mean power of the interval: 200 W for 1 s, then 50 W for 0.5 s.
    assert energy_j(series, 2 * SECOND, 3_500_000_000) == pytest.approx(225)


@given(
    st.lists(st.floats(0, 900), min_size=2, max_size=20),
    st.floats(1_000, 3_000),
    st.floats(0, 1),
)
def test_the_wrap_of_a_counter_does_not_matter(power_w, wrap_j, start):
    time_ns = np.arange(len(power_w) + 1) * SECOND
    so_far = np.append(0, np.cumsum(power_w))
    straight, _ = series_of_counter(time_ns, so_far, "a", "rapl")
    wrapped = np.remainder(so_far + start * wrap_j, wrap_j)
    turned, notes = series_of_counter(time_ns, wrapped, "a", "rapl", wrap_j=wrap_j)
    assert np.allclose(turned.power_w, straight.power_w, atol=1e-8)
    falls = (np.diff(wrapped) < 0).any()
    assert ("counter-wrapped" in {note.code for note in notes}) == falls


def test_a_wrap_at_a_power_of_two_of_the_unit_is_inferred():
    unit = 1e-6  # 32 bits of microjoules turn over at 4294.967296 J
    so_far = 4_100 + 100.0 * np.arange(6)
    series, (note,) = series_of_counter(
        np.arange(6) * SECOND, so_far % 4294.967296, "a", "rapl", unit_j=unit, line=np.arange(2, 8)
    )
    assert series.power_w == pytest.approx(np.full(6, 100))
    assert (note.code, note.where) == ("counter-wrapped", "rapl, line 4")
    assert "4294.9673 J" in note.text and "inferred" in note.text


@pytest.mark.parametrize("options", [{"unit_j": 1e-6}, {}, {"wrap_j": 900.0}])
def test_a_counter_that_was_reset_is_refused_with_its_line(options):
    counter = [1000.0, 1100.0, 1200.0, 3.0, 103.0]
    with pytest.raises(LogError, match=r"rapl, line 5: the energy counter of a falls"):
        series_of_counter(
            np.arange(5) * SECOND, counter, "a", "rapl", line=[2, 3, 4, 5, 6], **options
        )


def test_a_counter_with_one_reading_tells_no_power():
    with pytest.raises(LogError, match="a single reading"):
        series_of_counter([0, 0], [1.0, 2.0], "a", "rapl")


def test_one_reading_far_beyond_the_others_is_suspected_with_its_line():
    for beyond in (9.9e30, 2e6, 7100.0):
        _, (note,) = power_series(
            [0, 1, 2, 3], [70, beyond, 70, 70], "a", "a.csv", line=[2, 3, 4, 5]
        )
        assert (note.code, note.where) == ("power-unit-suspect", "a.csv, line 3")
    assert not power_series([0, 1, 2, 3], [70, 7000, 70, 70], "a", "a.csv")[1]


def test_readings_that_were_mostly_zero_are_not_suspect():
    _, (note,) = power_series([0, 1, 2, 3], [0, 0, 0, 300], "a", "a.csv")
    assert note.code == "zero-readings"


def test_more_energy_than_a_number_holds_is_refused():
    series, _ = power_series([0, 10**9, 2 * 10**9], [100, 1.7e308, 1.7e308], "a", "a.csv")
    with pytest.raises(LogError, match="a.csv: more energy than a number holds of a"):
        energy_j(series, *series.window)
