"""Whole jobs: what runs, in which order, and how step times answer changes."""

from collections import Counter
from dataclasses import replace

import pytest

from jaxperf.errors import ConfigError
from jaxperf.graph import classify_kernel
from jaxperf.simulator import (
    Collective,
    Kernel,
    Noise,
    SimulatedHardware,
    SimulatedJob,
    simulate,
)
from jaxperf.simulator._cost import transfer_us
from jaxperf.simulator._job import one_forward_one_backward

SMALL = SimulatedJob(layers=2, hidden_size=512, attention_heads=8, vocabulary_size=4096, steps=3)
PARALLEL = replace(SMALL, data_parallel=2, tensor_parallel=2, pipeline_parallel=2, micro_batches=3)


def communication(record):
    return Counter(
        (row.work.description, row.work.operation)
        for row in record.device
        if isinstance(row.work, Collective)
    )


def test_a_step_is_long_enough_for_all_of_its_matrix_products():
    hardware = SMALL.hardware
    run = simulate(SMALL)
    tokens = SMALL.micro_batch_size * SMALL.sequence_length
    weights = SMALL.layers * 12 * SMALL.hidden_size**2 + SMALL.vocabulary_size * SMALL.hidden_size
    assert run.step_us > 6 * tokens * weights / hardware.peak_flops_per_s * 1e6


@pytest.mark.parametrize(
    "stage, expected", [(0, "FFFBFBFBBB"), (1, "FFBFBFBFBB"), (2, "FBFBFBFBFB")]
)
def test_stages_warm_up_alternate_and_cool_down(stage, expected):
    order = one_forward_one_backward(stage, 3, 5)
    assert "".join(direction[0].upper() for direction, _ in order) == expected
    for direction in ("forward", "backward"):
        assert [i for d, i in order if d == direction] == [0, 1, 2, 3, 4]


def test_few_micro_batches_never_alternate():
    order = one_forward_one_backward(0, 4, 2)
    assert [d for d, _ in order] == ["forward", "forward", "backward", "backward"]


def test_communication_is_that_of_the_parallelism():
    run = simulate(PARALLEL)
    first, last = run.ranks[0], run.ranks[7]
    # A layer of a stage sums twice forward and twice backward; the embedding once, the head once.
    sums = PARALLEL.steps * PARALLEL.micro_batches * (4 + 1)
    moves = PARALLEL.steps * PARALLEL.micro_batches
    for record in (first, last):
        found = communication(record)
        assert found["tensor", "allreduce"] == sums
        assert found["pipeline", "send"] == found["pipeline", "recv"] == moves
        assert found["data", "allreduce"] == PARALLEL.steps


def test_small_buckets_overlap_with_the_backward_pass():
    job = replace(SMALL, data_parallel=2, bucket_bytes=2**20)
    record = simulate(job).ranks[0]
    sums = [row for row in record.device if row.work.kind == "communication"]
    assert len(sums) > 3 * job.steps
    others = [row for row in record.device if row.stream == 7]
    overlapped = [
        s for s in sums if any(o.start_ns < s.end_ns and s.start_ns < o.end_ns for o in others)
    ]
    assert len(overlapped) > len(sums) / 2


@pytest.mark.parametrize(
    "job, part",
    [(SMALL, part) for part in ("gemm", "elementwise", "optimizer", "host")]
    + [(PARALLEL, part) for part in ("gemm", "communication", "host")],
    ids=lambda value: value if isinstance(value, str) else f"{value.world_size} ranks",
)
def test_a_faster_part_makes_a_faster_step(job, part):
    assert simulate(job, scale={part: 0.5}).step_us < simulate(job).step_us


def test_twice_as_fast_at_everything_takes_half_the_time():
    everything = {"compute": 0.5, "memcpy": 0.5, "memset": 0.5, "communication": 0.5, "host": 0.5}
    timing = replace(
        SMALL.hardware.timing,
        launch_latency_us=0.0,
        kernel_gap_us=0.0,
        wait_lag_us=0.0,
        sync_return_us=0.0,
        hand_over_us=0.0,
    )
    job = replace(PARALLEL, hardware=replace(SMALL.hardware, timing=timing))
    ratio = simulate(job, scale=everything).step_us / simulate(job).step_us
    assert ratio == pytest.approx(0.5, abs=1e-4)


def test_a_slow_rank_slows_every_rank():
    job = replace(SMALL, data_parallel=2)
    slow = simulate(job, scale={"rank:1/compute": 1.5})
    steps = [record.steps_us[1] for record in slow.ranks.values()]
    assert steps[0] == pytest.approx(steps[1], rel=0.02)
    assert slow.step_us > 1.2 * simulate(job).step_us


@pytest.mark.parametrize("word, times", [("step", 3), ("micro_batch", 6), ("never", 0)])
def test_the_host_reads_the_loss_as_often_as_asked(word, times):
    record = simulate(replace(SMALL, micro_batches=2, synchronize=word)).ranks[0]
    assert sum(row.name == "aten::item" for row in record.host) == times
    assert sum(row.name == "cudaStreamSynchronize" for row in record.host) == times


def test_without_reading_the_loss_the_host_runs_ahead():
    slow_device = replace(
        SMALL, synchronize="never", hardware=SimulatedHardware(peak_flops_per_s=50e12)
    )
    record = simulate(slow_device).ranks[0]
    last_step = max(row.end_ns for row in record.host if row.name == "ProfilerStep#3")
    assert max(row.end_ns for row in record.device) > 1.5 * last_step


def test_noise_is_the_same_for_the_same_seed_only():
    job = replace(SMALL, noise=Noise(kernel=0.01, host=0.06, latency=0.1))
    assert simulate(job, seed=1).steps_us == simulate(job, seed=1).steps_us
    assert simulate(job, seed=1).steps_us != simulate(job, seed=2).steps_us
    assert simulate(job, seed=1).step_us == pytest.approx(simulate(SMALL).step_us, rel=0.05)


def test_every_kernel_is_classified_by_its_name_as_it_was_meant():
    run = simulate(replace(PARALLEL, steps=1))
    kernels = {
        (row.work.name, row.work.kind)
        for record in run.ranks.values()
        for row in record.device
        if isinstance(row.work, Kernel | Collective)
    }
    assert len(kernels) > 10
    wrong = {name for name, kind in kernels if classify_kernel(name).name.lower() != kind}
    assert not wrong


def test_transfers_take_latency_and_the_traffic_of_a_ring():
    hardware = SimulatedHardware(
        gpus_per_node=4,
        node_bus_bytes_per_s=100e9,
        node_latency_us=10.0,
        network_bus_bytes_per_s=10e9,
        network_latency_us=20.0,
    )
    # 1 MB in a group of four: 1.5 MB at 100 GB/s.
    assert transfer_us(hardware, "allreduce", (0, 1, 2, 3), 1e6) == pytest.approx(25.0)
    assert transfer_us(hardware, "allreduce", (0, 4), 1e6) == pytest.approx(120.0)
    assert transfer_us(hardware, "send", (0, 1), 1e6) == pytest.approx(20.0)


@pytest.mark.parametrize(
    "fields",
    [
        {"layers": 3, "pipeline_parallel": 2},
        {"attention_heads": 6},
        {"vocabulary_size": 4097, "tensor_parallel": 2},
        {"data_parallel": 0},
        {"synchronize": "sometimes"},
        {"steps": 0},
    ],
)
def test_a_job_that_cannot_be_is_refused(fields):
    with pytest.raises(ConfigError, match="SimulatedJob"):
        replace(SMALL, **fields)
