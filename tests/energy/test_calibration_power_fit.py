"""The fit: it finds what was put in, holds what its intervals promise, and says what it cannot
know."""

from dataclasses import replace

import numpy as np
import pytest

from jaxperf.energy._series import power_series
from jaxperf.energy.calibration._clock_search import clock_starts
from jaxperf.energy.calibration._design import TimedTasks, design_of, with_values
from jaxperf.energy.calibration._fit import _residuals, fit_readings
from jaxperf.energy.calibration._solve import _limit_note, _readings, fit_power
from jaxperf.errors import ConfigError, LogError
from tests.energy.power_fit_cases import (
    BELIEVED,
    STATIC,
    TRUTH,
    ZERO_NS,
    small_log,
    small_tasks,
    timed,
)

TASKS = small_tasks(3)
TOLD = [key for key in TRUTH if key not in STATIC]
SKEW_S, WINDOW_S = 1.37, 0.4
# Fits to as many readings share one compiled program, which is most of their time.
READINGS = len(small_log(TASKS).time_ns)


@pytest.fixture(scope="module")
def exact():
    return fit_power([timed(TASKS)], small_log(TASKS, skew_s=SKEW_S, window_s=WINDOW_S), BELIEVED)


def values(fit):
    return {each.key: each.value for each in fit.parameters}


def test_without_noise_all_that_can_be_told_is_exact(exact):
    for key in TOLD:
        assert values(exact)[key] == pytest.approx(TRUTH[key], rel=1e-5)
    assert exact.skew_s == pytest.approx(SKEW_S, abs=1e-5)
    assert exact.window_s == pytest.approx(WINDOW_S, abs=1e-5)
    assert exact.errors.after_percent < 1e-4 < exact.errors.before_percent


def test_static_powers_are_told_only_in_sum(exact):
    (group,) = exact.sums
    assert group.keys == STATIC
    assert group.power_w == pytest.approx(sum(TRUTH[key] for key in STATIC), rel=1e-5)
    assert sum(group.each_w) == pytest.approx(group.power_w)
    assert {each.key for each in exact.parameters if each.told == "sum"} == set(STATIC)
    assert exact.condition == np.inf


def test_what_nothing_needed_keeps_its_value_and_is_named(exact):
    unused = {each.key for each in exact.parameters if each.told == "no-work"}
    assert {"network_byte_j", "flop_j.fp8"} <= unused
    assert exact.description.network_byte_j == BELIEVED.network_byte_j
    assert set(TOLD).isdisjoint(exact.not_identified)


def test_the_fitted_description_has_the_fitted_numbers(exact):
    assert exact.description.flop_j["bf16"] == values(exact)["flop_j.bf16"]
    assert exact.description.meter.window_s == exact.window_s
    assert exact.description.name == BELIEVED.name
    assert float(exact.model.memory_byte_j) == values(exact)["memory_byte_j"]


def test_two_numbers_that_always_come_together_are_named_together():
    # Every multiply moves bytes in proportion to its operations, and nothing else moves any.
    tasks = replace(TASKS, memory_bytes=TASKS.flops / 300)
    fit = fit_power([timed(tasks)], small_log(tasks, noise_w=3.0), BELIEVED)
    groups = {group.keys for group in fit.sums}
    assert ("flop_j.bf16", "memory_byte_j") in groups
    assert {"flop_j.bf16", "memory_byte_j", *STATIC} <= set(fit.not_identified)
    (pair,) = (group for group in fit.sums if "memory_byte_j" in group.keys)
    true_w = (TRUTH["flop_j.bf16"] + TRUTH["memory_byte_j"] / 300) * tasks.flops.sum()
    mean_w = true_w / (tasks.end_us * 1e-6)
    assert pair.power_w == pytest.approx(mean_w, rel=0.05)


def test_what_a_noisy_log_moves_is_told_loosely_and_not_by_the_prior():
    believed = with_values(BELIEVED, {"memory_byte_j": 3 * TRUTH["memory_byte_j"]})
    fit = fit_power([timed(TASKS)], small_log(TASKS, noise_w=25.0), believed)
    (found,) = (each for each in fit.parameters if each.key == "memory_byte_j")
    assert found.told == "loosely" and not found.is_identified
    low, high = found.interval
    assert 0.03 * found.value < (high - low) / 2 < 0.3 * found.value
    assert low < TRUTH["memory_byte_j"] < high < found.prior


def test_a_log_at_the_power_limit_is_noted(exact):
    assert "log-at-power-limit" not in {note.code for note in exact.notes}
    hot = small_log(TASKS, TRUTH | {"flop_j.bf16": 1.3e-12}, noise_w=3.0)
    capped = replace(hot, power_w=np.minimum(hot.power_w, BELIEVED.power_limit_w))
    fit = fit_power([timed(TASKS)], capped, BELIEVED)
    (note,) = (note for note in fit.notes if note.code == "log-at-power-limit")
    assert f"of {fit.readings} readings are at the power limit of 700 W" in note.text


