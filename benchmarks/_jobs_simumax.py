"""The runs of `groundtruth/simumax` as jobs: their step times and memory as tables.

The runs are Megatron-LM with Transformer Engine on eight B200: bf16, gradients summed in 32 bits,
a distributed optimizer whose messages are not overlapped, sequence parallelism, no recompute,
micro-batches of one sequence (of 4096 tokens where the name gives no other), a fused loss, experts
padded to a capacity of one (MooreThreads/SimuMax, `simu_tools/megatron_scripts` and
`configs/models`). Both DeepSeek models were run with one dense layer.

The machine was measured kernel by kernel: `b200_bf16_ceperm.json` has the efficiency of 622
multiplies, plain and grouped, and of 64 attentions, bandwidths of streams, and a line for each
collective.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _collective_tables import Measured, fit as fit_collectives
from _jobs_fit import Held, by_group, factors, hold_out, summary, worst
from _matmul_tables import fit as fit_kernels
from _tables import markdown, number

from jaxperf.config import Experts, Job, LatentAttention, load_hardware
from jaxperf.cost import (
    COLLECTIVE_OPERATIONS,
    PRECISIONS,
    CostModel,
    Work,
    attention_work,
    collective_work,
    cost_us,
    default_model,
    matmul_work,
)
from jaxperf.graph import TaskClass
from jaxperf.replay import double_precision
from jaxperf.workload._fit_steps import MeasuredStep
from jaxperf.workload.memory._memory import job_memory
from jaxperf.workload.memory._memory_columns import RESERVED_SHARE

GIB, MIB = 2**30, 2**20
PRIORS: Mapping[str, float] = {
    "device.peak_flops_per_s": 0.15,
    "memory.overhead": 0.7,
    "memory.latency_us": 1.0,
    "step.step_us": 1.0,
}
"""What is fitted to steps, once the kernels are known: how fast a machine is that works without
pause, what small kernels cost that are not counted one by one, and the host's work once a step."""

_FOLDER = Path("groundtruth") / "simumax"
_ROWS = _FOLDER / "b200_release_v1.2_summary.json"
_MACHINE = _FOLDER / "b200_bf16_ceperm.json"
_COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all2all": "all_to_all",
}
_FITTED = """Fitted to the kernels, and to no step: all parameters of matrix multiplies (492 of
them: gradients of weights in 32 bits, as in the runs), of attention (64, forward and backward) and
of collectives (120 points on the lines of the file). The bandwidth of streams is the file's, that
of mixtures of experts the mean of its two for permutations; latencies of streams stay at their
defaults, as the file's 30 us for everything is no measurement. Fitted to steps, in folds: four
numbers, listed below. One is the sustained rate of the matrix units; two are the latency of streams
and their excess over the bandwidth, which also stand for small kernels that are not counted one by
one; one is the host's work once a step. The kernels that were measured are those of the runs, so
that a model that is left out has its kernels in the file and its steps unseen. Context parallelism
of the runs is by all-to-all, and is computed here as a ring."""
_WORST = """What is behind them:

- Tensor parallel 8: the two models are missed in opposite directions, with the same kinds of
  kernels and multiplies that are within 2 % of the file's in sum. The simulator that the rows come
  with has it too (-7 to -11 % and -0.3 to -1.5 %), with each multiply at its measured time. In the
  70B runs a micro-batch takes 69.0 ms from four to eight of them and 63.2 from eight to 32: the
  rows differ among themselves by more than most are missed by.
- Two pipeline stages: too long, the more so the fewer micro-batches. The first stage, without the
  output layer, idles for a quarter of the time. A device that does not compute all the time is
  clocked higher; here each multiply takes as long on either stage.
- DeepSeek-V2, expert parallel 8: a micro-batch takes 77.4 ms from four to eight and 85.2 from eight
  to 32, the other way round than above. With one fit for all, DeepSeek-V2 comes out too short and
  V3 too long: V2 has smaller experts, so that routing and copying, which are streams here, weigh
  more.
- Context parallel: all are too short. The exchange of queries, keys, values and results is not
  hidden, as the blocks of a ring are; by its bytes it takes about 1 %. The backward pass of the
  attention is less efficient than the forward pass, and the cost model has one rate for both."""
