"""Small programs of one rank, one phenomenon each, whose true step time is known under changes.

    for name, scenario in SCENARIOS.items():
        (path,) = scenario.write(folder)                  # the trace of the unchanged run
        for change in scenario.changes:                   # {"gemm": 0.5} and the like
            truth = scenario.run(change).step_us          # what the simulator then measures

`changes` lists only questions that the trace can answer. Not asked are, for example, changes of
host time where the capture began in the middle: what lay before it is not in the trace.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jaxperf.simulator import (
    Annotation,
    Await,
    Call,
    Copy,
    Instruction,
    Kernel,
    Launch,
    LaunchGraph,
    Noise,
    Op,
    Poll,
    Query,
    Rank,
    Record,
    Signal,
    SimulatedHardware,
    SimulatedJob,
    SimulatedRun,
    StreamWait,
    SynchronizeDevice,
    SynchronizeEvent,
    SynchronizeStream,
    Timing,
    Work,
    execute,
    simulate,
    write_traces,
)

DEVICE_CHANGES = ({"gemm": 0.5}, {"gemm": 2.0}, {"elementwise": 3.0})
HOST_CHANGES = ({"host": 0.5}, {"host": 3.0})
STEPS = 3


@dataclass(frozen=True)
class Scenario:
    """One rank, one phenomenon.

    Attributes:
        phenomenon: what the trace shows, in a sentence.
        simulate: runs it under the given scale factors.
        changes: scale factors that a replay of the trace should answer within 0.5 %.
        capture_from_us: the profiler started then; `None` from the beginning.
    """

    phenomenon: str
    simulate: Callable[[Mapping[str, float] | None], SimulatedRun]
    changes: tuple[dict[str, float], ...] = field(default=DEVICE_CHANGES + HOST_CHANGES)
    capture_from_us: float | None = None

    def run(self, scale: Mapping[str, float] | None = None) -> SimulatedRun:
        return self.simulate(scale)

    def write(self, folder: Path, *, cuda_sync_rows: bool = True) -> tuple[Path, ...]:
        return write_traces(
            self.run(),
            folder,
            cuda_sync_rows=cuda_sync_rows,
            capture_from_us=self.capture_from_us,
        )


# ---------------------------------------------------------------------------------------
# Pieces


def gemm(duration_us: float, stream: int = 7, device: int = 0) -> Op:
    kernel = Kernel("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", duration_us, "gemm")
    return operator("aten::mm", Launch(kernel, stream, device))


def add(duration_us: float, stream: int = 7, device: int = 0) -> Op:
    name = "vectorized_elementwise_kernel<4, CUDAFunctor_add<bf16>>"
    return operator("aten::add", Launch(Kernel(name, duration_us, "elementwise"), stream, device))


def operator(name: str, *body: Instruction) -> Op:
    return Op(name, [Work(3.0), *body, Work(1.0)])


# Each step begins with what shows the constants of the device: kernels far apart the launch
# latency, kernels behind each other the gap between them.
_SHOW_CONSTANTS = [*[add(1.0), Work(12.0)] * 4, *[add(25.0)] * 5]


def _program(
    step: Callable[[int], list[Instruction]],
    *,
    timing: Timing | None = None,
    before: list[Instruction] | None = None,
    others: dict[str, list[Instruction]] | None = None,
    device_clock_offset_us: float = 0.0,
) -> Callable[[Mapping[str, float] | None], SimulatedRun]:
    """A run of `STEPS` steps; `step` gives the main thread's instructions of each."""
    main: list[Instruction] = [*(before or [])]
    for index in range(STEPS):
        body = [Work(5.0), *_SHOW_CONSTANTS, *step(index), Work(5.0)]
        main.append(Annotation(f"ProfilerStep#{index + 1}", body))
    rank = Rank(
        {"main": main, **(others or {})},
        timing or Timing(),
        device_clock_offset_us=device_clock_offset_us,
    )
    # Without noise nobody could tell whether a kernel follows the start or the end of its call.
    return lambda scale: execute({0: rank}, noise=Noise(host=0.05), seed=1, scale=scale)


def _job(job: SimulatedJob) -> Callable[[Mapping[str, float] | None], SimulatedRun]:
    return lambda scale: simulate(job, seed=3, scale=scale)


# ---------------------------------------------------------------------------------------
# Events


def _several_waits(index: int) -> list[Instruction]:
    step: list[Instruction] = []
    for stream, kernels in ((20, 4), (24, 7), (28, 5)):
        step += [add(25.0, stream) for _ in range(kernels)]
        step += [gemm(60.0, stream), Record(f"side {stream}", stream)]
    step += [gemm(90.0), *(StreamWait(f"side {stream}") for stream in (20, 24, 28))]
    return [*step, gemm(150.0), add(30.0), SynchronizeStream()]


