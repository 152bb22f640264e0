from dataclasses import replace

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from jaxperf.compiled import compile_program
from jaxperf.config import Experts, Job, load_hardware
from jaxperf.cost import WorkKind, cost_us, default_model
from jaxperf.graph import TaskClass, TaskKind
from jaxperf.replay import Timeline, double_precision, makespan_us, start_times_us
from jaxperf.replay._breakdown import device_activity
from jaxperf.workload._build import build_job_graph, timed_graph
from jaxperf.workload._layout import Unit
from jaxperf.workload._pack import pack_traced_work, pack_work
from jaxperf.workload._parameters import layer_parameters
from jaxperf.workload._schedules import PassKind, bubble_us
from jaxperf.workload._table import job_pieces
from jaxperf.workload._templates import Item, make_template
from tests.helpers import start_times

changed = msgspec.structs.replace

JOB = Job(
    layers=8,
    hidden_size=256,
    attention_heads=8,
    vocabulary_size=1000,
    sequence_length=512,
    micro_batches=8,
)
MIXTURE = changed(JOB, gated_ffn=True, experts=Experts(count=8, per_token=2, ffn_hidden_size=64))
SCHEDULES = {
    "none": {},
    "gpipe": {"pipeline_parallel": 4},
    "1F1B": {"pipeline_parallel": 4},
    "interleaved": {"pipeline_parallel": 4, "virtual_stages": 2},
    "zero-bubble": {"pipeline_parallel": 4},
    "dualpipe": {"pipeline_parallel": 4},
}
SHARDINGS = ("none", "zero1", "zero2", "zero3")

FORWARD, OF_INPUT, OF_WEIGHTS = 6.0, 7.0, 5.0


def _priced(job, prices):
    """The graph of a job, its starts and durations, pieces priced by key; others are free.

    A price is for the first piece under a key, or a pair for backward: of inputs and of weights.
    """
    built = build_job_graph(job)
    table = job_pieces(job, built.layout)
    price_us = np.zeros(len(table.pieces))
    for key, price in prices.items():
        pieces = table.of(*key)
        if isinstance(price, tuple):
            of_input, of_weights = (
                next(i for i, p in pieces if p.of_weights == chosen) for chosen in (False, True)
            )
            price_us[[of_input, of_weights]] = price
        elif pieces:
            price_us[pieces[0][0]] = price
    duration_us = price_us[built.piece_of_task]
    return built, *_replayed(built.graph, duration_us)


def _replayed(graph, duration_us):
    with double_precision():
        start_us = np.asarray(start_times_us(compile_program(graph), duration_us))
    return start_us, duration_us


def _makespan(job, prices):
    _, start_us, duration_us = _priced(job, prices)
    return (start_us + duration_us).max()


LAYERS = {
    ("forward", "dense"): FORWARD,
    ("backward", "dense"): (OF_INPUT, OF_WEIGHTS),
}
ENDS = {("begin", rank): 2.0 for rank in range(4)} | {("end", rank): 3.0 for rank in range(4)}
UNITS = LAYERS | {
    ("forward", "embedding"): FORWARD,
    ("backward", "embedding"): OF_INPUT + OF_WEIGHTS,
    ("forward", "head"): FORWARD,
    ("backward", "head"): (OF_INPUT, OF_WEIGHTS),
}


@pytest.mark.parametrize("schedule", ["none", "gpipe", "1F1B", "interleaved", "zero-bubble"])
def test_a_uniform_iteration_is_its_passes_its_published_bubble_and_its_ends(schedule):
    job = changed(JOB, schedule=schedule, **SCHEDULES[schedule])
    layers = 8 // job.pipeline_parallel
    forward, weight = layers * FORWARD, layers * OF_WEIGHTS
    backward = layers * OF_INPUT + weight
    bubble = 0.0
    if schedule != "none":
        times = {"forward_us": forward, "backward_us": backward, "weight_us": weight}
        stages = job.pipeline_parallel
        bubble = bubble_us(schedule, stages, 8, job.virtual_stages, **times)
    expected = 2 + 8 * (forward + backward) + bubble + 3
    assert _makespan(job, LAYERS | ENDS) == pytest.approx(expected)


