"""What `jaxperf compare` prints, and the keys that scripts rely on."""

import dataclasses
import io
import json

import pytest
from rich.console import Console

from jaxperf.comparison import (
    Baseline,
    Change,
    ChangeKind,
    ClassDifference,
    Comparison,
    Coverage,
)
from jaxperf.graph import TaskClass
from jaxperf.replay import Breakdown
from jaxperf.report._comparison import comparison_to_json, print_comparison
from jaxperf.trace import Note

NAN = float("nan")
A = Baseline(
    unit="step",
    devices=("NVIDIA H100 80GB HBM3",),
    names=("ProfilerStep#2", "ProfilerStep#3"),
    step_us=1000.0,
    replayed_us=1001.0,
    spread_us=10.0,
    breakdown=Breakdown(800.0, 50.0, 50.0, 0.0, 100.0, 1000.0),
    dependencies={"launch": 1 / 3},
)
B = dataclasses.replace(A, step_us=900.0, spread_us=NAN, breakdown=None)
REPLACED = Change(
    kind=ChangeKind.REPLACED,
    name="ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn[red]",
    b_name="int8_gemm",
    task_class=TaskClass.GEMM,
    on_device=True,
    a_lane=None,
    b_lane=None,
    count_a=2.0,
    count_b=2.0,
    a_us=300.0,
    b_us=180.0,
    critical_us=-90.0,
    within_variation=False,
)
RESULT = Comparison(
    a=A,
    b=B,
    within_variation=False,
    explained_us=-90.0,
    by_class=(ClassDifference(TaskClass.GEMM, 300.0, 180.0, -90.0),),
    changes=(REPLACED,),
    device=Coverage(10.0, 2.0, 1.0, 0.0),
    host=Coverage(0.0, 0.0, 0.0, 0.0),
    notes=(Note("devices-differ", "A ran on one, B on another"),),
)


def printed(result, width=80):
    file = io.StringIO()
    print_comparison(result, Console(file=file, width=width))
    return file.getvalue()


def test_the_json_has_both_runs_the_difference_and_what_explains_it():
    found = comparison_to_json(RESULT)
    assert found["a"] == {
        "unit": "step",
        "devices": ["NVIDIA H100 80GB HBM3"],
        "steps": ["ProfilerStep#2", "ProfilerStep#3"],
        "step_us": 1000.0,
        "replayed_us": 1001.0,
        "spread_us": 10.0,
    }
    assert found["difference_us"] == -100.0
    assert found["difference_percent"] == -10.0
    assert found["structure_us"] == -10.0
    assert found["predicted_b_step_us"] == 910.0
    assert found["prediction_error_percent"] == pytest.approx(100 / 90, abs=1e-4)
    assert found["by_class"] == [
        {
            "class": "gemm",
            "a_us": 300.0,
            "b_us": 180.0,
            "difference_us": -120.0,
            "critical_us": -90.0,
        }
    ]
    (change,) = found["changes"]
    assert (change["kind"], change["b_name"], change["class"]) == ("replaced", "int8_gemm", "gemm")
    assert change["difference_us"] == -120.0
    assert found["dependencies"]["a"] == {"launch": 0.333}
    assert found["coverage"]["device"]["matched_percent"] == 96.0


def test_what_cannot_be_known_is_null():
    unknown = dataclasses.replace(RESULT, within_variation=None)
    found = json.loads(json.dumps(comparison_to_json(unknown), allow_nan=False))
    assert found["b"]["spread_us"] is None
    assert found["breakdown"]["b"] is None
    assert found["within_variation"] is None
    assert found["coverage"]["host"]["matched_percent"] is None


def test_the_answer_comes_first_and_fits_80_columns():
    text = printed(RESULT)
    lines = text.splitlines()
    assert lines[0].startswith("From A to B a step changes by -100.0 µs (-10.00 %), more than")
    assert max(map(len, lines)) <= 80
    titles = ["Step", "By class", "Changes", "Notes"]
    assert [line for line in lines if line in titles] == titles
    assert "> int8_gemm" in text
    assert "nan" not in text.lower() and "\x1b" not in text


@pytest.mark.parametrize(
    "within, words",
    [
        (True, "within the run's own variation, no gain and no loss is shown"),
        (None, "too few repetitions to tell"),
    ],
)
def test_no_gain_is_claimed_where_chance_may_have_made_it(within, words):
    text = " ".join(printed(dataclasses.replace(RESULT, within_variation=within)).split())
    assert words in text
    assert "more than repetitions" not in text


def test_equal_runs_are_said_to_be_equal():
    same = dataclasses.replace(RESULT, b=A, explained_us=0.0, changes=(), within_variation=True)
    assert same.identical
    text = printed(same)
    assert text.startswith("The runs are the same: no task differs.")
    assert "Changes" not in text and "By class" not in text


def test_what_looks_like_markup_is_printed_as_it_is():
    odd = dataclasses.replace(REPLACED, name="[bold]gemm[/bold]")
    assert "[bold]gemm[/bold]" in printed(dataclasses.replace(RESULT, changes=(odd,)))


def test_many_changes_end_with_how_many_more_there_are():
    assert "and 4 more" in printed(dataclasses.replace(RESULT, changes=(REPLACED,) * 20))