_RANKS = (2, 4, 8)
_MESSAGES_MIB = tuple(2**power for power in range(10))
_LLAMA: dict[str, Any] = {
    "gated_ffn": True,
    "head_size": 128,
    "vocabulary_size": 128257,  # one token more than the model knows, for the end of a document
}
_LATENT = LatentAttention(
    query_rank=1536, key_value_rank=512, rope_head_size=64, value_head_size=128
)
_DEEPSEEK: dict[str, Any] = {
    "gated_ffn": True,
    "attention_heads": 128,
    "head_size": 128,
    "latent_attention": _LATENT,
}
MODELS: Mapping[str, dict[str, Any]] = {
    "llama3-70b": _LLAMA
    | {
        "hidden_size": 8192,
        "ffn_hidden_size": 28672,
        "attention_heads": 64,
        "key_value_heads": 8,
    },
    "llama3-405b": _LLAMA
    | {
        "hidden_size": 16384,
        "ffn_hidden_size": 53248,
        "attention_heads": 128,
        "key_value_heads": 16,
    },
    "deepseekv2": _DEEPSEEK
    | {
        "hidden_size": 5120,
        "ffn_hidden_size": 12288,
        "vocabulary_size": 102401,
        "experts": Experts(count=160, per_token=6, ffn_hidden_size=1536, shared=2, dense_layers=1),
    },
    "deepseekv3": _DEEPSEEK
    | {
        "hidden_size": 7168,
        "ffn_hidden_size": 18432,
        "vocabulary_size": 129281,
        "experts": Experts(count=256, per_token=8, ffn_hidden_size=2048, shared=1, dense_layers=1),
    },
}


class MeasuredJob(NamedTuple):
    """A run: its name, the job, and its step time and largest memory of a rank."""

    label: str
    job: Job
    real_ms: float
    real_alloc_bytes: float


def jobs(shared: Path) -> list[MeasuredJob]:
    """Every run, in the order of the file; vocabularies padded to 128 times the tensor degree."""
    return [
        MeasuredJob(row["case"], _job(row), row["real_ms"], _largest(row, "max_allocated_mb"))
        for row in rows(shared)
    ]


def table(shared: Path) -> str:
    """The section of docs/jobs-validation.md."""
    model = calibrated_model(shared)
    held = time_held_out(shared, model)
    return "\n\n".join(
        [
            "## SimuMax: Llama 3 and DeepSeek on eight B200",
            (__doc__ or "").split("\n\n", 1)[1].strip(),
            "### Step times",
            _FITTED,
            "The cost model beside the kernels that it was fitted to:",
            kernels_table(shared, model),
            "Steps. *Nothing fitted* is with the kernels' numbers, no step seen:",
            summary(held),
            "By model, by parallelism, and by the number of micro-batches:",
            by_group(held, "model", _model_of),
            by_group(held, "parallelism", _parallelism),
            by_group(held, "micro-batches", lambda row: row.job.micro_batches),
            "The worst rows:",
            worst(held),
            _WORST,
            "Fitted to all rows:",
            factors(held.fit),
            "### Memory",
            memory_table(shared),
        ]
    )


def time_held_out(shared: Path, model: CostModel | None = None) -> Held:
    """Steps as told by fits that did not see them.

    Args:
        shared: the folder with `groundtruth/`.
        model: of `calibrated_model`, fitted to kernels alone.

    Returns:
        In five random folds; with each model left out; and with each configuration left out, which
        was run with up to three numbers of micro-batches.
    """
    fitted = calibrated_model(shared) if model is None else model
    hardware = load_hardware("b200")
    rows = [
        MeasuredStep(each.job, hardware, each.real_ms * 1e3, each.label) for each in jobs(shared)
    ]
    groups = {"model": _model_of, "configuration": lambda row: _configuration(row.label)}
    return hold_out(rows, groups, PRIORS, lambda _: fitted)


