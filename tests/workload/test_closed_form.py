from dataclasses import fields, replace
from functools import cache

import jax
import msgspec
import numpy as np
import pytest

from jaxperf.config import Experts, Job, columns_of_jobs, load_hardware
from jaxperf.cost import default_model
from jaxperf.replay import double_precision
from jaxperf.workload._build import build_job_graph
from jaxperf.workload._closed_form import (
    batched_step_us,
    closed_form_step_us,
    table_steps,
)
from jaxperf.workload._kernels import (
    embedding_backward,
    embedding_forward,
    head_backward,
    head_forward,
    layer_backward,
    layer_forward,
    layer_recompute,
    zero_gradients,
)
from jaxperf.workload._many_steps import many_steps, piece_times_us
from jaxperf.workload._messages import gradient_messages, pipeline_message
from jaxperf.workload._pack import pack_work
from jaxperf.workload._parameters import ParameterCounts, layer_parameters
from jaxperf.workload._pipeline_step import StepTime
from jaxperf.workload._schedules import PassKind, dependencies, schedule_passes
from jaxperf.workload._step_parameters import (
    StepParameters,
    default_step_parameters,
    no_overheads,
)
from jaxperf.workload._step_table import step_table
from tests.helpers import start_times

MODEL = default_model(load_hardware("h100"))
# Launches do not bound what is computed here, so that every kernel counts.
PARAMETERS = replace(
    default_step_parameters(), launch_us=1.0, collective_launch_us=1.0, micro_batch_us=1.0
)
# The output layer is next to nothing, so that all stages are alike.
JOB = Job(
    layers=16,
    hidden_size=8192,
    attention_heads=64,
    vocabulary_size=8,
    sequence_length=4096,
    micro_batch_size=4,
    micro_batches=8,
    overlap_gradients=False,
)


def changed(job: Job, **fields) -> Job:
    return msgspec.structs.replace(job, **fields)


def sum_us(pieces) -> float:
    with double_precision():
        return float(piece_times_us(MODEL, pack_work(pieces)).sum())


def passes_us(job: Job, layers: float) -> tuple[float, float]:
    """Forward and backward pass of some layers, piece by piece."""
    forward = sum_us(layer_forward(job, experts=False))
    backward = layer_recompute(job, experts=False) + layer_backward(job, experts=False)
    return layers * forward, layers * sum_us(backward)


LAYER_US = passes_us(JOB, 1)
MESSAGE_US = sum_us([pipeline_message(JOB)])


def steps_of(jobs: list[Job], parameters: StepParameters | None = None) -> StepTime:
    # Compiled once for all tests; test_many_steps.py says that it is the closed form of each job.
    return many_steps(columns_of_jobs(jobs), MODEL, parameters or no_overheads())


def makespan_us(schedule, micro_batches, forward, backward, message_us) -> float:
    """The end of the last pass, one pass at a time, each stage with its own times."""
    orders = schedule_passes(schedule, len(forward), micro_batches)
    waits = dependencies(schedule, orders)
    end: dict[tuple[int, int], float] = {}
    positions = [(r, i) for r, order in enumerate(orders) for i in range(len(order))]
    while len(end) < len(positions):
        for rank, i in positions:
            before = waits[rank][i] + (((rank, i - 1),) if i else ())
            if (rank, i) in end or any(place not in end for place in before):
                continue
            starts = [end[p] + (message_us if p[0] != rank else 0.0) for p in before]
            kind = orders[rank][i].kind
            took = forward[rank] if kind is PassKind.FORWARD else backward[rank]
            end[rank, i] = max(starts, default=0.0) + took
    return max(end.values())


BUBBLES = [
    ("1F1B", 4, 1, 3 / 8),
    ("1F1B", 8, 1, 7 / 8),
    ("gpipe", 4, 1, 3 / 8),
    ("interleaved", 4, 2, 3 / 16),
    ("interleaved", 2, 4, 1 / 32),
]


def test_the_bubble_of_equal_stages_is_the_published_share():
    jobs = [
        changed(JOB, schedule=schedule, pipeline_parallel=stages, virtual_stages=chunks)
        for schedule, stages, chunks, _ in BUBBLES
    ]
    steps = steps_of(jobs)
    passes_us = steps.computation_us + steps.communication_us
    expected = [share for *_, share in BUBBLES]
    np.testing.assert_allclose(steps.bubble_us / passes_us, expected, rtol=5e-3)


