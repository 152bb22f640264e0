"""What was changed in a simulated run is what is found, at the price that the simulator knows."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from jaxperf.comparison import ChangeKind, compare
from jaxperf.comparison._sequence import align
from jaxperf.errors import ConfigError
from jaxperf.graph import TaskClass
from jaxperf.simulator import (
    Annotation,
    Kernel,
    Launch,
    LaunchGraph,
    Noise,
    Rank,
    Record,
    SimulatedJob,
    StreamWait,
    SynchronizeStream,
    Work,
    execute,
    simulate,
    write_traces,
)
from tests.scenarios import add, gemm, operator

PAGE = Path(__file__).resolve().parents[1] / "docs" / "compare.md"
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"
JOB = SimulatedJob(layers=2, data_parallel=2, steps=4)


def job_traces(folder, job=JOB, scale=None):
    run = simulate(job, seed=3, scale=scale)
    return write_traces(run, folder), run.step_us


def program_traces(folder, step, *, steps=4, scale=None, noise=0.0):
    """A run of one rank whose steps all do the same."""
    body = [Work(5.0), *[add(1.0), Work(12.0)] * 3, *step, SynchronizeStream(), Work(5.0)]
    main = [Annotation(f"ProfilerStep#{i + 1}", body) for i in range(steps)]
    run = execute({0: Rank({"main": main})}, noise=Noise(kernel=noise), seed=1, scale=scale)
    return write_traces(run, folder), run.step_us


def changes(result, *kinds):
    return [c for c in result.changes if c.on_device and c.kind in kinds]


def by_class(result, task_class):
    (row,) = [row for row in result.by_class if row.task_class is task_class]
    return row


# Equal runs, and chance
# ---------------------------------------------------------------------------------------


def test_a_run_does_not_differ_from_itself(traces):
    result = compare(traces, traces)
    assert result.identical
    assert (result.difference_us, result.explained_us, result.structure_us) == (0.0, 0.0, 0.0)
    assert result.within_variation is True
    assert result.changes == ()
    assert {row.critical_us for row in result.by_class} == {0.0}
    assert result.device.matched_percent == 100.0
    assert result.predicted_b_step_us == result.b.step_us


def test_a_difference_below_the_spread_of_steps_is_called_variation(tmp_path):
    noisy = dataclasses.replace(JOB, noise=Noise(kernel=0.05, host=0.05))
    for seed in (1, 2):
        write_traces(simulate(noisy, seed=seed), tmp_path / str(seed))
    result = compare(tmp_path / "1", tmp_path / "2")
    assert 0 < abs(result.difference_us) <= max(result.a.spread_us, result.b.spread_us)
    assert result.within_variation is True


def test_with_one_step_nobody_can_tell_what_is_chance(tmp_path):
    paths = [program_traces(tmp_path / str(us), [gemm(us)], steps=1)[0] for us in (90.0, 95.0)]
    result = compare(*paths)
    assert result.within_variation is None
    assert {change.within_variation for change in result.changes} == {None}


# Known changes
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_matrix_products_of_another_speed_are_found_and_priced(tmp_path, factor):
    a, before_us = job_traces(tmp_path / "a")
    b, after_us = job_traces(tmp_path / "b", scale={"gemm": factor})
    result = compare(a, b)
    row = by_class(result, TaskClass.GEMM)
    assert row.b_us == pytest.approx(factor * row.a_us, rel=1e-3)
    assert row.critical_us == pytest.approx(after_us - before_us, rel=0.02)
    assert result.difference_us == pytest.approx(after_us - before_us, rel=0.02)
    assert result.predicted_b_step_us == pytest.approx(result.b.step_us, rel=2e-3)
    assert result.within_variation is False
    kind = ChangeKind.SLOWER if factor > 1 else ChangeKind.QUICKER
    products = [c for c in result.changes if c.task_class is TaskClass.GEMM]
    assert {c.kind for c in products} == {kind}
    others = {c.kind for c in result.changes} - {kind}
    assert not others & {ChangeKind.ADDED, ChangeKind.REMOVED, ChangeKind.REPLACED}


def test_a_quicker_host_is_worth_little_where_the_device_is_the_bound(tmp_path):
    step = [op for _ in range(8) for op in (gemm(180.0), add(60.0))]
    a, before_us = program_traces(tmp_path / "a", step)
    b, after_us = program_traces(tmp_path / "b", step, scale={"host": 0.5})
    result = compare(a, b)
    rows = [by_class(result, kind) for kind in (TaskClass.HOST, TaskClass.LAUNCH)]
    assert all(row.b_us == pytest.approx(0.5 * row.a_us, rel=0.02) for row in rows)
    assert sum(row.critical_us for row in rows) == pytest.approx(after_us - before_us, abs=1.0)


def test_a_slower_host_is_priced_where_it_is_the_bound(tmp_path):
    step = [add(1.5) for _ in range(80)]
    a, before_us = program_traces(tmp_path / "a", step)
    b, after_us = program_traces(tmp_path / "b", step, scale={"host": 2.0})
    result = compare(a, b)
    rows = [by_class(result, kind) for kind in (TaskClass.HOST, TaskClass.LAUNCH)]
    assert all(row.b_us == pytest.approx(2 * row.a_us, rel=0.02) for row in rows)
    assert sum(row.critical_us for row in rows) == pytest.approx(after_us - before_us, rel=0.02)


NORM = "void at::native::vectorized_layer_norm_kernel<c10::BFloat16, float>"


def test_an_added_kernel_is_found_and_its_time_is_put_behind_its_predecessor(tmp_path):
    step = [gemm(100.0) for _ in range(6)]
    norm = operator("aten::layer_norm", Launch(Kernel(NORM, 40.0, "normalization")))
    a, before_us = program_traces(tmp_path / "a", step)
    b, after_us = program_traces(tmp_path / "b", [*step[:3], norm, *step[3:]])
    result = compare(a, b)
    (added,) = changes(result, ChangeKind.ADDED)
    assert (added.name, added.count_a, added.count_b) == (NORM, 0, 1)
    assert added.difference_us == pytest.approx(40.0, abs=0.01)
    assert added.critical_us == pytest.approx(after_us - before_us, abs=0.5)
    assert result.prediction_error_percent == pytest.approx(0, abs=0.2)
    (removed,) = changes(compare(b, a), ChangeKind.REMOVED)
    assert removed.critical_us == pytest.approx(before_us - after_us, abs=0.5)


def test_another_kernel_of_the_same_operator_is_a_replacement(tmp_path):
    other = operator("aten::mm", Launch(Kernel("cutlass_int8_gemm", 50.0, "gemm")))
    a, before_us = program_traces(tmp_path / "a", [gemm(100.0), add(20.0), gemm(100.0)])
    b, after_us = program_traces(tmp_path / "b", [other, add(20.0), other])
    result = compare(a, b)
    (change,) = changes(result, *set(ChangeKind) - {ChangeKind.SAME})
    assert (change.kind, change.name, change.b_name) == (
        ChangeKind.REPLACED,
        GEMM,
        "cutlass_int8_gemm",
    )
    assert (change.a_us, change.b_us) == pytest.approx((200.0, 100.0), abs=0.01)
    assert change.critical_us == pytest.approx(after_us - before_us, abs=0.5)
    assert result.device.replaced == 2


def test_what_goes_to_another_stream_has_moved(tmp_path):
    def step(stream):
        return [
            *(gemm(70.0) for _ in range(4)),
            *(add(90.0, stream) for _ in range(2)),
            gemm(40.0, 20),
            Record("side", 20),
            StreamWait("side", 7),
            gemm(80.0),
        ]

    a, _ = program_traces(tmp_path / "a", step(7))
    b, _ = program_traces(tmp_path / "b", step(20))
    result = compare(a, b)
    (moved,) = changes(result, ChangeKind.MOVED)
    assert (moved.a_lane, moved.b_lane) == ("GPU 0 stream 7", "GPU 0 stream 20")
    assert moved.count_a == 2
    assert result.structure_us < -100.0  # beside the others instead of behind them
    assert abs(result.explained_us) < 10.0


# What repeats
# ---------------------------------------------------------------------------------------


def graph_launches(folder, name, duration_us, launches=5):
    works = tuple(Kernel(name, duration_us, "gemm") for _ in range(30))
    main = [LaunchGraph(works, call_us=35.0) for _ in range(launches)]
    run = execute({0: Rank({"main": [*main, SynchronizeStream()]})})
    return write_traces(run, folder)


def test_launches_of_one_cuda_graph_take_the_place_of_steps(tmp_path):
    a = graph_launches(tmp_path / "a", GEMM, 10.0)
    b = graph_launches(tmp_path / "b", "cutlass_int8_gemm", 5.0)
    result = compare(a, b)
    assert (result.a.unit, result.b.unit) == ("graph launch", "graph launch")
    assert len(result.a.names) == 4
    assert result.difference_us == pytest.approx(-150.0, abs=1.0)
    (change,) = changes(result, ChangeKind.REPLACED)
    assert change.count_a == 30
    assert change.critical_us == pytest.approx(-150.0, abs=1.0)


def test_where_only_one_run_has_steps_whole_captures_are_compared(tmp_path):
    a, _ = program_traces(tmp_path / "a", [gemm(50.0)])
    run = execute({0: Rank({"main": [gemm(50.0), SynchronizeStream()]})})
    result = compare(a, write_traces(run, tmp_path / "b"))
    assert (result.a.unit, result.b.unit) == ("window", "window")
    assert "no-common-steps" in {note.code for note in result.notes}


def test_one_step_can_be_chosen(tmp_path):
    a, _ = program_traces(tmp_path / "a", [gemm(50.0)])
    result = compare(a, a, step=-1)
    assert result.a.names == ("ProfilerStep#4",)
    with pytest.raises(ConfigError, match="no such step"):
        compare(a, a, step="ProfilerStep#9")


def test_runs_of_different_ranks_are_refused_unless_each_has_one(traces, tmp_path):
    one = sorted(traces.iterdir())[0]
    with pytest.raises(ConfigError, match="different ranks"):
        compare(traces, one)
    assert compare(one, sorted(traces.iterdir())[1]).device.matched_percent == 100.0


# Alignment of sequences
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size, kinds", [(40, 5), (3_000, 40), (3_000, 3_000)])
def test_what_was_cut_out_of_a_sequence_is_what_is_not_paired(size, kinds):
    random = np.random.default_rng(size + kinds)
    whole = random.integers(0, kinds, size)
    kept = np.sort(random.choice(size, int(0.97 * size), replace=False))
    place_a, place_b = align(whole, whole[kept], whole[None], whole[None, kept], [1])
    assert (whole[place_a] == whole[kept][place_b]).all()
    assert (np.diff(place_a) > 0).all() and (np.diff(place_b) > 0).all()
    assert len(place_b) == len(kept)


def test_of_two_alignments_the_one_with_the_weightier_traits_is_taken():
    a = np.array([[1, 2], [7, 8]])
    b = np.array([[2, 1], [7, 7]])
    pairs = align(np.array([0, 1]), np.array([2, 3]), a, b, [4, 1])
    assert [side.tolist() for side in pairs] == [[0], [1]]


# The page
# ---------------------------------------------------------------------------------------


def test_the_page_runs_as_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for example in examples:
        exec(compile(example, PAGE.name, "exec"), {})
    printed = capsys.readouterr().out
    assert len(examples) == 1
    assert "From A to B a step changes by" in printed
    assert "gemm" in printed


# Real pairs
# ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_hooks_that_launch_the_collectives_are_found_and_no_gain_is_claimed(shared):
    folder = shared / "traces" / "nanogpt_h100_rank0_adam_hook_ab"
    result = compare(folder / "current_rank0_4step.json.gz", folder / "hook_rank0_4step.json.gz")
    assert result.within_variation is True
    moved = changes(result, ChangeKind.MOVED)
    assert sum(change.count_a for change in moved) == 4  # six in every second step, of three
    assert all("ReduceScatter" in change.name for change in moved)
    assert all("autograd" in (change.b_lane or "") for change in moved)


def test_quantised_kernels_take_the_place_of_the_ones_before(shared):
    folder = shared / "traces" / "vit_quant_a100_cudagraph_pair"
    result = compare(folder / "bf16_warm.json.gz", folder / "int8_warm.json.gz")
    assert result.a.unit == "graph launch"
    assert result.difference_us == pytest.approx(487.75, abs=0.1)
    assert result.predicted_b_step_us == pytest.approx(result.b.step_us, rel=0.01)
    replaced = changes(result, ChangeKind.REPLACED)
    assert any("bf16_s16816gemm" in c.name and "triton" in (c.b_name or "") for c in replaced)
    assert result.device.matched_percent > 98


def test_kernels_of_another_vendor_are_aligned_by_operator(shared):
    folder = shared / "traces" / "infer_pairs_h100_vs_mi300x"
    result = compare(folder / "bert-small_h100.json.gz", folder / "bert-small_mi300.json.gz")
    assert result.device.matched_percent == 100.0
    assert result.device.replaced > 40
    assert "devices-differ" in {note.code for note in result.notes}
    products = [c for c in result.changes if c.task_class is TaskClass.GEMM and c.on_device]
    assert products and all("Cijk" in (c.b_name or "") for c in products)
