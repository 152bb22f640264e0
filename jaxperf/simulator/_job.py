"""A GPT training job as programs of ranks.

Each rank has a main thread, which runs the forward passes, hands each backward pass over and waits
for it, and an autograd thread. Gradients are summed over replicas bucket by bucket on a stream of
their own while the backward pass goes on; shards of a layer are summed between its operators; and
pipeline stages send and receive on one stream for each neighbour and direction.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from jaxperf.errors import ConfigError
from jaxperf.simulator._cost import SimulatedHardware, host_work, transfer_us
from jaxperf.simulator._executor import execute
from jaxperf.simulator._gpt import (
    ELEMENT_BYTES,
    Operator,
    Shape,
    accumulate,
    embedding,
    head,
    layer,
    optimize,
)
from jaxperf.simulator._inputs import (
    NOTHING,
    collective_inputs,
    operator,
    recorder_inputs,
    scalar,
    tensor,
)
from jaxperf.simulator._program import (
    Annotation,
    Await,
    Call,
    Collective,
    Copy,
    Instruction,
    Launch,
    Noise,
    Op,
    Rank,
    Record,
    Set,
    Signal,
    StreamWait,
    SynchronizeDevice,
    SynchronizeStream,
    Work,
)
from jaxperf.simulator._run import STEP_PREFIX, SimulatedRun

_COMPUTE, _TENSOR, _DATA = 7, 20, 24
_FROM_PREVIOUS, _TO_NEXT, _FROM_NEXT, _TO_PREVIOUS = 28, 32, 36, 40


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A GPT training job. Rank = (stage * data_parallel + replica) * tensor_parallel + shard.

    Attributes:
        layers, hidden_size, attention_heads, vocabulary_size: of the model.
        sequence_length: tokens.
        micro_batch_size: sequences of a micro-batch.
        micro_batches: per iteration and replica.
        data_parallel, tensor_parallel, pipeline_parallel: ranks along each axis; several stages
            run one forward, one backward (1F1B).
        bucket_bytes: gradients are summed over replicas when so many have gathered.
        synchronize: when the host reads the loss: each `step`, each `micro_batch`, or `never`
            (the device is synchronised once at the end).
        steps: iterations that are recorded.
        noise: scatter of durations and latencies.
        clock_spread_us: host clocks differ by up to so much between ranks.
        device_clock_spread_us: device clocks differ by up to so much from their host's.
        hardware: what it runs on.
    """

    layers: int = 4
    hidden_size: int = 1024
    attention_heads: int = 16
    vocabulary_size: int = 32768
    sequence_length: int = 1024
    micro_batch_size: int = 4
    micro_batches: int = 1
    data_parallel: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    bucket_bytes: int = 25 * 2**20
    synchronize: str = "step"
    steps: int = 3
    noise: Noise = field(default_factory=Noise)
    clock_spread_us: float = 0.0
    device_clock_spread_us: float = 0.0
    hardware: SimulatedHardware = field(default_factory=SimulatedHardware)

    def __post_init__(self):
        for name, parts in [
            ("steps", 1),
            ("micro_batches", 1),
            ("micro_batch_size", 1),
            ("sequence_length", 1),
            ("data_parallel", 1),
            ("layers", self.pipeline_parallel),
            ("attention_heads", self.tensor_parallel),
            ("vocabulary_size", self.tensor_parallel),
            ("hidden_size", self.attention_heads),
        ]:
            whole = getattr(self, name)
            if parts < 1 or whole < 1 or whole % parts:
                raise ConfigError(
                    "not divisible",
                    where=f"SimulatedJob.{name}",
                    got=str(whole),
                    expected=f"a multiple of {parts}",
                )
        if self.synchronize not in ("step", "micro_batch", "never"):
            raise ConfigError(
                "unknown word",
                where="SimulatedJob.synchronize",
                got=repr(self.synchronize),
                expected="step, micro_batch or never",
            )

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.data_parallel * self.tensor_parallel * self.pipeline_parallel


