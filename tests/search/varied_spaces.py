"""Searches drawn at random that reach every formula: all schedules, experts, machines, clocks."""

import random
from collections.abc import Iterator

import msgspec

from jaxperf.config import SearchSpace, built_in_jobs, load_hardware
from jaxperf.errors import ConfigError
from jaxperf.search._problem import Problem, pose

_AXES = {
    "tensor_parallel": (1, 2, 3, 4, 8),
    "pipeline_parallel": (1, 2, 3, 4, 6, 8, 12, 16),
    "context_parallel": (1, 2, 4),
    "data_parallel": (1, 2, 4, 8, 64),
    "expert_parallel": (1, 2, 4, 8, 16),
    "virtual_stages": (1, 2, 3, 4, 6, 8),
    "micro_batch_size": (1, 2, 4, 8, 16),
    "micro_batches": (1, 2, 4, 6, 8, 16, 32, 48),
    "schedule": ("none", "gpipe", "1F1B", "interleaved", "zero-bubble", "dualpipe"),
    "recompute": ("none", "selective", "full"),
    "sharding": ("none", "zero1", "zero2", "zero3"),
    "sequence_parallel": (False, True),
    "precision": ("bf16", "fp8", "fp32"),
    "overlap_gradients": (False, True),
    "overlap_parameters": (False, True),
    "overlap_tensor": (False, True),
    "gradient_buckets": (1, 4, 16),
    "rank_order": ("tp-cp-dp-pp", "tp-dp-cp-pp", "pp-tp-cp-dp"),
    "optimizer": ("adam", "sgd"),
    "tied_embeddings": (False, True),
    "layers": (4, 8, 12, 24, 48),
    "hidden_size": (256, 512, 1024, 4096),
    "sequence_length": (128, 512, 2048, 8192),
    "vocabulary_size": (1024, 32768, 131072),
    "key_value_heads": (4, 8, 32),
    "experts.count": (8, 16, 64),
    "experts.per_token": (1, 2, 4, 8),
    "experts.dense_layers": (0, 1, 3, 8, 12),
    "experts.ffn_hidden_size": (1024, 2048, 4096),
    "hardware": ("h100", "a100", "b200", "h200"),
    "clock_hz": (600e6, 900e6, 1200e6, 1400e6),
    "memory_bytes_per_s": (1e12, 3e12),
    "links.network.bus_bytes_per_s": (10e9, 50e9, 200e9),
}
_OBJECTIVES = (
    ("step_us",),
    ("tokens_per_s_per_gpu",),
    ("energy_j_per_token",),
    ("usd_per_million_tokens",),
    ("power_w_per_gpu",),
    ("step_us", "memory_bytes"),
    ("memory_bytes", "step_us"),
    ("energy_j_per_token", "step_us"),
    ("tokens_per_s_per_gpu", "power_w_per_gpu", "memory_bytes"),
    ("usd_per_million_tokens", "energy_j_per_token", "step_us"),
)
_LIMITS = ({}, {"memory_bytes": 40e9}, {"memory_bytes": 1e15}, {"power_w_per_gpu": 500.0})


def varied_problems(seed: int, count: int, *, most: int = 4000) -> Iterator[Problem]:
    """Searches of spaces of 50 points or more.

    Args:
        seed: of the draws.
        count: how many.
        most: points of a space.
    """
    draw, hardware, found = random.Random(seed), load_hardware("h100"), 0
    while found < count:
        space, job = _space(draw)
        if 50 <= space.size <= most:
            try:
                problem = pose(job, hardware, space)
            except ConfigError:  # a clock that one of the machines has not
                continue
            found += 1
            yield problem


def _space(draw: random.Random):
    job = draw.choice(list(built_in_jobs().values()))
    if draw.random() < 0.8:
        job = msgspec.structs.replace(job, stage_layers=None)
    if draw.random() < 0.4:
        job = msgspec.structs.replace(job, layers=24, stage_layers=None)
    schedule = draw.choice(("1F1B", "gpipe", "zero-bubble", "dualpipe", "none"))
    job = msgspec.structs.replace(job, schedule=schedule, virtual_stages=1)
    gpus = draw.choice((None, 8, 24, 32, 64, 96, 256, 1024))
    batch = draw.choice((None, 8, 32, 128, 512, 1024, 3072))
    follow = {"data_parallel": gpus, "micro_batches": batch}
    names = [
        name
        for name in _AXES
        if (job.experts or not name.startswith("expert")) and follow.get(name) is None
    ]
    axes = {}
    for name in draw.sample(names, draw.randint(3, 8)):
        values = _AXES[name]
        kept = sorted(draw.sample(range(len(values)), draw.randint(2, len(values))))
        axes[name] = tuple(values[place] for place in kept)
    limits, objectives = draw.choice(_LIMITS), draw.choice(_OBJECTIVES)
    return SearchSpace("drawn", axes, gpus, batch, 2.0, limits, objectives), job
