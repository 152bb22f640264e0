"""What an operator has to do, as numbers: one record per operator, turned into `Work` at once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from jaxperf.cost._work import Work, unknown_work
from jaxperf.cost._work_formulas import attention_work, matmul_work, memory_work
from jaxperf.graph import TaskClass


@dataclass(frozen=True, slots=True)
class Matmul:
    """See `matmul_work`; `memory_bytes` of a convolution, whose operands are read once."""

    m: float
    n: float
    k: float
    batch: float = 1.0
    precision: int = -1
    output_bytes: float = math.nan
    memory_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Attention:
    """See `attention_work`; flops are not known where the pairs are not."""

    batch: float
    heads: float
    key_value_heads: float
    queries: float
    keys: float
    head_size: float
    causal: bool
    window: float = math.inf
    backward: bool = False
    precision: int = -1
    pairs_known: bool = True


@dataclass(frozen=True, slots=True)
class Stream:
    """Bytes that pass through memory; and elements whose size the kernel's name tells alone."""

    memory_bytes: float
    elements: float = 0.0
    precision: int = -1


@dataclass(frozen=True, slots=True)
class Backward:
    """A convolution's backward pass: the gradients of its data and of its weight.

    Which of the two were asked for is not told by older traces.
    """

    data: Matmul | None
    weight: Matmul | None
    told: bool = True


OperatorWork = Matmul | Attention | Stream | Backward
Single = Matmul | Attention | Stream


def as_work(records: Sequence[Single]) -> Work:
    """(records,) the work of each record, by the formulas that a job's are made with."""
    work = unknown_work(len(records))
    matmuls = [(i, r) for i, r in enumerate(records) if isinstance(r, Matmul)]
    attentions = [(i, r) for i, r in enumerate(records) if isinstance(r, Attention)]
    streams = [(i, r) for i, r in enumerate(records) if isinstance(r, Stream)]
    for numbered, found in (
        (matmuls, _matmuls([r for _, r in matmuls])),
        (attentions, _attentions([r for _, r in attentions])),
        (streams, _streams([r for _, r in streams])),
    ):
        rows = [i for i, _ in numbered]
        for field in fields(Work):
            getattr(work, field.name)[rows] = getattr(found, field.name)
    return work


def _column(records: Sequence, name: str) -> np.ndarray:
    return np.array([getattr(record, name) for record in records], np.float64)


def _matmuls(records: Sequence[Matmul]) -> Work:
    work = matmul_work(
        *(_column(records, name) for name in ("m", "n", "k")),
        batch=_column(records, "batch"),
        precision=_column(records, "precision"),
        output_bytes=_column(records, "output_bytes"),
    )
    own = np.array([r.memory_bytes is not None for r in records], bool)
    told = np.array([math.nan if r.memory_bytes is None else r.memory_bytes for r in records])
    return replace(work, memory_bytes=np.where(own, told, work.memory_bytes))


def _attentions(records: Sequence[Attention]) -> Work:
    sizes = ("batch", "heads", "key_value_heads", "queries", "keys", "head_size")
    options = ("causal", "window", "backward", "precision")
    work = attention_work(
        *(_column(records, name) for name in sizes),
        **{name: _column(records, name) for name in options},
    )
    return replace(work, flops=np.where(_column(records, "pairs_known"), work.flops, math.nan))


def _streams(records: Sequence[Stream]) -> Work:
    return memory_work(
        TaskClass.OTHER,
        _column(records, "memory_bytes"),
        0,
        precision=_column(records, "precision"),
        element_bytes=1,
    )