def simulate(
    job: SimulatedJob, *, seed: int = 0, scale: Mapping[str, float] | None = None
) -> SimulatedRun:
    """Runs a job event by event.

    Args:
        job: the job.
        seed: the same seed gives the same run, and with another `scale` the same draws.
        scale: factors on durations by selector, as for `execute`: the answer to a what-if.

    Returns:
        What every rank did, and the true step times.

    Raises:
        ConfigError: a selector is unknown.

    Example:
        >>> run = simulate(SimulatedJob(layers=1, steps=1))
        >>> faster = simulate(SimulatedJob(layers=1, steps=1), scale={"gemm": 0.5})
        >>> faster.step_us < run.step_us
        True
    """
    return execute(
        build_programs(job, seed=seed),
        noise=job.noise,
        seed=seed,
        scale=scale,
        device_name=job.hardware.name,
        streaming_multiprocessors=job.hardware.streaming_multiprocessors,
    )


def build_programs(job: SimulatedJob, *, seed: int = 0) -> dict[int, Rank]:
    """The program of every rank of a job; the seed sets the clocks.

    Example:
        >>> sorted(build_programs(SimulatedJob(data_parallel=2)))
        [0, 1]
    """
    groups = _Groups(job)
    programs = {}
    for rank in range(job.world_size):
        builder = _RankBuilder(job, rank, groups)
        builder.build()
        clocks = random.Random(f"{seed}/{rank}/clocks")
        programs[rank] = Rank(
            {"main": builder.main, "autograd": builder.autograd},
            job.hardware.timing,
            job.clock_spread_us * clocks.uniform(-1, 1),
            job.device_clock_spread_us * clocks.uniform(-1, 1),
        )
    return programs


def one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> list[tuple[str, int]]:
    """Order of the passes of one stage: warm-up, one forward and one backward, cool-down.

    Example:
        >>> one_forward_one_backward(0, 2, 2)
        [('forward', 0), ('forward', 1), ('backward', 0), ('backward', 1)]
    """
    warm_up = min(stages - stage - 1, micro_batches)
    order = [("forward", i) for i in range(warm_up)]
    for i in range(micro_batches - warm_up):
        order += [("forward", warm_up + i), ("backward", i)]
    return order + [("backward", i) for i in range(micro_batches - warm_up, micro_batches)]


class _Groups:
    """Members and names of the process groups, numbered as the frameworks do."""

    def __init__(self, job: SimulatedJob):
        self.job = job
        self._names: dict[tuple[str, tuple[int, ...]], str] = {}
        for rank in range(job.world_size):
            for kind in ("tensor", "data", "previous", "next"):
                members = self.members(kind, rank)
                if len(members) > 1:
                    key = (_description(kind), members)
                    self._names.setdefault(key, str(len(self._names) + 1))

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """Stage, replica and shard of a rank."""
        rest, shard = divmod(rank, self.job.tensor_parallel)
        stage, replica = divmod(rest, self.job.data_parallel)
        return stage, replica, shard

    def rank(self, stage: int, replica: int, shard: int) -> int:
        job = self.job
        return (stage * job.data_parallel + replica) * job.tensor_parallel + shard

    def members(self, kind: str, rank: int) -> tuple[int, ...]:
        stage, replica, shard = self.coordinates(rank)
        match kind:
            case "tensor":
                return tuple(self.rank(stage, replica, i) for i in range(self.job.tensor_parallel))
            case "data":
                return tuple(self.rank(stage, i, shard) for i in range(self.job.data_parallel))
        other = stage + (1 if kind == "next" else -1)
        if not 0 <= other < self.job.pipeline_parallel:
            return (rank,)
        return tuple(sorted((rank, self.rank(other, replica, shard))))

    def collective(self, kind: str, operation: str, rank: int, elements: int) -> Collective:
        members = self.members(kind, rank)
        source = destination = None
        if operation in ("send", "recv"):
            (peer,) = set(members) - {rank}
            source, destination = (rank, peer) if operation == "send" else (peer, rank)
        size_bytes = elements * ELEMENT_BYTES
        return Collective(
            operation,
            self._names[_description(kind), members],
            members,
            transfer_us(self.job.hardware, operation, members, size_bytes),
            elements,
            description=_description(kind),
            source=source,
            destination=destination,
        )


def _description(kind: str) -> str:
    return "pipeline" if kind in ("previous", "next") else kind


