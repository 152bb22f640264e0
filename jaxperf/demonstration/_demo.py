"""The verb: every input is made, every question asked, and the files lie in one folder."""

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jaxperf.calibrate import Calibration, calibrate
from jaxperf.demonstration._commands import (
    CACHE_ROWS,
    CHANGE,
    CLOCK_HZ,
    GLOBAL_BATCH,
    GPUS,
    HARDWARE,
    JOB_CHANGE,
    POWER,
    SAMPLES,
    SERVER,
    commands,
)
from jaxperf.demonstration._inputs import (
    JOB,
    share_of_most_popular,
    write_accesses,
    write_job,
    write_run,
    write_tables,
)
from jaxperf.embedding import EmbeddingPlan, Profile, plan, profile
from jaxperf.energy import EnergyPrediction, predict
from jaxperf.errors import OutputError
from jaxperf.replay import Replay, replay
from jaxperf.report import (
    calibration_to_json,
    plan_to_json,
    prediction_to_json,
    profile_to_json,
    replay_to_json,
    search_to_json,
    whatif_to_json,
    write_fit,
    write_report,
    write_trace,
)
from jaxperf.search import search
from jaxperf.simulator import simulate
from jaxperf.whatif import WhatIf, whatif

if TYPE_CHECKING:
    from jaxperf.search import SearchResult


@dataclass(frozen=True, eq=False)
class Demo:
    """What the demo made.

    Attributes:
        folder: where everything lies.
        commands: what a user would type for each step, by the name of its attribute here.
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
        search: the best way to run the job on 64 accelerators.
        energy: what the traced run draws, and what it would take at a lower clock.
        accesses: a log of embedding lookups.
        profile: the hits of caches on that log.
        true_hit_ratios: by size, of a cache that knows by which popularity the log was drawn and
            keeps the most popular rows.
        tables: a model with embedding tables.
        plan: where its tables go.
    """

    folder: Path
    commands: dict[str, str]
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
    search: "SearchResult"
    energy: EnergyPrediction
    accesses: Path
    profile: Profile
    true_hit_ratios: dict[int, float]
    tables: Path
    plan: EmbeddingPlan


def demo(
    folder: str | os.PathLike | None = None,
    *,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Demo:
    """Make traces, lookups and tables, ask each verb about them, and write a report.

    Args:
        folder: where to write; the first of `jaxperf-demo`, `jaxperf-demo-2`, ... that is free in
            the current folder where `None`.
        overwrite: write over the files of an earlier demo in `folder`.
        progress: called with the traces read so far and their number.

    Returns:
        The results, and where the files lie.

    Raises:
        OutputError: `folder` is not empty, or cannot be written to.

    Example:
        >>> demo("/tmp/demo").report  # doctest: +SKIP
        PosixPath('/tmp/demo/report.html')
    """
    folder = _prepare(folder, overwrite)
    run = simulate(JOB)
    traces, job = write_run(run, folder / "traces"), write_job(folder)
    accesses, tables = write_accesses(folder), write_tables(folder)
    result = replay(traces, hold_out=True, progress=progress)
    report, replayed_trace = folder / "report.html", folder / "replayed.json.gz"
    write_report(result, report, overwrite=overwrite)
    write_trace(result, replayed_trace, overwrite=overwrite)
    calibration = calibrate(folder / "traces", hardware=HARDWARE)
    write_fit(calibration.fit, folder / "fit.toml", overwrite=overwrite)
    return Demo(
        folder=folder,
        commands=commands(folder),
        traces=traces,
        report=report,
        replayed_trace=replayed_trace,
        fit=folder / "fit.toml",
        true_step_us=sum(run.steps_us) / len(run.steps_us),
        replay=result,
        whatif=whatif(traces, scale=CHANGE, samples=SAMPLES),
        true_whatif_us=simulate(JOB, scale=CHANGE).step_us,
        job=job,
        retargeted=whatif(traces, job=job, hardware=HARDWARE, change=JOB_CHANGE),
        true_retargeted_us=simulate(replace(JOB, **JOB_CHANGE)).step_us,
        calibration=calibration,
        search=search(
            job,
            gpus=GPUS,
            global_batch_size=GLOBAL_BATCH,
            hardware=HARDWARE,
            fit=folder / "fit.toml",
        ),
        energy=predict(traces, hardware=HARDWARE, power=POWER, job=job, clock_hz=CLOCK_HZ),
        accesses=accesses,
        profile=profile(accesses, sizes=CACHE_ROWS),
        true_hit_ratios={rows: share_of_most_popular(rows) for rows in CACHE_ROWS},
        tables=tables,
        plan=plan(str(tables), server=SERVER),
    )


def demo_to_json(demo: Demo) -> dict:
    """A demo as plain values, ready for `json.dumps`."""
    return {
        "folder": str(demo.folder),
        "commands": demo.commands,
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
        "search": search_to_json(demo.search),
        "energy": prediction_to_json(demo.energy),
        "accesses": str(demo.accesses),
        "profile": profile_to_json(demo.profile),
        "true_hit_ratios": {str(rows): ratio for rows, ratio in demo.true_hit_ratios.items()},
        "tables": str(demo.tables),
        "plan": plan_to_json(demo.plan),
    }


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