def test_one_f_one_b_takes_m_plus_p_minus_one_passes():
    job = changed(JOB, pipeline_parallel=4)
    assert _makespan(job, LAYERS) == (8 + 4 - 1) * 2 * (FORWARD + OF_INPUT + OF_WEIGHTS)


def test_dualpipe_keeps_its_published_bubble():
    job = changed(JOB, schedule="dualpipe", pipeline_parallel=4)
    price = {("forward", "dense"): 6.0, ("backward", "dense"): (6.0, 6.0)}
    bubble = bubble_us("dualpipe", 4, 8, forward_us=12, backward_us=24, weight_us=12)
    assert _makespan(job, price) == 8 * 36 + bubble


def test_a_message_between_stages_delays_a_single_micro_batch_both_ways():
    job = changed(JOB, pipeline_parallel=2, micro_batches=1)
    passes = 8 * (FORWARD + OF_INPUT + OF_WEIGHTS)
    assert _makespan(job, LAYERS | {("stage",): 10.0}) == passes + 2 * 10


def test_messages_between_stages_arrive_one_after_another():
    job = changed(JOB, schedule="gpipe", pipeline_parallel=2)
    built, start_us, duration_us = _priced(job, LAYERS | {("stage",): 100.0})
    graph = built.graph
    (lane,) = (i for i, each in enumerate(graph.lanes) if each.name == "receive forward")
    received = np.sort(start_us[graph.lane == lane])
    # Longer than a pass, they follow each other: the first after the first stage's first pass.
    np.testing.assert_array_equal(received, 4 * FORWARD + 100.0 * np.arange(8))


ALL_KINDS = [
    (schedule, sharding, overlap)
    for schedule in SCHEDULES
    for sharding in SHARDINGS
    for overlap in (True, False)
]


@pytest.mark.parametrize(("schedule", "sharding", "overlap"), ALL_KINDS)
def test_every_job_runs_in_order(schedule, sharding, overlap):
    job = changed(
        MIXTURE,
        schedule=schedule,
        sharding=sharding,
        overlap_gradients=overlap,
        overlap_parameters=overlap,
        overlap_tensor=overlap,
        tensor_parallel=2,
        sequence_parallel=True,
        context_parallel=2,
        data_parallel=2,
        expert_parallel=2,
        recompute="selective" if overlap else "full",
        **SCHEDULES[schedule],
    )
    built = build_job_graph(job)
    graph = built.graph
    assert np.all(graph.order[graph.source] < graph.order[graph.target])
    rng = np.random.default_rng(0)
    duration = rng.integers(1, 100, len(built.work))[built.piece_of_task]
    start_us, _ = _replayed(graph, duration.astype(float))
    np.testing.assert_array_equal(start_us, start_times(graph, duration.tolist()))
    for lane in range(len(graph.lanes)):
        mine = np.flatnonzero(graph.lane == lane)
        mine = mine[np.argsort(graph.order[mine])]
        assert np.all(start_us[mine[1:]] >= (start_us + duration)[mine[:-1]])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_ranks_multiply_the_parameters_with_every_token_of_the_batch(schedule):
    job = changed(JOB, schedule=schedule, tensor_parallel=2, data_parallel=4, **SCHEDULES[schedule])
    built = build_job_graph(job)
    rows = built.work.kind == WorkKind.MATMUL
    flops = np.where(rows, built.work.flops, 0)[built.piece_of_task].sum()
    matrices = 8 * 12 * 256**2 + 1000 * 256
    tokens = 512 * 8 * 4
    assert flops * built.ranks_alike[0] == 6 * matrices * tokens


