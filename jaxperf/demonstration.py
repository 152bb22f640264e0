"""A tour on traces that jaxperf makes itself, beside the truth that only their maker knows."""

import itertools
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from jaxperf.calibrate import Calibration, calibrate
from jaxperf.errors import OutputError
from jaxperf.replay import Replay, replay
from jaxperf.report import (
    calibration_to_json,
    print_calibration,
    print_replay,
    print_whatif,
    replay_to_json,
    whatif_to_json,
    write_fit,
    write_report,
    write_trace,
)
from jaxperf.report._words import time_text
from jaxperf.simulator import Noise, SimulatedJob, SimulatedRun, simulate, write_traces
from jaxperf.whatif import WhatIf, whatif

# Four ranks, each with its own clock: two stages of a pipeline, two replicas of each.
_JOB = SimulatedJob(
    layers=8,
    hidden_size=2048,
    data_parallel=2,
    pipeline_parallel=2,
    micro_batches=4,
    steps=4,
    noise=Noise(kernel=0.02, host=0.05, latency=0.05),
    clock_spread_us=2000.0,
    device_clock_spread_us=40.0,
)
# What is asked, and what the simulator is asked too.
_CHANGE = {"gemm": 0.5}
_JOB_CHANGE = {"pipeline_parallel": 4, "tensor_parallel": 2}
_SAMPLES = 100
_JOB_FILE = f"""\
# The job that the demo simulates.
name = "demo"
layers = {_JOB.layers}
hidden_size = {_JOB.hidden_size}
attention_heads = {_JOB.attention_heads}
vocabulary_size = {_JOB.vocabulary_size}
sequence_length = {_JOB.sequence_length}
micro_batch_size = {_JOB.micro_batch_size}
micro_batches = {_JOB.micro_batches}
data_parallel = {_JOB.data_parallel}
pipeline_parallel = {_JOB.pipeline_parallel}
rank_order = "tp-dp-pp"
"""
# The machine that the simulated one is taken for, until it is fitted.
_HARDWARE = "h100"


@dataclass(frozen=True, eq=False)
class Demo:
    """What the demo made.

    Attributes:
        folder: where everything lies.
        traces: one file per rank, as a profiler would write them.
        report: the page.
        replayed_trace: the replayed timeline, for Perfetto.
        fit: the fitted numbers of the cost model.
        true_step_us: the mean step, as the simulator knows it.
        replay: the result of replaying the traces.
        whatif: the step with matrix products twice as fast.
        true_whatif_us: the same, as the simulator measures it.
        job: the recorded job, as a user describes it.
        retargeted: the step of the job on sixteen ranks.
        true_retargeted_us: the same, as the simulator measures it.
        calibration: the cost model fitted to the traces.
    """

    folder: Path
    traces: tuple[Path, ...]
    report: Path
    replayed_trace: Path
    fit: Path
    true_step_us: float
    replay: Replay
    whatif: WhatIf
    true_whatif_us: float
    job: Path
    retargeted: WhatIf
    true_retargeted_us: float
    calibration: Calibration