def test_accelerators_of_a_node_are_at_their_limit_where_its_readings_say_so():
    node = replace_node(BELIEVED, host_w=1000.0, fan_share=0.25, conversion_efficiency=0.8)
    # Eight accelerators of 700 W, and of 650 W: (8 x 700 + 1000) x 1.25 / 0.8.
    power_w = np.array([10_312.5, 9_687.5])
    (note,) = _limit_note(node, power_w, 8, "power.csv")
    assert note.text.startswith("1 of 2 readings")
    assert not _limit_note(node, power_w[1:], 8, "power.csv")
    assert not _limit_note(node, np.repeat(power_w, [4, 96]), 8, "power.csv")


def replace_node(power, **changes):
    return with_values(power, {f"node.{name}": value for name, value in changes.items()})


def test_the_likeliest_start_is_fitted_and_another_is_a_rival_where_nearly_as_likely():
    design = design_of([timed(TASKS)], BELIEVED, None, ZERO_NS)
    log = small_log(TASKS, skew_s=SKEW_S, noise_w=3.0)
    readings = _readings(log, ZERO_NS).rows(np.arange(READINGS) % 5 != 4)
    best, *_ = clock_starts(design, readings, -5.0, 5.0)
    # A likelihood ratio of exp(2), and of exp(4).
    for less_likely, expected in ((2.0, (-1.0,)), (4.0, ())):
        other = replace(best, delay_s=-1.0, score=best.score + less_likely)
        found = fit_readings(design, readings, [best, other])
        assert found.delay_s == pytest.approx(SKEW_S, abs=0.02)
        assert found.rivals_s == expected


def test_numbers_are_never_negative():
    truth = TRUTH | {"node_byte_j": 0.0}
    fit = fit_power([timed(TASKS)], small_log(TASKS, truth, noise_w=3.0), BELIEVED)
    assert all(each.value >= 0 and each.interval[0] >= 0 for each in fit.parameters
               if each.told != "no-work")  # fmt: skip
    assert values(fit)["node_byte_j"] < 0.05 * TRUTH["node_byte_j"]


def test_readings_that_are_plainly_wrong_do_little_harm():
    log = small_log(TASKS, noise_w=3.0)
    power_w = log.power_w.copy()
    power_w[5::40] = 2500.0
    fit = fit_power([timed(TASKS)], replace(log, power_w=power_w), BELIEVED)
    for key in ("flop_j.bf16", "memory_byte_j"):
        assert values(fit)[key] == pytest.approx(TRUTH[key], rel=0.03)


def test_intervals_hold_what_they_promise():
    inside = []
    for seed in range(4):
        log = small_log(TASKS, skew_s=SKEW_S, window_s=WINDOW_S, noise_w=8.0, seed=seed)
        fit = fit_power([timed(TASKS)], log, BELIEVED)
        inside += [
            each.interval[0] <= TRUTH[each.key] <= each.interval[1]
            for each in fit.parameters
            if each.key in TOLD
        ]
        inside.append(fit.skew_interval_s[0] <= SKEW_S <= fit.skew_interval_s[1])
    # Of 20 with 90 % each, fewer are inside once in a hundred times.
    assert sum(inside) >= 15


def test_readings_of_0_among_others_are_left_out():
    span_s = TASKS.end_us * 1e-6 - WINDOW_S - 0.1
    log = small_log(TASKS, period_s=span_s / (READINGS + 14.5), noise_w=3.0)
    power_w = log.power_w.copy()
    power_w[7:300:20] = 0.0
    fit = fit_power([timed(TASKS)], replace(log, power_w=power_w), BELIEVED)
    assert [note.code for note in fit.notes] == ["zero-readings"]
    assert values(fit)["flop_j.bf16"] == pytest.approx(TRUTH["flop_j.bf16"], rel=0.03)


@pytest.mark.slow
def test_captures_of_parts_of_a_log_are_fitted_together():
    cut = 1e6 * np.array([0, 60, 90, 140])
    inside = TASKS.start_us + TASKS.duration_us
    parts = []
    for begin_us, end_us in (cut[:2], cut[2:]):
        here = (inside > begin_us) & (TASKS.start_us < end_us)
        columns = {
            name: getattr(TASKS, name)[here]
            for name, column in vars(TASKS).items()
            if np.shape(column) == np.shape(here)
        }
        parts.append(replace(TASKS, begin_us=begin_us, end_us=end_us, **columns))
    log = small_log(TASKS, skew_s=SKEW_S, window_s=WINDOW_S)
    fit = fit_power([timed(part) for part in reversed(parts)], log, BELIEVED)
    assert fit.skew_s == pytest.approx(SKEW_S, abs=1e-4)
    for key in TOLD:
        assert values(fit)[key] == pytest.approx(TRUTH[key], rel=1e-4)