def test_zero_bubble_and_dualpipe_wait_as_published():
    jobs = [
        changed(JOB, schedule=schedule, pipeline_parallel=4, micro_batches=16)
        for schedule in ("zero-bubble", "dualpipe")
    ]
    forward, backward = (4 * each for each in LAYER_US)
    weights = 4 * sum_us([p for p in layer_backward(JOB, experts=False) if p.of_weights])
    expected = [
        3 * (forward + backward - 2 * weights),
        (4 / 2 - 1) * (forward + 2 * backward - 3 * weights),
    ]
    np.testing.assert_allclose(steps_of(jobs).bubble_us, expected, rtol=2e-2)


def test_one_rank_computes_its_layers_one_after_another():
    job = changed(JOB, vocabulary_size=1000)
    full = changed(job, recompute="full")
    blocks = [embedding_forward, embedding_backward, head_forward, head_backward]
    ends = sum(sum_us(block(job)) for block in blocks)
    layers = [sum(passes_us(each, 16)) for each in (job, full)]
    steps = steps_of([job, full])
    expected = [8 * (layer + ends) for layer in layers]
    np.testing.assert_allclose(steps.computation_us, expected, rtol=1e-9)
    assert not steps.bubble_us.any()


def without_optimizer_us(jobs: list[Job]) -> np.ndarray:
    steps = steps_of(jobs)
    return np.asarray(steps.step_us - steps.optimizer_us)


def test_unequal_stages_take_as_long_as_their_passes_in_order():
    random = np.random.default_rng(0)
    jobs, expected = [], []
    for _ in range(60):
        layers = random.integers(1, 10, random.integers(2, 7)).tolist()
        job = changed(
            JOB,
            layers=sum(layers),
            stage_layers=tuple(layers),
            pipeline_parallel=len(layers),
            micro_batches=int(random.integers(1, 31)),
        )
        forward, backward = ([n * pass_us for n in layers] for pass_us in LAYER_US)
        jobs.append(job)
        expected.append(makespan_us("1F1B", job.micro_batches, forward, backward, MESSAGE_US))
    errors = np.abs(without_optimizer_us(jobs) / expected - 1)
    assert errors.max() < 0.05
    assert np.median(errors) < 2e-3