def demo(
    folder: str | os.PathLike | None = None,
    *,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Demo:
    """Simulate a training job, replay its traces, ask what if, calibrate, and write a report.

    Args:
        folder: where to write; the first of `jaxperf-demo`, `jaxperf-demo-2`, ... that is free in
            the current folder where `None`.
        overwrite: write over the files of an earlier demo in `folder`.
        progress: called with the traces read so far and their number.

    Returns:
        The result, and where the files lie.

    Raises:
        OutputError: `folder` is not empty, or cannot be written to.

    Example:
        >>> demo("/tmp/demo").report  # doctest: +SKIP
        PosixPath('/tmp/demo/report.html')
    """
    folder = _prepare(folder, overwrite)
    run = simulate(_JOB)
    traces = _write_traces(run, folder / "traces")
    result = replay(traces, hold_out=True, progress=progress)
    changed = whatif(traces, scale=_CHANGE, samples=_SAMPLES)
    job = folder / "job.toml"
    job.write_text(_JOB_FILE)
    retargeted = whatif(traces, job=job, hardware=_HARDWARE, change=_JOB_CHANGE)
    calibration = calibrate(folder / "traces", hardware=_HARDWARE)
    report, replayed_trace = folder / "report.html", folder / "replayed.json.gz"
    write_report(result, report, overwrite=overwrite)
    write_trace(result, replayed_trace, overwrite=overwrite)
    write_fit(calibration.fit, folder / "fit.toml", overwrite=overwrite)
    return Demo(
        folder=folder,
        traces=traces,
        report=report,
        replayed_trace=replayed_trace,
        fit=folder / "fit.toml",
        true_step_us=sum(run.steps_us) / len(run.steps_us),
        replay=result,
        whatif=changed,
        true_whatif_us=simulate(_JOB, scale=_CHANGE).step_us,
        job=job,
        retargeted=retargeted,
        true_retargeted_us=simulate(replace(_JOB, **_JOB_CHANGE)).step_us,
        calibration=calibration,
    )


def demo_to_json(demo: Demo) -> dict:
    """A demo as plain values, ready for `json.dumps`."""
    return {
        "folder": str(demo.folder),
        "traces": [str(path) for path in demo.traces],
        "report": str(demo.report),
        "replayed_trace": str(demo.replayed_trace),
        "fit": str(demo.fit),
        "true_step_us": demo.true_step_us,
        "replay": replay_to_json(demo.replay),
        "whatif": whatif_to_json(demo.whatif),
        "true_whatif_us": demo.true_whatif_us,
        "job": str(demo.job),
        "retargeted": whatif_to_json(demo.retargeted),
        "true_retargeted_us": demo.true_retargeted_us,
        "calibration": calibration_to_json(demo.calibration),
    }


def print_demo(demo: Demo, console: Console) -> None:
    """Print what was simulated, what each verb makes of it, and where the files lie."""
    events = sum(summary.events for summary in demo.replay.ranks)
    console.print(
        f"Simulated a GPT training job: {len(demo.traces)} ranks, two pipeline stages of two "
        f"replicas, {len(demo.replay.steps)} steps; {events:,} events traced.\n",
        highlight=False,
    )
    print_replay(demo.replay, console)
    console.rule("What if matrix products took half the time?")
    print_whatif(replace(demo.whatif, notes=()), console)
    truth = time_text(demo.true_whatif_us)
    console.print(f"The simulator, asked the same, measures {truth}.", highlight=False)
    console.rule("What if the job ran on sixteen ranks: four stages, two shards of each layer?")
    print_whatif(replace(demo.retargeted, notes=()), console)
    truth = time_text(demo.true_retargeted_us)
    console.print(f"The simulator, run with that job, measures {truth}.", highlight=False)
    console.rule("How well does a cost model tell the kernels?")
    print_calibration(replace(demo.calibration, notes=()), console)
    console.print("\nFiles", style="bold")
    for path, what in (
        (demo.report, "the report: open it in a browser"),
        (demo.replayed_trace, "the replayed timeline, for ui.perfetto.dev"),
        (demo.job, "the job, for jaxperf whatif --job and jaxperf estimate"),
        (demo.fit, "the fitted numbers, for jaxperf whatif --fit"),
        (demo.traces[0].parent, "the traces, one per rank"),
    ):
        # Not wrapped: a path is to be copied whole.
        console.print(f"  {escape(str(path))}  [dim]{what}[/dim]", highlight=False, soft_wrap=True)


def _prepare(folder: str | os.PathLike | None, overwrite: bool) -> Path:
    """The folder, made where it does not exist."""
    if folder is None:
        names = itertools.chain(["jaxperf-demo"], map("jaxperf-demo-{}".format, itertools.count(2)))
        folder = next(path for path in map(Path, names) if not path.exists())
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()) and not overwrite:
            raise OutputError(
                "the folder is not empty",
                where=str(folder),
                remedy="name another one, or overwrite the demo in it",
            )
    except OSError as error:
        raise OutputError(
            "the folder cannot be used", where=str(folder), got=error.strerror
        ) from error
    return folder


def _write_traces(run: SimulatedRun, folder: Path) -> tuple[Path, ...]:
    # Written beside their place and moved, so that an earlier demo's files are replaced one by one
    # and nothing else in the folder is touched.
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        return tuple(path.replace(folder / path.name) for path in write_traces(run, fresh))
