"""Pipeline schedules: in which order each stage does its forward and backward passes."""

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from jaxperf.errors import ConfigError


class PassKind(enum.IntEnum):
    """What a stage does with a micro-batch at one time.

    Attributes:
        FORWARD: the forward pass.
        BACKWARD: the backward pass, gradients of inputs and of weights together.
        BACKWARD_INPUT: the part of a backward pass that the stage before waits for.
        BACKWARD_WEIGHT: the part of a backward pass that only the optimizer waits for.
    """

    FORWARD = 0
    BACKWARD = 1
    BACKWARD_INPUT = 2
    BACKWARD_WEIGHT = 3


class Pass(NamedTuple):
    """One micro-batch through one chunk of layers, one way.

    Attributes:
        kind: forward, backward, or a part of backward.
        micro_batch: which of the iteration.
        chunk: which of the rank's own chunks of layers.
    """

    kind: PassKind
    micro_batch: int
    chunk: int


Order = tuple[Pass, ...]
Place = tuple[int, int]
"""Of a pass: its rank of the pipeline, and its position in the order of that rank."""


def schedule_passes(
    schedule: str, stages: int, micro_batches: int, virtual_stages: int = 1
) -> tuple[Order, ...]:
    """The passes of every rank of a pipeline, each in order of execution.

    - `none`: one rank; each micro-batch forward, then backward.
    - `gpipe`: all forward, then all backward, the last micro-batch first (Huang et al., arXiv
      1811.06965, figure 2c).
    - `1F1B`: one forward, one backward, after a warm-up of `stages - rank - 1` forward passes
      (PipeDream-Flush; Narayanan et al., arXiv 2104.04473, section 2.2.1).
    - `interleaved`: the same with `virtual_stages` chunks of layers on each rank, as Megatron-LM
      orders them (section 2.2.2 there).
    - `zero-bubble`: ZB-H1 (Qi et al., arXiv 2401.10241, section 2.1): 1F1B with the backward pass
      in two; rank r puts its weight part off by r micro-batches.
    - `dualpipe`: DualPipe (DeepSeek-V3, arXiv 2412.19437, section 3.2.1; steps as in
      `deepseek-ai/DualPipe`, `dualpipe.py`): every rank holds the layers of two stages, and half
      of the micro-batches, those from `micro_batches // 2`, enter at the last rank. Passes that
      run at once are consecutive here: see `overlapped_passes`.

    Args:
        schedule: one of the above.
        stages: ranks of the pipeline.
        micro_batches: of an iteration.
        virtual_stages: chunks of layers of a rank; more than one with `interleaved` only.

    Returns:
        For each rank its passes.

    Raises:
        ConfigError: no such schedule, or not for so many stages or micro-batches.

    Example:
        >>> for order in schedule_passes("1F1B", 2, 3):
        ...     print(*(f"{each.kind.name[0]}{each.micro_batch}" for each in order))
        F0 F1 B0 F2 B1 B2
        F0 B0 F1 B1 F2 B2
    """
    _check(schedule, stages, micro_batches, virtual_stages)
    if schedule == "interleaved":
        return tuple(_interleaved(stages, r, micro_batches, virtual_stages) for r in range(stages))
    return tuple(_ORDERS[schedule](stages, rank, micro_batches) for rank in range(stages))


def virtual_stage(schedule: str, stages: int, rank: int, chunk: int) -> int:
    """The place in the model of a chunk of layers that a rank holds.

    Args:
        schedule: see `schedule_passes`.
        stages: ranks of the pipeline.
        rank: of the pipeline.
        chunk: which of the rank's own.

    Returns:
        0 for the first layers of the model. With `dualpipe` both chunks are numbered from 0 to
        `stages - 1`: each rank holds two stages of the one model.

    Example:
        >>> virtual_stage("interleaved", 4, 1, 2), virtual_stage("dualpipe", 4, 1, 1)
        (9, 2)
    """
    if schedule == "dualpipe":
        return stages - 1 - rank if chunk else rank
    return chunk * stages + rank


def dependencies(
    schedule: str, orders: Sequence[Sequence[Pass]]
) -> tuple[tuple[tuple[Place, ...], ...], ...]:
    """For each pass those that must have ended before it may start, besides the one before it.

    A forward pass waits for that of the layers before; a backward pass (or its input part) for
    the same rank's forward pass and for the backward pass of the layers after; a weight part for
    its input part. Where the two passes are on two ranks, what is waited for is a message.

    Args:
        schedule: that of `orders`.
        orders: from `schedule_passes`.

    Returns:
        By rank and position the places, rank and position, of the passes waited for.

    Example:
        >>> dependencies("1F1B", schedule_passes("1F1B", 2, 1))
        (((), ((0, 0), (1, 1))), (((0, 0),), ((1, 0),)))
    """
    stages = len(orders)
    place_of: dict[tuple[bool, int, int, int], Place] = {}
    weight_of: dict[Place, Place] = {}
    for rank, order in enumerate(orders):
        for position, (kind, micro_batch, chunk) in enumerate(order):
            if kind is not PassKind.BACKWARD_WEIGHT:
                key = (kind is PassKind.FORWARD, micro_batch, *_layers(schedule, stages, rank, chunk))
                place_of[key] = (rank, position)
    del weight_of

    def before(rank: int, each: Pass) -> tuple[Place, ...]:
        direction, stage = _layers(schedule, stages, rank, each.chunk)
        keys = {
            PassKind.FORWARD: [(True, each.micro_batch, direction, stage - 1)],
            PassKind.BACKWARD_WEIGHT: [(False, each.micro_batch, direction, stage)],
        }.get(
            each.kind,
            [
                (True, each.micro_batch, direction, stage),
                (False, each.micro_batch, direction, stage + 1),
            ],
        )
        return tuple(place_of[key] for key in keys if key in place_of)

    return tuple(tuple(before(rank, each) for each in order) for rank, order in enumerate(orders))
