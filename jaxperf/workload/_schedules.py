"""Pipeline schedules: in which order each stage does its forward and backward passes."""

import enum
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain
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
    place_of = {}
    for rank, order in enumerate(orders):
        for position, (kind, micro_batch, chunk) in enumerate(order):
            if kind is not PassKind.BACKWARD_WEIGHT:
                stage = virtual_stage(schedule, stages, rank, chunk)
                place_of[kind is PassKind.FORWARD, micro_batch, stage] = (rank, position)

    def before(rank: int, each: Pass) -> tuple[Place, ...]:
        stage = virtual_stage(schedule, stages, rank, each.chunk)
        if each.kind is PassKind.FORWARD:
            keys = [(True, each.micro_batch, stage - 1)]
        elif each.kind is PassKind.BACKWARD_WEIGHT:
            keys = [(False, each.micro_batch, stage)]
        else:
            keys = [(True, each.micro_batch, stage), (False, each.micro_batch, stage + 1)]
        return tuple(place_of[key] for key in keys if key in place_of)

    return tuple(tuple(before(rank, each) for each in order) for rank, order in enumerate(orders))


def overlapped_passes(schedule: str, orders: Sequence[Order]) -> tuple[tuple[int, ...], ...]:
    """Forward passes that DualPipe runs at once with the backward pass that follows them.

    Such a pair takes the time "F&B" of the DeepSeek-V3 report (arXiv 2412.19437, section 3.2.1):
    neither starts before both have their inputs, and both end together. The two middle ranks run
    their first pair one after another, which shortens the bubble (`dualpipe.py`, step 4).

    Args:
        schedule: that of `orders`.
        orders: from `schedule_passes`.

    Returns:
        By rank the positions of these forward passes; none but with `dualpipe`.

    Example:
        >>> overlapped_passes("dualpipe", schedule_passes("dualpipe", 2, 4))
        ((4,), (4,))
    """
    if schedule != "dualpipe":
        return ((),) * len(orders)
    half = len(orders) // 2
    found = []
    for rank, order in enumerate(orders):
        kinds = [each.kind for each in order]
        pairs = [
            position
            for position, pair in enumerate(zip(kinds, kinds[1:], strict=False))
            if pair == (PassKind.FORWARD, PassKind.BACKWARD)
        ]
        found.append(tuple(pairs[rank in (half - 1, half) :]))
    return tuple(found)