def test_equal_stages_wait_for_messages_as_often_as_the_order_says():
    cases = [(p, m) for p in (2, 3, 4, 8) for m in (1, 2, 3, 4, 5, 8, 9, 17, 32)]
    jobs = [changed(JOB, layers=2 * p, pipeline_parallel=p, micro_batches=m) for p, m in cases]
    expected = [
        (m + p - 1) * 2 * sum(LAYER_US) + 2 * (p - 1 + m - 1 - -(-(m - 1) // p)) * MESSAGE_US
        for p, m in cases
    ]
    np.testing.assert_allclose(without_optimizer_us(jobs), expected, rtol=5e-3)


EXACT = [
    {},
    {"tensor_parallel": 8, "sequence_parallel": True, "overlap_tensor": True},
    {"context_parallel": 4},
    {"data_parallel": 16, "sharding": "zero1", "overlap_parameters": False},
    {"experts": Experts(count=8, per_token=2, ffn_hidden_size=512, dense_layers=2)},
    {"pipeline_parallel": 4, "tied_embeddings": True},
]
NEAR = [
    {"pipeline_parallel": 4, "stage_layers": (5, 5, 4, 2), "recompute": "full"},
    {"data_parallel": 16, "overlap_gradients": True},
    {"data_parallel": 16, "overlap_gradients": True, "sharding": "zero1"},
    {"data_parallel": 16, "overlap_gradients": True, "sharding": "zero2"},
    {"data_parallel": 16, "overlap_gradients": True, "sharding": "zero3"},
    {"pipeline_parallel": 4, "schedule": "zero-bubble"},
    {"pipeline_parallel": 4, "schedule": "interleaved", "virtual_stages": 2},
]


@pytest.mark.parametrize(
    ("fields", "within"),
    [
        ([EXACT[0], EXACT[-1]], 2e-3),
        pytest.param(EXACT[1:-1], 2e-3, marks=pytest.mark.slow),
        pytest.param(NEAR, 2e-2, marks=pytest.mark.slow),
    ],
)
def test_the_closed_form_is_the_replayed_graph(fields, within):
    jobs = [changed(JOB, vocabulary_size=32000, **each) for each in fields]
    expected = [replayed_us(job) for job in jobs]
    np.testing.assert_allclose(steps_of(jobs).step_us, expected, rtol=within)


# Where messages take longer than a pass can hide, but not longer than several.
SHORT = changed(
    JOB,
    layers=32,
    hidden_size=4096,
    attention_heads=32,
    micro_batch_size=1,
    overlap_gradients=True,
    schedule="interleaved",
)
# Stages, chunks, micro-batches, buckets, tokens, replicas; drawn once at random.
BESIDE_CHUNKS = [
    (2, 4, 8, 8, 256, 8),
    (2, 2, 4, 2, 128, 32),
    (4, 2, 8, 8, 128, 8),
]


def short(stages: int, chunks: int, batches: int, buckets: int, tokens: int, data: int) -> Job:
    return changed(
        SHORT,
        pipeline_parallel=stages,
        virtual_stages=chunks,
        micro_batches=batches,
        gradient_buckets=buckets,
        sequence_length=tokens,
        data_parallel=data,
    )


def test_the_last_micro_batches_of_a_chunk_hide_the_gradients_of_those_behind_it():
    jobs = [short(*sizes) for sizes in BESIDE_CHUNKS]
    expected = [replayed_us(job) for job in jobs]
    np.testing.assert_allclose(steps_of(jobs).step_us, expected, rtol=3e-3)


@pytest.mark.slow
def test_first_micro_batches_of_a_chunk_hide_the_weights_of_the_next():
    """But for the time in which the graph sets gradients to zero, beside which it gathers."""
    jobs = [changed(short(*sizes), sharding="zero1") for sizes in BESIDE_CHUNKS]
    expected = np.array([replayed_us(job) for job in jobs])
    found = np.asarray(steps_of(jobs).step_us)
    zeroed_us = [
        sum_us([zero_gradients(job, held * (1 / job.pipeline_parallel))])
        for job in jobs
        for held in [layer_parameters(job, experts=False) * job.layers]
    ]
    assert np.all(found > 0.997 * expected)
    assert np.all(found < 1.01 * expected + zeroed_us)


def replayed_us(job: Job) -> float:
    built = build_job_graph(job)
    with double_precision():
        durations_us = piece_times_us(MODEL, built.work)[built.piece_of_task]
    starts_us = start_times(built.graph, durations_us.tolist())
    return max(start + own for start, own in zip(starts_us, durations_us, strict=True))


def test_gradients_that_do_not_overlap_are_added_to_the_step():
    one = changed(JOB, gradient_buckets=1)
    job = changed(one, data_parallel=16)
    steps = steps_of([one, job])
    held = 16 * 12 * 8192**2 + (2 * 16 + 1) * 8192 + 2 * 8 * 8192
    message_us = sum_us(gradient_messages(job, ParameterCounts(float(held))))
    assert float(steps.data_us[1]) == pytest.approx(message_us, rel=1e-9)
    assert float(steps.step_us[1] - steps.step_us[0]) == pytest.approx(message_us, rel=1e-6)


def test_more_overlap_is_never_slower():
    short = changed(JOB, micro_batch_size=1, sequence_length=512)
    job = changed(short, data_parallel=16, overlap_gradients=True, gradient_buckets=8)
    table = step_table([job, changed(job, overlap_gradients=False)])
    steps = jax.jit(
        lambda share: (
            table_steps(table, MODEL, replace(no_overheads(), overlap_share=share)).step_us
        )
    )
    none, half, all_ = (steps(share) for share in (0.0, 0.5, 1.0))
    assert none[0] > half[0] > all_[0]
    assert float(none[0]) == pytest.approx(float(all_[1]), rel=1e-6)


def test_a_pass_takes_at_least_its_launches():
    job = changed(JOB, micro_batch_size=1, sequence_length=128)
    slow = replace(no_overheads(), launch_us=1000.0)
    layer = [*layer_forward(job, experts=False), *layer_backward(job, experts=False)]
    blocks = (embedding_forward, embedding_backward, head_forward, head_backward)
    launches = 16 * len(layer) + sum(len(block(job)) for block in blocks)
    step = steps_of([job], slow)
    found = float(step.step_us[0] - step.optimizer_us[0])
    assert found == pytest.approx(8 * 1000.0 * launches, rel=1e-9)


def test_the_parts_add_up_to_the_step():
    job = changed(
        JOB,
        pipeline_parallel=4,
        data_parallel=8,
        tensor_parallel=4,
        sharding="zero1",
        overlap_gradients=True,
        experts=Experts(count=8, per_token=2, ffn_hidden_size=512),
        expert_parallel=4,
    )
    schedules = ("1F1B", "gpipe", "zero-bubble", "dualpipe")
    steps = steps_of([changed(job, schedule=each) for each in schedules], PARAMETERS)
    parts = [getattr(steps, each.name) for each in fields(steps) if each.name != "step_us"]
    np.testing.assert_allclose(sum(parts), steps.step_us, rtol=1e-9)
    assert all((part >= 0.0).all() for part in parts)


def test_a_table_has_the_step_of_each_job_and_a_batch_that_of_each_variant():
    job = changed(JOB, pipeline_parallel=4, tensor_parallel=2)
    changes = {"micro_batches": np.array([4, 7, 64]), "sequence_length": np.array([512, 4096, 999])}
    jobs = [
        changed(job, micro_batches=int(m), sequence_length=int(s))
        for m, s in zip(*changes.values(), strict=True)
    ]
    others = [changed(JOB, sharding="zero3", data_parallel=32, overlap_gradients=True), JOB]
    table = steps_of([others[0], *jobs, others[1]], PARAMETERS).step_us
    each = [float(closed_form_step_us(one, MODEL, PARAMETERS)) for one in jobs]
    np.testing.assert_allclose(table[1:4], each, rtol=1e-9)
    np.testing.assert_allclose(batched_step_us(job, changes, MODEL, PARAMETERS), each, rtol=1e-9)


def test_ten_thousand_variants_are_one_call():
    changes = {
        "micro_batches": np.linspace(4, 100, 10_000),
        "data_parallel": np.linspace(2, 512, 10_000),
    }
    job = changed(JOB, pipeline_parallel=4)
    steps = np.asarray(batched_step_us(job, changes, MODEL, PARAMETERS))
    assert steps.shape == (10_000,)
    assert np.isfinite(steps).all() and steps[-1] > steps[0]


REAL = {
    "hidden_size": 2050.3,
    "ffn_hidden_size": 8196.7,
    "sequence_length": 1020.3,
    "vocabulary_size": 32013.7,
    "micro_batch_size": 1.03,
    "micro_batches": 9.4,
    "data_parallel": 20.3,
}
PARALLEL = changed(
    JOB,
    **REAL,
    tensor_parallel=2,
    pipeline_parallel=4,
    sharding="zero1",
    overlap_gradients=True,
)


LEAVES = [
    "model.device.memory_bytes_per_s",
    "model.device.node_bus_bytes_per_s",
    "model.device.network_bus_bytes_per_s",
    "model.device.network_latency_us",
    "model.matmul.compute_overhead",
    "model.attention.compute_overhead",
    "step.kernel_gap_us",
    "step.step_us",
    "step.message_us",
    "step.overlap_slowdown",
    "step.overlap_share",
    "step.straggler_share",
]


@cache
def step_and_slopes():
    """The step of `PARALLEL` and its gradient in the sizes and in factors on the leaves."""
    numbers, tree = jax.tree_util.tree_flatten_with_path({"model": MODEL, "step": PARAMETERS})
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in numbers]

    def step_us(sizes, factors):
        values = [
            value * factors[LEAVES.index(name)] if name in LEAVES else value
            for name, (_, value) in zip(names, numbers, strict=True)
        ]
        both = jax.tree.unflatten(tree, values)
        return closed_form_step_us(changed(PARALLEL, **sizes), both["model"], both["step"])

    return jax.jit(jax.value_and_grad(step_us, (0, 1)))


@pytest.mark.slow
def test_the_gradient_in_each_size_is_that_of_finite_differences():
    ones = np.ones(len(LEAVES))
    _, (slopes, _) = step_and_slopes()(REAL, ones)
    for name, value in REAL.items():
        ends = [
            float(step_and_slopes()({**REAL, name: value * (1 + change)}, ones)[0])
            for change in (1e-6, -1e-6)
        ]
        difference = (ends[0] - ends[1]) / (2e-6 * value)
        assert float(slopes[name]) == pytest.approx(difference, rel=1e-4, abs=1e-4), name
        assert name == "data_parallel" or difference > 0.0, name


def test_the_gradient_in_each_leaf_is_that_of_finite_differences():
    ones = np.ones(len(LEAVES))
    _, (_, slopes) = step_and_slopes()(REAL, ones)
    for index, name in enumerate(LEAVES):
        change = 1e-5 * (np.arange(len(LEAVES)) == index)
        ends = [float(step_and_slopes()(REAL, ones + by)[0]) for by in (change, -change)]
        difference = (ends[0] - ends[1]) / 2e-5
        assert slopes[index] == pytest.approx(difference, rel=1e-4, abs=1e-3), name
        assert slopes[index] != 0.0, name