class _RankBuilder:
    """Writes the two threads of one rank."""

    def __init__(self, job: SimulatedJob, rank: int, groups: _Groups):
        self.job, self.rank, self.groups = job, rank, groups
        self.hardware = job.hardware
        self.stage = groups.coordinates(rank)[0]
        self.is_first = self.stage == 0
        self.is_last = self.stage == job.pipeline_parallel - 1
        self.shape = Shape(
            job.micro_batch_size,
            job.sequence_length,
            job.hidden_size,
            job.attention_heads,
            job.vocabulary_size,
            job.tensor_parallel,
        )
        self.operators = self._operators()
        self.main: list[Instruction] = []
        self.autograd: list[Instruction] = []
        self.sequence = 0
        self.events = 0
        self.hand_overs = 0

    def build(self) -> None:
        for step in range(self.job.steps):
            body = tuple(self._step())
            self.main.append(Annotation(f"{STEP_PREFIX}{step + 1}", body))
        self.main.append(SynchronizeDevice())

    def _operators(self) -> list[Operator]:
        job = self.job
        operators = embedding(self.hardware, self.shape) if self.is_first else []
        for _ in range(job.layers // job.pipeline_parallel):
            operators += layer(self.hardware, self.shape)
        return operators + (head(self.hardware, self.shape) if self.is_last else [])

    # -- the step -----------------------------------------------------------------------------

    def _step(self) -> Iterator[Instruction]:
        job = self.job
        yield from self._zero_gradients()
        sequences: dict[int, list[int]] = {}
        for direction, micro_batch in one_forward_one_backward(
            self.stage, job.pipeline_parallel, job.micro_batches
        ):
            if direction == "forward":
                sequences[micro_batch] = []
                yield Annotation("forward", tuple(self._forward(sequences[micro_batch])))
                if job.synchronize == "micro_batch":
                    yield from self._read_loss()
            else:
                yield from self._backward(micro_batch, sequences.pop(micro_batch))
        yield Annotation("Optimizer.step#AdamW.step", tuple(self._optimizer()))
        if job.synchronize == "step":
            yield from self._read_loss()

    def _host(self, share: float = 1.0) -> Work:
        return host_work(self.hardware, share)

    def _zero_gradients(self) -> Iterator[Instruction]:
        yield self._host()
        size = self.shape.hidden_size
        fill = Launch(Set(2.0, ELEMENT_BYTES * size))
        yield operator("aten::zero_", [tensor(size)], [self._host(), fill])

    def _read_loss(self) -> Iterator[Instruction]:
        read = [self._host(0.3), Launch(Copy("DtoH", 1.6, 4)), SynchronizeStream(), Work(1.0)]
        loss = [tensor()]
        inner = operator("aten::_local_scalar_dense", loss, read)
        yield operator("aten::item", loss, [Work(1.0), inner])

    def _optimizer(self) -> Iterator[Instruction]:
        yield self._host(4.0)
        yield optimize(self.hardware, [op.parameters for op in self.operators if op.parameters])
        yield self._host()

    # -- forward ------------------------------------------------------------------------------

    def _forward(self, sequences: list[int]) -> Iterator[Instruction]:
        if self.is_first:
            yield self._load()
        else:
            yield from self._receive("previous", _FROM_PREVIOUS)
        for op in self.operators:
            self.sequence += 1
            sequences.append(self.sequence)
            body = [self._host(0.5), *op.forward.body, self._host(0.2)]
            yield replace(op.forward, body=body, sequence=self.sequence)
            if op.reduce_forward:
                yield from self._reduce_over_shards()
            yield self._host(0.6)
        if not self.is_last:
            yield from self._send("next", _TO_NEXT)

    def _load(self) -> Op:
        """Brings a micro-batch to the device."""
        words, size_bytes = self.shape.words, 8 * self.shape.tokens
        copy = Launch(Copy("HtoD", 2.0 + size_bytes / 25e3, size_bytes))
        yes, no, long = scalar(True), scalar(False), scalar(4)
        inner = operator("aten::copy_", [words, words, yes], [self._host(0.5), copy])
        inputs = [words, NOTHING, long, yes, no, NOTHING]
        return operator("aten::to", inputs, [self._host(), inner])

    # -- backward -----------------------------------------------------------------------------

    def _backward(self, micro_batch: int, sequences: list[int]) -> Iterator[Instruction]:
        if not self.is_last:
            yield from self._receive("next", _FROM_NEXT)
        self.hand_overs += 1
        start, end = f"backward {self.hand_overs}", f"backward {self.hand_overs} done"
        yield self._host()
        self.autograd += [Await(start), *self._autograd(micro_batch, sequences), Signal(end)]
        yield Signal(start)
        yield Await(end)
        if not self.is_first:
            yield from self._send("previous", _TO_PREVIOUS)

    def _autograd(self, micro_batch: int, sequences: list[int]) -> Iterator[Instruction]:
        job = self.job
        reduces = job.data_parallel > 1 and micro_batch == job.micro_batches - 1
        gathered, events = 0, []
        for op, sequence in zip(reversed(self.operators), reversed(sequences), strict=True):
            yield self._backward_operator(op, sequence)
            if op.parameters:
                yield self._accumulate(op.parameters, first=micro_batch == 0)
                gathered += op.parameters
            is_end = sequence == sequences[0]
            if reduces and gathered and (is_end or gathered * ELEMENT_BYTES >= job.bucket_bytes):
                event, instructions = self._collective("data", _DATA, "allreduce", gathered)
                yield from instructions
                events.append(event)
                gathered = 0
            yield self._host(0.3)
        # The gradients are read next on the computing stream, so it waits for every bucket.
        yield from (StreamWait(event, _COMPUTE) for event in events)

    def _backward_operator(self, op: Operator, sequence: int) -> Op:
        of_input, *of_parameters = op.backward
        body: list[Instruction] = [self._host(0.5), of_input]
        if op.reduce_backward:
            body += self._reduce_over_shards()
        node = operator(op.backward_name, [op.gradient], [*body, *of_parameters])
        node = replace(node, sequence=sequence, backward=True)
        name = f"autograd::engine::evaluate_function: {op.backward_name}"
        return Op(name, [self._host(0.3), node, self._host(0.2)], sequence, True)

    def _accumulate(self, parameters: int, first: bool) -> Op:
        body: list[Instruction] = [self._host(0.3)]
        if not first:
            body.append(accumulate(self.hardware, parameters))
        node = operator("torch::autograd::AccumulateGrad", [tensor(parameters)], body)
        name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
        return Op(name, [self._host(0.1), node])

    # -- communication --------------------------------------------------------------------------

    def _event(self) -> str:
        self.events += 1
        return f"event {self.events}"

    def _collective(
        self, kind: str, stream: int, operation: str, elements: int
    ) -> tuple[str, list[Instruction]]:
        """Launches a collective behind what was computed so far; the event says when it is done."""
        work = self.groups.collective(kind, operation, self.rank, elements)
        computed, done = self._event(), self._event()
        calls = [Record(computed, _COMPUTE), StreamWait(computed, stream)]
        if operation == "recv":
            # A receive needs nothing that was computed, so it is posted at once.
            calls = []
        launch = operator(
            "record_param_comms",
            recorder_inputs(work, self.rank),
            [
                Work(3.0),
                *calls,
                Call("cudaStreamIsCapturing", 0.4),
                Launch(work, stream),
                Record(done, stream),
            ],
        )
        words = {"allreduce": ("allreduce_", "all_reduce")}.get(operation, (operation, operation))
        body = [self._host(0.5), Annotation(f"nccl:{words[1]}", [launch]), self._host(0.2)]
        return done, [operator(f"c10d::{words[0]}", collective_inputs(work), body)]

    def _reduce_over_shards(self) -> list[Instruction]:
        elements = self.shape.tokens * self.shape.hidden_size
        event, instructions = self._collective("tensor", _TENSOR, "allreduce", elements)
        return [*instructions, StreamWait(event, _COMPUTE)]

    def _receive(self, neighbour: str, stream: int) -> list[Instruction]:
        elements = self.shape.tokens * self.shape.hidden_size
        event, instructions = self._collective(neighbour, stream, "recv", elements)
        return [*instructions, StreamWait(event, _COMPUTE)]

    def _send(self, neighbour: str, stream: int) -> list[Instruction]:
        elements = self.shape.tokens * self.shape.hidden_size
        return self._collective(neighbour, stream, "send", elements)[1]