def test_ranks_are_those_that_begin_a_stage_and_stand_for_all_of_it():
    job = changed(JOB, pipeline_parallel=4, tensor_parallel=2, data_parallel=4)
    built = build_job_graph(job)
    assert built.graph.ranks == (0, 8, 16, 24)
    assert built.ranks_alike == (8, 8, 8, 8)
    assert build_job_graph(changed(job, rank_order="tp-pp-dp")).graph.ranks == (0, 2, 4, 6)


def test_gradients_are_summed_beside_the_last_backward_pass_but_for_the_last_bucket():
    job = changed(JOB, data_parallel=4, micro_batches=2)
    compute = 2 * 10 * (FORWARD + OF_INPUT + OF_WEIGHTS)
    sums = {("sum", 0, bucket): 4.0 for bucket in range(4)}
    assert _makespan(job, UNITS | sums) == compute + 4
    late = changed(job, overlap_gradients=False)
    assert _makespan(late, UNITS | sums) == compute + 4 * 4


def test_buckets_hold_all_units_in_the_order_in_which_they_are_whole():
    (buckets,) = build_job_graph(changed(JOB, data_parallel=2)).layout.buckets
    assert len(buckets) == 4
    expected = [Unit("head"), *(Unit("dense", layer) for layer in reversed(range(8)))]
    assert [unit for units in buckets for unit in units] == [*expected, Unit("embedding")]


def test_sums_that_take_long_end_the_iteration():
    job = changed(JOB, data_parallel=4, micro_batches=1, gradient_buckets=1)
    compute = 10 * (FORWARD + OF_INPUT + OF_WEIGHTS)
    assert _makespan(job, UNITS | {("sum", 0, 0): 500.0} | ENDS) == 2 + compute + 500 + 3


def test_weights_of_a_sharded_optimizer_are_gathered_beside_the_first_forward_pass():
    job = changed(JOB, data_parallel=4, sharding="zero1")
    compute = 8 * 10 * (FORWARD + OF_INPUT + OF_WEIGHTS)
    gathers = {("gather", 0, bucket): 5.0 for bucket in range(4)}
    assert _makespan(job, UNITS | gathers) == compute + 5
    late = changed(job, overlap_parameters=False)
    assert _makespan(late, UNITS | gathers) == compute + 4 * 5


def test_prefetched_weights_are_hidden_but_for_the_first():
    job = changed(JOB, data_parallel=4, sharding="zero3", micro_batches=2)
    compute = 2 * 10 * (FORWARD + OF_INPUT + OF_WEIGHTS)
    gathers = {("gather", kind): 5.0 for kind in ("embedding", "dense", "head")}
    assert _makespan(job, UNITS | gathers) == compute + 5
    # A unit that was used last is still there: the output layer as its backward pass begins, and
    # the embedding as the next micro-batch does. Forward 10 and 9 gathers, backward 9 each.
    for late in ({"prefetch": 0}, {"overlap_parameters": False}):
        assert _makespan(changed(job, **late), UNITS | gathers) == compute + 5 * (10 + 9 + 9 + 9)


def test_fully_sharded_gradients_are_scattered_in_every_micro_batch():
    job = changed(JOB, data_parallel=4, sharding="zero3", micro_batches=2)
    built, *_ = _priced(job, {})
    names = [built.graph.names[name] for name in built.graph.name]
    scattered = [name for name in names if "reduce_scatter" in name]
    assert len(scattered) == 2 * 10
    compute = 2 * 10 * (FORWARD + OF_INPUT + OF_WEIGHTS)
    sums = {("sum", kind): 2.0 for kind in ("embedding", "dense", "head")}
    assert _makespan(job, UNITS | sums) == compute + 2
    late = changed(job, overlap_gradients=False)
    assert _makespan(late, UNITS | sums) == compute + 2 * 2 * 10


