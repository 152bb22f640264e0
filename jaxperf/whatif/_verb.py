"""The verb: what a recorded run would take under changes."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from jaxperf.config import Hardware, Job, Scenario, load_scenarios
from jaxperf.graph import KERNEL_CLASSES, KernelClasses, build_graph
from jaxperf.trace import read_run
from jaxperf.whatif._asked import check_asked
from jaxperf.whatif._types import WhatIf

if TYPE_CHECKING:
    from jaxperf.cost import Fit

Source = str | os.PathLike[str]


def whatif(
    paths: Source | Sequence[Source],
    *,
    scale: Mapping[str, float] | None = None,
    change: Mapping[str, float | str] | None = None,
    scenarios: Sequence[Scenario] | Source = (),
    job: Job | Source | None = None,
    hardware: Hardware | Source | None = None,
    fit: "Fit | Source | None" = None,
    samples: int = 0,
    contention: bool = True,
    seed: int = 0,
    classes: KernelClasses | str | os.PathLike[str] = KERNEL_CLASSES,
    progress: Callable[[int, int], None] | None = None,
) -> WhatIf:
    """What the steady step of a run would take under changes.

    Args:
        paths: a trace file, a folder of one run's traces, or several of either.
        scale: factors of durations by selector, such as `{"gemm": 0.5, "rank:2/compute": 0.77}`;
            see `select_tasks`. 0 removes the time.
        change: values by key of the hardware, such as `{"memory_bytes_per_s": 4.8e12}`; the key
            `hardware` names another machine altogether. Measured durations move by the ratio of
            the modelled ones.
        scenarios: more scenarios, or a file of them; `scale` and `change` together are one.
        job: the recorded job, as `load_job` takes it. `change` may then have fields of it, such as
            `{"data_parallel": 4}`: the run is re-targeted, see docs/jobs.md.
        hardware: the recorded machine, as `load_hardware` takes it; by default the one that comes
            with the package for the device that the traces name.
        fit: what `calibrate` found, or its file; by default the model's own parameters.
        samples: how often to draw durations, and the parameters of a fit, for each scenario.
        contention: let kernels run slower while their rank communicates, where the trace shows it.
        seed: of the draws.
        classes: which class a kernel belongs to; see `build_graph`.
        progress: called with the number of worlds answered, and of all.

    Returns:
        The answers.

    Raises:
        TraceError, GraphError: the paths hold nothing that can be replayed.
        ConfigError: a selector, factor, key, value or file is not valid, or selects nothing.

    Example:
        >>> import tempfile
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = write_traces(simulate(SimulatedJob(layers=1)), folder)
        ...     result = whatif(paths, scale={"gemm": 0.5})
        >>> result.scenarios[0].ratio < 1
        True
    """
    asked = _asked(scale, change, scenarios)
    check_asked(asked, samples)
    run = read_run(paths)
    graph = build_graph(run, classes=classes)
    from jaxperf.whatif._answers import answer_scenarios

    return answer_scenarios(
        run,
        graph,
        asked,
        job=job,
        hardware=hardware,
        fit=fit,
        samples=samples,
        contention=contention,
        seed=seed,
        progress=progress,
    )


def _asked(
    scale: Mapping[str, float] | None,
    change: Mapping[str, float | str] | None,
    scenarios: Sequence[Scenario] | Source,
) -> tuple[Scenario, ...]:
    from_file = isinstance(scenarios, str | os.PathLike)
    others = load_scenarios(scenarios) if from_file else tuple(scenarios)
    if not (scale or change):
        return others
    return (Scenario(name="changed", scale=dict(scale or {}), set=dict(change or {})), *others)
