"""Fits the step to public measurements, one file for each machine, for configs/steps.

    python benchmarks/step_fits.py SHARED [--only NAME ...] [--write configs/steps]

SHARED is the folder with `groundtruth/`. What the fits are worth on rows that they have not seen is
in docs/jobs-validation.md.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import _jobs_dgxc
import _jobs_mosaic
import _jobs_vtrain
import numpy as np
import tomli_w

from jaxperf.config import load_hardware
from jaxperf.workload import MeasuredStep, fit_step_times


@dataclass(frozen=True)
class Fitted:
    """Which steps a file is fitted to.

    Attributes:
        hardware: the machine, by its name in configs/hardware.
        rows: the measured steps, of any machine.
        priors: of the fit.
        source: what they are.
    """

    hardware: str
    rows: Callable[[Path], list[MeasuredStep]]
    priors: Mapping[str, float]
    source: str


_OF_CLUSTER = ("step.overlap_slowdown", "step.overlap_share", "step.straggler_share")
DGXC = "NVIDIA/dgxc-benchmarking v24.11 to v25.05, NeMo"
MPT = "mosaicml/llm-foundry, MPT 125M to 70B, FSDP"
FITS = {
    "h100": Fitted("h100", _jobs_dgxc.rows, _jobs_dgxc.PRIORS, DGXC),
    "b200": Fitted("b200", _jobs_dgxc.rows, _jobs_dgxc.PRIORS, f"{DGXC}, on GB200"),
    "a100": Fitted("a100", _jobs_mosaic.rows, _jobs_mosaic.PRIORS, MPT),
    # Without fused attention: not what a job of today would take.
    "a100-unfused": Fitted(
        "a100",
        lambda shared: _jobs_vtrain.rows(shared, "ground_truth_multi.csv"),
        _jobs_vtrain.PRIORS,
        "VIA-Research/vTrain, GPT 3.6B to 175B on 64 to 512 GPUs",
    ),
    "h100-fsdp": Fitted("h100", _jobs_mosaic.rows, _jobs_mosaic.PRIORS, MPT),
}


def content(name: str, shared: Path) -> str:
    """The text of one file."""
    fitted = FITS[name]
    machine = load_hardware(fitted.hardware)
    rows = [row for row in fitted.rows(shared) if fitted.hardware in _names(row)]
    # Host work and gaps are those of the framework's version, and would be wrong for small jobs.
    priors = {
        path: prior
        for path, prior in fitted.priors.items()
        if not path.startswith("step.") or path in _OF_CLUSTER
    }
    fit = fit_step_times(rows, priors=priors)
    same = all(row.hardware == machine for row in rows)
    # Where the rows' machine is not quite the package's, its bandwidths are its own affair.
    factors = {
        path: float(f"{factor:.4g}")
        for path, factor in fit.factors.items()
        if same or not path.startswith("device.")
    }
    head = (
        f"# Fitted by benchmarks/step_fits.py to {len(rows)} measured steps: {fitted.source}.\n"
        "# docs/jobs-validation.md has the errors on steps that a fit has not seen.\n"
    )
    return head + tomli_w.dumps(
        {
            "hardware": [machine.name],
            "source": fitted.source,
            "steps": len(rows),
            "spread": float(np.round(fit.spread, 4)),
            "factors": factors,
        }
    )


def _names(row: MeasuredStep) -> tuple[str, ...]:
    """The machines of the package that a row's machine is, or is built from."""
    name = row.hardware.name.lower()
    return tuple(known for known in ("h100", "h200", "a100", "b200") if known in name)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--only", nargs="+", choices=FITS, default=list(FITS))
    parser.add_argument("--write", type=Path, help="the folder to write the files to")
    arguments = parser.parse_args()
    for name in arguments.only:
        text = content(name, arguments.shared)
        print(f"## {name}\n\n{text}", flush=True)
        if arguments.write:
            (arguments.write / f"{name}.toml").write_text(text)


if __name__ == "__main__":
    main()