def test_a_ring_runs_beside_the_attention():
    job = changed(JOB, layers=1, micro_batches=1, context_parallel=2)
    built = build_job_graph(job)
    table = job_pieces(job, built.layout)
    price_us = np.zeros(len(table.pieces))
    for index, piece in table.of("forward", "dense"):
        price_us[index] = {"key-value ring": 7.0, "attention": 4.0}.get(piece.name, 0.0)
    start_us, duration_us = _replayed(built.graph, price_us[built.piece_of_task])
    assert (start_us + duration_us).max() == 7 + 4


def test_tensor_messages_block_unless_they_may_overlap():
    job = changed(JOB, layers=1, micro_batches=1, tensor_parallel=2)

    def makespan(job):
        built = build_job_graph(job)
        price_us = np.zeros(len(built.work))
        for index, piece in job_pieces(job, built.layout).of("forward", "dense"):
            price_us[index] = {"up": 9.0, "down": 9.0, "down all_reduce": 6.0}.get(piece.name, 0)
        start_us, duration_us = _replayed(built.graph, price_us[built.piece_of_task])
        return (start_us + duration_us).max()

    assert makespan(job) == 9 + 9 + 6
    assert makespan(changed(job, overlap_tensor=True)) == 9 + 9


def test_two_passes_at_once_hide_each_others_messages():
    def items(unit):
        kernel = Item(unit, "kernel", 0, "", False)
        return [kernel, Item(unit, "message", 1, "expert", False), kernel]

    units = {Unit("experts", layer): layer for layer in range(2)}
    flows = [(PassKind.FORWARD, items(Unit("experts", 0)))]
    alone = make_template(flows, {}, units)
    flows.append((PassKind.BACKWARD, items(Unit("experts", 1))))
    both = make_template(flows, {}, units)

    def ends(template):
        end = np.zeros(len(template.piece))
        for task, piece in enumerate(template.piece):
            before = template.source[template.target == task]
            end[task] = max(end[before], default=0.0) + (10.0, 5.0)[piece]
        return end.max()

    assert ends(alone) == 10 + 5 + 10
    assert ends(both) == 4 * 10


def test_all_stages_wait_for_the_norm_of_the_gradients():
    job = changed(JOB, pipeline_parallel=4, stage_layers=(5, 1, 1, 1))
    built, start_us, duration_us = _priced(job, LAYERS)
    end_us = start_us + duration_us
    ends = [end_us[step.end_task] for step in built.graph.steps]
    assert len(set(ends)) == 1
    assert [start_us[step.begin_task] for step in built.graph.steps] == [0.0] * 4


def test_tied_embeddings_are_summed_over_the_first_and_the_last_stage():
    job = changed(JOB, pipeline_parallel=4, tied_embeddings=True, micro_batches=4)
    passes = (4 + 4 - 1) * 2 * (FORWARD + OF_INPUT + OF_WEIGHTS)
    assert _makespan(job, LAYERS | {("tied",): 11.0}) == passes + 11


def test_the_first_layers_may_be_dense():
    experts = Experts(count=8, per_token=2, ffn_hidden_size=64, dense_layers=3)
    built = build_job_graph(changed(MIXTURE, experts=experts, pipeline_parallel=2))
    kinds = [[unit.kind for unit in units] for (units,) in built.layout.units]
    assert kinds == [["embedding", *["dense"] * 3, "experts"], [*["experts"] * 4, "head"]]


def test_a_stage_may_hold_no_layers():
    for schedule in ("1F1B", "zero-bubble"):
        sizes = {"pipeline_parallel": 3, "stage_layers": (0, 4, 4)}
        job = changed(JOB, schedule=schedule, **sizes)
        assert _makespan(job, LAYERS) > 8 * 4 * (FORWARD + OF_INPUT + OF_WEIGHTS)


