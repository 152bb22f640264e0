"""Power of the AccelWattch kernels on a V100, from hardware counters; judged on held-out kernels.

The two files name kernels differently: which of a program's kernels is its second is known from
AccelWattch's own `gen_sim_power_csv.py` (accel-sim-framework, commit 30c1a32). One measured kernel
(pathfinder) has no counters.
"""

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from _tables import markdown, number
from scipy.optimize import nnls

from jaxperf.energy.calibration._kernel_power import (
    KernelCounters,
    fit_kernel_power,
    kernel_power_w,
)

FOLDER = Path("power") / "gpu_power"
MULTIPROCESSORS = 80
_NEAR = ("L1_RH", "L1_RM", "L1_WH", "L1_WM", "SHRD_ACC", "CC_ACC")
_MEMORY = ("DRAM_Rd", "DRAM_Wr")
_SECOND_LEVEL = ("L2_RH", "L2_RM", "L2_WH", "L2_WM")
_PROGRAM = {"b+tree": "btree", "srad": "srad_v1", "parboil-mri-q": "parboil_mriq"}
_SECOND = (
    "findK",
    "bpnn_adjust_weights",
    "CUDAkernel2DCT",
    "fwtBatch1Kernel",
    "mergeSortSharedKernel",
    "inverseCNDKernel",
)
_NUMBERED = re.compile(r"_k(\d)$")
_SUITE = re.compile(r"-rodinia-3\.1$|_v1-rodinia-3\.1$|_perf_test_k\d$")


@dataclass(frozen=True)
class Kernels:
    """What was measured.

    Attributes:
        names: of the kernels, as the file with their powers has them.
        programs: of each, the program it is from.
        counters: as rates.
        second_level_per_cycle: (kernels,) accesses of the second-level cache.
        power_w: (kernels,) mean of five samples.
    """

    names: tuple[str, ...]
    programs: tuple[str, ...]
    counters: KernelCounters
    second_level_per_cycle: np.ndarray
    power_w: np.ndarray


def read(shared: Path) -> Kernels:
    """The kernels that have both counters and power."""
    with (shared / FOLDER / "accelwattch_v100_hw_power.csv").open() as file:
        measured = {row[""]: float(row["mean HW_power"]) for row in csv.DictReader(file)}
    with (shared / FOLDER / "accelwattch_v100_hw_perf.csv").open() as file:
        rows = list(csv.DictReader(file))
    programs = [_program(row["Benchmark"]) for row in rows]
    names = [
        f"{program}_k{_number(row['Benchmark'], row['Kernel'])}"
        for program, row in zip(programs, rows, strict=True)
    ]
    columns = {
        key: np.array([float(row[key]) for row in rows])
        for key in rows[0]
        if key not in ("Benchmark", "Kernel")
    }

    def rate(keys: tuple[str, ...]) -> np.ndarray:
        return sum(columns[key] for key in keys) / columns["Elapsed_Cycles"]

    counters = KernelCounters(
        active_share=1.0 - columns["Num_Idle_SMs"] / MULTIPROCESSORS,
        issue_share=columns["Pipeline_Duty"],
        near_per_cycle=rate(_NEAR),
        memory_per_cycle=rate(_MEMORY),
    )
    power_w = np.array([measured[name] for name in names])
    return Kernels(tuple(names), tuple(programs), counters, rate(_SECOND_LEVEL), power_w)


def held_out_w(
    counters: KernelCounters, power_w: np.ndarray, groups: tuple[str, ...]
) -> np.ndarray:
    """(kernels,) power of each kernel by a fit to the kernels of other groups."""
    group = np.array(groups)
    found = np.empty(len(power_w))
    for name in set(groups):
        out = group == name
        power = fit_kernel_power(_take(counters, ~out), power_w[~out])
        found[out] = kernel_power_w(power, _take(counters, out))
    return found


def second_level_apart_w(kernels: Kernels, groups: tuple[str, ...]) -> np.ndarray:
    """As `held_out_w`, with one number more: of an access of the second-level cache."""
    rates = [getattr(kernels.counters, field.name) for field in fields(KernelCounters)]
    ones = np.ones(len(groups))
    columns = np.stack([ones, *rates, kernels.second_level_per_cycle], axis=1)
    group = np.array(groups)
    found = np.empty(len(groups))
    for name in set(groups):
        out = group == name
        fitted, _ = nnls(columns[~out] / kernels.power_w[~out, None], ones[~out])
        found[out] = columns[out] @ fitted
    return found