def calibrated_model(shared: Path) -> CostModel:
    """The cost model of a B200 fitted to the kernels that were measured, and to no step."""
    model = default_model(load_hardware("b200"))
    for part, (_, work, time_us) in _kernels(shared).items():
        model = fit_kernels(model, work, time_us, part)
    overhead = np.array(model.memory.overhead)
    streams = _streams_bytes_per_s(shared)
    peak = float(np.asarray(model.device.memory_bytes_per_s))
    overhead[:] = peak / streams["default"] - 1
    moved = [streams["permute_fwd"], streams["permute_bwd"]]
    overhead[TaskClass.MOE] = peak / np.mean(moved) - 1
    collective = fit_collectives(model.collective, model.device, _collectives(shared))
    return replace(model, memory=replace(model.memory, overhead=overhead), collective=collective)


def kernels_table(shared: Path, model: CostModel) -> str:
    """How near the cost model comes to the kernels that it was fitted to."""
    lines = []
    collectives = _collectives(shared)
    large = collectives.work.message_bytes >= 16 * MIB
    names = np.where(large, "collectives from 16 MiB", "collectives below 16 MiB")
    kernels = [*_kernels(shared).values(), (names, collectives.work, collectives.time_us)]
    for kinds, work, time_us in kernels:
        with double_precision():
            error = 100 * (np.asarray(cost_us(model, work)) / time_us - 1)
        for kind in dict.fromkeys(kinds):
            mine = kinds == kind
            mean, bias = np.abs(error[mine]).mean(), error[mine].mean()
            lines.append([kind, int(mine.sum()), number(mean, 1), f"{bias:+.1f}"])
    return markdown(["kernels", "rows", "mean %", "bias %"], lines)


def memory_table(shared: Path) -> str:
    """Measured and estimated memory of the largest rank, and what was fitted and what was not.

    The number of micro-batches changes nothing, measured or estimated, so that each line stands
    for as many runs as it says.
    """
    lines: dict[str, list[str]] = {}
    runs: dict[str, int] = {}
    for row, measured in zip(rows(shared), jobs(shared), strict=True):
        name = _configuration(measured.label)
        runs[name] = runs.get(name, 0) + 1
        peak = job_memory(measured.job).peak
        reserved = _largest(row, "max_reserved_mb")
        lines[name] = [
            name,
            str(runs[name]),
            number(measured.real_alloc_bytes / GIB, 2),
            number(peak.allocated_bytes / GIB, 2),
            number(100 * (peak.allocated_bytes / measured.real_alloc_bytes - 1), 2),
            number(reserved / GIB, 2),
            number(peak.total_bytes / GIB, 2),
            number(100 * (peak.total_bytes / reserved - 1), 2),
        ]
    heads = ["Job", "Runs", "Allocated, GiB", "Estimate", "Error, %"]
    heads += ["Reserved, GiB", "Estimate", "Error, %"]
    return markdown(heads, list(lines.values())) + "\n\n" + memory_summary(shared)


def memory_summary(shared: Path) -> str:
    """Mean and worst error by kind of job, and the one number that is fitted, judged elsewhere."""
    measured = jobs(shared)
    reserved = np.array([_largest(row, "max_reserved_mb") for row in rows(shared)])
    real = np.array([each.real_alloc_bytes for each in measured])
    estimate = np.array([job_memory(each.job).peak.allocated_bytes for each in measured])
    error = 100 * np.abs(estimate / real - 1)
    llama = np.array([each.label.startswith("llama") for each in measured])
    context = np.array([each.job.context_parallel > 1 for each in measured])
    third = np.array([each.label.startswith("deepseekv3") for each in measured])
    kinds = {
        "all": np.ones(len(real), bool),
        "Llama": llama & ~context,
        "Llama, context parallel": context,
        "DeepSeek-V2": ~llama & ~third,
        "DeepSeek-V3": third,
    }
    errors = [
        [name, str(of.sum()), number(error[of].mean(), 2), number(error[of].max(), 2)]
        for name, of in kinds.items()
    ]
    fitted = float(np.mean((reserved / real - 1)[kinds["Llama"]]))
    text = [markdown(["Jobs", "Runs", "Mean absolute error, %", "Worst, %"], errors), ""]
    for name, share, on in (
        (f"the constant {RESERVED_SHARE:.3f}", RESERVED_SHARE, kinds["all"]),
        (f"{fitted:.3f}, fitted on Llama, on the others", fitted, ~kinds["Llama"]),
    ):
        total = 100 * np.abs(estimate * (1 + share) / reserved - 1)[on]
        text.append(
            f"Reserved memory with {name}: {total.mean():.2f} % mean absolute error, "
            f"{total.max():.2f} % at worst."
        )
    return "\n".join(text)