def bubble_us(
    schedule: str,
    stages: int,
    micro_batches: int,
    virtual_stages: int = 1,
    *,
    forward_us: float,
    backward_us: float,
    weight_us: float | None = None,
    overlapped_us: float | None = None,
) -> float:
    """Time in which a rank waits in an iteration, by the published closed form.

    All stages take the same times and messages none. With p stages, v chunks on each, F forward,
    B backward (both gradients), W of that the gradients of weights, F&B of an overlapped pair:

    - `gpipe`, `1F1B`: (p - 1)(F + B); `interleaved`: (p - 1)(F + B) / v (Narayanan et al., arXiv
      2104.04473, sections 2.2.1 and 2.2.2).
    - `zero-bubble`: (p - 1)(F + B - 2 W) (Qi et al., arXiv 2401.10241, section 2.3, whose B is
      B - W here). Its order takes no longer if W is at most F and B - W, and m at least p.
    - `dualpipe`: (p/2 - 1)(F&B + B - 3 W) (DeepSeek-V3, arXiv 2412.19437, table 2). Its order
      keeps the two middle ranks waiting so long if F = B - W, and W is at most that.

    Args:
        schedule: see `schedule_passes`.
        stages: ranks of the pipeline.
        micro_batches: of an iteration.
        virtual_stages: chunks of layers of a rank.
        forward_us: of all layers of a stage, for one micro-batch.
        backward_us: likewise, gradients of inputs and of weights.
        weight_us: likewise, gradients of weights alone; half of `backward_us` by default.
        overlapped_us: of a forward and a backward pass at once; the sum of both by default.

    Returns:
        The time in microseconds.

    Raises:
        ConfigError: as `schedule_passes`.

    Example:
        >>> bubble_us("zero-bubble", 4, 8, forward_us=10.0, backward_us=20.0)
        30.0
    """
    _check(schedule, stages, micro_batches, virtual_stages)
    both = forward_us + backward_us
    weight = backward_us / 2 if weight_us is None else weight_us
    pair = both if overlapped_us is None else overlapped_us
    return {
        "none": 0.0,
        "gpipe": (stages - 1) * both,
        "1F1B": (stages - 1) * both,
        "interleaved": (stages - 1) * both / virtual_stages,
        "zero-bubble": (stages - 1) * (both - 2 * weight),
        "dualpipe": (stages // 2 - 1) * (pair + backward_us - 3 * weight),
    }[schedule]


def bubble_fraction(
    schedule: str,
    stages: int,
    micro_batches: int,
    virtual_stages: int = 1,
    *,
    forward_us: float = 1.0,
    backward_us: float = 2.0,
    weight_us: float | None = None,
    overlapped_us: float | None = None,
) -> float:
    """`bubble_us` over the time of all forward and backward passes of a rank, m (F + B).

    (p - 1) / m with `gpipe` and `1F1B`, (p - 1) / (m v) with `interleaved`, whatever the times.

    Args:
        schedule: see `schedule_passes`.
        stages: ranks of the pipeline.
        micro_batches: of an iteration.
        virtual_stages: chunks of layers of a rank.
        forward_us: see `bubble_us`.
        backward_us: see `bubble_us`.
        weight_us: see `bubble_us`.
        overlapped_us: see `bubble_us`.

    Returns:
        The share, which may exceed 1.

    Raises:
        ConfigError: as `schedule_passes`.

    Example:
        >>> bubble_fraction("interleaved", 4, 8, 3)
        0.125
    """
    bubble = bubble_us(
        schedule,
        stages,
        micro_batches,
        virtual_stages,
        forward_us=forward_us,
        backward_us=backward_us,
        weight_us=weight_us,
        overlapped_us=overlapped_us,
    )
    return bubble / (micro_batches * (forward_us + backward_us))


def passes_in_flight(
    schedule: str, stages: int, micro_batches: int, virtual_stages: int = 1
) -> tuple[int, ...]:
    """The most activations of a chunk of layers that each rank holds at once.

    They are held from the start of the forward pass to the end of the last pass that uses them,
    which is the weight part where the backward pass is in two.

    Args:
        schedule: see `schedule_passes`.
        stages: ranks of the pipeline.
        micro_batches: of an iteration.
        virtual_stages: chunks of layers of a rank.

    Returns:
        By rank, in chunks: of one `virtual_stages`-th of the rank's layers with `interleaved`, of
        one of its two stages with `dualpipe`, else of all its layers.

    Raises:
        ConfigError: as `schedule_passes`.

    Example:
        >>> passes_in_flight("1F1B", 4, 8)
        (4, 3, 2, 1)
    """
    change = {PassKind.FORWARD: 1, PassKind.BACKWARD: -1, PassKind.BACKWARD_WEIGHT: -1}
    orders = schedule_passes(schedule, stages, micro_batches, virtual_stages)
    return tuple(max(accumulate(change.get(each.kind, 0) for each in order)) for order in orders)


def _alone(stages: int, rank: int, micro_batches: int) -> Order:
    """No pipeline."""
    kinds = (PassKind.FORWARD, PassKind.BACKWARD)
    return tuple(Pass(kind, batch, 0) for batch in range(micro_batches) for kind in kinds)


def _gpipe(stages: int, rank: int, micro_batches: int) -> Order:
    """Forward, then backward in reverse."""
    forward = [Pass(PassKind.FORWARD, batch, 0) for batch in range(micro_batches)]
    backward = [Pass(PassKind.BACKWARD, batch, 0) for batch in reversed(range(micro_batches))]
    return (*forward, *backward)


def _one_f_one_b(stages: int, rank: int, micro_batches: int) -> Order:
    """Warm-up by the stages behind, then in turns."""
    forward = [Pass(PassKind.FORWARD, batch, 0) for batch in range(micro_batches)]
    backward = [Pass(PassKind.BACKWARD, batch, 0) for batch in range(micro_batches)]
    return _in_turns(forward, backward, stages - rank - 1)


def _interleaved(stages: int, rank: int, micro_batches: int, virtual_stages: int) -> Order:
    """Chunk by chunk in groups of as many micro-batches as there are ranks."""
    groups = range(0, micro_batches, stages)
    places = [
        (group + batch, chunk)
        for group in groups
        for chunk in range(virtual_stages)
        for batch in range(stages)
    ]
    forward = [Pass(PassKind.FORWARD, batch, chunk) for batch, chunk in places]
    backward = [
        Pass(PassKind.BACKWARD, batch, virtual_stages - 1 - chunk) for batch, chunk in places
    ]
    return _in_turns(forward, backward, (stages - rank - 1) * 2 + (virtual_stages - 1) * stages)


def _zero_bubble(stages: int, rank: int, micro_batches: int) -> Order:
    """As 1F1B; the weight part of a micro-batch follows the input part of the rank-th after it."""

    def split() -> Iterator[Pass]:
        for each in _one_f_one_b(stages, rank, micro_batches):
            if each.kind is PassKind.FORWARD:
                yield each
                continue
            yield each._replace(kind=PassKind.BACKWARD_INPUT)
            if each.micro_batch >= rank:
                yield Pass(PassKind.BACKWARD_WEIGHT, each.micro_batch - rank, 0)
        for batch in range(max(micro_batches - rank, 0), micro_batches):
            yield Pass(PassKind.BACKWARD_WEIGHT, batch, 0)

    return tuple(split())


def _dualpipe(stages: int, rank: int, micro_batches: int) -> Order:
    """The eight steps of `dualpipe.py`; `near` is the direction whose entry is the nearer rank."""
    middle = stages // 2
    depth = min(rank, stages - 1 - rank)
    near = int(rank >= middle)
    far = 1 - near
    first = (0, micro_batches // 2)
    done: Counter[tuple[PassKind, int]] = Counter()
    waiting: deque[Pass] = deque()
    order: list[Pass] = []

    def do(kind: PassKind, chunk: int) -> None:
        # A direction's backward passes have one count, in two parts or not.
        counted = (PassKind.FORWARD if kind is PassKind.FORWARD else PassKind.BACKWARD, chunk)
        order.append(Pass(kind, first[chunk] + done[counted], chunk))
        done[counted] += 1
        if kind is PassKind.BACKWARD_INPUT:
            waiting.append(order[-1]._replace(kind=PassKind.BACKWARD_WEIGHT))

    forward, backward, of_input = PassKind.FORWARD, PassKind.BACKWARD, PassKind.BACKWARD_INPUT
    for _ in range((middle - depth - 1) * 2):
        do(forward, near)
    for _ in range(depth + 1):
        do(forward, near)
        do(forward, far)
    for _ in range(middle - depth - 1):
        do(of_input, far)
        order.append(waiting.popleft())
        do(forward, far)
    for _ in range(micro_batches // 2 - stages + depth + 1):
        do(forward, near)
        do(backward, far)
        do(forward, far)
        do(backward, near)
    for _ in range(middle - depth - 1):
        do(backward, far)
        do(forward, far)
        do(backward, near)
    for count in range(2 * (depth + 1)):
        do(of_input if count > depth else backward, near if count % 2 else far)
    for _ in range(middle - depth - 1):
        order.append(waiting.popleft())
        do(of_input, near)
    return (*order, *waiting)


def _in_turns(forward: Sequence[Pass], backward: Sequence[Pass], warm_up: int) -> Order:
    """So many forward passes, then one forward and one backward, then the backward passes left."""
    warm_up = min(warm_up, len(forward))
    steady = len(forward) - warm_up
    turns = zip(forward[warm_up:], backward[:steady], strict=True)
    return (*forward[:warm_up], *chain.from_iterable(turns), *backward[steady:])


_ORDERS: dict[str, Callable[[int, int, int], Order]] = {
    "none": _alone,
    "gpipe": _gpipe,
    "1F1B": _one_f_one_b,
    "zero-bubble": _zero_bubble,
    "dualpipe": _dualpipe,
}


def _check(schedule: str, stages: int, micro_batches: int, virtual_stages: int) -> None:
    """Refuse what the schedule cannot do."""
    known = (*_ORDERS, "interleaved")
    if schedule not in known:
        expected = ", ".join(known)
        raise ConfigError("unknown schedule", where="schedule", got=schedule, expected=expected)
    for name, value in (
        ("pipeline_parallel", stages),
        ("micro_batches", micro_batches),
        ("virtual_stages", virtual_stages),
    ):
        if value < 1:
            raise ConfigError("too few", where=name, got=str(value), expected="1 or more")
    if schedule != "interleaved" and virtual_stages != 1:
        raise ConfigError(
            f"schedule {schedule} has one chunk of layers on a rank",
            where="virtual_stages",
            got=str(virtual_stages),
            expected="1, or schedule interleaved",
        )
    if schedule == "none" and stages != 1:
        raise ConfigError(
            "several stages need a schedule",
            where="schedule",
            got=f"none with {stages} stages",
            expected="1F1B, interleaved, zero-bubble, dualpipe or gpipe",
        )
    if schedule == "interleaved" and micro_batches % stages:
        lower = micro_batches // stages * stages
        raise ConfigError(
            "interleaved micro-batches go in groups of one a stage",
            where="micro_batches",
            got=str(micro_batches),
            expected=f"{lower} or {lower + stages}" if lower else str(stages),
        )
    if schedule == "dualpipe" and stages % 2:
        raise ConfigError(
            "dualpipe needs an even number of stages",
            where="pipeline_parallel",
            got=str(stages),
            expected=f"{stages - 1} or {stages + 1}" if stages > 1 else "2",
        )
    if schedule == "dualpipe" and (micro_batches % 2 or micro_batches < 2 * stages):
        near = max(micro_batches // 2 * 2, 2 * stages)
        odd = micro_batches > 2 * stages
        raise ConfigError(
            "dualpipe needs an even number of micro-batches, two a stage or more",
            where="micro_batches",
            got=str(micro_batches),
            expected=f"{near} or {near + 2}" if odd else str(near),
        )
