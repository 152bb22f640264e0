"""The verb: fit the cost model to traces."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jaxperf.config import Hardware, recorded_hardware
from jaxperf.errors import ConfigError
from jaxperf.graph import KERNEL_CLASSES, KernelClasses, build_graph
from jaxperf.trace import read_run

if TYPE_CHECKING:
    from jaxperf.calibrate._types import Calibration

Source = str | os.PathLike[str]
HOLD_OUTS = ("step", "shape", "trace")


def calibrate(
    runs: Source | Sequence[Source],
    *,
    leaves: Sequence[str] = (),
    hardware: Hardware | Source | None = None,
    hold_out: str = "shape",
    classes: KernelClasses | str | os.PathLike[str] = KERNEL_CLASSES,
    progress: Callable[[int, int], None] | None = None,
) -> "Calibration":
    """Fit numbers of the cost model to the traces of one or more runs.

    Args:
        runs: each a trace file or a folder of one run's traces.
        leaves: which numbers to fit: patterns of paths, such as `matmul.*` or
            `device.memory_bytes_per_s`; by default those of the models of kernels and collectives
            that the traces have work for.
        hardware: the machine of all runs, as `load_hardware` takes it; by default the one that
            comes with the package for the device that each trace names.
        hold_out: what the fit is judged on: the last `step` of each run, a quarter of the pieces of
            work by `shape`, or the last `trace` of several.
        classes: which class a kernel belongs to; see `build_graph`.
        progress: called with the number of iterations done, and of those at most.

    Returns:
        The fit, its errors and its intervals.

    Raises:
        TraceError, GraphError: a run holds nothing that can be replayed.
        ConfigError: a machine is not known, a pattern matches nothing, there is nothing to fit to,
            or nothing to hold out.

    Example:
        >>> import tempfile
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = write_traces(simulate(SimulatedJob(layers=1)), folder)
        ...     result = calibrate(folder, hardware="h100", leaves=["memory.*"])
        >>> result.loss_after < result.loss_before
        True
    """
    if hold_out not in HOLD_OUTS:
        raise ConfigError(
            "no such part", where="hold_out", got=hold_out, expected=" or ".join(HOLD_OUTS)
        )
    sources = [runs] if isinstance(runs, str | os.PathLike) else list(runs)
    if hold_out == "trace" and len(sources) < 2:
        raise ConfigError("one run cannot be held out", where="hold_out", expected="two or more")
    from jaxperf.calibrate._fitting import fit_runs

    read = [read_run(source) for source in sources]
    machines = [
        recorded_hardware([trace.device_name for trace in run.traces], hardware) for run in read
    ]
    graphs = [build_graph(run, classes=classes) for run in read]
    return fit_runs(read, graphs, machines, leaves, hold_out, progress)
