"""The parts of a recorded run as another job has them: at other sizes, with other messages."""

import copy
import difflib
import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jaxperf.config import Hardware, Job
from jaxperf.cost import WorkKind
from jaxperf.graph import TaskClass, TaskKind
from jaxperf.workload._kernels import (
    embedding_backward,
    embedding_forward,
    head_backward,
    head_forward,
    layer_backward,
    layer_forward,
    layer_recompute,
    optimizer_pieces,
)
from jaxperf.workload._messages import gradient_messages, parameter_messages
from jaxperf.workload._parameters import (
    embedding_parameters,
    head_parameters,
    layer_parameters,
)
from jaxperf.workload._pieces import Piece, stream
from jaxperf.workload.retargeting._items import COMPUTE, DeviceItem, Item, ItemKind, Message
from jaxperf.workload.retargeting._kernel_times import (
    Observed,
    fit_kernel_times,
    sizes,
    spans_nodes,
)
from jaxperf.workload.retargeting._matched_pieces import Names, match_pieces
from jaxperf.workload.retargeting._recorded_parts import Part, RecordedParts
from jaxperf.workload.retargeting._stages import stage_parameters

_WITHIN_LAYERS = ("tensor", "context")
_ACCUMULATION = "gradient accumulation"


class Origin(enum.IntEnum):
    """Where the duration of a task comes from."""

    RECORDED = 0  # it was measured, at this size
    SCALED = 1  # it was measured at another size
    MODELLED = 2  # it was never recorded


@dataclass(frozen=True, slots=True)
class Sized:
    """An item of the other job.

    Attributes:
        item: the item, its durations those of the other job.
        origin: where they come from.
        pieces: what each of its works is in the other job, `None` where that is not known.
    """

    item: Item
    origin: Origin
    pieces: tuple[Piece | None, ...] = ()


@dataclass(frozen=True, slots=True)
class _Named:
    """An item, and the pieces that its works are."""

    item: Item
    names: Names
    origin: Origin = Origin.RECORDED


