"""The runs of `groundtruth/simumax` as jobs, with what was measured, and their memory as a table.

The runs are Megatron-LM with Transformer Engine on eight B200: bf16, gradients summed in 32 bits,
a distributed optimizer, sequence parallelism, no recompute, micro-batches of one sequence (of 4096
tokens where the name gives no other), a fused loss, experts padded to a capacity of one
(MooreThreads/SimuMax, `simu_tools/megatron_scripts` and `configs/models`). Both DeepSeek models
were run with one dense layer.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _tables import markdown, number

from jaxperf.config import Experts, Job, LatentAttention
from jaxperf.workload._memory import RESERVED_SHARE, job_memory

GIB, MIB = 2**30, 2**20
_ROWS = "groundtruth/simumax/b200_release_v1.2_summary.json"
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


def memory_table(shared: Path) -> str:
    """Measured and estimated memory of the largest rank, and what was fitted and what was not.

    The number of micro-batches changes nothing, measured or estimated, so that each line stands
    for as many runs as it says.
    """
    lines: dict[str, list[str]] = {}
    runs: dict[str, int] = {}
    for row, measured in zip(rows(shared), jobs(shared), strict=True):
        name = re.sub(r"_mbc\d+_cef", "", measured.label)
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
        **model,
    )


def _model(row: Mapping[str, Any]) -> str:
    return next(name for name in MODELS if row["case"].startswith(name.replace("-", "_")))


def _degree(case: str, axis: str) -> int:
    found = re.search(rf"_{axis}(\d+)", case)
    return int(found[1]) if found else 1
