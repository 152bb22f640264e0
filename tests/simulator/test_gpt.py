"""The traces of a job tell the work of its kernels: that which the simulator timed."""

from collections import Counter

import numpy as np
import pytest

from jaxperf.cost import known_work, select_work, task_work
from jaxperf.cost._work import COLLECTIVE_OPERATIONS, PRECISIONS
from jaxperf.graph import TaskClass, TaskKind, build_graph
from jaxperf.simulator import Collective, SimulatedJob, simulate, write_traces
from jaxperf.trace import read_run

# Of one rank, which has a part 1 / WAYS of each layer.
LAYERS, HIDDEN, HEADS, WORDS, LENGTH, SEQUENCES = 2, 512, 8, 4096, 256, 2
WAYS, PASSES, STEPS = 2, 2, 2
TOKENS = SEQUENCES * LENGTH
PARAMETERS = LAYERS * (12 * HIDDEN**2 // WAYS + 4 * HIDDEN) + WORDS // WAYS * HIDDEN
FIRST, LAST = 0, 7
JOB = SimulatedJob(
    layers=2 * LAYERS,
    hidden_size=HIDDEN,
    attention_heads=HEADS,
    vocabulary_size=WORDS,
    sequence_length=LENGTH,
    micro_batch_size=SEQUENCES,
    micro_batches=PASSES,
    data_parallel=2,
    tensor_parallel=WAYS,
    pipeline_parallel=2,
    bucket_bytes=2**20,
    steps=STEPS,
)


class Known:
    """A simulated run, and the work that its traces tell."""

    def __init__(self, folder):
        self.run = simulate(JOB)
        traces = read_run(write_traces(self.run, folder))
        self.graph = build_graph(traces)
        self.work = task_work(self.graph, traces)
        self.kernels = np.isin(self.graph.kind, (TaskKind.KERNEL, TaskKind.COLLECTIVE))

    def of(self, rank, task_class):
        """The work of the kernels of a class on a rank."""
        mine = (self.graph.trace == rank) & (self.graph.task_class == task_class)
        return select_work(self.work, np.flatnonzero(mine & self.kernels))


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    return Known(tmp_path_factory.mktemp("known"))


def products(m, n, k):
    """(m, k) @ (k, n), and the gradients of both sides."""
    return [(m, n, k), (m, k, n), (n, k, m)]


@pytest.mark.parametrize("rank", [FIRST, LAST])
def test_every_product_is_known_by_its_sizes(known, rank):
    layer = [
        *products(TOKENS, 3 * HIDDEN // WAYS, HIDDEN),
        *products(TOKENS, HIDDEN, HIDDEN // WAYS),
        *products(TOKENS, 4 * HIDDEN // WAYS, HIDDEN),
        *products(TOKENS, HIDDEN, 4 * HIDDEN // WAYS),
    ]
    logits = products(TOKENS, WORDS // WAYS, HIDDEN) if rank == LAST else []
    expected = Counter((LAYERS * layer + logits) * PASSES * STEPS)
    work = known.of(rank, TaskClass.GEMM)
    assert Counter(zip(work.m, work.n, work.k, strict=True)) == expected
    np.testing.assert_array_equal(work.flops, 2 * work.m * work.n * work.k)
    np.testing.assert_array_equal(work.precision, PRECISIONS.index("bf16"))


@pytest.mark.parametrize("rank", [FIRST, LAST])
def test_attention_is_causal_and_does_two_and_a_half_times_as_much_backward(known, rank):
    # Half of 4 b h s^2 d: a query sees the keys before it.
    forward = 2 * SEQUENCES * (HEADS // WAYS) * LENGTH**2 * (HIDDEN // HEADS)
    times = LAYERS * PASSES * STEPS
    found = Counter(known.of(rank, TaskClass.ATTENTION).flops.tolist())
    assert found == {forward: times, 2.5 * forward: times}


@pytest.mark.parametrize("rank", [FIRST, LAST])
def test_every_collective_is_known_as_it_was_launched(known, rank):
    words = {"allreduce": "all_reduce", "send": "send_receive", "recv": "send_receive"}
    launched = [row.work for row in known.run.ranks[rank].device]
    expected = Counter(
        (words[c.operation], 2 * c.elements, len(c.ranks), c.ranks[1] - c.ranks[0])
        for c in launched
        if isinstance(c, Collective)
    )
    work = known.of(rank, TaskClass.COMMUNICATION)
    names = [COLLECTIVE_OPERATIONS[index] for index in work.operation]
    assert Counter(zip(names, work.message_bytes, work.ranks, work.stride, strict=True)) == expected
    assert {name for name, *_ in expected} == {"all_reduce", "send_receive"}
    assert len({stride for *_, stride in expected}) == 3


def test_buckets_hold_the_gradients_of_the_rank(known):
    work = known.of(FIRST, TaskClass.COMMUNICATION)
    over_replicas = (work.operation == COLLECTIVE_OPERATIONS.index("all_reduce")) & (
        work.stride == WAYS
    )
    assert work.message_bytes[over_replicas].sum() == 2 * PARAMETERS * STEPS


def test_what_streams_through_memory_moves_the_bytes_that_the_simulator_counts(known):
    size = 2 * TOKENS * HIDDEN
    found = known.of(LAST, TaskClass.ELEMENTWISE).memory_bytes
    # Both residuals of a layer, forward and backward: two operands and the result.
    assert (found == 3 * size).sum() >= 4 * LAYERS * PASSES * STEPS
    logits = 2 * TOKENS * WORDS // WAYS
    assert {2 * logits, 3 * logits} <= set(found.tolist())


def test_the_optimizer_s_lists_have_the_type_that_its_kernel_names(known):
    optimizer = known.of(FIRST, TaskClass.OPTIMIZER).memory_bytes
    # Parameters and both moments are read and written, gradients are read.
    np.testing.assert_allclose(optimizer, 7 * 2 * PARAMETERS, rtol=1e-4)


def test_nearly_all_time_of_the_devices_is_known(known):
    graph = known.graph
    told = known_work(known.work)
    time_ns = np.where(graph.kind >= TaskKind.KERNEL, graph.duration_ns, 0)
    assert time_ns[told].sum() > 0.99 * time_ns.sum()
    for task_class in (TaskClass.GEMM, TaskClass.ATTENTION, TaskClass.COMMUNICATION):
        assert told[known.kernels & (graph.task_class == task_class)].all(), task_class.name
