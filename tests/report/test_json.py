"""The JSON has the keys and kinds of values that scripts rely on."""

import dataclasses
import json
import math

from jaxperf.report import replay_to_json

BREAKDOWN = {
    "compute_us",
    "overlap_us",
    "exposed_communication_us",
    "memory_us",
    "idle_us",
    "total_us",
}


def test_the_keys_are_those_of_the_command_line_page(replay):
    result = replay_to_json(replay)
    assert list(result) == [
        "ranks",
        "window",
        "steps",
        "mean_abs_error_percent",
        "task_start_error_us",
        "breakdown",
        "critical_path_us",
        "hold_out",
        "notes",
    ]
    rank = {"rank", "files", "device", "events", "device_tasks"}
    rank |= {"clock_offset_us", "clock_uncertainty_us", "clock_drift_ppm"}
    assert set(result["ranks"][0]) == rank
    assert set(result["window"]) == {"measured_us", "replayed_us", "error_percent"}
    assert set(result["steps"][0]) == {"name", "measured_us", "replayed_us", "error_percent"}
    assert set(result["task_start_error_us"]) == {"median", "p95"}
    assert set(result["breakdown"]) == {"measured", "replayed"}
    assert set(result["breakdown"]["replayed"]) == BREAKDOWN
    assert set(result["hold_out"]) == {"mean_abs_error_percent"}
    assert set(result["notes"][0]) == {"code", "text", "where"}


def test_what_is_not_known_is_null_and_nothing_is_nan(replay):
    result = json.loads(json.dumps(replay_to_json(replay), allow_nan=False))
    assert result["ranks"][0]["clock_offset_us"] is None
    assert result["ranks"][1]["clock_offset_us"] == 12.5
    assert result["notes"][2]["where"] is None
    bare = dataclasses.replace(
        replay,
        steps=(),
        breakdown_measured=None,
        breakdown_replayed=None,
        critical_path_us={},
        hold_out=None,
        mean_abs_error_percent=math.nan,
        notes=(),
    )
    result = json.loads(json.dumps(replay_to_json(bare), allow_nan=False))
    assert result["steps"] == [] and result["notes"] == []
    assert result["breakdown"] == {"measured": None, "replayed": None}
    assert result["hold_out"] is None and result["mean_abs_error_percent"] is None


def test_times_are_to_the_nanosecond_and_counts_are_whole(replay):
    result = replay_to_json(dataclasses.replace(replay, task_start_error_median_us=1 / 3))
    assert result["task_start_error_us"]["median"] == 0.333
    assert result["hold_out"]["mean_abs_error_percent"] == 0.8123
    assert isinstance(result["ranks"][0]["events"], int)
    assert isinstance(result["window"]["measured_us"], float)


def test_classes_stand_in_order_of_their_time(replay):
    classes = replay_to_json(replay)["critical_path_us"]
    assert list(classes) == ["gemm", "communication", "host", "normalization", "embedding"]
    assert classes["embedding"] == 0.0


def test_an_error_of_nearly_nothing_has_no_sign(replay):
    exact = dataclasses.replace(replay.window, replayed_us=replay.window.measured_us * (1 - 1e-12))
    result = replay_to_json(dataclasses.replace(replay, window=exact))
    assert str(result["window"]["error_percent"]) == "0.0"
