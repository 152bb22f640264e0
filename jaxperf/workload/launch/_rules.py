"""What frameworks have in common: which jobs they cannot start, and how that is told."""

from collections.abc import Iterable
from typing import NoReturn

from jaxperf.config import Job
from jaxperf.errors import ConfigError

_DEGREES = {
    "tp": "tensor_parallel",
    "cp": "context_parallel",
    "dp": "data_parallel",
    "pp": "pipeline_parallel",
}


def check_order(job: Job, where: str, orders: Iterable[str]) -> None:
    parallel = {axis for axis, field in _DEGREES.items() if getattr(job, field) > 1}

    def of_several(order: str) -> list[str]:
        return [axis for axis in order.split("-") if axis in parallel]

    if all(of_several(job.rank_order) != of_several(order) for order in orders):
        refuse(where, "rank_order", "not an order it has", job.rank_order, " or ".join(orders))


def check_prefetch(job: Job, where: str) -> None:
    if job.sharding == "zero3" and job.overlap_parameters and job.prefetch != 1:
        what = "no setting says how many layers"
        refuse(where, "prefetch", what, job.prefetch, "1")


def fully_sharded(job: Job) -> bool:
    return job.sharding in ("zero2", "zero3")


def overlaps_tensor(job: Job) -> bool:
    return job.overlap_tensor and job.tensor_parallel > 1


def refuse(where: str, key: str, what: str, got: object, expected: str) -> NoReturn:
    raise ConfigError(what, where=f"{where}: {key}", got=f"{got}", expected=expected)
