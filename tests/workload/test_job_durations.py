"""An iteration replayed with its overheads, beside the closed form and hand-worked steps."""

from dataclasses import fields, replace
from functools import cache

import jax
import msgspec
import numpy as np
import pytest

from jaxperf.compiled import compile_program
from jaxperf.config import SCHEDULES, Job, columns_of_jobs, load_hardware
from jaxperf.cost import default_model
from jaxperf.graph import TaskClass, TaskKind
from jaxperf.replay import double_precision, start_times_us
from jaxperf.workload import (
    StepParameters,
    add_host,
    bubble_fraction,
    bubble_us,
    build_job_graph,
    default_step_parameters,
    job_pieces,
    job_times,
    no_overheads,
    pipeline_bubble_us,
    prepare_job,
)
from jaxperf.workload._many_steps import many_steps, piece_times_us

changed = msgspec.structs.replace

MODEL = default_model(load_hardware("h100"))
JOB = Job(
    layers=16,
    hidden_size=2048,
    attention_heads=16,
    vocabulary_size=32000,
    sequence_length=2048,
    micro_batches=8,
)
SMALL = changed(JOB, layers=4, hidden_size=256, vocabulary_size=1000, sequence_length=512)
FULL = {"data_parallel": 8, "sharding": "zero3"}
KINDS = {
    "one GPU": {},
    "data": {"data_parallel": 8},
    "data over a network": {"data_parallel": 64, "sharding": "zero1"},
    "gradients sharded": {"data_parallel": 8, "sharding": "zero2"},
    "fully sharded": FULL,
    "fully sharded, recomputed": {**FULL, "data_parallel": 32, "recompute": "full"},
    "fully sharded, nothing beside": {
        **FULL,
        "overlap_gradients": False,
        "overlap_parameters": False,
    },
    "tensor": {"tensor_parallel": 8},
    "tensor beside": {"tensor_parallel": 8, "sequence_parallel": True, "overlap_tensor": True},
    "context": {"context_parallel": 4, "sequence_length": 8192},
    "1F1B": {"pipeline_parallel": 4},
    "gpipe": {"pipeline_parallel": 4, "schedule": "gpipe"},
    "zero-bubble": {"pipeline_parallel": 4, "schedule": "zero-bubble"},
    "all": {
        "pipeline_parallel": 4,
        "tensor_parallel": 8,
        "sequence_parallel": True,
        "data_parallel": 4,
        "sharding": "zero1",
    },
}


def only(**values) -> StepParameters:
    return replace(no_overheads(), **{name: np.float64(value) for name, value in values.items()})


def step_us(job, parameters) -> float:
    with double_precision():
        return float(job_times(prepare_job(job), MODEL, parameters).step_us)


OVERHEADS = {"without overheads": no_overheads(), "with overheads": default_step_parameters()}


