"""A tour on traces that jaxperf makes itself."""

import itertools
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from jaxperf.errors import OutputError
from jaxperf.replay import Replay, replay
from jaxperf.report import print_replay, replay_to_json, write_report, write_trace
from jaxperf.simulator import Noise, SimulatedJob, SimulatedRun, simulate, write_traces

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


@dataclass(frozen=True, eq=False)
class Demo:
    """What the demo made.

    Attributes:
        folder: where everything lies.
        traces: one file per rank, as a profiler would write them.
        report: the page.
        replayed_trace: the replayed timeline, for Perfetto.
        true_step_us: the mean step, as the simulator knows it.
        replay: the result of replaying the traces.
    """

    folder: Path
    traces: tuple[Path, ...]
    report: Path
    replayed_trace: Path
    true_step_us: float
    replay: Replay


def demo(
    folder: str | os.PathLike | None = None,
    *,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Demo:
    """Simulate a training job, write its traces, replay them, and write a report.

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
    report, replayed_trace = folder / "report.html", folder / "replayed.json.gz"
    write_report(result, report, overwrite=overwrite)
    write_trace(result, replayed_trace, overwrite=overwrite)
    true_step_us = sum(run.steps_us) / len(run.steps_us)
    return Demo(folder, traces, report, replayed_trace, true_step_us, result)


def demo_to_json(demo: Demo) -> dict:
    """A demo as plain values, ready for `json.dumps`."""
    return {
        "folder": str(demo.folder),
        "traces": [str(path) for path in demo.traces],
        "report": str(demo.report),
        "replayed_trace": str(demo.replayed_trace),
        "true_step_us": demo.true_step_us,
        "replay": replay_to_json(demo.replay),
    }


def print_demo(demo: Demo, console: Console) -> None:
    """Print what was simulated, the replay, and where the files lie."""
    events = sum(summary.events for summary in demo.replay.ranks)
    console.print(
        f"Simulated a GPT training job: {len(demo.traces)} ranks, two pipeline stages of two "
        f"replicas, {len(demo.replay.steps)} steps; {events:,} events traced.\n",
        highlight=False,
    )
    print_replay(demo.replay, console)
    console.print("\nFiles", style="bold")
    for path, what in (
        (demo.report, "the report: open it in a browser"),
        (demo.replayed_trace, "the replayed timeline, for ui.perfetto.dev"),
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
