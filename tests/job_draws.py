"""Jobs drawn at random: every model that comes with the package, spread in every way."""

import random

import msgspec

from jaxperf.config import Job, built_in_jobs, check_job
from jaxperf.errors import ConfigError

_CHOICES = {
    "tensor_parallel": (1, 2, 3, 4, 8),
    "pipeline_parallel": (1, 2, 4, 5, 8, 16),
    "context_parallel": (1, 1, 2, 4),
    "data_parallel": (1, 2, 8, 32),
    "expert_parallel": (1, 1, 2, 4),
    "micro_batch_size": (1, 2, 4),
    "micro_batches": (1, 2, 6, 16, 32),
    "virtual_stages": (1, 1, 2, 3),
    "schedule": ("none", "gpipe", "1F1B", "interleaved", "zero-bubble", "dualpipe"),
    "sharding": ("none", "zero1", "zero2", "zero3"),
    "recompute": ("none", "selective", "full"),
    "sequence_parallel": (False, True),
    "precision": ("bf16", "fp8"),
    "tied_embeddings": (False, True),
    "overlap_gradients": (False, True),
    "overlap_tensor": (False, True),
    "gradient_buckets": (1, 4),
    "optimizer": ("adam", "sgd"),
    "rank_order": ("tp-cp-dp-pp", "tp-dp-cp-pp", "pp-tp-cp-dp"),
}


def drawn_jobs(seed: int, count: int, *, valid: bool = True) -> list[Job]:
    """Jobs; all of them can be, or not all."""
    draw, found = random.Random(seed), []
    bases = [
        msgspec.structs.replace(job, stage_layers=None, layers=24)
        for job in built_in_jobs().values()
    ]
    while len(found) < count:
        changes = {name: draw.choice(values) for name, values in _CHOICES.items()}
        job = msgspec.structs.replace(draw.choice(bases), **changes)
        if valid:
            try:
                check_job(job, "drawn")
            except ConfigError:
                continue
        found.append(job)
    return found