@cache
def closed_form_us(overheads) -> dict[str, float]:
    """Of all kinds at once, which compiles two programs."""
    columns = columns_of_jobs([changed(JOB, **fields) for fields in KINDS.values()])
    steps = many_steps(columns, MODEL, OVERHEADS[overheads])
    return dict(zip(KINDS, steps.step_us.tolist(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_the_replay_agrees_with_the_closed_form(kind):
    prepared = prepare_job(changed(JOB, **KINDS[kind]))
    with double_precision():
        for overheads, parameters in OVERHEADS.items():
            replayed = job_times(prepared, MODEL, parameters).step_us
            assert float(replayed) == pytest.approx(closed_form_us(overheads)[kind], rel=0.02)


def test_the_end_of_a_step_is_added_to_it():
    assert step_us(SMALL, only(step_us=777.0)) == pytest.approx(
        step_us(SMALL, no_overheads()) + 777.0
    )


def test_a_pass_takes_no_less_than_its_launches():
    built = build_job_graph(SMALL)
    kernels = len(job_pieces(SMALL, built.layout).of("forward", "dense"))
    inside = add_host(built).block_of_task[: built.graph.tasks] >= 0
    launches = int(np.sum(inside))
    assert launches > SMALL.micro_batches * SMALL.layers * kernels
    slow_us = 1e4
    expected = launches * slow_us + SMALL.micro_batches * 3e5
    found = step_us(SMALL, only(launch_us=slow_us, micro_batch_us=3e5))
    # Beside them stand the first task, the norm and the update of the optimizer.
    assert expected < found < expected + 1e3


def test_a_stream_is_idle_after_each_task_of_a_pass():
    built = build_job_graph(SMALL)
    inside = add_host(built).block_of_task[: built.graph.tasks] >= 0
    found = step_us(SMALL, only(kernel_gap_us=7.0)) - step_us(SMALL, no_overheads())
    assert found == pytest.approx(7.0 * np.sum(inside))


def test_a_message_between_stages_delays_a_single_micro_batch_both_ways():
    job = changed(SMALL, pipeline_parallel=4, micro_batches=1)
    found = step_us(job, only(message_us=400.0)) - step_us(job, no_overheads())
    assert found == pytest.approx(2 * 3 * 400.0)


def test_everything_takes_longer_with_each_doubling_of_the_nodes():
    job = changed(SMALL, data_parallel=64)
    share = step_us(job, only(straggler_share=0.1)) / step_us(job, no_overheads())
    assert share == pytest.approx(1 + 0.1 * np.log2(64 / 8))
    one_node = changed(SMALL, data_parallel=4)
    assert step_us(one_node, only(straggler_share=0.1)) == step_us(one_node, no_overheads())


def test_without_overlap_messages_come_on_top_of_the_kernels():
    job = changed(JOB, context_parallel=4, sequence_length=8192, micro_batches=1)
    built = build_job_graph(job)
    with double_precision():
        price_us = piece_times_us(MODEL, built.work)
    whole_us = price_us[built.piece_of_task].sum()
    found = step_us(job, only(overlap_share=0.0))
    assert found == pytest.approx(whole_us, rel=0.01)
    assert step_us(job, no_overheads()) < 0.99 * whole_us


FORWARD, OF_INPUT, OF_WEIGHTS = 6.0, 7.0, 5.0


@pytest.mark.parametrize(
    "schedule, virtual_stages",
    [(name, 2 if name == "interleaved" else 1) for name in SCHEDULES[1:]],
)
def test_the_bubble_of_equal_stages_is_the_published_one(schedule, virtual_stages):
    job = changed(SMALL, layers=8, pipeline_parallel=4, schedule=schedule)
    job = changed(job, virtual_stages=virtual_stages)
    hosted = add_host(build_job_graph(job))
    table = job_pieces(job, hosted.built.layout)
    rows_us = np.zeros(int(hosted.row_of_task.max()) + 1)
    times = {"forward_us": 2 * FORWARD, "backward_us": 2 * (OF_INPUT + OF_WEIGHTS)}
    times["weight_us"] = 2 * OF_WEIGHTS
    prices = FORWARD, OF_INPUT, OF_WEIGHTS
    if schedule == "dualpipe":  # Its published form needs equal parts.
        prices = 6.0, 6.0, 6.0
        times = {"forward_us": 12.0, "backward_us": 24.0, "weight_us": 12.0}
    backward = table.of("backward", "dense")
    rows_us[table.of("forward", "dense")[0][0]] = prices[0]
    for of_weights, price in zip((False, True), prices[1:], strict=True):
        rows_us[next(i for i, piece in backward if piece.of_weights == of_weights)] = price
    duration_us = rows_us[hosted.row_of_task]
    with double_precision():
        start_us = np.asarray(start_times_us(compile_program(hosted.graph), duration_us))
    waits_us, passes_us = pipeline_bubble_us(hosted, start_us, start_us + duration_us)
    expected_us = bubble_us(schedule, 4, 8, virtual_stages, **times)
    np.testing.assert_allclose(passes_us, 8 * (times["forward_us"] + times["backward_us"]))
    if schedule == "dualpipe":  # Ranks off the middle wait for no longer.
        assert waits_us.max() == pytest.approx(expected_us)
        return
    np.testing.assert_allclose(waits_us, expected_us)
    expected = bubble_fraction(schedule, 4, 8, virtual_stages, **times)
    np.testing.assert_allclose(waits_us / passes_us, expected)


def test_the_host_has_a_lane_of_its_own_on_each_rank():
    job = changed(SMALL, pipeline_parallel=2)
    hosted = add_host(build_job_graph(job))
    graph, built = hosted.graph, hosted.built.graph
    assert np.all(graph.order[graph.source] < graph.order[graph.target])
    on_host = graph.kind == TaskKind.HOST_WORK
    # A forward and a backward pass of each of 8 micro-batches on 2 ranks, and 2 ends.
    assert np.sum(on_host) == 2 * 8 * 2 + 2 == graph.tasks - built.tasks
    assert {graph.lanes[lane].name for lane in graph.lane[on_host]} == {"host"}
    assert [graph.task_class[step.end_task] for step in graph.steps] == [TaskClass.HOST] * 2


@pytest.mark.slow
def test_the_step_has_the_gradient_of_finite_differences():
    job = changed(
        SMALL, hidden_size=2050, data_parallel=16, tensor_parallel=2, pipeline_parallel=2,
        sequence_length=4110, sharding="zero1", micro_batches=4, overlap_tensor=True,
    )  # fmt: skip
    prepared = prepare_job(job)
    parameters = default_step_parameters()
    names = [field.name for field in fields(StepParameters)]
    sizes = np.array([2050.0, 4110.0, 16.0])

    def of(factors):
        of_parameters, of_machine, of_sizes = factors[: len(names)], factors[-6:-3], factors[-3:]
        changes = {
            name: getattr(parameters, name) * factor
            for name, factor in zip(names, of_parameters, strict=True)
        }
        device = replace(
            MODEL.device,
            memory_bytes_per_s=MODEL.device.memory_bytes_per_s * of_machine[0],
            node_bus_bytes_per_s=MODEL.device.node_bus_bytes_per_s * of_machine[1],
            network_bus_bytes_per_s=MODEL.device.network_bus_bytes_per_s * of_machine[2],
        )
        hidden, sequence, replicas = sizes * of_sizes
        resized = changed(job, hidden_size=hidden, sequence_length=sequence, data_parallel=replicas)
        model = replace(MODEL, device=device)
        return job_times(prepared, model, replace(parameters, **changes), resized).step_us

    at = np.ones(len(names) + 6)
    with double_precision():
        # One program, as compiling is most of what this test takes.
        of = jax.jit(jax.value_and_grad(of))
        gradient = np.asarray(of(at)[1])
        for index in range(len(at)):
            move = 1e-5 * np.eye(len(at))[index]
            slope = float(of(at + move)[0] - of(at - move)[0]) / 2e-5
            assert gradient[index] == pytest.approx(slope, rel=1e-3, abs=1e-3)
    assert np.all(gradient[-6:-3] < 0)
    # Of more replicas each updates less.
    assert np.all(gradient[-3:-1] > 0) and gradient[-1] < 0
