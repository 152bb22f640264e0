"""A recorded job, re-targeted to another, against that other job executed event by event.

The simulator's cost model and its programs are its own: gradients are accumulated by kernels, each
micro-batch is copied to the device, the loss is read by a copy that the host waits for, and
gradients are summed when so many bytes have gathered.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from jaxperf import whatif
from jaxperf.config import Hardware, Job, Link, Scenario
from jaxperf.simulator import Noise, SimulatedHardware, SimulatedJob, simulate, write_traces

MEAN_PERCENT, WORST_PERCENT = 4.0, 10.0
# The recorded job put together again from its parts; the issue's own figure is the mean above.
SAME_PERCENT = 2.0

FIELDS = (
    "layers",
    "hidden_size",
    "attention_heads",
    "vocabulary_size",
    "sequence_length",
    "micro_batch_size",
    "micro_batches",
    "data_parallel",
    "tensor_parallel",
    "pipeline_parallel",
)

# One message for all gradients of a rank: how many there are is then no question of its own.
ONE_BUCKET = 2**40
SMALL = SimulatedJob(
    layers=2,
    hidden_size=1024,
    attention_heads=8,
    vocabulary_size=8192,
    sequence_length=1024,
    micro_batch_size=2,
    micro_batches=2,
    bucket_bytes=ONE_BUCKET,
    noise=Noise(kernel=0.01, host=0.05),
)
LARGE = replace(
    SMALL,
    layers=4,
    hidden_size=2048,
    attention_heads=16,
    vocabulary_size=16384,
    micro_batches=4,
)


def described(job: SimulatedJob, gradient_buckets: int = 1) -> Job:
    """A simulated job as its user would describe it."""
    return Job(
        **{name: getattr(job, name) for name in FIELDS},
        schedule=schedule(job.pipeline_parallel),
        gradient_bytes=2.0,
        gradient_buckets=gradient_buckets,
    )


def schedule(stages):
    return "1F1B" if stages > 1 else "none"


def machine(hardware: SimulatedHardware) -> Hardware:
    """The simulated machine as a data sheet would describe it: peaks, not what is reached."""
    return Hardware(
        name=hardware.name,
        gpus_per_node=hardware.gpus_per_node,
        streaming_multiprocessors=hardware.streaming_multiprocessors,
        memory_bytes=80e9,
        memory_bytes_per_s=hardware.memory_bytes_per_s,
        l2_bytes=50e6,
        launch_queue=hardware.timing.launch_queue,
        peak_flops_per_s={"bf16": hardware.peak_flops_per_s},
        links={
            "nvlink": Link(hardware.node_bus_bytes_per_s, hardware.node_latency_us),
            "network": Link(hardware.network_bus_bytes_per_s, hardware.network_latency_us),
        },
    )


def scenario(change: Mapping[str, float | str], scale=None) -> Scenario:
    values = dict(change)
    if "pipeline_parallel" in values:
        values.setdefault("schedule", schedule(values["pipeline_parallel"]))
    return Scenario(name=str(change), set=values, scale=scale or {})


def ask(
    job,
    scenarios,
    *,
    scale=None,
    keep=None,
    cuda_sync_rows=True,
    gradient_buckets=1,
    hardware=None,
):
    """Records a simulated job, and asks `whatif`.

    Args:
        job: the recorded job.
        scenarios: what is asked.
        scale: factors on durations of the recorded run.
        keep: ranks of which there are traces; all by default.
        cuda_sync_rows: as of `write_traces`.
        gradient_buckets: as of `Job`.
        hardware: what the machine is said to be; what it is by default.
    """
    with TemporaryDirectory() as folder:
        run = executed(job, frozenset((scale or {}).items()))
        written = write_traces(run, Path(folder), cuda_sync_rows=cuda_sync_rows)
        return whatif(
            written if keep is None else [written[rank] for rank in keep],
            job=described(job, gradient_buckets),
            hardware=machine(job.hardware if hardware is None else hardware),
            scenarios=scenarios,
        )


@lru_cache(maxsize=1)
def executed(job, scale):
    """Several questions about one job follow each other."""
    return simulate(job, scale=dict(scale))


@cache
def executed_step_us(job, scale):
    return simulate(job, scale=dict(scale)).step_us


def true_step_us(job, change, scale=None):
    """The step of the other job, executed."""
    values = {name: value for name, value in change.items() if name in FIELDS}
    return executed_step_us(replace(job, **values), frozenset((scale or {}).items()))


def errors_percent(job, changes, *, scale=None, **options):
    """Of the predicted steps, by change."""
    answers = ask(job, [scenario(change) for change in changes], scale=scale, **options).scenarios
    return [
        100 * (answer.step_us / true_step_us(job, change, scale) - 1)
        for change, answer in zip(changes, answers, strict=True)
    ]


def assert_answered(job, changes, **options):
    """Each is within the goal; one call of `whatif` answers all, as most of it is reading."""
    errors = errors_percent(job, changes, **options)
    found = {str(change): error for change, error in zip(changes, errors, strict=True)}
    assert not {change: error for change, error in found.items() if abs(error) > WORST_PERCENT}


# What the package gets wrong, and why.
FAR = "a quarter of the tokens and half of the shards at once: small errors add up to 12 %"
ON_THE_LAST = "the loss was read where it is computed; that every stage reads it was never recorded"
HOST_AHEAD = "of a rank that never waits the step is its host's, which runs ahead of the device"
NEVER_ADDED = "of one micro-batch no accumulation was recorded, and none is modelled"
BANDWIDTH = "what a message takes longer than the file says counts as latency, whatever its size"


def wrong(*values, because):
    return pytest.param(*values, marks=pytest.mark.xfail(strict=True, reason=because))


# ---------------------------------------------------------------------------------------
# One change at a time, and several, from recorded jobs of every kind

RECORDED = {
    "one rank": replace(LARGE, micro_batches=2),
    "data": replace(LARGE, data_parallel=2, micro_batches=2),
    "tensor": replace(LARGE, tensor_parallel=2, micro_batches=2),
    "pipeline": replace(LARGE, pipeline_parallel=2),
    "all": replace(LARGE, data_parallel=2, tensor_parallel=2, pipeline_parallel=2, micro_batches=2),
    "four stages": replace(LARGE, layers=8, pipeline_parallel=4),
    "small": SMALL,
    "small, data": replace(SMALL, data_parallel=2),
    "one micro-batch": replace(LARGE, micro_batches=1),
}
WIDER = {"hidden_size": 4096, "attention_heads": 32}
NARROWER = {"hidden_size": 1024, "attention_heads": 8}
CHANGES: dict[str, list[dict[str, int]]] = {
    "one rank": [
        {"data_parallel": 2},
        {"data_parallel": 4},
        {"tensor_parallel": 2},
        {"tensor_parallel": 4},
        {"pipeline_parallel": 2},
        {"pipeline_parallel": 4},
        {"data_parallel": 2, "tensor_parallel": 2, "pipeline_parallel": 2},
        {"layers": 8},
        {"micro_batches": 4},
    ],
    "data": [
        {"data_parallel": 4},
        {"data_parallel": 1},
        {"data_parallel": 16},
        {"pipeline_parallel": 2},
        {"tensor_parallel": 2},
        {"layers": 8},
        {"layers": 2},
        WIDER,
    ],
    "tensor": [
        {"tensor_parallel": 4},
        {"tensor_parallel": 1},
        {"data_parallel": 2},
        {"pipeline_parallel": 2},
        {"vocabulary_size": 32768},
        NARROWER,
    ],
    "pipeline": [
        {"pipeline_parallel": 1},
        {"pipeline_parallel": 4},
        {"layers": 8, "pipeline_parallel": 4},
        {"micro_batches": 1},
        {"micro_batches": 16},
        {"data_parallel": 4},
        {"sequence_length": 2048},
    ],
    "all": [
        {"data_parallel": 4},
        {"data_parallel": 1},
        {"tensor_parallel": 4},
        {"tensor_parallel": 1},
        {"pipeline_parallel": 1},
        {"pipeline_parallel": 4},
        {"layers": 8},
        WIDER,
        NARROWER,
        {"sequence_length": 2048},
        {"micro_batch_size": 4},
        {"micro_batch_size": 1},
        {"micro_batches": 4},
        {"micro_batches": 1},
        {"vocabulary_size": 32768},
        {"data_parallel": 4, "pipeline_parallel": 4, "layers": 8},
        {"data_parallel": 1, "tensor_parallel": 1, "pipeline_parallel": 1},
    ],
    "four stages": [
        {"pipeline_parallel": 1},
        {"pipeline_parallel": 2},
        {"pipeline_parallel": 8},
        {"layers": 4},
        {"micro_batches": 2},
        {"micro_batch_size": 1, "micro_batches": 8},
    ],
    "small": [{"layers": 4}, {"pipeline_parallel": 2}, {"micro_batches": 4}],
    "small, data": [
        {"data_parallel": 4},
        {"micro_batches": 3},
        {"sequence_length": 512},
        {"micro_batch_size": 4},
    ],
    "one micro-batch": [
        {"micro_batches": 4},
        {"pipeline_parallel": 2},
        {"pipeline_parallel": 2, "micro_batches": 4},
        {"layers": 1},
        {"layers": 8},
    ],
}
QUICK = ("small", "small, data")


CASES = [
    pytest.param(
        name,
        number,
        id=f"{name}: {', '.join(f'{key}={value}' for key, value in change.items())}",
        marks=[] if name in QUICK else [pytest.mark.slow],
    )
    for name, changes in CHANGES.items()
    for number, change in enumerate(changes)
]


@cache
def errors_of(name):
    return errors_percent(RECORDED[name], CHANGES[name])


@pytest.mark.parametrize("name, number", CASES)
def test_another_job_takes_what_it_takes_when_executed(name, number):
    assert abs(errors_of(name)[number]) <= WORST_PERCENT


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_the_mean_error_of_each_recorded_job_is_small(name):
    errors = errors_of(name)
    assert sum(map(abs, errors)) / len(errors) <= MEAN_PERCENT


def drawn(seed):
    """A recorded job and another, of which nobody thought."""
    draw = random.Random(f"job {seed}")

    def job():
        stages = draw.choice([1, 2, 4])
        heads = draw.choice([8, 16])
        return replace(
            SMALL,
            pipeline_parallel=stages,
            layers=stages * draw.choice([2, 3]) if stages < 4 else 8,
            tensor_parallel=draw.choice([1, 2, 4]),
            data_parallel=draw.choice([1, 2]),
            attention_heads=heads,
            hidden_size=heads * 128,
            vocabulary_size=draw.choice([8192, 24576]),
            sequence_length=draw.choice([512, 1024, 2048]),
            micro_batch_size=draw.choice([1, 2, 4]),
            micro_batches=draw.choice([2, 4, 5]),
        )

    recorded, other = job(), job()
    fields = draw.sample(FIELDS, 4)
    if "hidden_size" in fields or "attention_heads" in fields:
        fields += ["hidden_size", "attention_heads"]
    if "layers" in fields or "pipeline_parallel" in fields:
        fields += ["layers", "pipeline_parallel"]
    return recorded, {name: getattr(other, name) for name in FIELDS if name in fields}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, wrong(4, because=FAR), 7])
def test_drawn_jobs_are_answered(seed):
    recorded, change = drawn(seed)
    (error,) = errors_percent(recorded, [change])
    assert abs(error) <= WORST_PERCENT


# ---------------------------------------------------------------------------------------
# Jobs at the edge, and traces that do not tell all


@pytest.mark.slow
@pytest.mark.parametrize(
    "job, changes",
    [
        (replace(SMALL, layers=1), [{"layers": 4}, {"layers": 2, "pipeline_parallel": 2}]),
        (replace(SMALL, layers=1, data_parallel=2), [{"layers": 4}]),
        (
            replace(LARGE, layers=2, pipeline_parallel=2),
            [{"layers": 4}, {"pipeline_parallel": 1}, {"micro_batches": 8}, {"data_parallel": 2}],
        ),
        (
            replace(LARGE, pipeline_parallel=4),
            [{"layers": 8}, {"pipeline_parallel": 2}, {"micro_batches": 8}],
        ),
    ],
    ids=["one layer", "one layer, replicas", "two stages", "four stages"],
)
def test_one_layer_a_stage_is_told_from_what_precedes_and_follows_it(job, changes):
    assert_answered(job, changes)


SYNCHRONIZED: dict[str, list[dict[str, int]]] = {
    "data_parallel": [
        {"layers": 8},
        {"data_parallel": 4},
        {"micro_batches": 4},
        {"pipeline_parallel": 2},
    ],
    "pipeline_parallel": [
        {"pipeline_parallel": 4},
        {"pipeline_parallel": 1},
        {"micro_batches": 4},
    ],
}
WRONG_WHERE_SYNCHRONIZED = {
    ("micro_batch", "data_parallel", 3): ON_THE_LAST,
    ("never", "data_parallel", 2): HOST_AHEAD,
}


@cache
def errors_where_synchronized(synchronize, axis):
    job = replace(LARGE, synchronize=synchronize, micro_batches=2, **{axis: 2})
    return errors_percent(job, SYNCHRONIZED[axis])


@pytest.mark.slow
@pytest.mark.parametrize(
    "synchronize, axis, number",
    [
        wrong(*case, because=WRONG_WHERE_SYNCHRONIZED[case])
        if case in WRONG_WHERE_SYNCHRONIZED
        else case
        for synchronize in ("micro_batch", "never")
        for axis, changes in SYNCHRONIZED.items()
        for case in ((synchronize, axis, number) for number in range(len(changes)))
    ],
)
def test_the_host_reads_the_loss_in_the_other_job_as_often_as_in_this(synchronize, axis, number):
    assert abs(errors_where_synchronized(synchronize, axis)[number]) <= WORST_PERCENT


@pytest.mark.slow
@pytest.mark.parametrize(
    "degrees, ranks",
    [
        ({"layers": 2, "data_parallel": 2}, [1]),
        ({"layers": 2, "tensor_parallel": 2}, [0]),
        ({"layers": 4, "data_parallel": 2, "pipeline_parallel": 2}, [0, 2]),
        ({"layers": 2, "data_parallel": 2, "tensor_parallel": 2}, [3]),
    ],
)
def test_one_rank_of_each_stage_is_enough(degrees, ranks):
    job = replace(LARGE, micro_batches=2, **degrees)
    changes = [{axis: 2 * degree} for axis, degree in degrees.items()]
    changes += [{"layers": 2 * job.layers}, {"micro_batches": 4}]
    assert_answered(job, changes, keep=ranks)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_stage_without_a_trace_is_modelled(rank):
    job = replace(LARGE, pipeline_parallel=2)
    (answer,) = ask(job, [scenario({"micro_batches": 8})], keep=[rank]).scenarios
    assert answer.step_us == pytest.approx(true_step_us(job, {"micro_batches": 8}), rel=0.1)
    assert (answer.origins or {})["modelled"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "job",
    [
        replace(LARGE, data_parallel=2, pipeline_parallel=2, micro_batches=2),
        replace(LARGE, data_parallel=2, tensor_parallel=2, micro_batches=2, layers=2),
    ],
)
def test_traces_of_an_old_profiler_do_as_well(job):
    changes = [{"layers": 2 * job.layers}, {"data_parallel": 4}, {"micro_batches": 4}]
    assert_answered(job, changes, cuda_sync_rows=False)


@pytest.mark.slow
def test_gradients_that_are_summed_in_several_messages_overlap_with_the_backward():
    """How many messages the other job has follows from its bytes, so it is told."""
    job = replace(LARGE, data_parallel=2, micro_batches=2, bucket_bytes=100 * 2**20)
    changes = [
        {"data_parallel": 4, "gradient_buckets": 5},
        {"data_parallel": 16, "gradient_buckets": 5},
        {**WIDER, "gradient_buckets": 5},
        {"pipeline_parallel": 2, "gradient_buckets": 3},
        {"layers": 8, "gradient_buckets": 7},
    ]
    assert_answered(job, changes, gradient_buckets=5)


@pytest.mark.slow
def test_a_slow_rank_is_slow_in_the_other_job_too():
    job = replace(SMALL, data_parallel=2, micro_batch_size=8)
    slow = {"rank:1/compute": 1.5}
    assert_answered(job, [{"micro_batches": 4}, {"layers": 4}], scale=slow)


@pytest.mark.slow
def test_a_slow_rank_is_mended_in_the_other_job():
    job = replace(SMALL, data_parallel=2, micro_batch_size=8)
    change = {"layers": 4}
    mended = scenario(change, {"rank:1/compute": 1 / 1.5})
    (answer,) = ask(job, [mended], scale={"rank:1/compute": 1.5}).scenarios
    assert answer.step_us == pytest.approx(true_step_us(job, change), rel=WORST_PERCENT / 100)


# ---------------------------------------------------------------------------------------
# What holds for any job


@pytest.mark.parametrize(
    "degrees",
    [{}, {"data_parallel": 2}, {"pipeline_parallel": 2}]
    + [
        pytest.param(degrees, marks=pytest.mark.slow)
        for degrees in (
            {"tensor_parallel": 2},
            {"data_parallel": 2, "tensor_parallel": 2},
            {"pipeline_parallel": 2, "micro_batches": 5, "layers": 4},
            {"pipeline_parallel": 4, "micro_batches": 4, "layers": 8},
            {"synchronize": "micro_batch"},
            {"synchronize": "never", "data_parallel": 2},
            {"clock_spread_us": 300.0, "device_clock_spread_us": 30.0, "tensor_parallel": 2},
        )
    ],
    ids=str,
)
def test_the_recorded_job_put_together_again_takes_what_was_recorded(degrees):
    job = replace(SMALL, **{"layers": 4, **degrees})
    result = ask(job, [scenario({"layers": job.layers})])
    (answer,) = result.scenarios
    assert answer.ratio == pytest.approx(1.0, abs=SAME_PERCENT / 100)
    assert answer.step_us == pytest.approx(simulate(job).step_us, rel=SAME_PERCENT / 100)
    # Nothing has another size, so nothing was scaled.
    assert (answer.origins or {})["recorded"] == pytest.approx(1.0)


@pytest.fixture(scope="module")
def several():
    """One recorded job, and the answers that several tests look at."""
    changes = [
        {"micro_batches": 3},
        {"micro_batches": 4},
        {"micro_batches": 6},
        {"layers": 6},
        {"pipeline_parallel": 2},
        {"data_parallel": 2},
        {"tensor_parallel": 2},
    ]
    result = ask(replace(SMALL, layers=4), [scenario(change) for change in changes])
    return result, dict(zip(map(str, changes), result.scenarios, strict=True))


def test_more_micro_batches_take_longer(several):
    result, answers = several
    steps = [result.baseline.step_us]
    steps += [answers[str({"micro_batches": count})].step_us for count in (3, 4, 6)]
    assert steps == sorted(steps)
    # Each takes as long as the other, and what is done once does not.
    each = [(steps[2] - steps[0]) / 2, (steps[3] - steps[2]) / 2]
    assert each[0] == pytest.approx(each[1], rel=0.03)


def test_more_layers_take_longer(several):
    result, answers = several
    assert answers[str({"layers": 6})].step_us > result.baseline.step_us


def test_origins_are_shares_of_the_critical_path(several):
    _, answers = several
    for answer in answers.values():
        assert set(answer.origins) == {"recorded", "scaled", "modelled"}
        assert all(0 <= share <= 1 for share in answer.origins.values())
        assert sum(answer.origins.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("axis", ["pipeline_parallel", "data_parallel", "tensor_parallel"])
def test_messages_that_were_never_recorded_are_modelled(several, axis):
    _, answers = several
    assert answers[str({axis: 2})].origins["modelled"] > 0


def test_what_only_repeats_is_recorded(several):
    _, answers = several
    assert answers[str({"micro_batches": 6})].origins["recorded"] > 0.99


def test_the_breakdown_is_that_of_the_other_job(several):
    _, answers = several
    for answer in answers.values():
        assert answer.breakdown.total_us == pytest.approx(answer.step_us, rel=0.01)
    assert answers[str({"data_parallel": 2})].breakdown.exposed_communication_us > 0


def test_the_same_question_has_the_same_answer():
    job = replace(SMALL, data_parallel=2)
    asked = [scenario({"layers": 4})]
    first, second = (ask(job, asked).scenarios[0] for _ in range(2))
    assert first.step_us == second.step_us
    assert first.origins == second.origins


@pytest.mark.parametrize(
    "scale",
    [
        {"gemm": 0.5},
        {"host": 3.0},
        wrong({"communication": 4.0}, because=BANDWIDTH),
    ],
    ids=str,
)
def test_durations_and_job_may_change_together(scale):
    """As in traces of a run that was as fast from the outset."""
    job = replace(SMALL, data_parallel=2)
    change = {"layers": 4}
    (together,) = ask(job, [scenario(change, scale)]).scenarios
    (outset,) = ask(job, [scenario(change)], scale=scale).scenarios
    assert together.step_us == pytest.approx(outset.step_us, rel=0.01)
    true_us = true_step_us(job, change, scale)
    assert together.step_us == pytest.approx(true_us, rel=WORST_PERCENT / 100)


# ---------------------------------------------------------------------------------------
# What one part of a step does alone


@pytest.mark.slow
def test_gradients_are_accumulated_as_large_as_the_weights_are():
    """Few tokens and many weights, so that these kernels are much of a step."""
    job = replace(LARGE, micro_batch_size=1, sequence_length=512)
    assert_answered(
        job, [{"micro_batch_size": 8}, {"sequence_length": 2048}, {"tensor_parallel": 4}]
    )


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason=NEVER_ADDED)
def test_gradients_that_were_never_accumulated_are_so_over_several_micro_batches():
    job = replace(LARGE, micro_batch_size=1, sequence_length=512, micro_batches=1)
    assert_answered(job, [{"micro_batches": 8}])


@pytest.mark.slow
def test_gradients_of_the_embedding_and_the_output_are_summed_too():
    job = replace(SMALL, vocabulary_size=65536, micro_batch_size=1, sequence_length=512)
    assert_answered(job, [{"data_parallel": 2}, {"data_parallel": 8}])


@pytest.mark.slow
def test_recorded_sums_of_gradients_grow_with_what_the_job_changes():
    job = replace(
        SMALL, data_parallel=2, vocabulary_size=32768, micro_batch_size=1, sequence_length=512
    )
    assert_answered(job, [{"vocabulary_size": 65536}, {"layers": 8}])


@pytest.mark.slow
def test_multiplies_of_fewer_or_more_tokens_take_fewer_or_more_waves():
    """Without accumulation: nearly all of a step is multiplies."""
    job = replace(LARGE, micro_batches=1)
    assert_answered(job, [{"micro_batch_size": 1}, {"micro_batch_size": 4}])


@pytest.mark.slow
@pytest.mark.parametrize(
    "told",
    [
        {"peak_flops_per_s": 1.3},
        {"memory_bytes_per_s": 1.3},
        {"node_bus_bytes_per_s": 1.4},
        {"node_bus_bytes_per_s": 0.7},
    ],
    ids=str,
)
def test_what_a_data_sheet_promises_too_much_of_cancels_in_what_was_recorded(told):
    """Measured durations are scaled by the ratio of two modelled ones."""
    job = replace(LARGE, data_parallel=2, micro_batches=2)
    values = {name: factor * getattr(job.hardware, name) for name, factor in told.items()}
    assert_answered(job, [{"layers": 8}, WIDER], hardware=replace(job.hardware, **values))
