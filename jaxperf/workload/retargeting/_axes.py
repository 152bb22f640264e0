"""Which axis of a job each message of a recorded run goes along."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from jaxperf.config import Job
from jaxperf.cost import COLLECTIVE_OPERATIONS, Work, WorkKind
from jaxperf.errors import ConfigError
from jaxperf.workload._pieces import axis_degrees
from jaxperf.workload.retargeting._items import COMPUTE, DeviceItem, Item, Message, RankStep

_AXES = {"tp": "tensor", "cp": "context", "dp": "data", "pp": "pipeline"}


def rank_coordinates(job: Job, rank: int) -> dict[str, int]:
    """Where a rank stands along each axis of its job.

    Example:
        >>> job = Job(layers=4, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128, tensor_parallel=2, data_parallel=2, pipeline_parallel=2)
        >>> rank_coordinates(job, 6)
        {'tp': 0, 'cp': 0, 'dp': 1, 'pp': 1}
    """
    found = {axis: 0 for axis in _AXES}
    degrees = axis_degrees(job)
    for axis in job.rank_order.split("-"):
        degree = degrees[axis]
        found[axis], rank = rank % degree, rank // degree
    return found


def rank_at(job: Job, stage: int, replica: int, shard: int) -> int:
    """The rank of a stage, a replica and a shard, the first along context parallelism.

    Example:
        >>> job = Job(layers=4, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128, tensor_parallel=2, data_parallel=2, pipeline_parallel=2)
        >>> rank_at(job, 1, 1, 0)
        6
    """
    at = {"tp": shard, "cp": 0, "dp": replica, "pp": stage}
    rank, stride, degrees = 0, 1, axis_degrees(job)
    for axis in job.rank_order.split("-"):
        rank, stride = rank + at[axis] * stride, stride * degrees[axis]
    return rank


def members_along(job: Job, rank: int, axes: Sequence[str]) -> tuple[int, ...]:
    """The ranks that differ from one along some axes only, itself among them.

    Example:
        >>> job = Job(layers=4, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128, tensor_parallel=2, data_parallel=2, pipeline_parallel=2)
        >>> members_along(job, 6, ["dp"])
        (4, 6)
    """
    mine = rank_coordinates(job, rank)
    others = [axis for axis in _AXES if axis not in axes]
    return tuple(
        other
        for other in range(job.world_size)
        if all(rank_coordinates(job, other)[axis] == mine[axis] for axis in others)
    )


def name_axes(job: Job, steps: Sequence[RankStep], work: Work) -> list[RankStep]:
    """The steps with every message and stream named by its axis.

    Args:
        job: the recorded job.
        steps: of `read_items`.
        work: of the graph's tasks.

    Returns:
        The same steps. A stream of messages is called by their axis, with the operation where
        that is `data`.

    Raises:
        ConfigError: a process group of the trace is none of the job's.
    """
    return [_named_step(job, step, work) for step in steps]


def _named_step(job: Job, step: RankStep, work: Work) -> RankStep:
    axes = _Groups(job, step.rank)
    found: dict[int, Message] = {}
    streams: dict[str, Counter[str]] = {}
    for item in step.items:
        for each in item.work:
            if each.message is None:
                continue
            told = _described(each, work)
            message = axes.placed(told, each.name)
            found[each.task] = message
            streams.setdefault(each.stream, Counter())[stream_name(message)] += 1
    names = {stream: counts.most_common(1)[0][0] for stream, counts in streams.items()}
    names[COMPUTE] = COMPUTE

    def named(each: DeviceItem) -> DeviceItem:
        message = found.get(each.task)
        return replace(
            each,
            message=message,
            shape=_shape(work, each.task),
            stream=stream_name(message) if message else names.get(each.stream, each.stream),
            awaits=frozenset(names.get(stream, stream) for stream in each.awaits),
        )

    def renamed(item: Item) -> Item:
        return replace(
            item,
            work=tuple(named(each) for each in item.work),
            waits_for=names.get(item.waits_for, item.waits_for),
        )

    return replace(step, items=tuple(renamed(item) for item in step.items))


def stream_name(message: Message) -> str:
    """What the stream of a message is called.

    Example:
        >>> stream_name(Message(axis="data", operation="all_gather"))
        'data all_gather'
    """
    if message.axis == "data":
        return f"data {message.operation}"
    if message.axis == "pipeline":
        return f"pipeline {'send' if message.sends else 'receive'} {message.towards:+d}"
    return message.axis or "communication"


def _shape(work: Work, task: int) -> tuple[float, ...] | None:
    """Sizes of a multiply, or batch and heads, length and size of a head of an attention."""
    if work.kind[task] not in (WorkKind.MATMUL, WorkKind.ATTENTION):
        return None
    first = work.n if work.kind[task] == WorkKind.MATMUL else work.batch
    found = sorted(float(column[task]) for column in (work.m, first, work.k))
    return tuple(found) if all(size == size for size in found) else None


def _described(each: DeviceItem, work: Work) -> Message:
    assert each.message is not None
    index = int(work.operation[each.task])
    return replace(
        each.message,
        operation=COLLECTIVE_OPERATIONS[index] if index >= 0 else "",
        message_bytes=float(work.message_bytes[each.task]),
        ranks=float(work.ranks[each.task]),
        stride=float(work.stride[each.task]),
    )


class _Groups:
    """The process groups of a rank, by their members."""

    def __init__(self, job: Job, rank: int):
        self.job, self.rank = job, rank
        self.axis_of: dict[tuple[int, ...], str] = {}
        for axes, name in (
            (["pp"], "pipeline"),
            (["dp", "cp"], "data"),
            (["dp"], "data"),
            (["cp"], "context"),
            (["tp"], "tensor"),
        ):
            members = members_along(job, rank, axes)
            if len(members) > 1:
                self.axis_of[members] = name

    def placed(self, message: Message, kernel: str) -> Message:
        """A message with its axis, and of a send or receive its direction."""
        if message.operation == "send_receive":
            return self._along_pipeline(message)
        described = message.collective
        if described is not None and described.ranks:
            members = tuple(sorted(set(described.ranks)))
            axis = self.axis_of.get(members)
            if axis is None:
                raise ConfigError(
                    "the job does not have this process group",
                    where=f"rank {self.rank}, {kernel.split('(')[0][:40]}",
                    got=f"ranks {', '.join(map(str, members[:8]))}",
                    expected=self._text(),
                )
            return replace(message, axis=axis)
        sizes = {len(members): name for members, name in self.axis_of.items()}
        size = int(message.ranks) if message.ranks == message.ranks else 0
        if size in sizes and sum(len(m) == size for m in self.axis_of) == 1:
            return replace(message, axis=sizes[size])
        if len(self.axis_of) == 1 and size == 0:
            return replace(message, axis=next(iter(self.axis_of.values())))
        raise ConfigError(
            "the trace does not tell which process group this is",
            where=f"rank {self.rank}, {kernel.split('(')[0][:40]}",
            got=f"{size or 'unknown'} ranks",
            expected=self._text(),
        )

    def _along_pipeline(self, message: Message) -> Message:
        """Sends go to a neighbouring stage, and so do receives come from one."""
        described = message.collective
        if described is None:
            return replace(message, axis="pipeline")
        source, destination = described.source, described.destination
        name = described.name.lower()
        sends = "send" in name or (source == self.rank and "recv" not in name)
        peer = destination if sends else source
        if peer is None or peer == self.rank:
            others = [rank for rank in described.ranks if rank != self.rank]
            peer = others[0] if len(others) == 1 else None
        towards = 0
        if peer is not None:
            here = rank_coordinates(self.job, self.rank)["pp"]
            there = rank_coordinates(self.job, peer)["pp"]
            ahead = (there - here) % self.job.pipeline_parallel == 1
            both = self.job.pipeline_parallel == 2
            # Between two stages, activations go up and gradients down.
            ahead = there > here if both else ahead
            towards = (1 if ahead else -1) * (1 if sends else -1)
        return replace(message, axis="pipeline", sends=sends, towards=towards)

    def _text(self) -> str:
        groups = [f"{name} {list(members)}" for members, name in self.axis_of.items()]
        return "; ".join(groups) or "no communication: the job has one rank"