def _record_after_waits(index: int) -> list[Instruction]:
    # Stream 24 runs nothing between its waits and its record: the event carries both waits.
    return [
        *(gemm(120.0, 20) for _ in range(4)),
        Record("gemm", 20),
        *(add(40.0, 28) for _ in range(3)),
        Record("add", 28),
        StreamWait("gemm", 24),
        StreamWait("add", 24),
        Record("both", 24),
        StreamWait("both", 7),
        gemm(80.0),
        add(40.0),
        SynchronizeStream(),
    ]


def _event_reused(index: int) -> list[Instruction]:
    step: list[Instruction] = []
    for _ in range(6):
        step += [gemm(70.0), Record("ready"), StreamWait("ready", 20), add(55.0, 20)]
    # The seventh record is waited for by nobody; the wait below is for the one on stream 20.
    step += [gemm(300.0), Record("ready"), Record("side", 20), StreamWait("side", 24)]
    return [*step, add(35.0, 24), SynchronizeStream(24), SynchronizeStream()]


# ---------------------------------------------------------------------------------------
# Waiting on the host


def _polling(index: int) -> list[Instruction]:
    work = [gemm(400.0) for _ in range(12)] + [add(50.0)]
    return [Query("done"), *work, Record("done"), Poll("done", 0.7), Work(120.0)]


def _event_synchronize(index: int) -> list[Instruction]:
    return [
        *(gemm(100.0) for _ in range(5)),
        Record("half"),
        *(gemm(60.0) for _ in range(5)),
        add(200.0),
        SynchronizeEvent("half"),
        Work(150.0),
        *(add(30.0) for _ in range(4)),
        SynchronizeStream(),
    ]


def _stream_synchronize(index: int) -> list[Instruction]:
    return [
        *(gemm(150.0) for _ in range(4)),
        *(add(45.0, 20) for _ in range(6)),
        SynchronizeStream(20),
        Work(100.0),
        add(25.0, 20),
        gemm(60.0),
        SynchronizeStream(7),
    ]


def _device_synchronize(index: int) -> list[Instruction]:
    return [
        *(gemm(90.0) for _ in range(5)),
        *(add(80.0, 20) for _ in range(7)),
        SynchronizeDevice(),
        Work(60.0),
        gemm(40.0),
        SynchronizeDevice(),
    ]


def _blocking_copy(index: int) -> list[Instruction]:
    step: list[Instruction] = []
    for _ in range(3):
        step += [gemm(120.0), gemm(80.0), add(40.0)]
        step += [operator("aten::copy_", Launch(Copy("DtoH", 12.0, 65536), blocking=True))]
        step += [Work(70.0)]
    return step


# ---------------------------------------------------------------------------------------
# Launches


def _full_queue(index: int) -> list[Instruction]:
    return [*(gemm(50.0) for _ in range(40)), add(30.0), SynchronizeStream()]


def _graph_launch(index: int) -> list[Instruction]:
    work = tuple(
        Kernel("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", 8.0, "gemm")
        if i % 2
        else Kernel("vectorized_elementwise_kernel<4, CUDAFunctor_add<bf16>>", 3.0, "elementwise")
        for i in range(120)
    )
    return [
        LaunchGraph(work, call_us=35.0),
        *(gemm(30.0) for _ in range(8)),
        add(20.0),
        SynchronizeStream(),
        Work(40.0),
    ]


_QUEUED = [Launch(Kernel(f"queued_before_capture_{i % 4}", 90.0)) for i in range(60)]


def _after_queued(index: int) -> list[Instruction]:
    return [*(gemm(60.0) for _ in range(20)), add(40.0), SynchronizeStream(), Work(50.0)]


def _launch_bound(index: int) -> list[Instruction]:
    return [*(gemm(2.5) if i % 2 else add(1.5) for i in range(250)), SynchronizeStream()]


def _device_bound(index: int) -> list[Instruction]:
    step: list[Instruction] = []
    for _ in range(20):
        step += [gemm(180.0), add(60.0)]
    # Nothing holds the host back before the last step's end.
    return [*step, SynchronizeDevice()] if index == STEPS - 1 else step


def _two_devices(index: int) -> list[Instruction]:
    return [
        *(gemm(100.0, 7, 0) for _ in range(5)),
        Record("first device", 7, 0),
        *(add(70.0, 7, 1) for _ in range(4)),
        StreamWait("first device", 7, 1),
        gemm(120.0, 7, 1),
        add(150.0, 7, 0),
        SynchronizeDevice(0),
        SynchronizeDevice(1),
    ]


# ---------------------------------------------------------------------------------------
# Threads


