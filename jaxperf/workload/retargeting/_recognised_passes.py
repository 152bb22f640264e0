"""Recognising a job in its items: passes, the layers in them, and what lies between.

A backward pass is what the other thread does between two hand-overs. In the forward passes between
them, and in each backward pass, the kernels of the layers repeat; the number of layers is the
job's. Nothing here depends on names of kernels: what repeats as often as the job says is a layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from jaxperf.config import Job
from jaxperf.errors import ConfigError
from jaxperf.graph import TaskClass
from jaxperf.workload.retargeting._axes import rank_coordinates
from jaxperf.workload.retargeting._items import Item, ItemKind, RankStep
from jaxperf.workload.retargeting._stages import layers_of_stage

Signature = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A message over data parallelism, and where in its pass it is sent.

    Attributes:
        item: the message.
        after: layers of the pass that had been launched before it, with the share of kernels of
            the one that it is in; one more than there are where what follows them had begun too.
    """

    item: Item
    after: float

    @property
    def operation(self) -> str:
        """What the message does."""
        assert self.item.message is not None
        return self.item.message.operation


@dataclass(frozen=True, slots=True)
class RecordedPass:
    """One pass of one chunk of layers over one micro-batch.

    Attributes:
        forward: or backward.
        before: items before the first layer.
        layers: items of each layer.
        after: items after the last layer.
        data: messages over data parallelism.
        received, sent: messages of the pipeline.
        begins, ends: of a backward pass, the hand-over to its thread and back.
    """

    forward: bool
    before: tuple[Item, ...]
    layers: tuple[tuple[Item, ...], ...]
    after: tuple[Item, ...]
    data: tuple[Placed, ...]
    received: tuple[Item, ...] = ()
    sent: tuple[Item, ...] = ()
    begins: Item | None = None
    ends: Item | None = None


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One iteration of one rank, taken apart.

    Attributes:
        rank: the rank.
        steady: whether the iteration counts as steady.
        prologue: items before the first pass.
        passes: in their order.
        epilogue: items after the last pass.
        tail_us: host work at the end.
    """

    rank: int
    steady: bool
    prologue: tuple[Item, ...]
    passes: tuple[RecordedPass, ...]
    epilogue: tuple[Item, ...]
    tail_us: float


def recognise_passes(job: Job, steps: Sequence[RankStep]) -> list[RecordedStep]:
    """Take every iteration apart.

    Args:
        job: the recorded job.
        steps: of `name_axes`.

    Returns:
        One for each.

    Raises:
        ConfigError: the iterations do not have the passes, or the layers, that the job says.
    """
    # Of one layer in each stage those between the first and the last show it alone.
    ends = 0, job.pipeline_parallel - 1
    at_end = [rank_coordinates(job, step.rank)["pp"] in ends for step in steps]
    known: dict[str, list[Signature]] = {"forward": [], "backward": []}
    found = {
        k: _Recogniser(job, steps[k], known).step()
        for k in sorted(range(len(steps)), key=at_end.__getitem__)
    }
    return [found[k] for k in range(len(steps))]


@dataclass(frozen=True, slots=True)
class _Run:
    """Items of one thread between two hand-overs."""

    on_main: bool
    items: list[Item]
    ended_by: Item | None


class _Recogniser:
    def __init__(self, job: Job, step: RankStep, known: dict[str, list[Signature]]):
        self.job, self.recorded, self.known = job, step, known
        stage = rank_coordinates(job, step.rank)["pp"]
        self.layers = layers_of_stage(job, stage)
        self.passes = job.micro_batches * job.virtual_stages
        self.where = f"rank {step.rank}"
        self.begins: Item | None = None

    def step(self) -> RecordedStep:
        runs = _runs(self.recorded.items)
        if not any(not run.on_main for run in runs):
            raise ConfigError(
                "no backward pass is seen",
                where=self.where,
                expected="one on a thread of its own, as autograd has it",
            )
        forward = [run.items for run in runs if run.on_main]
        backward = [run.items for run in runs if not run.on_main]
        if len(backward) != self.passes:
            raise ConfigError(
                "the job does not have the trace's number of passes",
                where=f"{self.where}, micro_batches",
                got=f"{len(backward)} backward passes in an iteration",
                expected=f"{self.passes} by the job",
            )
        up = self._pattern(forward, "forward")
        # The first pass of an iteration has no gradients to add to.
        down = [self._pattern([part], "backward") for part in backward]
        return self._assembled(runs, up, down)

    # -- layers -------------------------------------------------------------------------------

    def _pattern(self, parts: list[list[Item]], way: str) -> Signature:
        """The kernels of one layer: what repeats in every pass as often as there are layers."""
        sequences = [tuple(i.signature for i in part if i.computes) for part in parts]
        passes = self.passes if way == "forward" else 1
        longest = max(len(sequence) for sequence in sequences) // self.layers
        if self.layers == 1:
            for pattern in [*self.known[way], self._layer_alone(parts, way)]:
                if sum(len(self._found(each, pattern)) for each in sequences) == passes:
                    self.known[way].append(pattern)
                    return pattern
        for period in range(longest, 0, -1):
            for sequence in sequences:
                start = _first_repeat(sequence, period, self.layers, last=way == "backward")
                if start is None:
                    continue
                pattern = sequence[start : start + period]
                if sum(len(self._found(each, pattern)) for each in sequences) == passes:
                    return pattern
        raise ConfigError(
            f"the layers of the {way} passes are not found",
            where=f"{self.where}, layers",
            got=f"{sum(map(len, sequences))} kernels in {passes} passes",
            expected=f"a sequence of kernels that repeats {self.layers} times in each",
        )

    def _layer_alone(self, parts: list[list[Item]], way: str) -> Signature:
        """The kernels of the only layer of a stage, which nothing repeats within a pass.

        It is what is left of a pass without the embedding, which comes first, and the output, whose
        multiply is the last; backward the other way round.
        """
        passes = [items for part in parts for items in _between_messages(part)]
        signatures = [tuple(item.signature for item in items) for items in passes]
        usual = max(signatures, key=signatures.count, default=())
        items = passes[signatures.index(usual)] if usual else []
        classes = [item.work[0].task_class for item in items]
        stage = rank_coordinates(self.job, self.recorded.rank)["pp"]
        begin, end = 0, len(items)
        multiplies = [k for k, each in enumerate(classes) if each == TaskClass.GEMM]
        embeds = [k for k, each in enumerate(classes) if each == TaskClass.EMBEDDING]
        if stage == 0 and embeds:
            begin, end = (embeds[-1] + 1, end) if way == "forward" else (begin, embeds[0])
        if stage == self.job.pipeline_parallel - 1 and len(multiplies) > 2:
            # Of the output's multiply there are two backward: one for each gradient.
            begin, end = (begin, multiplies[-1]) if way == "forward" else (multiplies[1] + 1, end)
        return tuple(item.signature for item in items[begin:end])

    def _found(self, sequence: Signature, pattern: Signature) -> list[int]:
        """Where all layers of a pass follow each other."""
        whole, places, at = pattern * self.layers, [], 0
        while at + len(whole) <= len(sequence):
            if sequence[at : at + len(whole)] == whole:
                places.append(at)
                at += len(whole)
            else:
                at += 1
        return places

    # -- passes -------------------------------------------------------------------------------

    def _assembled(self, runs: list[_Run], up: Signature, down: list[Signature]) -> RecordedStep:
        """The passes with what is between them; each item there goes to the pass it serves."""
        passes: list[_Cut] = []
        loose: list[list[Item]] = [[]]  # before the first pass, after it, after the second ...
        patterns = iter(down)
        for run in runs:
            cut, rest = self._cut(run, up if run.on_main else next(patterns))
            for before, one in zip(rest, cut, strict=False):
                loose[-1] += before
                passes.append(one)
                loose.append([])
            loose[-1] += rest[-1]
            if not run.on_main:
                passes[-1].after = loose.pop()
                loose.append([])
                passes[-1].ends = run.ended_by
            elif run.ended_by is not None:
                self.begins = run.ended_by
            if not run.on_main:
                passes[-1].begins = self.begins
        return _Assembly(self.recorded, passes, loose).step()

    def _cut(self, run: _Run, pattern: Signature) -> tuple[list["_Cut"], list[list[Item]]]:
        """The passes of a run, and the items before, between and after them."""
        at = [k for k, item in enumerate(run.items) if item.computes]
        places = self._found(tuple(run.items[k].signature for k in at), pattern)
        cut, rest, begin = [], [], 0
        for place in places:
            firsts = [at[place + n * len(pattern)] for n in range(self.layers)]
            end = _leading_messages(run.items, at[place + self.layers * len(pattern) - 1] + 1)
            bounds = [*firsts, end]
            layers = [run.items[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
            before = run.items[begin : firsts[0]]
            one = _Cut(run.on_main, [], layers, [])
            if run.on_main:
                rest.append(before)
            else:
                rest.append([])
                one.before = before
            cut.append(one)
            begin = end
        return cut, [*rest, run.items[begin:]]


@dataclass(slots=True)
class _Cut:
    """A pass in the making."""

    forward: bool
    before: list[Item]
    layers: list[list[Item]]
    after: list[Item]
    received: list[Item] = field(default_factory=list)
    sent: list[Item] = field(default_factory=list)
    begins: Item | None = None
    ends: Item | None = None

    def finished(self) -> RecordedPass:
        """With the messages over data parallelism taken out of it."""
        data: list[Placed] = []

        def kept(items: list[Item], begun: float, share: float = 0.0) -> tuple[Item, ...]:
            computing = sum(item.computes for item in items)
            done, rest = 0, []
            for item in items:
                done += item.computes
                if item.axis == "data":
                    data.append(Placed(item, begun + share * done / max(computing, 1)))
                else:
                    rest.append(item)
            return tuple(rest)

        before = kept(self.before, 0)
        layers = tuple(kept(layer, n, 1.0) for n, layer in enumerate(self.layers))
        first = next((k for k, item in enumerate(self.after) if item.computes), len(self.after))
        after = kept(self.after[:first], len(self.layers))
        after += kept(self.after[first:], len(self.layers) + 1)
        ways = tuple(self.received), tuple(self.sent)
        return RecordedPass(
            self.forward, before, layers, after, tuple(data), *ways, self.begins, self.ends
        )


@dataclass(slots=True)
class _Assembly:
    """Passes, and the loose items around them: `loose[k]` stand before pass `k`."""

    recorded: RankStep
    passes: list[_Cut]
    loose: list[list[Item]]

    def step(self) -> RecordedStep:
        for k, items in enumerate(self.loose):
            self._send_and_receive(k, items)
        plain = [[i for i in items if i.axis != "pipeline"] for items in self.loose]
        usual = self._usual_lead(plain)
        prologue: list[Item] = []
        for k, one in enumerate(self.passes):
            lead = plain[k]
            if k and self.passes[k - 1].forward:
                # After a forward pass comes what ends it; before another one what begins that.
                own = _common_end(plain[0], lead) if one.forward else 0
                self.passes[k - 1].after = lead[: len(lead) - own]
                lead = lead[len(lead) - own :]
            if one.forward and not k and _same(lead[len(lead) - usual :], plain, usual):
                prologue, lead = lead[: len(lead) - usual], lead[len(lead) - usual :]
            one.before = [*lead, *one.before]
        return RecordedStep(
            self.recorded.rank,
            self.recorded.steady,
            tuple(prologue),
            tuple(one.finished() for one in self.passes),
            tuple(plain[-1]),
            self.recorded.tail_us,
        )

    def _usual_lead(self, plain: list[list[Item]]) -> int:
        """How many items begin a forward pass, after what begins an iteration."""
        counts = []
        for k, one in enumerate(self.passes[1:], 1):
            if one.forward:
                after_forward = self.passes[k - 1].forward
                counts.append(_common_end(plain[0], plain[k]) if after_forward else len(plain[k]))
        return max(set(counts), key=counts.count) if counts else len(plain[0])

    def _send_and_receive(self, k: int, items: list[Item]) -> None:
        """Give messages of the pipeline to the pass before that sends, or after that receives."""
        for item in items:
            message = item.message
            if message is None or message.axis != "pipeline":
                continue
            forward = message.towards > 0
            order = reversed(self.passes[:k]) if message.sends else self.passes[k:]
            one = next((each for each in order if each.forward == forward), None)
            if one is not None:
                (one.sent if message.sends else one.received).append(item)


def _common_end(left: Sequence[Item], right: Sequence[Item]) -> int:
    """How many items two lists end with alike."""
    count = 0
    for one, other in zip(reversed(left), reversed(right), strict=False):
        if one.signature != other.signature:
            break
        count += 1
    return count


def _same(lead: list[Item], plain: list[list[Item]], usual: int) -> bool:
    """Whether the items that begin the first pass are those of the others."""
    wanted = [item.signature for item in lead]
    return not usual or any([i.signature for i in x[-usual:]] == wanted for x in plain[1:])


def _runs(items: Sequence[Item]) -> list[_Run]:
    runs, current = [], []
    for item in items:
        if item.kind == ItemKind.HAND_OVER:
            runs.append(_Run(item.on_main, current, item))
            current = []
        else:
            current.append(item)
    runs.append(_Run(not runs[-1].on_main if runs else True, current, None))
    return runs


def _first_repeat(sequence: Signature, period: int, times: int, *, last: bool) -> int | None:
    """Where a part of some length is repeated so often: the first place, or the last."""
    needed, run, found = (times - 1) * period, 0, None
    if len(sequence) < times * period:
        return None
    if needed == 0:
        return 0 if len(sequence) == period else None
    for k in range(len(sequence) - period):
        run = run + 1 if sequence[k] == sequence[k + period] else 0
        if run >= needed:
            found = k + 1 - needed
            if not last:
                return found
    return found


def _between_messages(items: Sequence[Item]) -> list[list[Item]]:
    """The items that compute, divided where the pipeline sends or receives."""
    found: list[list[Item]] = [[]]
    for item in items:
        if item.axis == "pipeline":
            found.append([])
        elif item.computes:
            found[-1].append(item)
    return [part for part in found if part]


def _leading_messages(items: Sequence[Item], begin: int) -> int:
    """Where the messages within a layer end that follow its last kernel."""
    end = begin
    while end < len(items) and items[end].axis in ("tensor", "context"):
        end += 1
    return end
