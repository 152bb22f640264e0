from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from jaxperf.config import Experts, Job, load_hardware
from jaxperf.cost import CostModel, cost_us, default_model
from jaxperf.replay import replay_graph
from jaxperf.workload._build import build_job_graph
from jaxperf.workload._closed_form import (
    StepTime,
    batched_step_us,
    closed_form_step,
    closed_form_step_us,
    step_table,
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
)
from jaxperf.workload._messages import gradient_messages, pipeline_message
from jaxperf.workload._pack import pack_work
from jaxperf.workload._parameters import ParameterCounts
from jaxperf.workload._pieces import Piece
from jaxperf.workload._schedules import PassKind, dependencies, schedule_passes
from jaxperf.workload._step_parameters import default_step_parameters, no_overheads

MODEL = default_model(load_hardware("h100"))
PARAMETERS = default_step_parameters()
# The output layer is next to nothing, so that all stages are alike.
JOB = Job(
    layers=16,
    hidden_size=2048,
    attention_heads=16,
    vocabulary_size=8,
    sequence_length=4096,
    micro_batch_size=4,
    micro_batches=8,
    overlap_gradients=False,
)


def changed(job: Job, **fields) -> Job:
    return msgspec.structs.replace(job, **fields)


def sum_us(pieces) -> float:
    return float(cost_us(MODEL, pack_work(pieces)).sum())


def passes_us(job: Job, layers: float) -> tuple[float, float]:
    """Forward and backward pass of some layers, piece by piece."""
    forward = sum_us(layer_forward(job, experts=False))
    backward = layer_recompute(job, experts=False) + layer_backward(job, experts=False)
    return layers * forward, layers * sum_us(backward)


LAYER_US = passes_us(JOB, 1)
MESSAGE_US = sum_us([pipeline_message(JOB)])


def steps_of(jobs: list[Job]) -> StepTime:
    table = step_table(jobs)
    return jax.jit(lambda parameters: table_steps(table, MODEL, parameters))(no_overheads())


def alone(job: Job) -> StepTime:
    return closed_form_step(job, MODEL, no_overheads())


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


def test_one_rank_computes_its_layers_one_after_another():
    job = changed(JOB, vocabulary_size=1000)
    blocks = [embedding_forward, embedding_backward, head_forward, head_backward]
    ends = sum(sum_us(block(job)) for block in blocks)
    expected = 8 * (sum(passes_us(job, 16)) + ends)
    assert float(alone(job).computation_us) == pytest.approx(expected, rel=1e-9)
    assert float(alone(job).bubble_us) == 0.0


def test_what_is_recomputed_is_one_more_forward_pass():
    without, full = (alone(changed(JOB, recompute=r)) for r in ("none", "full"))
    forward, _ = passes_us(JOB, 16)
    more = float(full.step_us - without.step_us)
    assert more == pytest.approx(8 * forward, rel=1e-6)


@pytest.mark.parametrize(
    ("schedule", "stages", "chunks", "share"),
    [
        ("1F1B", 4, 1, 3 / 8),
        ("1F1B", 8, 1, 7 / 8),
        ("gpipe", 4, 1, 3 / 8),
        ("interleaved", 4, 2, 3 / 16),
        ("interleaved", 2, 4, 1 / 32),
    ],
)
def test_the_bubble_of_equal_stages_is_the_published_share(schedule, stages, chunks, share):
    job = changed(JOB, schedule=schedule, pipeline_parallel=stages, virtual_stages=chunks)
    step = alone(job)
    passes = float(step.computation_us + step.communication_us)
    assert float(step.bubble_us) / passes == pytest.approx(share, rel=2e-3)


def test_zero_bubble_fills_the_bubble_with_the_gradients_of_weights():
    job = changed(JOB, schedule="zero-bubble", pipeline_parallel=4)
    forward, backward = passes_us(job, 4)
    weights = [p for p in layer_backward(job, experts=False) if p.of_weights]
    expected = 3 * (forward + backward - 2 * 4 * sum_us(weights))
    assert float(alone(job).bubble_us) == pytest.approx(expected, rel=2e-2)