class Resizer:
    """The parts of a recorded job, for other jobs.

    Args:
        job: the recorded job.
        parts: what was recorded.
        hardware: the machine.

    Raises:
        ConfigError: a multiply has a shape that the job does not have.
    """

    def __init__(self, job: Job, parts: RecordedParts, hardware: Hardware):
        self.job, self.parts, self.hardware = job, parts, hardware
        self._named: dict[Part, list[_Named]] = {}
        for part, items in parts.parts.items():
            added = _accumulating(parts.parts, part)
            other = [item for k, item in enumerate(items) if k not in added]
            stage = self._recorded_stage(part)
            found = iter(match_pieces(other, part_pieces(job, part, stage), " ".join(part)))
            self._named[part] = [
                _Named(item, (_ACCUMULATION,) if k in added else next(found))
                for k, item in enumerate(items)
            ]
        self.times = fit_kernel_times(self._observed(), hardware)

    def with_nodes_of(self, gpus: int) -> "Resizer":
        """The same where a node has another number of accelerators."""
        other = copy.copy(self)
        other.times = self.times.with_nodes_of(gpus)
        return other

    def _observed(self) -> list[Observed]:
        """Kernels that are one piece of the job, and messages whose size is known."""
        found = []
        for part, named in self._named.items():
            pieces = _by_name(part_pieces(self.job, part, 0))
            used = [name for each in named for name in each.names if name]
            for each in named:
                for work, name in zip(each.item.work, each.names, strict=True):
                    message = work.message
                    if _waits_for_stages(work):
                        continue
                    if message is not None and message.message_bytes > 0 and message.ranks > 1:
                        found.append(Observed(message_piece(message), work.duration_us))
                    elif name in pieces and used.count(name) == 1 and len(pieces[name]) == 1:
                        found.append(Observed(pieces[name][0], work.duration_us, work.blocks))
        return [each for each in found if each.time_us > 0]

    def part(self, other: Job, part: Part, stage: int = 0) -> list[Sized]:
        """A part as another job has it.

        Args:
            other: the job.
            part: of `read_parts`; one that was never recorded is modelled.
            stage: of the other job, for parts that depend on what a stage holds.

        Returns:
            Its items.
        """
        if part not in self._named:
            return self._modelled(other, part, stage)
        named = self._named[part]
        if part[:2] == ("layer", "backward"):
            named = self._recomputed(other, named)
        before = _by_name(part_pieces(self.job, part, self._recorded_stage(part)))
        before |= {_ACCUMULATION: [_accumulation(self.job, part)]}
        after_pieces = part_pieces(other, part, stage)
        if part[0] == "layer":
            # What is computed anew may have been recorded in the forward pass alone.
            before |= _recompute_names(self.job)
            named = self._with_messages(other, part, named, after_pieces)
        after = _by_name(after_pieces) | {_ACCUMULATION: [_accumulation(other, part)]}
        sized = [self._sized(each, before, after) for each in named]
        if part[0] in ("prologue", "epilogue"):
            sized = self._whole_stage(other, part, stage, sized)
        return sized

    def _modelled(self, other: Job, part: Part, stage: int) -> list[Sized]:
        """A part that no recorded rank has, such as the output where only the first stage was."""
        found, on_main = [], part[1] == "forward"
        for piece in part_pieces(other, part, stage):
            if piece.kind == WorkKind.COLLECTIVE:
                item = self.new_message(piece, on_main)
            else:
                item = self._new_kernel(piece, on_main)
            found.append(Sized(item, Origin.MODELLED, (piece,)))
        return found

    def _new_kernel(self, piece: Piece, on_main: bool) -> Item:
        like = self._usual_kernel()
        work = replace(
            like.work[0],
            name=f"{piece.name} (modelled)",
            task_class=piece.task_class,
            duration_us=self.times.time_us(piece),
            awaits=frozenset(),
            sm_share=math.nan,
            shape=None,
        )
        return replace(like, on_main=on_main, work=(work,))

    def _usual_kernel(self) -> Item:
        """The kernel of a layer with the usual host work."""
        parts = self.parts.parts.items()
        layers = [item for part, items in parts if part[0] == "layer" for item in items]
        usual = sorted((i for i in layers if i.computes), key=lambda item: item.host_us)
        return usual[len(usual) // 2]

    def _whole_stage(self, other: Job, part: Part, stage: int, sized: list[Sized]) -> list[Sized]:
        """Messages of all the weights of a stage, before or after the passes."""
        had = stage_parameters(self.job, self._recorded_stage(part))
        has = stage_parameters(other, stage)
        group = gradient_messages(other, has)
        found = []
        for each in sized:
            message = each.item.message
            if message is None or message.axis != "data":
                found.append(each)
            elif group:
                size = message.message_bytes * float(has.total / had.total)
                recorded = message_piece(message)
                shape = replace(recorded, ranks=group[0].ranks, stride=group[0].stride)
                piece = replace(shape, message_bytes=size)
                item, origin = self.resized_message(each.item, piece)
                found.append(Sized(item, origin, (piece,)))
        gathers = other.sharding in ("zero1", "zero2")
        if part[0] == "epilogue" and gathers and self.job.sharding not in ("zero1", "zero2"):
            # The weights that other ranks have updated come back.
            for piece in parameter_messages(other, has):
                item = self.new_message(piece, True)
                found.append(Sized(item, Origin.MODELLED, (piece,)))
        return found

    def _recorded_stage(self, part: Part) -> int:
        """A stage of the recorded job that has the part."""
        return self.job.pipeline_parallel - 1 if part[-1] == "last" else int(part[-1] == "middle")

    def _sized(
        self,
        each: _Named,
        before: Mapping[str, list[Piece]],
        after: Mapping[str, list[Piece]],
    ) -> Sized:
        works, pieces, origin = [], [], each.origin
        for work, name in zip(each.item.work, each.names, strict=True):
            if name is None or name not in before or name not in after:
                works.append(work)
                pieces.append(message_piece(work.message) if work.message else None)
                continue
            work, changed = self._changed(work, before[name], after[name])
            works.append(work)
            pieces.append(after[name][0])
            if changed and origin == Origin.RECORDED:
                origin = Origin.SCALED
        return Sized(replace(each.item, work=tuple(works)), origin, tuple(pieces))

    def _changed(
        self, work: DeviceItem, before: Sequence[Piece], after: Sequence[Piece]
    ) -> tuple[DeviceItem, bool]:
        first, then = before[0], after[0]
        same = sizes(first) == sizes(then) or (work.message and self._alike(first, then))
        if same and len(before) == len(after):
            return work, False
        alone = work.duration_us / len(before)
        time_us = len(after) * self.times.resized_us(alone, first, then)
        message = work.message
        if message is not None:
            message = replace(
                message, message_bytes=then.message_bytes, ranks=then.ranks, stride=then.stride
            )
        return replace(work, duration_us=time_us, message=message), True

    # -- messages within layers -----------------------------------------------------------------

    def _with_messages(
        self, other: Job, part: Part, named: list[_Named], pieces: Sequence[Piece]
    ) -> list[_Named]:
        """The messages of a layer by the other job: those recorded, fewer, or more."""
        mine = [p for p in part_pieces(self.job, part, 0) if p.kind == WorkKind.COLLECTIVE]
        for axis in _WITHIN_LAYERS:
            had = [p.name for p in mine if p.axis == axis]
            has = [p.name for p in pieces if p.axis == axis]
            places = [k for k, each in enumerate(named) if each.item.axis == axis]
            if has and len(places) == len(has):
                for k, name in zip(places, has, strict=True):
                    # Recorded and changed sizes are told by one name.
                    named = _renamed(named, k, name if name in had else None)
                continue
            if not has or places:
                named = _without(named, axis)
            for piece in (p for p in pieces if p.axis == axis):
                named = self._inserted(named, pieces, piece)
        return named

    def _inserted(self, named: list[_Named], pieces: Sequence[Piece], piece: Piece) -> list[_Named]:
        """A message after the kernel that it follows, and before the one that awaits it."""
        order = [p for p in pieces if p.kind != WorkKind.COLLECTIVE or p is piece]
        previous = [p.name for p in order[: order.index(piece)]]
        at = 0
        for k, each in enumerate(named):
            if any(name in previous for name in each.names if name):
                at = k + 1
        item = self.new_message(piece, self._on_main(named))
        added = _Named(item, (None,), Origin.MODELLED)
        rest = list(named[at:])
        skip = 1 if piece.beside else 0
        for k, each in enumerate(rest):
            if each.item.computes:
                if skip:
                    skip -= 1
                    continue
                rest[k] = replace(each, item=awaiting(each.item, piece.axis))
                break
        return [*named[:at], added, *rest]

    def _on_main(self, named: Sequence[_Named]) -> bool:
        return all(each.item.on_main for each in named)

    def new_message(self, piece: Piece, on_main: bool, *, sends: bool = False) -> Item:
        """A message that was never recorded: its host work that of another, its time modelled.

        Args:
            piece: what it sends.
            on_main: which thread launches it.
            sends: of a message of the pipeline, that this rank sends it.

        Returns:
            The item; it awaits the kernels before it, unless it receives.
        """
        like = self._like(piece)
        work = like.work[0]
        message = Message(
            axis=piece.axis,
            operation=piece.operation,
            message_bytes=float(piece.message_bytes),
            ranks=float(piece.ranks),
            stride=float(piece.stride),
            sends=sends,
        )
        receives = piece.axis == "pipeline" and not sends
        wait_us = work.wait_lag_us if work.wait_lag_us == work.wait_lag_us else work.stream_lag_us
        work = replace(
            work,
            name=f"{piece.name} (modelled)",
            kind=TaskKind.COLLECTIVE,
            task_class=TaskClass.COMMUNICATION,
            stream=piece.axis,
            duration_us=self.times.time_us(piece),
            wait_lag_us=wait_us,
            awaits=frozenset() if receives else frozenset({COMPUTE}),
            sm_share=math.nan,
            message=message,
            shape=None,
        )
        return Item(ItemKind.LAUNCH, on_main, like.host_us, like.call_us, (work,))

    def _like(self, piece: Piece) -> Item:
        """A recorded launch that is most like that of a message.

        Of a run without any message it is a kernel of a layer, with twice its host work: the calls
        that order two streams come on top.
        """
        parts = self.parts.parts
        every = [item for items in parts.values() for item in items if len(item.work) == 1]
        same = [item for item in every if item.axis == piece.axis]
        other = [item for item in every if item.axis]
        if same or other:
            return (same or other)[0]
        usual = self._usual_kernel()
        return replace(usual, host_us=2 * usual.host_us)

    def resized_message(self, item: Item, piece: Piece) -> tuple[Item, Origin]:
        """A recorded message at the size, and between as many ranks, as another job has.

        Args:
            item: the message.
            piece: what it is to send.

        Returns:
            The message, and where its duration comes from.
        """
        work = item.work[0]
        assert work.message is not None
        recorded = message_piece(work.message)
        if _waits_for_stages(work) or not recorded.message_bytes > 0 or not recorded.ranks > 1:
            time_us, origin = self.times.time_us(piece), Origin.MODELLED
        elif self._alike(recorded, piece):
            return item, Origin.RECORDED
        else:
            time_us = self.times.resized_us(work.duration_us, recorded, piece)
            origin = Origin.SCALED
        message = replace(
            work.message,
            operation=piece.operation,
            message_bytes=float(piece.message_bytes),
            ranks=float(piece.ranks),
            stride=float(piece.stride),
        )
        work = replace(work, duration_us=time_us, message=message)
        return replace(item, work=(work, *item.work[1:])), origin

    def _alike(self, recorded: Piece, changed: Piece) -> bool:
        """Whether two messages are the same but for how their sizes were rounded."""
        same = (recorded.operation, recorded.ranks) == (changed.operation, changed.ranks)
        far = spans_nodes(recorded, self.hardware), spans_nodes(changed, self.times.hardware)
        equal = math.isclose(recorded.message_bytes, changed.message_bytes, rel_tol=1e-3)
        return same and equal and far[0] == far[1]

    # -- recomputation --------------------------------------------------------------------------

    def _recomputed(self, other: Job, named: list[_Named]) -> list[_Named]:
        """A layer's backward pass with what the other job computes anew, and nothing else."""
        if other.recompute == self.job.recompute:
            return named
        if self.job.recompute != "none":
            named = [each for each in named if not _anew(each.names)]
            named = _without_leading_messages(named)
        wanted = [piece.name for piece in layer_recompute(other, experts=False)]
        forward = [
            replace(
                each,
                item=replace(each.item, on_main=False),
                names=tuple(name and f"recompute {name}" for name in each.names),
            )
            for each in self._named.get(("layer", "forward"), [])
        ]
        if other.recompute == "full":
            return [*forward, *named]
        anew = [e for e in forward if any(name in wanted for name in e.names if name)]
        at = next(
            (k for k, each in enumerate(named) if "attention gradient" in each.names), len(named)
        )
        return [*named[:at], *anew, *named[at:]]


def part_pieces(job: Job, part: Part, stage: int) -> tuple[Piece, ...]:
    """The pieces of a job that a recorded part is made of.

    Args:
        job: the job.
        part: of `read_parts`.
        stage: of the job, for the parts that depend on what it holds.

    Returns:
        Its pieces; none of parts that no size of the job changes.
    """
    match part:
        case ("layer", "forward"):
            return layer_forward(job, experts=False)
        case ("layer", "backward", _):
            again = layer_recompute(job, experts=False)
            return again + layer_backward(job, experts=False)
        case ("before", "forward", "model"):
            return embedding_forward(job)
        case ("after", "forward", "model"):
            return head_forward(job)
        case ("before", "backward", _, "model"):
            return head_backward(job)
        case ("after", "backward", _, "model"):
            return embedding_backward(job)
        case ("epilogue", _):
            return optimizer_pieces(job, stage_parameters(job, stage))
    return ()


def _accumulating(parts: Mapping[Part, tuple[Item, ...]], part: Part) -> set[int]:
    """Items of a later micro-batch's backward pass that the first does not have.

    They add gradients to those of the micro-batches before.
    """
    if "later" not in part:
        return set()
    first = parts.get(tuple("first" if word == "later" else word for word in part))
    if first is None:
        return set()
    signatures = [item.signature for item in parts[part]]
    matcher = difflib.SequenceMatcher(a=[i.signature for i in first], b=signatures, autojunk=False)
    added = [k for tag, _, _, a, b in matcher.get_opcodes() if tag == "insert" for k in range(a, b)]
    return {k for k in added if parts[part][k].computes}


def _accumulation(job: Job, part: Part) -> Piece:
    """Adding gradients of a layer, the embedding or the output: two are read, one is written."""
    match part:
        case ("layer", *_):
            counts = layer_parameters(job, experts=False)
        case ("before", *_):
            counts = head_parameters(job)
        case _:
            counts = embedding_parameters(job)
    moved_bytes = 3 * float(counts.total) * job.gradient_bytes
    return stream(_ACCUMULATION, TaskClass.ELEMENTWISE, moved_bytes, "fp32")


def message_piece(message: Message) -> Piece:
    """A recorded message as a piece."""
    return Piece(
        "message",
        WorkKind.COLLECTIVE,
        TaskClass.COMMUNICATION,
        "bf16",
        operation=message.operation,
        message_bytes=message.message_bytes,
        ranks=message.ranks,
        stride=message.stride if message.stride == message.stride else 1.0,
        axis=message.axis,
    )


def _waits_for_stages(work: DeviceItem) -> bool:
    """Whether a message's duration is mostly waiting for a stage that was not recorded."""
    return work.holds_waits and work.message is not None and work.message.axis == "pipeline"


def awaiting(item: Item, stream: str) -> Item:
    """An item whose first work also waits for a stream.

    Args:
        item: a launch.
        stream: of `DeviceItem.stream`.

    Returns:
        The changed item.
    """
    first = item.work[0]
    lag_us = first.wait_lag_us if first.wait_lag_us == first.wait_lag_us else first.stream_lag_us
    first = replace(first, awaits=first.awaits | {stream}, wait_lag_us=lag_us)
    return replace(item, work=(first, *item.work[1:]))


def _by_name(pieces: Sequence[Piece]) -> dict[str, list[Piece]]:
    found: dict[str, list[Piece]] = {}
    for piece in pieces:
        found.setdefault(piece.name, []).append(piece)
    return found


def _recompute_names(job: Job) -> dict[str, list[Piece]]:
    forward = _by_name(layer_forward(job, experts=False))
    return {f"recompute {name}": pieces for name, pieces in forward.items()}


def _renamed(named: list[_Named], place: int, name: str | None) -> list[_Named]:
    each = named[place]
    return [*named[:place], replace(each, names=(name,)), *named[place + 1 :]]


def _without(named: list[_Named], axis: str) -> list[_Named]:
    """A part without the messages of an axis, and without waiting for them."""

    def free(each: _Named) -> _Named:
        work = tuple(replace(w, awaits=w.awaits - {axis}) for w in each.item.work)
        return replace(each, item=replace(each.item, work=work))

    return [free(each) for each in named if each.item.axis != axis]


def _anew(names: Names) -> bool:
    return any(name is not None and name.startswith("recompute ") for name in names)


def _without_leading_messages(named: list[_Named]) -> list[_Named]:
    """Messages that went with what was computed anew go with it."""
    at = next((k for k, each in enumerate(named) if each.item.computes), 0)
    return named[at:]
