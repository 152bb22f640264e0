"""The order in which a rank of a re-targeted job does what: its plan for one iteration."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jaxperf.config import Job
from jaxperf.workload._messages import gradient_messages, parameter_messages, pipeline_message
from jaxperf.workload._parameters import layer_parameters
from jaxperf.workload._pieces import Piece
from jaxperf.workload._schedules import Pass, PassKind, schedule_passes, virtual_stage
from jaxperf.workload.retargeting._axes import rank_at
from jaxperf.workload.retargeting._gradient_buckets import Bucket, gradient_buckets
from jaxperf.workload.retargeting._items import Item
from jaxperf.workload.retargeting._recorded_parts import Part, RecordedParts, slowed
from jaxperf.workload.retargeting._resized import Origin, Resizer, Sized, awaiting
from jaxperf.workload.retargeting._stages import layers_of_stage, stage_role

Meeting = tuple[object, ...]
# Shares of a layer's kernels that differ by less are the same.
_SAME_PLACE = 1e-6


@dataclass(frozen=True, slots=True)
class Op:
    """One item of a rank's plan.

    Attributes:
        item: what the host does, and the device.
        origin: where its durations come from.
        meeting: of a message what it and its counterparts have in common; `None` for one that
            waits for no other simulated rank.
        label: by which later items await its work.
        awaits: labels of work that must have ended before its own starts.
        pieces: what each of its works is, `None` where that is not known.
    """

    item: Item
    origin: Origin
    meeting: Meeting | None = None
    label: str | None = None
    awaits: tuple[str, ...] = ()
    pieces: tuple[Piece | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """A simulated rank: its stage, and which replica and shard of those that differ."""

    stage: int
    replica: int
    shard: int


class RankPlanner:
    """Writes the iterations of the ranks of a job.

    Args:
        job: the job.
        resizer: the recorded parts.
    """

    def __init__(self, job: Job, resizer: Resizer):
        self.job, self.resizer = job, resizer
        self.parts: RecordedParts = resizer.parts
        self.orders = schedule_passes(
            job.schedule, job.pipeline_parallel, job.micro_batches, job.virtual_stages
        )
        self.last_virtual = job.pipeline_parallel * job.virtual_stages - 1
        self.buckets: dict[int, list[Bucket]] = {}
        self._sized: dict[tuple[Part, int], list[Sized]] = {}

    def iteration(self, place: Place, slowness: float) -> list[Op]:
        """The plan of one rank for one iteration.

        Args:
            place: the rank.
            slowness: how much longer its kernels take.

        Returns:
            Its items in the order of the host.
        """
        ops = list(_Iteration(self, place).ops())
        if slowness == 1.0:
            return ops
        return [replace(op, item=slowed(op.item, slowness)) for op in ops]

    def gradient_buckets(self, stage: int) -> list[Bucket]:
        """The messages of gradients in the last backward pass of a stage."""
        if stage not in self.buckets:
            found = gradient_buckets(self.resizer.job, self.parts.sums, self.job, stage)
            self.buckets[stage] = found
        return self.buckets[stage]

    def sized(self, part: Part, stage: int) -> list[Sized]:
        """A part of this job: as recorded, at another size, or modelled where it never was."""
        key = (part, stage)
        if key not in self._sized:
            self._sized[key] = self.resizer.part(self.job, part, stage)
        return self._sized[key]


class _Iteration:
    """One iteration of one rank in the making."""

    def __init__(self, planner: RankPlanner, place: Place):
        self.planner, self.place, self.job = planner, place, planner.job
        self.order = planner.orders[place.stage]
        self.role = stage_role(place.stage, self.job.pipeline_parallel)
        # Of a backward pass in two parts the sums follow the second.
        sums = PassKind.BACKWARD, PassKind.BACKWARD_WEIGHT
        self.backward_passes = sum(p.kind in sums for p in self.order)
        self.met: dict[tuple[object, ...], int] = {}
        self.pending: list[str] = []
        self.joining: tuple[str, ...] = ()
        self.last_sums: list[Bucket] = []
        self.sent = 0

    def ops(self) -> Iterator[Op]:
        """All items; the first to use the device after a backward pass joins its messages."""
        for op in self._passes():
            message = op.item.message
            sends = message is not None and message.axis == "pipeline" and message.sends
            if self.joining and (op.item.computes or sends):
                op = replace(op, awaits=(*op.awaits, *self.joining))
                self.joining = ()
            yield op

    def _passes(self) -> Iterator[Op]:
        yield from self._plain(self._of_role("prologue"))
        done = 0
        for each in self.order:
            if each.kind == PassKind.FORWARD:
                yield from self._forward(each)
            elif each.kind == PassKind.BACKWARD_INPUT:
                yield from self._backward(each, done)
            elif each.kind == PassKind.BACKWARD_WEIGHT:
                yield from self._backward_thread(each, done, None)
                done += 1
            else:
                yield from self._backward(each, done)
                done += 1
        yield from self._epilogue()

    def _of_role(self, name: str) -> list[Sized]:
        other = {"first": ("only", "middle"), "last": ("only",), "middle": ("first", "last")}
        roles = [self.role, *other.get(self.role, ()), "first", "last", "middle", "only"]
        part = self.planner.parts.first_of(*((name, role) for role in roles))
        return self.planner.sized(part, self.place.stage) if part is not None else []

    def _epilogue(self) -> Iterator[Op]:
        waited = False
        for op in self._plain(self._of_role("epilogue")):
            if not waited and op.item.computes:
                waited = True
                op = replace(op, awaits=tuple(self.pending))
            yield op

    # -- passes ---------------------------------------------------------------------------------

    def _forward(self, each: Pass) -> Iterator[Op]:
        stage = self._virtual(each)
        received = None
        if stage > 0:
            received = f"received {each.micro_batch} {stage} forward"
            yield self._pipeline(each, stage, "receive", "forward", received)
        enters = "model" if stage == 0 else "stage"
        leaves = "model" if stage == self.planner.last_virtual else "stage"
        body = [
            *self._plain(self._sized(("before", "forward", enters))),
            *self._layers(each, "forward", ("layer", "forward")),
            *self._plain(self._sized(("after", "forward", leaves))),
        ]
        yield from _first_awaits(body, received)
        if stage < self.planner.last_virtual:
            yield self._pipeline(each, stage, "send", "forward", None)

    def _backward(self, each: Pass, done: int) -> Iterator[Op]:
        """A backward pass, or the part of it that other stages wait for."""
        stage = self._virtual(each)
        received = None
        if stage < self.planner.last_virtual:
            received = f"received {each.micro_batch} {stage} backward"
            yield self._pipeline(each, stage, "receive", "backward", received)
        yield from self._backward_thread(each, done, received)
        if stage > 0:
            yield self._pipeline(each, stage, "send", "backward", None)

    def _backward_thread(self, each: Pass, done: int, received: str | None) -> Iterator[Op]:
        """What the other thread does in a backward pass, or in a part of it."""
        stage = self._virtual(each)
        variant = "first" if done == 0 else "later"
        enters = "model" if stage == self.planner.last_virtual else "stage"
        leaves = "model" if stage == 0 else "stage"
        yield from self._plain(self._sized(("begins", "backward")))
        body = [
            *self._plain(self._variant("before", variant, enters)),
            *self._layers(each, "backward", self._layer_part(variant), done),
            *self._plain(self._variant("after", variant, leaves)),
            *self._summed(self.last_sums, math.inf),
        ]
        yield from _first_awaits([op for op in body if _belongs(op, each.kind)], received)
        yield from self._plain(self._sized(("ends", "backward")))
        if self.planner.parts.joined:
            self.joining = tuple(self.pending)

    def _layer_part(self, variant: str) -> Part:
        part = self.planner.parts.first_of(
            ("layer", "backward", variant),
            ("layer", "backward", "later"),
            ("layer", "backward", "first"),
        )
        return part or ("layer", "backward", "later")

    def _virtual(self, each: Pass) -> int:
        job = self.job
        return virtual_stage(job.schedule, job.pipeline_parallel, self.place.stage, each.chunk)

    def _layers(self, each: Pass, way: str, part: Part, done: int = -1) -> Iterator[Op]:
        """The layers of a pass, with the messages over data parallelism between them."""
        count = layers_of_stage(self.job, self._virtual(each))
        gathers = self._gathers(each, way, count)
        sums = self._sums(each, done) if way == "backward" else []
        self.last_sums = sums
        yield from self._summed(sums, 0.0)
        for begun in range(count):
            for k in [k for k in range(len(gathers)) if max(0, k - self.job.prefetch) == begun]:
                yield gathers[k]
            layer = [*self._plain(self.planner.sized(part, self.place.stage))]
            label = gathers[begun].label if gathers else None
            kernels = sum(op.item.computes for op in layer)
            launched = 0
            for op in _first_awaits(layer, label):
                yield op
                launched += op.item.computes
                if launched < kernels:
                    yield from self._summed(sums, begun + launched / kernels)
            yield from self._summed(sums, begun + 1.0)

    def _gathers(self, each: Pass, way: str, count: int) -> list[Op]:
        """Of a fully sharded job the gather of each layer's weights."""
        if self.job.sharding != "zero3":
            return []
        pieces = parameter_messages(self.job, layer_parameters(self.job, experts=False))
        if not pieces:
            return []
        name = f"weights {each} {way}"
        return [
            replace(self._data(pieces[0], "all_gather", way), label=f"{name} {layer}")
            for layer in range(count)
        ]

    def _sums(self, each: Pass, done: int) -> list[Bucket]:
        """The messages of gradients of a backward pass, in their order."""
        if self.job.sharding == "zero3" and each.kind != PassKind.BACKWARD_INPUT:
            counts = layer_parameters(self.job, experts=False)
            pieces = gradient_messages(self.job, counts)
            layers = range(1, layers_of_stage(self.job, self._virtual(each)) + 1)
            return [Bucket(layer, piece) for layer in layers for piece in pieces]
        if done < self.backward_passes - 1 or each.kind == PassKind.BACKWARD_INPUT:
            return []
        return sorted(self.planner.gradient_buckets(self.place.stage), key=lambda each: each.after)

    def _summed(self, sums: list[Bucket], launched: float) -> Iterator[Op]:
        """The messages that are due after so many layers; they are taken from the list."""
        while sums and sums[0].after <= launched + _SAME_PLACE:
            piece = sums.pop(0).piece
            self.sent += 1
            # Messages of one operation are on one stream: its last is the last of all.
            self.pending = [f"gradients {self.sent}"]
            yield replace(self._data(piece, piece.operation, "backward"), label=self.pending[0])

    # -- messages -------------------------------------------------------------------------------

    def _data(self, piece: Piece, operation: str, way: str) -> Op:
        """A message over data parallelism: recorded, scaled, or modelled."""
        parts = self.planner.parts
        part = parts.first_of(
            ("data", operation, way),
            ("data", operation, "forward"),
            ("data", operation, "backward"),
        )
        stream = f"data {operation}"
        if part is None:
            item, origin = (
                self.planner.resizer.new_message(piece, way == "forward"),
                Origin.MODELLED,
            )
        else:
            item, origin = self.planner.resizer.resized_message(parts.parts[part][0], piece)
            item = replace(item, on_main=way == "forward")
        item = replace(item, work=tuple(replace(work, stream=stream) for work in item.work))
        meeting = self._meeting("data", self.place.stage, self.place.shard)
        return Op(item, origin, meeting, pieces=(piece,))

    def _pipeline(self, each: Pass, stage: int, name: str, way: str, label: str | None) -> Op:
        parts, piece = self.planner.parts, pipeline_message(self.job)
        sends = name == "send"
        step = 1 if way == "forward" else -1
        source = stage if sends else stage - step
        peers = source % self.job.pipeline_parallel, (source + step) % self.job.pipeline_parallel
        piece = self._between(*peers)
        part = parts.first_of(("pipeline", name, way), ("pipeline", name, "forward"))
        if part is None:
            made = self.planner.resizer.new_message(piece, True, sends=sends)
            item, origin = made, Origin.MODELLED
        else:
            item, origin = self.planner.resizer.resized_message(parts.parts[part][0], piece)
        stream = f"pipeline {peers[0]} to {peers[1]}"
        item = replace(item, work=tuple(replace(work, stream=stream) for work in item.work))
        meeting = ("pipeline", source, way, each.micro_batch, self.place.replica, self.place.shard)
        return Op(item, origin, meeting, label, pieces=(piece,))

    def _between(self, one: int, other: int) -> Piece:
        """The message between two stages, as far as between nodes where any pair of ranks is."""
        piece = pipeline_message(self.job)
        node = self.planner.resizer.times.hardware.gpus_per_node
        ranks = [
            tuple(rank_at(self.job, stage, replica, shard) // node for stage in (one, other))
            for replica in range(min(self.job.data_parallel, node))
            for shard in range(min(self.job.tensor_parallel, node))
        ]
        apart = any(here != there for here, there in ranks)
        return replace(piece, stride=float(node) if apart else 1.0)

    def _meeting(self, *where: object) -> Meeting:
        """The next meeting of a group; all of its members count alike."""
        self.met[where] = self.met.get(where, 0) + 1
        return (*where, self.met[where])

    # -- parts ----------------------------------------------------------------------------------

    def _variant(self, name: str, variant: str, where: str) -> list[Sized]:
        part = self.planner.parts.first_of(
            (name, "backward", variant, where),
            (name, "backward", "later", where),
            (name, "backward", "first", where),
        )
        return self._sized(part or (name, "backward", "later", where))

    def _sized(self, part: Part) -> list[Sized]:
        return self.planner.sized(part, self.place.stage)

    def _plain(self, sized: Sequence[Sized]) -> Iterator[Op]:
        """Items of a part; messages between shards meet."""
        for each in sized:
            message = each.item.message
            meeting = None
            if message is not None and message.axis in ("tensor", "context"):
                meeting = self._meeting(message.axis, self.place.stage, self.place.replica)
            yield Op(each.item, each.origin, meeting, pieces=each.pieces)


def _belongs(op: Op, kind: PassKind) -> bool:
    """Whether an item is in a part of a backward pass that is done in two."""
    message = op.item.message
    sums = message is not None and message.axis == "data" and "reduce" in message.operation
    of_weights = any(piece is not None and piece.of_weights for piece in op.pieces)
    if kind == PassKind.BACKWARD_INPUT:
        return not of_weights
    if kind == PassKind.BACKWARD_WEIGHT:
        return of_weights or sums
    return True


def _first_awaits(ops: Sequence[Op], label: str | None) -> Iterator[Op]:
    """Items of which the first that computes waits for some work."""
    for op in ops:
        if label is not None and op.item.computes:
            op = replace(op, item=awaiting(op.item, ""), awaits=(*op.awaits, label))
            label = None
        yield op