def error_percent(predicted_w: np.ndarray, power_w: np.ndarray) -> float:
    """Mean absolute error."""
    return float(np.mean(np.abs(predicted_w / power_w - 1.0))) * 100.0


FORMS: Mapping[str, Callable[[Kernels], KernelCounters]] = {
    "static alone": lambda k: _without(k, "active_share", "issue_share", *_RATES),
    "+ active": lambda k: _without(k, "issue_share", *_RATES),
    "+ active, issue": lambda k: _without(k, *_RATES),
    "+ active, issue, near": lambda k: _without(k, "memory_per_cycle"),
    "+ active, issue, near, memory (chosen)": lambda k: k.counters,
    "as chosen, second level counted with near": lambda k: replace(
        k.counters, near_per_cycle=k.counters.near_per_cycle + k.second_level_per_cycle
    ),
    "+ issue, near, memory": lambda k: _without(k, "active_share"),
}
_RATES = ("near_per_cycle", "memory_per_cycle")


def nested_w(kernels: Kernels, groups: tuple[str, ...]) -> np.ndarray:
    """Held-out power by the form that does best on the other groups, held out one at a time."""
    group = np.array(groups)
    found = np.empty(len(group))
    for name in set(groups):
        out = group == name
        names = tuple(np.array(kernels.names)[~out])
        inner = []
        for form in FORMS.values():
            counters = form(kernels)
            kept = _take(counters, ~out)
            error = error_percent(
                held_out_w(kept, kernels.power_w[~out], names), kernels.power_w[~out]
            )
            inner.append((error, counters))
        counters = min(inner, key=lambda each: each[0])[1]
        power = fit_kernel_power(_take(counters, ~out), kernels.power_w[~out])
        found[out] = kernel_power_w(power, _take(counters, out))
    return found


def table(shared: Path) -> str:
    """The section of the documentation."""
    kernels = read(shared)
    measured = kernels.power_w
    rows = []
    for name, form in FORMS.items():
        counters = form(kernels)
        errors = (
            kernel_power_w(fit_kernel_power(counters, measured), counters),
            held_out_w(counters, measured, kernels.names),
            held_out_w(counters, measured, kernels.programs),
        )
        rows.append((name, *(number(error_percent(each, measured), 1) for each in errors)))
    apart = (second_level_apart_w(kernels, groups) for groups in (kernels.names, kernels.programs))
    rows.append(
        (
            "as chosen, second level apart",
            "-",
            *(number(error_percent(each, measured), 1) for each in apart),
        )
    )
    nested = (nested_w(kernels, groups) for groups in (kernels.names, kernels.programs))
    rows.append(
        (
            "form chosen within each fold",
            "-",
            *(number(error_percent(e, measured), 1) for e in nested),
        )
    )
    power = fit_kernel_power(kernels.counters, measured)
    watts = ((field.name, number(getattr(power, field.name), 2)) for field in fields(power))
    worst = np.abs(held_out_w(kernels.counters, measured, kernels.names) / measured - 1.0) * 100.0
    order = np.argsort(-worst)[:4]
    return "\n\n".join(
        (
            f"Mean absolute error over {len(measured)} kernels, %:",
            markdown(("form", "in fit", "a kernel held out", "a program held out"), rows),
            "Fitted to all kernels, in W:",
            markdown(("number", "W"), watts),
            "Worst of the held-out kernels: "
            + ", ".join(f"{kernels.names[i]} {worst[i]:.0f} %" for i in order)
            + ".",
        )
    )


def _program(benchmark: str) -> str:
    name = _SUITE.sub("", benchmark)
    return _PROGRAM.get(name, name.replace("-", "_"))


def _number(benchmark: str, kernel: str) -> int:
    if found := _NUMBERED.search(benchmark):
        return int(found[1])
    return 2 if any(second in kernel for second in _SECOND) else 1


def _without(kernels: Kernels, *names: str) -> KernelCounters:
    nothing = np.zeros(len(kernels.names))
    return replace(kernels.counters, **dict.fromkeys(names, nothing))


def _take(counters: KernelCounters, chosen: np.ndarray) -> KernelCounters:
    return KernelCounters(*(getattr(counters, f.name)[chosen] for f in fields(counters)))
