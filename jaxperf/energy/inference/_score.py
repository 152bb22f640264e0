"""A session of MLPerf Inference with power, scored."""

import os
from pathlib import PurePath

import msgspec

from jaxperf._json import NOT_READABLE
from jaxperf.energy._log_files import LogFiles
from jaxperf.energy._score_types import EnergyScore
from jaxperf.energy.inference._checks import check_session
from jaxperf.energy.inference._loadgen import SCENARIOS, LoadgenRun
from jaxperf.energy.inference._metrics import efficiency_metric, energy_metric, query_count
from jaxperf.energy.inference._session import Session, read_session
from jaxperf.energy.inference._windows import official_window, run_window
from jaxperf.trace import Note

_SYSTEM = "system.json"

_BENCHMARKS = (
    "3d-unet-99", "3d-unet-99.9", "bert-99", "bert-99.9", "deepseek-r1", "dlrm-99", "dlrm-99.9",
    "dlrm-v2-99", "dlrm-v2-99.9", "gptj-99", "gptj-99.9", "llama2-70b-99", "llama2-70b-99.9",
    "llama2-70b-interactive-99", "llama2-70b-interactive-99.9", "llama3.1-405b", "llama3.1-8b",
    "llama3.1-8b-edge", "mixtral-8x7b", "mobilenet", "pointpainting", "resnet50", "retinanet",
    "rgat", "rnnt", "ssd-mobilenet", "ssd-resnet34", "stable-diffusion-xl", "whisper",
)  # fmt: skip


def score_inference(logs: LogFiles) -> EnergyScore:
    """Score one session by the rules of MLPerf Inference.

    Args:
        logs: a folder or archive with one session at any depth: `power/`, `ranging/`, `run_1/`.

    Returns:
        Average power, or energy per query for streams. The official window is the mean of samples
        by the duration; the run window is the integral over time.

    Raises:
        LogError: there is no session or several, a file of the run that counts is missing or of no
            use, or no power was measured in its window.
    """
    session = read_session(logs)
    testing = session.testing
    official = official_window(testing)
    alone, notes = run_window(testing)
    benchmark, scenario, folder, name_notes = _names(session)
    system, system_notes = _system_name(session)
    metric = energy_metric(scenario, official, testing.run)
    if metric.unit == "mJ":
        name_notes += query_count(testing.run)[1]
    return EnergyScore(
        source=session.files.source,
        division="inference",
        benchmark=benchmark,
        scenario=scenario,
        system=system or folder,
        metric=metric,
        efficiency=efficiency_metric(scenario, metric, official, testing.run),
        average_power_w=official.average_power_w,
        energy_j=official.energy_j,
        duration_s=official.duration_s,
        official=official,
        run_window=alone,
        runs=(),
        checks=check_session(session),
        notes=session.notes + _invalid_notes(testing.run) + notes + name_notes + system_notes,
    )


def _invalid_notes(run: LoadgenRun) -> tuple[Note, ...]:
    if run.valid is not False:
        return ()
    text = "loadgen calls the result INVALID: it may not be submitted, and its energy not compared"
    return (Note("result-invalid", text, run.where),)


def _names(session: Session) -> tuple[str | None, str | None, str | None, tuple[Note, ...]]:
    """Benchmark, scenario, the folder of the system, and what was guessed of them."""
    run, source = session.testing.run, session.files.source
    parts = list(PurePath(os.path.abspath(source)).parts)
    benchmark = submitted = system = None
    notes = []
    if parts[-1] == "performance" and len(parts) > 4:
        # results/<system>/<benchmark>/<scenario>/performance of a repository of results.
        system, benchmark, submitted = parts[-4:-1]
    else:
        benchmark = _benchmark_in(parts[-1])
        if benchmark is not None:
            text = f"the logs name no benchmark; {benchmark} is in the name of the file or folder"
            notes.append(Note("benchmark-from-name", text, source))
    scenario, scenario_notes = _scenario(submitted, run.scenario, source)
    return benchmark, scenario, system, (*notes, *scenario_notes)


def _scenario(
    submitted: str | None, logged: str | None, source: str
) -> tuple[str | None, tuple[Note, ...]]:
    if submitted not in SCENARIOS or submitted == logged:
        return logged, ()
    if logged is None or (submitted, logged) == ("Interactive", "Server"):
        return submitted, ()
    if (submitted, logged) == ("MultiStream", "SingleStream"):
        text = "inferred from a single stream: eight of its queries make one"
        return submitted, (Note("multistream-inferred", text, source),)
    text = f"the folder says {submitted}, the log {logged}; the log was followed"
    return logged, (Note("scenario-differs", text, source),)


def _benchmark_in(name: str) -> str | None:
    """The longest name of a benchmark in a name whose points may have become hyphens."""
    words = f"-{name.lower().replace('.', '-')}-"
    found = [each for each in _BENCHMARKS if f"-{each.replace('.', '-')}-" in words]
    return max(found, key=len, default=None)


class _System(msgspec.Struct):
    system_name: str | None = None


def _system_name(session: Session) -> tuple[str | None, tuple[Note, ...]]:
    if _SYSTEM not in session.files:
        return None, ()
    try:
        described = msgspec.json.decode(session.files.read(_SYSTEM), type=_System)
    except NOT_READABLE as error:
        text = f"the description of the system cannot be read: {error}"
        return None, (Note("system-unreadable", text, session.files.where(_SYSTEM)),)
    return described.system_name, ()