def test_dualpipe_waits_as_published():
    job = changed(JOB, schedule="dualpipe", pipeline_parallel=4, micro_batches=16)
    forward, backward = passes_us(job, 4)
    weights = 4 * sum_us([p for p in layer_backward(job, experts=False) if p.of_weights])
    expected = (4 / 2 - 1) * (forward + 2 * backward - 3 * weights)
    assert float(alone(job).bubble_us) == pytest.approx(expected, rel=2e-2)


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
        stages = (np.array(layers)[:, None] * LAYER_US).T
        jobs.append(job)
        expected.append(makespan_us("1F1B", job.micro_batches, *stages, MESSAGE_US))
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
    {"pipeline_parallel": 4, "stage_layers": (5, 5, 4, 2), "recompute": "full"},
]
NEAR = [
    {"data_parallel": 16, "overlap_gradients": True},
    {"data_parallel": 16, "overlap_gradients": True, "sharding": "zero1"},
    {"data_parallel": 16, "overlap_gradients": True, "sharding": "zero2"},
    {"data_parallel": 16, "overlap_gradients": True, "sharding": "zero3"},
    {"pipeline_parallel": 4, "schedule": "zero-bubble"},
    {"pipeline_parallel": 4, "schedule": "interleaved", "virtual_stages": 2},
]


@pytest.mark.parametrize(("fields", "within"), [(EXACT, 2e-3), (NEAR, 2e-2)])
def test_the_closed_form_is_the_replayed_graph(fields, within):
    jobs = [changed(JOB, vocabulary_size=32000, **each) for each in fields]
    expected = [replayed_us(job) for job in jobs]
    np.testing.assert_allclose(steps_of(jobs).step_us, expected, rtol=within)


def replayed_us(job: Job) -> float:
    built = build_job_graph(job)
    durations_us = np.asarray(cost_us(MODEL, built.work))[built.piece_of_task]
    return float(replay_graph(built.graph, durations_us).end_us.max())


def test_gradients_that_do_not_overlap_are_added_to_the_step():
    job = changed(JOB, data_parallel=16, gradient_buckets=1)
    step = alone(job)
    one = alone(changed(job, data_parallel=1))
    held = 16 * 12 * 2048**2 + (2 * 16 + 1) * 2048 + 2 * 8 * 2048
    message_us = sum_us(gradient_messages(job, ParameterCounts(float(held))))
    assert float(step.data_us) == pytest.approx(message_us, rel=1e-9)
    assert float(step.step_us - one.step_us) == pytest.approx(message_us, rel=1e-6)


def test_more_overlap_is_never_slower():
    job = changed(JOB, data_parallel=16, overlap_gradients=True, gradient_buckets=8)
    shares = [0.0, 0.5, 1.0]
    steps = [
        closed_form_step_us(job, MODEL, replace(no_overheads(), overlap_share=share))
        for share in shares
    ]
    assert steps[0] > steps[1] > steps[2]
    assert float(steps[0]) == pytest.approx(
        float(alone(changed(job, overlap_gradients=False)).step_us), rel=1e-6
    )


def test_a_pass_takes_at_least_its_launches():
    job = changed(JOB, micro_batch_size=1, sequence_length=128)
    slow = replace(no_overheads(), launch_us=1000.0)
    pieces: list[Piece] = [
        *layer_forward(job, experts=False),
        *layer_backward(job, experts=False),
    ] * 16
    for block in (embedding_forward, embedding_backward, head_forward, head_backward):
        pieces += block(job)
    step = closed_form_step(job, MODEL, slow)
    launches_us = 8 * 1000.0 * len(pieces)
    assert float(step.step_us - step.optimizer_us) == pytest.approx(launches_us, rel=1e-9)


@pytest.mark.parametrize("schedule", ["1F1B", "gpipe", "zero-bubble", "dualpipe"])
def test_the_parts_add_up_to_the_step(schedule):
    job = changed(
        JOB,
        schedule=schedule,
        pipeline_parallel=4,
        data_parallel=8,
        tensor_parallel=4,
        sharding="zero1",
        overlap_gradients=True,
        experts=Experts(count=8, per_token=2, ffn_hidden_size=512),
        expert_parallel=4,
    )
    step = closed_form_step(job, MODEL, PARAMETERS)
    parts = [getattr(step, each.name) for each in fields(step) if each.name != "step_us"]
    assert float(sum(parts)) == pytest.approx(float(step.step_us), rel=1e-9)
    assert all(float(part) >= 0.0 for part in parts)