def test_a_timed_graph_replays_to_its_own_times_and_its_breakdown_adds_up():
    job = changed(JOB, pipeline_parallel=2, data_parallel=4, tensor_parallel=2)
    built = build_job_graph(job)
    model = default_model(load_hardware("h100"))
    with double_precision():
        cost = np.asarray(jax.jit(lambda model: cost_us(model, built.work))(model))
    assert np.all(cost > 0)
    start_us, duration_us = _replayed(built.graph, cost[built.piece_of_task])
    graph = timed_graph(built.graph, duration_us, start_us)
    again_us, _ = _replayed(graph, graph.duration_ns / 1e3)
    # Each task is rounded to the nanosecond, and the path has many.
    np.testing.assert_allclose(again_us, graph.start_ns / 1e3, atol=0.001 * graph.tasks)
    for step in graph.steps:
        timeline = Timeline(start_us, start_us + duration_us)
        activity = device_activity(graph, timeline, step.rank)
        assert activity is not None
        parts = activity.between(step.begin_ns / 1e3, step.end_ns / 1e3)
        mine = (graph.trace == graph.ranks.index(step.rank)) & (graph.kind == TaskKind.KERNEL)
        computed = duration_us[mine & (graph.task_class != TaskClass.COMMUNICATION)].sum()
        begun = duration_us[step.begin_task]
        assert parts.compute_us + parts.overlap_us == pytest.approx(computed + begun, abs=0.01)


def test_the_pieces_of_a_changed_job_keep_their_places():
    job = changed(MIXTURE, pipeline_parallel=2, data_parallel=4, sharding="zero1")
    built = build_job_graph(job)
    wider = changed(job, hidden_size=512, sequence_length=1024)
    before, after = job_pieces(job, built.layout), job_pieces(wider, built.layout)
    assert before.places == after.places
    names = [[piece.name for piece in table.pieces] for table in (before, after)]
    assert names[0] == names[1]
    again = build_job_graph(wider)
    np.testing.assert_array_equal(again.piece_of_task, built.piece_of_task)
    np.testing.assert_array_equal(again.work.flops, pack_work(after.pieces).flops)


def test_an_optimizer_updates_what_the_stage_holds():
    job = changed(JOB, pipeline_parallel=4)
    built = build_job_graph(job)
    table = job_pieces(job, built.layout)
    (_, update) = table.of("end", 1)[-1]
    parameters = 2 * layer_parameters(job, experts=False).total
    assert update.memory_bytes == parameters * (4 + 3 * 8 + 2)


@pytest.mark.slow
def test_the_iteration_has_the_gradient_of_finite_differences_in_sizes_and_bandwidths():
    job = changed(
        JOB, hidden_size=2050, pipeline_parallel=2, data_parallel=4, tensor_parallel=2, layers=4
    )
    built = build_job_graph(job)
    program = compile_program(built.graph)
    model = default_model(load_hardware("h100"))
    at = np.array([2050.0, 4110.0, 1.0, 1.0])

    def step_us(hidden_size, sequence_length, memory, network):
        device = replace(
            model.device,
            memory_bytes_per_s=model.device.memory_bytes_per_s * memory,
            node_bus_bytes_per_s=model.device.node_bus_bytes_per_s * network,
        )
        sizes = {"hidden_size": hidden_size, "sequence_length": sequence_length}
        pieces = job_pieces(changed(job, **sizes), built.layout).pieces
        cost = cost_us(replace(model, device=device), pack_traced_work(pieces))
        return makespan_us(program, cost[jnp.asarray(built.piece_of_task)])

    with double_precision():
        step_us = jax.jit(jax.value_and_grad(step_us, (0, 1, 2, 3)))
        _, gradient = step_us(*at)
        for index, step in enumerate(at * 1e-6):
            ends = [float(step_us(*(at + s * np.eye(4)[index]))[0]) for s in (step, -step)]
            slope = (ends[0] - ends[1]) / (2 * step)
            assert float(gradient[index]) == pytest.approx(slope, rel=1e-4)
            assert slope != 0