@pytest.mark.slow
def test_a_run_that_repeats_leaves_the_skew_ambiguous():
    period_us = 2e6
    tasks = replace(
        TASKS,
        start_us=np.arange(len(TASKS)) * period_us,
        duration_us=np.full(len(TASKS), 0.6 * period_us),
        end_us=len(TASKS) * period_us,
        flops=np.full(len(TASKS), 7e14),
        precision=np.full(len(TASKS), TASKS.precision.max()),
        is_known=np.ones(len(TASKS), bool),
        memory_bytes=np.zeros(len(TASKS)),
        node_bytes=np.zeros(len(TASKS)),
        task_class=np.ones(len(TASKS), np.int32),
    )
    fit = fit_power([timed(tasks)], small_log(tasks, noise_w=3.0), BELIEVED)
    assert "skew-ambiguous" in {note.code for note in fit.notes}
    assert values(fit)["flop_j.bf16"] == pytest.approx(TRUTH["flop_j.bf16"], rel=0.03)


@pytest.mark.slow
def test_a_log_on_a_clock_of_its_own_is_laid_on_the_traces():
    log = small_log(TASKS, noise_w=3.0)
    rng = np.random.default_rng(0)
    # An idle stretch before, and one after, as a log has that ran for longer than the capture.
    idle_w = 300.0 + 3 * rng.standard_normal(200)
    power_w = np.concatenate([idle_w[:120], log.power_w, idle_w[120:]])
    time_ns = np.arange(len(power_w)) * 500_000_000
    series, _ = power_series(time_ns, power_w, None, "power.csv")
    fit = fit_power([timed(TASKS)], series, BELIEVED, same_clock=False)
    first_s = (int(log.time_ns[0]) - ZERO_NS) * 1e-9
    # The clock of the log is at 0 where that of the tasks is that many seconds from the epoch.
    assert fit.skew_s + ZERO_NS * 1e-9 == pytest.approx(60.0 - first_s, abs=0.05)
    assert "log-aligned-by-fit" in {note.code for note in fit.notes}
    assert values(fit)["flop_j.bf16"] == pytest.approx(TRUTH["flop_j.bf16"], rel=0.03)


def test_differences_of_a_counter_are_means_since_the_reading_before():
    # The first of one more says nothing: nothing was read before it.
    period_s = (TASKS.end_us * 1e-6 - 0.1) / (READINGS + 1.5)
    log = small_log(TASKS, window_s=period_s, period_s=period_s)
    fit = fit_power([timed(TASKS)], replace(log, averaged=True), BELIEVED)
    assert fit.window_s == pytest.approx(period_s)
    assert fit.window_interval_s == (fit.window_s, fit.window_s)
    assert values(fit)["memory_byte_j"] == pytest.approx(TRUTH["memory_byte_j"], rel=1e-5)


def test_slopes_of_the_residuals_are_those_of_finite_differences():
    design = design_of([TimedTasks(TASKS, 0)], BELIEVED, None, 0)
    time_s = np.linspace(3, 100, READINGS - READINGS // 5)
    ones = np.ones(len(time_s))
    used = time_s, 300 * ones, 5 * ones, ones
    rng = np.random.default_rng(0)
    x = np.append(rng.uniform(-1, 1, len(design.keys)), [0.2, np.log(0.37)])
    believed = np.ones(len(design.keys))
    arguments = design.energy, design.prior, used, np.zeros(2), believed, 1.5
    _, slope = _residuals(x, *arguments)
    for k in range(len(x)):
        step = np.zeros(len(x))
        step[k] = 1e-6
        ahead, behind = (np.asarray(_residuals(x + s, *arguments)[0]) for s in (step, -step))
        np.testing.assert_allclose(slope[:, k], (ahead - behind) / 2e-6, rtol=1e-5, atol=1e-5)


def fails(series, runs=None):
    with pytest.raises((LogError, ConfigError)) as caught:
        fit_power(runs or [timed(TASKS)], series, BELIEVED)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_log_of_zeros_is_refused():
    log = small_log(TASKS)
    zeros = replace(log, power_w=np.zeros(len(log.power_w)))
    assert f"power.csv: all {len(log.power_w)} readings are 0 W" in fails(zeros)


def test_a_log_of_another_time_is_refused_and_both_times_are_said():
    log = small_log(TASKS)
    text = fails(replace(log, time_ns=log.time_ns + 3_600_000_000_000))
    assert "no reading falls into the traces; got readings from 2025-01-01T01:00:00" in text
    assert "traces from 2025-01-01T00:00:00.000Z" in text
    assert "time zone" in text


def test_a_few_readings_are_refused():
    log = small_log(TASKS)
    few = replace(log, time_ns=log.time_ns[60:68], power_w=log.power_w[60:68])
    assert "too few readings fall into the traces; got" in fails(few)


def test_a_single_reading_is_refused():
    log = small_log(TASKS)
    one = replace(log, time_ns=log.time_ns[60:61], power_w=log.power_w[60:61])
    assert "too few readings" in fails(one)


def test_runs_at_the_same_time_are_refused():
    assert "two runs at the same time" in fails(small_log(TASKS), [timed(TASKS), timed(TASKS)])