def rows(shared: Path) -> list[dict[str, Any]]:
    """The rows of the file."""
    return json.loads((shared / _ROWS).read_text())["rows"]


def allocated_by_stage(row: Mapping[str, Any], key: str = "max_allocated_mb") -> list[float]:
    """Largest memory of the ranks of each pipeline stage, in bytes."""
    ranks = [memory[key] * MIB for memory in row["peak_memory_by_rank_mb"].values()]
    stages = _degree(row["case"], "pp")
    size = len(ranks) // stages
    return [max(ranks[stage * size : (stage + 1) * size]) for stage in range(stages)]


def _largest(row: Mapping[str, Any], key: str) -> float:
    return max(allocated_by_stage(row, key))


def _job(row: Mapping[str, Any]) -> Job:
    case = row["case"]
    model = dict(MODELS[_model(row)])
    tensor = _degree(case, "tp")
    multiple = 128 * tensor
    model["vocabulary_size"] = -(-model["vocabulary_size"] // multiple) * multiple
    sequence = re.search(r"_seq(\d+)", case)
    return Job(
        name=case,
        layers=row["layer_num"],
        sequence_length=int(sequence[1]) if sequence else 4096,
        micro_batch_size=1,
        micro_batches=row["mbc"],
        data_parallel=_degree(case, "dp"),
        tensor_parallel=tensor,
        context_parallel=_degree(case, "cp"),
        pipeline_parallel=_degree(case, "pp"),
        expert_parallel=_degree(case, "ep"),
        sharding="zero1",
        sequence_parallel=True,
        gradient_buckets=1,
        overlap_gradients=False,
        overlap_parameters=False,
        **model,
    )


def _model(row: Mapping[str, Any]) -> str:
    return next(name for name in MODELS if row["case"].startswith(name.replace("-", "_")))


def _model_of(row: MeasuredStep) -> str:
    return _model({"case": row.label})


def _configuration(case: str) -> str:
    """Without the number of micro-batches."""
    return re.sub(r"_mbc\d+_cef", "", case)


def _parallelism(row: MeasuredStep) -> str:
    job = row.job
    degrees = {
        "tensor": job.tensor_parallel,
        "context": job.context_parallel,
        "pipeline": job.pipeline_parallel,
        "expert": job.expert_parallel,
    }
    return ", ".join(f"{axis} {degree}" for axis, degree in degrees.items() if degree > 1)


# What was measured of the machine
# ---------------------------------------------------------------------------------------


def _kernels(shared: Path) -> dict[str, tuple[np.ndarray, Work, np.ndarray]]:
    """By part of the cost model: kind, work and us of each shape."""
    operations = _machine(shared)["accelerator"]["op"]
    # Kind; batch, m, n, k, bytes of a result; us. Gradients of weights are added to sums in 32
    # bits, as in the runs.
    multiplies: list[tuple[str, tuple[float, ...], float]] = []
    for shape, time_us in _shapes(operations["matmul"]):
        m, n, k, of_weights = *(float(shape[x]) for x in "mnk"), shape["accumulate"] == "True"
        if of_weights and shape["out_dtype"] != "fp32":
            continue
        kind = "multiplies: gradients of weights" if of_weights else "multiplies"
        multiplies.append((kind, (1, m, n, k, 8 if of_weights else 2), time_us(2 * m * n * k)))
    for shape, time_us in _shapes(operations["group_matmul"]):
        if shape["main_grad_dtype"] != "fp32":
            continue
        groups, m, n, k = (float(shape[x]) for x in ("ng", "M", "N", "K"))
        kind, sizes = {
            "fwd": ("grouped multiplies", (m, n, k, 2)),
            "bwd_grad_act": ("grouped multiplies", (m, k, n, 2)),
            "bwd_grad_w": ("grouped multiplies: gradients of weights", (n, k, m, 8)),
        }[shape["stage"]]
        multiplies.append((kind, (groups, *sizes), time_us(2 * groups * m * n * k)))
    batch, m, n, k, result = np.array([sizes for _, sizes, _ in multiplies]).T
    multiplied = matmul_work(m, n, k, batch=batch, output_bytes=result)

    # Kind; sequences, heads, heads of keys, length, size of a head, backward; us. The file counts
    # both triangles of what is causal: with one the longest would beat the peak.
    attentions: list[tuple[str, tuple[float, ...], float]] = []
    for name, kind, gemms in (("sdp_fwd", "attention", 2), ("sdp_bwd", "attention, backward", 5)):
        for shape, time_us in _shapes(operations[name]):
            batch, length, heads, kv = (
                float(shape[x]) for x in ("batch", "seq_len", "head_num", "kv_head_num")
            )
            size = (float(shape["qk_head_dim"]) + float(shape["v_head_dim"])) / 2
            flops = 2 * gemms * batch * heads * length**2 * size
            sizes = (batch, heads, kv, length, size, float(gemms == 5))
            attentions.append((kind, sizes, time_us(flops)))
    batch, heads, kv, length, size, backward = np.array([sizes for _, sizes, _ in attentions]).T
    attended = attention_work(
        batch, heads, kv, length, length, size, causal=True, backward=backward
    )
    return {
        part: (np.array([row[0] for row in rows]), work, np.array([row[2] for row in rows]))
        for part, rows, work in (
            ("matmul", multiplies, multiplied),
            ("attention", attentions, attended),
        )
    }


def _shapes(operation: Mapping[str, Any]):
    """Each shape, and how long operations take at its efficiency."""
    peak_flops_per_us = operation["tflops"] * 1e6
    for text, efficiency in operation["accurate_efficient_factor"].items():
        shape = dict(part.split("=") for part in text.split(", "))

        def time_us(flops: float, efficiency: float = efficiency) -> float:
            return flops / (efficiency * peak_flops_per_us)

        yield shape, time_us


def _streams_bytes_per_s(shared: Path) -> dict[str, float]:
    """Bandwidth that streams reach; the file has it in GiB."""
    return {
        name: each["gbps"] * GIB * each["efficient_factor"]
        for name, each in _machine(shared)["accelerator"]["bandwidth"].items()
    }


def _collectives(shared: Path) -> Measured:
    """Points on the line that the file has for each collective (`compute_net_op_time`)."""
    network = _machine(shared)["networks"]["high_intra_node"]
    bytes_per_s = network["bandwidth"]["gbps"] * GIB
    found = []
    for name, operation in _COLLECTIVES.items():
        line = network["op"][name]
        for ranks in _RANKS:
            by_ranks = line.get("fixed_latency_us_by_comm_num", {})
            fixed_us = by_ranks.get(str(ranks), line["fixed_latency_us"])
            steps_us = line["latency_us"] * line["scale"] * (ranks + line["offset"])
            for size in _MESSAGES_MIB:
                sent = size * MIB * line["scale"] * (1 + line["offset"] / ranks)
                sent_us = sent / (bytes_per_s * line["efficient_factor"]) * 1e6
                index = COLLECTIVE_OPERATIONS.index(operation)
                found.append((index, size * MIB, ranks, fixed_us + steps_us + sent_us))
    operation, size, ranks, time_us = np.array(found).T
    work = collective_work(operation.astype(np.int8), size, ranks)
    precision = np.full(len(found), PRECISIONS.index("bf16"), np.int8)
    return Measured(replace(work, precision=precision), time_us)


def _machine(shared: Path) -> dict[str, Any]:
    return json.loads((shared / _MACHINE).read_text())


def _degree(case: str, axis: str) -> int:
    found = re.search(rf"_{axis}(\d+)", case)
    return int(found[1]) if found else 1
