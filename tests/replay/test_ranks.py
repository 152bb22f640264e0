"""Joined ranks under changes answer what the changed job answers, and real runs replay joined."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import pytest

from jaxperf.graph import COMPUTE_CLASSES, ExecutionGraph, TaskKind, build_graph
from jaxperf.replay import Replay, binding_dependencies, replay, replay_graph
from jaxperf.report import replay_to_json
from jaxperf.simulator import (
    Annotation,
    Collective,
    Instruction,
    Launch,
    Noise,
    Rank,
    Record,
    SimulatedJob,
    SimulatedRun,
    StreamWait,
    SynchronizeDevice,
    Work,
    execute,
    simulate,
    write_traces,
)
from jaxperf.trace import read_run
from tests.graph.asked import codes, selected
from tests.graph.several import collectives, parts
from tests.scenarios import gemm, operator

STEP_PERCENT = 0.5
"""Of each step of each rank, unchanged."""
RATIO_PERCENT = 2.0
"""What is asked of the ratio of steps under a change; the oracle draws its noise anew each time."""
SIMULATED_PERCENT = 0.5
"""Of each step under a change: the simulator keeps its draws."""
EACH_PERCENT, MEAN_PERCENT = 3.0, 1.0
"""Mean absolute step error of a real run, and its mean over the runs."""
START_PERCENT = 0.5
"""Median error of the starts of all tasks, of the step."""


def steps_us(graph: ExecutionGraph, durations_us: np.ndarray | None = None) -> np.ndarray:
    """Each step of each rank, replayed."""
    times = replay_graph(graph, durations_us)
    begin = np.array([step.begin_task for step in graph.steps])
    end = np.array([step.end_task for step in graph.steps])
    return times.end_us[end] - times.start_us[begin]


def steady_us(graph: ExecutionGraph, steps: np.ndarray) -> float:
    """The mean over ranks and steps without the first."""
    first = graph.steps[0].name
    later = np.array([step.name != first for step in graph.steps])
    return float(steps[later].mean())


def scaled_us(graph: ExecutionGraph, change: Mapping[str, float]) -> np.ndarray:
    """Durations with those of some classes multiplied."""
    duration = graph.duration_ns / 1e3
    for selector, factor in change.items():
        duration[selected(graph, selector)] *= factor
    return duration


# -- the oracle -------------------------------------------------------------------------------


FOLDER = Path(__file__).resolve().parents[3] / "shared"
TRUTHS: dict[str, dict] = {
    path.parent.name: json.loads(path.read_text())
    for path in sorted(FOLDER.glob("oracle/*/truth.json"))
}
SELECTORS = {
    "gemm_scale": "gemm",
    "comm_scale": "communication",
    "cpu_scale": "host",
    "norm_scale": "normalization",
}
QUESTIONS = [
    pytest.param(job, word, factor, entry["step_us"], id=f"{job}-{word}-{factor}")
    for job, truth in TRUTHS.items()
    for entry in truth["what_if"]
    for word, factor in entry["change"].items()
    if word in SELECTORS
]


@pytest.fixture(scope="module")
def oracle(shared):
    return cache(lambda job: build_graph(read_run([shared / "oracle" / job])))


@pytest.mark.usefixtures("shared")
def test_the_oracle_asks_of_every_kind_of_change():
    assert len(TRUTHS) == 6
    assert {param.values[1] for param in QUESTIONS} == set(SELECTORS)
    assert len(QUESTIONS) == 5 * 7 + 1


@pytest.mark.parametrize("job", TRUTHS)
def test_every_step_of_every_rank_replays_joined(oracle, job):
    graph = oracle(job)
    measured = np.array([step.end_ns - step.begin_ns for step in graph.steps]) / 1e3
    error = 100 * np.abs(steps_us(graph) / measured - 1)
    assert error.max() <= STEP_PERCENT


@pytest.mark.parametrize("job", TRUTHS)
def test_steps_as_measured_are_those_of_the_truth(oracle, job):
    graph = oracle(job)
    truth = TRUTHS[job]
    measured = {}
    for step in graph.steps:
        measured.setdefault(step.name, []).append((step.end_ns - step.begin_ns) / 1e3)
    found = {name: float(np.mean(times)) for name, times in measured.items()}
    assert found == pytest.approx(truth["steps_us"], rel=1e-4)
    steady = steady_us(graph, steps_us(graph))
    assert steady == pytest.approx(truth["steady_step_us"], rel=STEP_PERCENT / 100)


@pytest.mark.parametrize(("job", "word", "factor", "step_us"), QUESTIONS)
def test_a_change_moves_the_step_by_its_true_ratio(oracle, job, word, factor, step_us):
    graph = oracle(job)
    change = {SELECTORS[word]: factor}
    ratio = steady_us(graph, steps_us(graph, scaled_us(graph, change))) / steady_us(
        graph, steps_us(graph)
    )
    true_ratio = step_us / TRUTHS[job]["steady_step_us"]
    assert ratio == pytest.approx(true_ratio, rel=RATIO_PERCENT / 100)


def test_without_the_straggler_the_step_is_that_of_the_others(oracle):
    graph = oracle("gpt_dp4_straggler")
    duration = graph.duration_ns / 1e3
    slow = np.isin(graph.task_class, [int(c) for c in COMPUTE_CLASSES])
    slow &= (graph.trace == graph.ranks.index(2)) & (graph.kind == TaskKind.KERNEL)
    assert slow.sum() > 100
    duration[slow] /= 1.3
    truth = TRUTHS["gpt_dp4_straggler"]
    (right,) = [e["step_us"] for e in truth["what_if"] if e["change"] == {"straggler": -1}]
    ratio = steady_us(graph, steps_us(graph, duration)) / steady_us(graph, steps_us(graph))
    assert ratio == pytest.approx(right / truth["steady_step_us"], rel=RATIO_PERCENT / 100)


@pytest.mark.parametrize("job", TRUTHS)
def test_transfers_are_bound_by_the_last_rank_to_arrive(oracle, job):
    graph = oracle(job)
    times = replay_graph(graph)
    binding = binding_dependencies(graph, times.start_us)
    arrivals: dict[int, float] = {}
    found = parts(graph)
    bound = {}
    for key, part in found.items():
        task = part.transfer
        while graph.kind[task] != TaskKind.ARRIVAL:
            task = int(graph.source[binding[task]])
        bound[key] = task
        mine = float(times.start_us[part.arrival])
        arrivals[task] = max(arrivals.get(task, -np.inf), mine)
    assert found
    for task, latest in arrivals.items():
        assert times.start_us[task] == pytest.approx(latest, abs=1.0)


def test_the_verb_gives_clocks_and_errors_of_all_ranks(shared):
    given = replay_to_json(replay([shared / "oracle" / "gpt_sync_every_micro"]))
    assert [rank["rank"] for rank in given["ranks"]] == [0, 1]
    assert [rank["clock_offset_us"] for rank in given["ranks"]] == pytest.approx([0, 0], abs=5)
    assert given["mean_abs_error_percent"] <= STEP_PERCENT
    truth = TRUTHS["gpt_sync_every_micro"]["steps_us"]
    measured = {step["name"]: step["measured_us"] for step in given["steps"]}
    assert measured == pytest.approx(truth, rel=1e-4)
    for side in ("measured", "replayed"):
        whole = given["breakdown"][side]
        pieces = sum(value for key, value in whole.items() if key != "total_us")
        assert pieces == pytest.approx(whole["total_us"], rel=1e-6)
    # All collectives wait in the graph, and none is left as measured.
    assert "collectives-as-measured" not in {note["code"] for note in given["notes"]}


def test_a_clock_that_is_not_known_is_null(tmp_path):
    for seed in (0, 1):
        (path,) = write_traces(simulate(SimulatedJob(layers=1, steps=1), seed=seed), tmp_path)
        text = path.read_bytes()
        path.unlink()
        (tmp_path / f"worker-rank{seed + 3}.json.gz").write_bytes(text)
    files = [tmp_path / f"worker-rank{rank}.json.gz" for rank in (3, 4)]
    given = replay_to_json(replay(files))
    offsets = {rank["rank"]: rank["clock_offset_us"] for rank in given["ranks"]}
    assert offsets == {3: 0.0, 4: None}
    assert "clock-unknown" in {note["code"] for note in given["notes"]}
    json.dumps(given, allow_nan=False)


# -- simulated jobs ---------------------------------------------------------------------------


_BASE = SimulatedJob(
    layers=2,
    hidden_size=512,
    attention_heads=8,
    vocabulary_size=8192,
    noise=Noise(kernel=0.02, host=0.06),
    clock_spread_us=3_000.0,
)
SIMULATED = {
    "data": replace(_BASE, data_parallel=2, bucket_bytes=2 * 2**20),
    "data_large_kernels": replace(_BASE, data_parallel=4, hidden_size=1024, micro_batches=2),
    "tensor": replace(_BASE, tensor_parallel=2, hidden_size=1024, micro_batches=2),
    "tensor_four": replace(_BASE, tensor_parallel=4),
    "pipeline": replace(_BASE, pipeline_parallel=2, micro_batches=4),
    "pipeline_four": replace(_BASE, layers=4, pipeline_parallel=4, micro_batches=6),
    "pipeline_large_kernels": replace(
        _BASE, pipeline_parallel=2, micro_batches=4, hidden_size=2048, attention_heads=16
    ),
    "tensor_and_pipeline": replace(
        _BASE, tensor_parallel=2, pipeline_parallel=2, micro_batches=3, hidden_size=1024
    ),
    "data_and_tensor": replace(_BASE, tensor_parallel=2, data_parallel=2, hidden_size=1024),
    "data_sync": replace(_BASE, data_parallel=2, micro_batches=3, synchronize="micro_batch"),
}
CHANGES = (
    {},
    {"gemm": 0.5},
    {"communication": 0.5},
    {"communication": 3.0},
    {"host": 0.5},
    {"host": 3.0},
)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    @cache
    def graph(name: str) -> ExecutionGraph:
        run = simulate(SIMULATED[name], seed=11)
        return build_graph(read_run(write_traces(run, tmp_path_factory.mktemp(name))))

    return graph


@pytest.mark.parametrize(
    "change", CHANGES, ids=lambda c: "_".join(f"{k}_{v}" for k, v in c.items()) or "unchanged"
)
@pytest.mark.parametrize("name", SIMULATED)
def test_a_changed_replay_of_all_ranks_is_the_changed_run(simulated, name, change):
    graph = simulated(name)
    run = simulate(SIMULATED[name], seed=11, scale=change)
    right = [time for record in run.ranks.values() for time in record.steps_us]
    answer = steps_us(graph, scaled_us(graph, change)).tolist()
    assert answer == pytest.approx(right, rel=SIMULATED_PERCENT / 100)


@pytest.mark.parametrize("name", ["data", "pipeline"])
def test_a_slower_rank_slows_all_as_in_the_simulator(simulated, name):
    graph = simulated(name)
    run = simulate(SIMULATED[name], seed=11, scale={"rank:1/compute": 4.0})
    duration = graph.duration_ns / 1e3
    compute = (graph.kind == TaskKind.KERNEL) & (graph.trace == 1)
    duration[compute] *= 4.0
    right = [time for record in run.ranks.values() for time in record.steps_us]
    assert steps_us(graph, duration).tolist() == pytest.approx(right, rel=SIMULATED_PERCENT / 100)


# -- programs by hand -------------------------------------------------------------------------


def _joined(work: Collective, number: int, stream: int = 20) -> list[Instruction]:
    """A collective behind what was computed so far, and the computing stream behind it."""
    ready, done = f"ready {number}", f"done {number}"
    return [
        Record(ready),
        StreamWait(ready, stream),
        operator(f"c10d::{work.operation}", Launch(work, stream)),
        Record(done, stream),
        StreamWait(done),
    ]


def _groups_of_all_kinds(rank: int) -> list[Instruction]:
    """Four ranks: pairs, all, one alone and messages, on one stream and on two."""
    everyone, pair = (0, 1, 2, 3), (0, 1) if rank < 2 else (2, 3)
    other = sum(pair) - rank
    main: list[Instruction] = []
    for step in range(3):
        n = 10 * step
        body = [
            Work(5.0),
            # Kernels far apart show the launch latency, without which nobody could tell whether
            # a kernel follows the start or the end of its call.
            *[gemm(1.0), Work(12.0)] * 4,
            *[gemm(20.0 + 7 * ((rank + i + step) % 4)) for i in range(6)],
            *_joined(Collective("allreduce", f"pair {pair}", pair, 40.0), n),
            gemm(60.0 + 30 * ((rank + step) % 4)),
            *_joined(Collective("allgather", "world", everyone, 90.0), n + 1),
            *_joined(Collective("allreduce", f"self {rank}", (rank,), 5.0), n + 2),
            gemm(50.0 + 40 * (rank % 3)),
            *_joined(Collective("reduce_scatter", "world", everyone, 70.0), n + 3),
            gemm(15.0 + 20 * (rank % 2)),
            # Both are under way at once, else the pair would wait for ever.
            operator(
                "c10d::recv", Launch(_message("recv", other, rank), 32), Record(f"got {n}", 32)
            ),
            *_joined(_message("send", rank, other), n + 4, 28),
            StreamWait(f"got {n}"),
            gemm(30.0),
            SynchronizeDevice(),
            Work(20.0 + 5 * rank),
        ]
        main.append(Annotation(f"ProfilerStep#{step + 1}", body))
    return main


def _message(operation: str, source: int, destination: int) -> Collective:
    both = tuple(sorted((source, destination)))
    return Collective(
        operation, f"message {both}", both, 25.0, source=source, destination=destination
    )


def _run_by_hand(scale: Mapping[str, float] | None = None) -> SimulatedRun:
    ranks = {
        rank: Rank({"main": _groups_of_all_kinds(rank)}, clock_offset_us=1234.5 * rank)
        for rank in range(4)
    }
    return execute(ranks, noise=Noise(host=0.05), seed=2, scale=scale)


@pytest.mark.parametrize(
    "change",
    [*CHANGES, {"gemm": 3.0}, {"name:SendRecv": 6.0}, {"name:AllGather": 0.0}],
    ids=lambda c: "_".join(f"{k}_{v}" for k, v in c.items()) or "unchanged",
)
def test_groups_of_all_kinds_answer_as_the_simulator_does(tmp_path, change):
    graph = build_graph(read_run(write_traces(_run_by_hand(), tmp_path)))
    right = [time for record in _run_by_hand(change).ranks.values() for time in record.steps_us]
    answer = steps_us(graph, scaled_us(graph, change)).tolist()
    assert answer == pytest.approx(right, rel=SIMULATED_PERCENT / 100)


# Moments of a capture's begin on each rank: within the first step, at different places.
@pytest.mark.parametrize("begins_us", [(0, 900), (900, 0), (700, 1100), (1100, 700)])
def test_captures_that_begin_at_different_moments_join_what_both_saw(tmp_path, begins_us):
    job = replace(SIMULATED["data"], bucket_bytes=2**20)
    run = simulate(job, seed=4)
    files = []
    for rank, begin_us in enumerate(begins_us):
        folder = tmp_path / f"from {begin_us}"
        files.append(write_traces(run, folder, capture_from_us=begin_us)[rank])
    graph = build_graph(read_run(files))
    clocks = [run.ranks[rank].program.clock_offset_us for rank in (0, 1)]
    assert graph.clocks[1].offset_us == pytest.approx(clocks[1] - clocks[0], abs=0.01)
    # From the end every collective's wait is the simulator's.
    for rank, tasks in collectives(graph).items():
        rows = [row for row in run.ranks[rank].device if isinstance(row.work, Collective)]
        rows = sorted(rows, key=lambda row: row.start_ns)[::-1]
        both = min(len(tasks) for tasks in collectives(graph).values())
        assert 10 < both <= len(rows)
        for task, row in list(zip(tasks[::-1], rows, strict=False))[:both]:
            arrival = int(graph.arrival[task])
            waited_us = (graph.start_ns[task] - graph.start_ns[arrival]) / 1e3
            assert arrival >= 0
            assert waited_us == pytest.approx(row.waited_ns / 1e3, abs=0.01)
    later = [step.name for step in graph.steps].count("ProfilerStep#3")
    assert later == 2
    measured = [(step.end_ns - step.begin_ns) / 1e3 for step in graph.steps]
    assert steps_us(graph).tolist() == pytest.approx(measured, rel=STEP_PERCENT / 100)


# -- real runs --------------------------------------------------------------------------------


REAL = (
    "deepseek_v3_decode_ep8_h200_8rank_cudagraph/overlap",
    "deepseek_v3_decode_ep8_h200_8rank_cudagraph/plain",
    "dlrm_param_v100_8rank_1step",
    "megatron_gpt_tp8_a100_8rank_forward",
    "nanogpt_dp8_h100_8rank_4step",
    "resnet_ddp_mi300_4rank_3step_fused/fused_4rank",
    "resnet_ddp_mi300_4rank_3step_fused/unfused",
    "torchrec_resnet18_ddp_v100_2rank_3step",
    "torchrec_sst_dlrm_v100_4rank_3step/run_a",
    "torchrec_sst_dlrm_v100_4rank_3step/run_b",
    "torchrec_sst_dlrm_v100_4rank_3step/run_c_sleep",
)


# Tests of one run come one after the other, so one run at a time is in memory.
@lru_cache(maxsize=1)
def replayed_run(name: str) -> Replay:
    sets = json.loads((FOLDER / "traces" / "sets.json").read_text())
    return replay([FOLDER / "traces" / path for path in sets[name]])


@cache
def error_percent(name: str) -> float:
    return replayed_run(name).mean_abs_error_percent


@pytest.fixture(scope="module", params=REAL)
def real(request, shared) -> str:
    return request.param


@pytest.mark.slow
def test_steps_and_starts_of_a_real_run_replay_joined(real):
    result = replayed_run(real)
    assert len(result.graph.ranks) > 1
    assert error_percent(real) <= EACH_PERCENT
    whole = [step.measured_us for step in result.steps if step.measured_us > 0]
    step_us = float(np.mean(whole)) if whole else result.window.measured_us
    assert 100 * result.task_start_error_median_us <= START_PERCENT * step_us


@pytest.mark.slow
def test_collectives_of_a_real_run_meet_on_one_clock(real):
    graph = replayed_run(real).graph
    assert "clock-unknown" not in codes(graph)
    assert all(np.isfinite(clock.offset_us) for clock in graph.clocks)
    found = parts(graph)
    assert {part.rank for part in found.values()} == set(graph.ranks)
    assert (graph.duration_ns >= 0).all()
    for part in found.values():
        assert graph.trace[part.arrival] == graph.trace[part.transfer]
        assert graph.end_ns[part.transfer] >= graph.start_ns[part.transfer]


@pytest.mark.slow
@pytest.mark.usefixtures("shared")
def test_real_runs_replay_joined_on_average():
    assert np.mean([error_percent(name) for name in REAL]) <= MEAN_PERCENT
