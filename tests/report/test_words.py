import dataclasses
import math

import pytest

from jaxperf.report._words import (
    bound_sentence,
    critical_shares,
    group_notes,
    headline,
    percent_text,
    time_text,
)


@pytest.mark.parametrize(
    "time_us, text",
    [
        (0.0, "0.000 µs"),
        (9.9996, "10.00 µs"),
        (999.94, "999.9 µs"),
        (999.96, "1.000 ms"),
        (-1234.5, "-1.234 ms"),
        (999_960.0, "1.000 s"),
        (12e6, "12.00 s"),
        (math.nan, "–"),
    ],
)
def test_a_time_has_four_digits_and_the_unit_that_suits_it(time_us, text):
    assert time_text(time_us) == text


@pytest.mark.parametrize(
    "percent, text",
    [(0.0, "0.00 %"), (-0.001, "0.00 %"), (-0.5, "-0.50 %"), (3.456, "+3.46 %"), (math.nan, "–")],
)
def test_an_error_is_signed_unless_it_is_none(percent, text):
    assert percent_text(percent, signed=True) == text


def test_the_headline_is_the_mean_step_or_else_the_window(replay):
    span = headline(replay)
    assert span.name == "mean of 2 steps"
    assert span.measured_us == sum(step.measured_us for step in replay.steps) / 2
    assert headline(dataclasses.replace(replay, steps=replay.steps[:1])).name == "step"
    assert headline(dataclasses.replace(replay, steps=())) == dataclasses.replace(
        replay.window, name="window"
    )


def test_the_sentence_names_classes_until_most_of_the_path_is_explained(replay):
    assert bound_sentence(replay) == (
        "The critical path is 61 % matrix multiplication and 24 % communication."
    )
    alone = dataclasses.replace(replay, critical_path_us={"gemm": 9.9, "host": 0.1})
    assert "gemm" not in bound_sentence(alone) and "host" not in bound_sentence(alone)
    assert "not known" in bound_sentence(dataclasses.replace(replay, critical_path_us={}))


def test_shares_add_up_and_leave_out_what_took_no_time(replay):
    shares = critical_shares(replay)
    assert [name for name, _, _ in shares] == ["gemm", "communication", "host", "normalization"]
    assert sum(share for _, _, share in shares) == pytest.approx(100.0)


def test_equal_notes_are_told_once(replay):
    groups = group_notes(replay.notes * 2)
    assert [(group.code, len(group.notes)) for group in groups] == [
        ("event-waits-inferred", 2),
        ("clock-aligned", 1),
    ]