def test_a_table_of_different_jobs_has_the_steps_of_each():
    jobs = [
        JOB,
        changed(JOB, pipeline_parallel=4, data_parallel=2, micro_batches=12),
        changed(JOB, schedule="gpipe", pipeline_parallel=2, tensor_parallel=2),
        changed(JOB, sharding="zero3", data_parallel=32, overlap_gradients=True),
        changed(JOB, experts=Experts(count=8, per_token=2, ffn_hidden_size=512)),
    ]
    steps = table_steps(step_table(jobs), MODEL, PARAMETERS)
    each = [float(closed_form_step_us(job, MODEL, PARAMETERS)) for job in jobs]
    np.testing.assert_allclose(steps.step_us, each, rtol=1e-9)


def test_a_batch_has_the_step_of_each_variant():
    job = changed(JOB, pipeline_parallel=4, tensor_parallel=2)
    changes = {"micro_batches": np.array([4, 7, 64]), "sequence_length": np.array([512, 4096, 999])}
    steps = batched_step_us(job, changes, MODEL, PARAMETERS)
    each = [
        closed_form_step_us(changed(job, micro_batches=m, sequence_length=s), MODEL, PARAMETERS)
        for m, s in zip(*changes.values(), strict=True)
    ]
    np.testing.assert_allclose(steps, each, rtol=1e-12)


def test_ten_thousand_variants_are_one_call():
    changes = {
        "micro_batches": np.linspace(4, 100, 10_000),
        "data_parallel": np.linspace(2, 512, 10_000),
    }
    job = changed(JOB, pipeline_parallel=4)
    steps = np.asarray(batched_step_us(job, changes, MODEL, PARAMETERS))
    assert steps.shape == (10_000,) and np.isfinite(steps).all()
    assert steps[-1] > steps[0]


REAL = {
    "hidden_size": 2050.3,
    "ffn_hidden_size": 8196.7,
    "sequence_length": 4090.3,
    "vocabulary_size": 32013.7,
    "micro_batch_size": 4.03,
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


@pytest.mark.parametrize("name", list(REAL))
def test_the_gradient_in_a_size_is_that_of_finite_differences(name):
    def step_us(value):
        return closed_form_step_us(changed(PARALLEL, **{name: value}), MODEL, PARAMETERS)

    value, change = REAL[name], 1e-6 * REAL[name]
    slope = float(jax.grad(step_us)(jnp.asarray(value)))
    difference = float(step_us(value + change) - step_us(value - change)) / (2 * change)
    assert slope == pytest.approx(difference, rel=1e-4, abs=1e-6)
    assert name == "data_parallel" or slope > 0.0


LEAVES = [
    "device.memory_bytes_per_s",
    "device.node_bus_bytes_per_s",
    "device.network_bus_bytes_per_s",
    "device.network_latency_us",
    "matmul.compute_overhead",
    "attention.compute_overhead",
]


@pytest.mark.parametrize("path", LEAVES)
def test_the_gradient_in_a_leaf_of_the_model_is_that_of_finite_differences(path):
    part, name = path.split(".")

    def model_at(factor) -> CostModel:
        value = getattr(getattr(MODEL, part), name)
        return replace(MODEL, **{part: replace(getattr(MODEL, part), **{name: value * factor})})

    check_factor(lambda factor: closed_form_step_us(PARALLEL, model_at(factor), PARAMETERS))


@pytest.mark.parametrize(
    "name",
    ["kernel_gap_us", "step_us", "message_us", "overlap_slowdown", "straggler_share"],
)
def test_the_gradient_in_a_step_parameter_is_that_of_finite_differences(name):
    def step_us(factor):
        value = getattr(PARAMETERS, name) * factor
        return closed_form_step_us(PARALLEL, MODEL, replace(PARAMETERS, **{name: value}))

    check_factor(step_us)


def check_factor(step_us) -> None:
    slope = float(jax.grad(step_us)(jnp.asarray(1.0)))
    difference = float(step_us(1 + 1e-5) - step_us(1 - 1e-5)) / 2e-5
    assert slope == pytest.approx(difference, rel=1e-5, abs=1e-3)
    assert slope != 0.0
