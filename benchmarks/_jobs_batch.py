"""Step times at other batch sizes, predicted from two, beside those of real runs of each size."""

import itertools
import re
import sys
from pathlib import Path

import numpy as np
from _tables import markdown, number

from jaxperf.graph import TaskKind, build_graph
from jaxperf.replay import replay_graph
from jaxperf.trace import read_run
from jaxperf.workload.retargeting._batch_size import predict_batch_sizes

FOLDER = Path("traces") / "particle_transformer_a100_batch_sweep"
SIZES = (2, 4, 8, 16, 32, 64, 128, 256, 512)
WARM_REPEATS = {64: (2, 3, 4), 128: (2, 3)}
"""Consecutive iterations with the same shapes in which nothing was done for the first time."""

# What a first call takes: no host task of the warm repeats is longer, but one by a sixth.
_FIRST_CALL_US = 1000.0
_ALLOCATION = re.compile(r"cuda(Malloc|Free)")
_LIMIT_PERCENT = 10.0


def warm_window_us(path: Path) -> tuple[float, float]:
    """The window of a trace as recorded, and without what was done for the first time.

    Host tasks longer than a millisecond take what others of their name take, and the allocator asks
    the device for no more memory.
    """
    graph = build_graph(read_run(path))
    duration_us = graph.duration_ns / 1e3
    warm_us = duration_us.copy()
    host = graph.kind < TaskKind.KERNEL
    for name in np.unique(graph.name[host]).tolist():
        mine = host & (graph.name == name)
        long = mine & (duration_us > _FIRST_CALL_US)
        usual = duration_us[mine & ~long]
        warm_us[long] = np.median(usual) if len(usual) else 0.0
        if _ALLOCATION.match(graph.names[name]):
            warm_us[mine] = 0.0
    return _window_us(graph, duration_us), _window_us(graph, warm_us)


def _window_us(graph, duration_us: np.ndarray) -> float:
    timeline = replay_graph(graph, duration_us)
    return float(timeline.end_us.max() - timeline.start_us.min())


def errors_percent(shared: Path, pair: tuple[int, int], truth_us: dict[int, float]) -> list[float]:
    """Signed errors of the sizes that are not in the pair, in order."""
    runs = {size: shared / FOLDER / f"fwd_bs{size}.json.gz" for size in pair}
    others = [size for size in SIZES if size not in pair]
    predicted = predict_batch_sizes(runs, others)
    truth = np.array([truth_us[size] for size in others])
    return (100.0 * (predicted.step_us / truth - 1.0)).tolist()


def table(shared: Path) -> str:
    """Every pair of sizes, and the errors of the other seven."""
    windows = {size: warm_window_us(shared / FOLDER / f"fwd_bs{size}.json.gz") for size in SIZES}
    recorded = {size: pair[0] for size, pair in windows.items()}
    warm = {size: pair[1] for size, pair in windows.items()}
    rows, every = [], []
    for pair in itertools.combinations(SIZES, 2):
        errors = errors_percent(shared, pair, warm)
        every.append((pair, errors))
        left = iter(errors)
        cells = ["-" if size in pair else number(next(left), 1) for size in SIZES]
        rows.append([f"{pair[0]}, {pair[1]}", *cells, *_summary(errors)])
    groups = {
        "all pairs": lambda pair: True,
        "one of up to 64, one of 128 or more": lambda pair: pair[0] <= 64 < pair[1],
        "both 128 or more": lambda pair: pair[0] > 64,
        "both up to 64": lambda pair: pair[1] <= 64,
    }
    for label, chosen in groups.items():
        errors = [error for pair, errors in every if chosen(pair) for error in errors]
        rows.append([label, *[""] * len(SIZES), *_summary(errors)])
    heading = ["recorded at", *map(str, SIZES), "mean", "worst", "within 10 %"]
    first = [
        ["window as recorded, ms", *(number(recorded[s] / 1e3, 1) for s in SIZES), "", "", ""],
        ["without first calls, ms", *(number(warm[s] / 1e3, 1) for s in SIZES), "", "", ""],
    ]
    return f"{markdown(heading, [*first, *rows])}\n\n{_noise(shared)}"


def _summary(errors: list[float]) -> list[str]:
    size = np.abs(errors)
    within = int((size <= _LIMIT_PERCENT).sum())
    return [number(size.mean(), 1), number(size.max(), 1), f"{within} of {len(size)}"]


def _noise(shared: Path) -> str:
    """The windows of repeats: what no prediction can know."""
    lines = []
    for size, iterations in WARM_REPEATS.items():
        paths = [shared / FOLDER / f"repeat_bs{size}_iter{i}.json.gz" for i in iterations]
        windows = [warm_window_us(path)[0] / 1e3 for path in paths]
        lines.append(f"batch {size}: {', '.join(number(window, 1) for window in windows)} ms")
    return f"Warm repeats of one configuration take {'; '.join(lines)}."


if __name__ == "__main__":
    print(table(Path(sys.argv[1])))
