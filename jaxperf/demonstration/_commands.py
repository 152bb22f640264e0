"""The command that a user would type for each step of the demo."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

# The machine that the simulated one is taken for, until it is fitted.
HARDWARE = "h100"
POWER = "h100"
SERVER = "zionex"
# What is asked of the traces, and of the simulator too.
CHANGE = {"gemm": 0.5}
JOB_CHANGE = {"pipeline_parallel": 4, "tensor_parallel": 2}
SAMPLES = 100
CLOCK_HZ = {"all": 1.6e9}
GPUS, GLOBAL_BATCH = 64, 512
CACHE_ROWS = (100, 1_000, 5_000)


def commands(folder: Path) -> dict[str, str]:
    """What a user would type, by the step of the demo that lies in a folder."""
    traces = folder / "traces"
    return {
        "replay": _line(
            *("replay", traces, "--hold-out", "--report", folder / "report.html"),
            *("--trace-out", folder / "replayed.json.gz", "--overwrite"),
        ),
        "whatif": _line("whatif", traces, *_each("--scale", _pairs(CHANGE)), "--samples", SAMPLES),
        "retargeted": _line(
            *("whatif", traces, "--job", folder / "job.toml", "--hardware", HARDWARE),
            *_each("--set", _pairs(JOB_CHANGE)),
        ),
        "calibration": _line(
            *("calibrate", traces, "--hardware", HARDWARE),
            *("--output", folder / "fit.toml", "--overwrite"),
        ),
        "search": _line(
            *("search", folder / "job.toml", "--gpus", GPUS, "--global-batch", GLOBAL_BATCH),
            *("--hardware", HARDWARE, "--fit", folder / "fit.toml"),
        ),
        "energy": _line(
            *("energy", "predict", traces, "--hardware", HARDWARE, "--power", POWER),
            *("--job", folder / "job.toml", *_each("--clock", _pairs(CLOCK_HZ))),
        ),
        "profile": _line(
            *("embedding", "profile", folder / "accesses.txt"),
            *("--sizes", ",".join(map(str, CACHE_ROWS))),
        ),
        "plan": _line("embedding", "plan", folder / "tables.toml", "--server", SERVER),
    }


def _line(*words: object) -> str:
    return shlex.join(["jaxperf", *map(str, words)])


def _pairs(numbers: Mapping[str, float]) -> list[str]:
    return [f"{key}={value:g}" for key, value in numbers.items()]


def _each(option: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (option, value)]