def _hand_over(index: int) -> list[Instruction]:
    forward = [
        Op("aten::linear", [gemm(40.0)], sequence=10 * index + i, shapes=((64, 64),))
        for i in range(8)
    ]
    return [
        *forward,
        Work(10.0),
        Signal(f"backward {index}"),
        Await(f"backward {index} done"),
        Work(30.0),
        add(60.0),
        SynchronizeStream(),
    ]


def _autograd() -> list[Instruction]:
    thread: list[Instruction] = []
    for index in range(STEPS):
        thread.append(Await(f"backward {index}"))
        for i in reversed(range(8)):
            name = "autograd::engine::evaluate_function: MmBackward0"
            node = Op("MmBackward0", [gemm(35.0), gemm(45.0)], 10 * index + i, True)
            thread.append(Op(name, [Work(4.0), node], 10 * index + i, True))
        thread += [add(25.0), Signal(f"backward {index} done")]
    return thread


def _waiting_step(index: int) -> list[Instruction]:
    return [*(gemm(110.0) for _ in range(10)), add(30.0), SynchronizeStream(), Work(25.0)]


def _loader() -> list[Instruction]:
    load = Op("aten::stack", [Work(130.0)])
    return [Call("cudaPointerGetAttributes", 0.8), *[load, Work(45.0)] * 20]


# ---------------------------------------------------------------------------------------

_GPT = SimulatedJob(
    layers=2,
    hidden_size=512,
    attention_heads=8,
    vocabulary_size=8192,
    micro_batches=2,
    noise=Noise(kernel=0.02, host=0.08),
)
_SLOW_HOST = SimulatedHardware(operator_host_us=30.0)

SCENARIOS: dict[str, Scenario] = {
    "several_waits": Scenario(
        "a stream waits for three events before one kernel", _program(_several_waits)
    ),
    "record_after_waits": Scenario(
        "an event recorded behind two waits, with no kernel between, carries them",
        _program(_record_after_waits),
    ),
    "event_reused": Scenario(
        "one event is recorded again and again; each wait is for the latest record",
        _program(_event_reused),
    ),
    "polling": Scenario(
        "the host asks cudaEventQuery by the thousand until the device is done",
        _program(_polling),
    ),
    "event_synchronize": Scenario(
        "the host waits for an event while later kernels of the stream go on",
        _program(_event_synchronize),
    ),
    "stream_synchronize": Scenario(
        "the host waits for a side stream, not for the busier one", _program(_stream_synchronize)
    ),
    "device_synchronize": Scenario(
        "the host waits for two streams at once", _program(_device_synchronize)
    ),
    "blocking_copy": Scenario("cudaMemcpy returns once the copy is done", _program(_blocking_copy)),
    "full_queue": Scenario(
        "launches block because eight works are pending",
        _program(_full_queue, timing=Timing(launch_queue=8)),
        changes=({"gemm": 0.7}, {"gemm": 2.0}, {"host": 0.5}, {"host": 2.0}),
    ),
    "graph_launch": Scenario(
        "one graph launch owns 120 kernels, and eager kernels follow", _program(_graph_launch)
    ),
    "queued_before_capture": Scenario(
        "the device still works off 60 launches from before the capture",
        _program(_after_queued, before=[*_QUEUED, Work(400.0)]),
        changes=({"gemm": 0.5}, {"gemm": 2.0}, {"elementwise": 3.0}),
        capture_from_us=500.0,
    ),
    "two_devices": Scenario(
        "two devices use the same stream number, and one waits for the other",
        _program(_two_devices),
    ),
    "hand_over": Scenario(
        "the main thread hands the backward pass to the autograd thread and waits for it",
        _program(_hand_over, others={"autograd": _autograd()}),
    ),
    "data_loader": Scenario(
        "a data loader's thread runs beside the step and neither waits for the other",
        _program(_waiting_step, others={"loader": _loader()}),
    ),
    "launch_bound": Scenario(
        "small kernels: the device waits for the host", _program(_launch_bound)
    ),
    "device_bound": Scenario(
        "the host runs ahead through all steps and waits once, at the end",
        _program(_device_bound),
    ),
    "early_device_clock": Scenario(
        "the device's clock is 40 us behind, so kernels are stamped before their launch",
        _program(_waiting_step, device_clock_offset_us=-40.0),
    ),
    "gpt_step": Scenario(
        "a small GPT, forward and backward, that reads its loss after each step", _job(_GPT)
    ),
    "gpt_slow_host": Scenario(
        "the same, bound by the host and reading its loss after each forward pass",
        _job(
            SimulatedJob(
                layers=2,
                hidden_size=512,
                attention_heads=8,
                vocabulary_size=8192,
                micro_batches=2,
                synchronize="micro_batch",
                noise=_GPT.noise,
                hardware=_SLOW_HOST,
            )
        ),
    ),
}
"""By name; see the module's text for how to use them."""
