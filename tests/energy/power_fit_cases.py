"""Small runs and logs that fits of the power model are tested on."""

import numpy as np

from jaxperf.config import PowerDescription, load_power
from jaxperf.cost import PRECISIONS
from jaxperf.energy._series import PowerSeries, power_series
from jaxperf.energy.calibration._design import TimedTasks, with_values
from jaxperf.energy.power._tasks import PowerTasks
from jaxperf.graph import TaskClass

ZERO_NS = 1_735_689_600_000_000_000
STATIC = ("static.constant_w", "static.leakage_w", "static.clock_w")
BELIEVED = with_values(
    load_power("h100"), {f"class_w.{name}": 0.0 for name in load_power("h100").class_w}
)
TRUTH = {
    "static.constant_w": 80.0,
    "static.leakage_w": 30.0,
    "static.clock_w": 25.0,
    "flop_j.bf16": 0.6e-12,
    "memory_byte_j": 70e-12,
    "node_byte_j": 300e-12,
    "unknown_w.other": 310.0,
}


def small_tasks(seed: int, tasks: int = 160, gap_s: float = 0.3) -> PowerTasks:
    """Long tasks of four kinds in random order, with gaps, on one accelerator.

    Multiplies, streams, messages, and what nothing is known of.
    """
    rng = np.random.default_rng(seed)
    # In blocks of one kind, as phases of a run are.
    kind = np.repeat(rng.integers(0, 4, tasks // 4), 4)
    duration_us = rng.uniform(0.3e6, 0.9e6, tasks)
    start_us = np.cumsum(duration_us + rng.uniform(0, 2 * gap_s * 1e6, tasks)) - duration_us
    pace = rng.uniform(0.5, 1.0, tasks) * duration_us * 1e-6
    classes = [TaskClass.GEMM, TaskClass.ELEMENTWISE, TaskClass.COMMUNICATION, TaskClass.OTHER]
    zeros = np.zeros(tasks)
    return PowerTasks(
        ranks=(0,),
        ranks_alike=np.ones(1),
        begin_us=0.0,
        end_us=float(start_us[-1] + duration_us[-1]),
        task=np.arange(tasks, dtype=np.int32),
        rank=np.zeros(tasks, np.int32),
        task_class=np.array(classes, np.int32)[kind],
        start_us=start_us,
        duration_us=duration_us,
        is_known=kind != 3,
        precision=np.where(kind == 0, PRECISIONS.index("bf16"), 0).astype(np.int32),
        flops=np.where(kind == 0, 700e12 * pace, 0.0),
        memory_bytes=np.select([kind == 0, kind == 1], [0.4e12 * pace, 3e12 * pace], 0.0),
        node_bytes=np.where(kind == 2, 4e11 * pace, 0.0),
        network_bytes=zeros,
        clock_share=zeros,
    )


def overlap_readings_w(
    description: PowerDescription, tasks: PowerTasks, time_s: np.ndarray, window_s: float
) -> np.ndarray:
    """What an ideal meter of one accelerator reads: each task by its overlap with each window."""
    bf16 = tasks.precision == PRECISIONS.index("bf16")
    energy_j = (
        np.where(bf16, description.flop_j["bf16"], description.flop_j["fp32"]) * tasks.flops
        + description.memory_byte_j * tasks.memory_bytes
        + description.node_byte_j * tasks.node_bytes
        + np.where(tasks.is_known, 0.0, description.unknown_w["other"]) * tasks.duration_us * 1e-6
    )
    start_s, end_s = tasks.start_us * 1e-6, (tasks.start_us + tasks.duration_us) * 1e-6
    begin_s = time_s - window_s
    shared_s = np.minimum(end_s, time_s[:, None]) - np.maximum(start_s, begin_s[:, None])
    drawn_w = np.maximum(shared_s, 0.0) @ (energy_j / (end_s - start_s)) / window_s
    static = description.static
    return drawn_w + static.constant_w + static.leakage_w + static.clock_w


def small_log(
    tasks: PowerTasks,
    truth: dict[str, float] = TRUTH,
    *,
    skew_s: float = 0.0,
    window_s: float = 0.4,
    period_s: float = 0.5,
    noise_w: float = 0.0,
    seed: int = 0,
) -> PowerSeries:
    """The log of a meter of one accelerator, while the tasks ran."""
    rng = np.random.default_rng(seed)
    time_s = np.arange(window_s + 0.1, tasks.end_us * 1e-6, period_s)
    power_w = overlap_readings_w(with_values(BELIEVED, truth), tasks, time_s, window_s)
    power_w = np.maximum(power_w + noise_w * rng.standard_normal(len(power_w)), 0.0)
    time_ns = ZERO_NS + np.rint((time_s + skew_s) * 1e9).astype(np.int64)
    return power_series(time_ns, power_w, "GPU 0", "power.csv")[0]


def timed(tasks: PowerTasks) -> TimedTasks:
    """The tasks on a clock that counts from the epoch."""
    return TimedTasks(tasks, ZERO_NS)
