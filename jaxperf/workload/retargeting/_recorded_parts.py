"""What a recorded run is made of: its parts, each the mean over all places where it was seen.

A part is a prologue, a layer's forward pass, a message, an optimizer's step, and so on. Ranks that
do the same are taken together; a rank that computes slower than the others has a factor.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxperf.config import Job
from jaxperf.errors import ConfigError
from jaxperf.workload._schedules import PassKind, schedule_passes
from jaxperf.workload.retargeting._axes import rank_coordinates
from jaxperf.workload.retargeting._gradient_buckets import Sum
from jaxperf.workload.retargeting._items import Item, mean_item
from jaxperf.workload.retargeting._recognised_passes import RecordedPass, RecordedStep
from jaxperf.workload.retargeting._stages import stage_role

Part = tuple[str, ...]
# Ranks whose kernels differ by less run alike: noise is of this order.
_ALIKE = 0.03
_SHOWN = 24


@dataclass(frozen=True, eq=False)
class RecordedParts:
    """The parts of a recorded run.

    Attributes:
        parts: items of each part, such as `("layer", "forward")`; see `read_parts`.
        sums: by the role of a stage, the messages of gradients in its last backward pass.
        joined: what follows a backward pass waits for the messages over data parallelism in it.
        slowness: by rank, how much longer its kernels take than those of the median rank.
        tail_us: host work at the end of an iteration.
        steps: iterations that the means are over, of all ranks.
    """

    parts: Mapping[Part, tuple[Item, ...]]
    sums: Mapping[str, tuple[Sum, ...]]
    joined: bool
    slowness: Mapping[int, float]
    tail_us: float
    steps: int

    def first_of(self, *parts: Part) -> Part | None:
        """The first of some parts that was seen."""
        return next((part for part in parts if part in self.parts), None)

    @property
    def alike(self) -> bool:
        """Whether all ranks compute equally fast."""
        return all(factor == 1.0 for factor in self.slowness.values())


def read_parts(job: Job, steps: Sequence[RecordedStep]) -> RecordedParts:
    """The parts of a run.

    Parts are `("prologue" | "epilogue", role of the stage)`; `("layer", "forward")`; `("before" |
    "after", "forward", "model")` where the pass enters or leaves the model, else `"stage"`; the
    same of `"backward"` with `"first"` or `"later"` behind it for the micro-batch; `("begins" |
    "ends", "backward")`, the hand-overs; `("data", operation, way)`; and `("pipeline", "send" |
    "receive", way)`.

    Args:
        job: the recorded job.
        steps: of `recognise_passes`.

    Returns:
        Their means over steady iterations.

    Raises:
        ConfigError: the messages in the passes are not those of the job.
    """
    steady = [step for step in steps if step.steady] or list(steps)
    _check_messages(job, steady)
    _check_order(job, steady)
    slowness = _slowness(steady)
    pool = _Pool()
    for step in steady:
        role = stage_role(rank_coordinates(job, step.rank)["pp"], job.pipeline_parallel)
        add = pool.adder(slowness[step.rank])
        add(("prologue", role), step.prologue)
        add(("epilogue", role), step.epilogue)
        backward = 0
        add = pool.adder(slowness[step.rank], planned=True)
        for each in step.passes:
            _add_pass(add, role, each, "first" if backward == 0 else "later")
            backward += not each.forward
    tails = [step.tail_us for step in steady]
    return RecordedParts(
        pool.means(),
        _sums(job, steady),
        _joined(steady),
        slowness,
        float(np.mean(tails)),
        len(steady),
    )


def _check_order(job: Job, steps: Sequence[RecordedStep]) -> None:
    """Refuse a job whose schedule has forward and backward passes in another order."""
    orders = schedule_passes(
        job.schedule, job.pipeline_parallel, job.micro_batches, job.virtual_stages
    )
    for step in steps:
        order = orders[rank_coordinates(job, step.rank)["pp"]]
        wanted = "".join("F" if each.kind == PassKind.FORWARD else "B" for each in order)
        found = "".join("F" if each.forward else "B" for each in step.passes)
        if found != wanted:
            raise ConfigError(
                "the job does not have the trace's order of passes",
                where=f"job: schedule = {job.schedule}, rank {step.rank}",
                got=found[:_SHOWN],
                expected=wanted[:_SHOWN],
                remedy="describe the job that was recorded",
            )


def _check_messages(job: Job, steps: Sequence[RecordedStep]) -> None:
    """Refuse a job whose passes have other kinds of messages."""
    passes = [each for step in steps for each in step.passes]
    data = {(placed.operation, each.forward) for each in passes for placed in each.data}
    layers = [item for each in passes for layer in each.layers for item in layer]
    within = [item.message for item in layers if item.message]
    tensor = {message.operation for message in within if message.axis == "tensor"}
    context = any(message.axis == "context" for message in within)
    sends = any(each.sent or each.received for each in passes)
    gathers, sharded = ("all_gather", True) in data, job.sharding == "zero3"
    many = job.data_parallel * job.context_parallel > 1
    for wrong, field, got in (
        (sharded and many and not gathers, "sharding", "no gathers of weights in the passes"),
        (not sharded and gathers, "sharding", "gathers of weights in forward passes"),
        (
            ("all_reduce", True) in data,
            "rank_order",
            "sums over data parallelism in forward passes",
        ),
        (job.pipeline_parallel > 1 and not sends, "pipeline_parallel", "nothing sent or received"),
        (job.context_parallel > 1 and not context, "context_parallel", "no messages along it"),
        (
            job.tensor_parallel > 1 and not tensor,
            "tensor_parallel",
            "no messages along it within layers",
        ),
        (
            bool(tensor) and job.sequence_parallel != ("reduce_scatter" in tensor),
            "sequence_parallel",
            f"{', '.join(sorted(tensor))} along tensor parallelism",
        ),
    ):
        if wrong:
            raise ConfigError(
                "the job does not have the trace's messages",
                where=f"job: {field} = {getattr(job, field)}",
                got=got,
                remedy="describe the job that was recorded",
            )


Adder = Callable[[Part, Sequence[Item]], None]


def _add_pass(add: Adder, role: str, each: RecordedPass, variant: str) -> None:
    way = "forward" if each.forward else "backward"
    key = (way,) if each.forward else (way, variant)
    # The forward pass enters the model on the first stage; the backward pass leaves it there.
    enters = "model" if role in ("first" if each.forward else "last", "only") else "stage"
    leaves = "model" if role in ("last" if each.forward else "first", "only") else "stage"
    add(("before", *key, enters), each.before)
    add(("after", *key, leaves), each.after)
    for layer in each.layers:
        add(("layer", *key), layer)
    for placed in each.data:
        add(("data", placed.operation, way), (placed.item,))
    for name, items in (("receive", each.received), ("send", each.sent)):
        for item in items:
            add(("pipeline", name, way), (item,))
    if each.begins is not None:
        add(("begins", "backward"), (each.begins,))
    if each.ends is not None:
        add(("ends", "backward"), (each.ends,))


def _sums(job: Job, steps: Sequence[RecordedStep]) -> dict[str, tuple[Sum, ...]]:
    seen: dict[str, list[tuple[Sum, ...]]] = {}
    for step in steps:
        role = stage_role(rank_coordinates(job, step.rank)["pp"], job.pipeline_parallel)
        last = next((each for each in reversed(step.passes) if not each.forward), None)
        data = [placed for placed in last.data if "reduce" in placed.operation] if last else []
        messages = [placed.item.message for placed in data]
        sums = zip(data, messages, strict=True)
        seen.setdefault(role, []).append(
            tuple(Sum(placed.after, m.message_bytes) for placed, m in sums if m is not None)
        )
    found = {role: Counter(each).most_common(1)[0][0] for role, each in seen.items()}
    return {role: sums for role, sums in found.items() if sums}


def _joined(steps: Sequence[RecordedStep]) -> bool:
    """Whether what follows a backward pass waits for the sums of gradients in it.

    The backward pass of a data-parallel wrapper ends with that wait: so it is where nothing tells.
    """
    followers = []
    for step in steps:
        for k, each in enumerate(step.passes):
            if each.forward or not each.data:
                continue
            behind = step.passes[k + 1] if k + 1 < len(step.passes) else None
            items = [*each.sent, *(behind.before + behind.layers[0] if behind else ())]
            followers += [item for item in items if item.computes or item.message][:1]
    awaited = [stream for item in followers for work in item.work for stream in work.awaits]
    return not followers or any(s.startswith("data ") and "reduce" in s for s in awaited)


class _Pool:
    """Places where parts were seen."""

    def __init__(self):
        self.seen: dict[Part, list[tuple[Item, ...]]] = {}

    def adder(self, slowness: float, *, planned: bool = False) -> Adder:
        """Adds parts of a rank; `planned` where the plan says what awaits which message."""

        def add(part: Part, items: Sequence[Item]) -> None:
            items = tuple(slowed(item, 1 / slowness) for item in items)
            if planned:
                items = tuple(_unplanned(item) for item in items)
            self.seen.setdefault(part, []).append(items)

        return add

    def means(self) -> dict[Part, tuple[Item, ...]]:
        """Each part as it was seen most often, item by item the mean."""
        found = {}
        for part, places in self.seen.items():
            signatures = [tuple(item.signature for item in items) for items in places]
            usual, _ = Counter(signatures).most_common(1)[0]
            same = [p for p, s in zip(places, signatures, strict=True) if s == usual]
            found[part] = tuple(mean_item(column) for column in zip(*same, strict=True))
        return found


def _unplanned(item: Item) -> Item:
    """An item that waits for no message that is placed by the plan of a job."""

    def kept(streams: frozenset[str]) -> frozenset[str]:
        return frozenset(s for s in streams if not s.startswith(("data ", "pipeline ")))

    return replace(item, work=tuple(replace(work, awaits=kept(work.awaits)) for work in item.work))


def slowed(item: Item, factor: float) -> Item:
    """An item whose kernels take so much longer; messages do not."""
    if factor == 1.0 or not item.computes:
        return item
    work = tuple(
        replace(each, duration_us=each.duration_us * factor) if each.computes else each
        for each in item.work
    )
    return replace(item, work=work)


def _slowness(steps: Sequence[RecordedStep]) -> dict[int, float]:
    """By how much the kernels of each rank's layers take longer than the median rank's."""
    time_us: dict[int, list[float]] = {}
    for step in steps:
        layers = [layer for each in step.passes for layer in each.layers]
        works = [work for layer in layers for item in layer for work in item.work]
        total_us = sum(work.duration_us for work in works if work.computes)
        time_us.setdefault(step.rank, []).append(total_us)
    means = {rank: float(np.mean(values)) for rank, values in time_us.items()}
    usual = float(np.median(list(means.values())))
    factors = {rank: mean / usual if usual > 0 else 1.0 for rank, mean in means.items()}
    return {r: f if abs(f - 1) > _ALIKE else 1.0 for r, f in factors.items()}
