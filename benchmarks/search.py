"""How long searches take, and whether they find what enumeration finds, for a page of the docs.

    python benchmarks/search.py [--only NAME ...] [--write docs/search-validation.md]

`usual` is GPT-3 175B on 1,024 H100, `speed` a space of hundreds of thousands of points, `drawn` are
random spaces, until fifty of each kind have a feasible point. `--write` puts each between its marks
in the file.
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from _tables import markdown, number, write

from jaxperf.config import SearchSpace, load_hardware, load_job, usual_space
from jaxperf.search._archive import Archive
from jaxperf.search._evaluate import evaluate
from jaxperf.search._gradient import search_gradient
from jaxperf.search._parts import CHUNK_POINTS, Method, parts_of
from jaxperf.search._problem import Problem, pose, values_of
from jaxperf.search._processes import search_parts
from jaxperf.search._tally import Tally

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.search.space_draws import drawn_problems
from tests.search.varied_spaces import varied_problems

GPUS, BATCH_SIZE = 1024, 1024
SPACES, LARGEST = 50, 12_000
_METHODS: dict[str, Method] = {"by bounds": "bound", "exhaustive": "exhaustive"}
_Found = TypeVar("_Found")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    for name in arguments.only:
        text = SECTIONS[name]()
        print(f"{text}\n", flush=True)
        if arguments.write:
            write(arguments.write, f"search_{name}", text)


def usual() -> str:
    """The usual space of a large model, twice by each method: the first time compiles."""
    job = load_job("gpt3-175b")
    problem = pose(job, load_hardware("h100"), usual_space(job, GPUS, BATCH_SIZE))
    rows, told = [], []
    for name, method in _METHODS.items():
        _, first_s, _ = timed(partial(search, problem, method))
        (archive, tally), wall_s, user_s = timed(partial(search, problem, method))
        counts = (tally.evaluated, tally.excluded.total(), tally.refused.total())
        step_s = f"{archive.best_cost / 1e6:.6f}"
        seconds = [number(first_s, 1), number(wall_s), number(user_s)]
        rows.append([name, *(f"{n:,}" for n in counts), *seconds, step_s])
        told.append(f"- {name}: {certificate(problem, archive, tally)}")
    columns = ["search", "evaluated", "excluded", "cannot be", "first s", "warm s", "user s"]
    return "\n".join([markdown([*columns, "step s"], rows), "", *told])


def search(problem: Problem, method: Method) -> tuple[Archive, Tally]:
    return search_parts(parts_of(problem, method))


def certificate(problem: Problem, archive: Archive, tally: Tally) -> str:
    best = ", ".join(f"{k} {v}" for k, v in values_of(problem, int(archive.index[0])).items())
    parts = [f"{tally.points:,} points", f"{tally.evaluated:,} evaluated"]
    parts += [f"{n:,} of these above the limit on {name}" for name, n in tally.over.items() if n]
    parts += [f"{n:,} excluded by {name}" for name, n in tally.excluded.items() if n]
    parts += [f"{tally.refused.total():,} refused by {len(tally.refused)} rules"]
    return f"{'; '.join(parts)}. The best: {best}."


def large_problem() -> Problem:
    """A space of which most points can be."""
    axes = {
        "tensor_parallel": (1, 2, 4, 8),
        "pipeline_parallel": (1, 2, 4, 8, 16),
        "micro_batch_size": (1, 2, 4),
        "schedule": ("gpipe", "1F1B", "zero-bubble"),
        "recompute": ("none", "selective", "full"),
        "sharding": ("none", "zero1", "zero2", "zero3"),
        "sequence_parallel": (False, True),
        "precision": ("bf16", "fp8"),
        "overlap_gradients": (False, True),
        "overlap_tensor": (False, True),
        "gradient_buckets": (1, 2, 4, 8),
        "optimizer": ("adam", "sgd"),
    }
    space = SearchSpace("large", axes, GPUS, 4 * GPUS)
    return pose(load_job("gpt3-175b"), load_hardware("h100"), space)


def speed() -> str:
    """Points in a second: in one call, and as whole searches."""
    problem = large_problem()
    index = np.arange(problem.space.size)
    batches = np.array_split(index, -(-len(index) // CHUNK_POINTS))

    def evaluate_all() -> int:
        return sum(int(evaluate(problem, batch).points.valid.sum()) for batch in batches)

    evaluate_all()
    valid, wall_s, user_s = timed(evaluate_all)
    rows = [_rate("evaluation of all points", problem, valid, wall_s, user_s)]
    for name, method in _METHODS.items():
        search(problem, method)
        (_, tally), wall_s, user_s = timed(partial(search, problem, method))
        rows.append(_rate(f"search {name}", problem, tally.evaluated, wall_s, user_s))
    columns = ["what", "points", "evaluated", "wall s", "user s"]
    return markdown([*columns, "evaluated a s", "settled a s", "settled a user s"], rows)


def _rate(what: str, problem: Problem, valid: int, wall_s: float, user_s: float) -> list[str]:
    size = problem.space.size
    rates = (f"{round(each, -2):,.0f}" for each in (valid / wall_s, size / wall_s, size / user_s))
    return [what, f"{size:,}", f"{valid:,}", number(wall_s), number(user_s), *rates]


def drawn() -> str:
    """Random spaces, by bounds and by the gradient, against enumeration."""
    columns = ["spaces", "with a feasible point", "points", "by bounds equal", "evaluated"]
    rows = []
    for name, problems in (
        ("built-in models on H100", drawn_problems(7, most=LARGEST)),
        ("every schedule, experts, machines, clocks", varied_problems(7, 10**6, most=LARGEST)),
    ):
        found: list[dict[str, float]] = []
        while sum(each["feasible"] for each in found) < SPACES:
            found.append(one_space(next(problems)))
        rows.append([f"{len(found)}: {name}", *_summary(found)])
    more = ["gradient within 2 %", "its largest gap", "evaluated by it"]
    return markdown([*columns, *more], rows)


def one_space(problem: Problem) -> dict[str, float]:
    every, tally = search(problem, "exhaustive")
    bounded, proof = search(problem, "bound")
    same = np.array_equal(every.index[every.front], bounded.index[bounded.front])
    found = {
        "points": tally.points,
        "of_all": tally.evaluated,
        "bounded": proof.evaluated,
        "same": same and proof.complete,
        "feasible": len(every.index) > 0,
        "excess": np.nan,
        "gradient": 0,
    }
    if len(every.index):
        descent = search_gradient(problem)
        excess = abs(descent.cost[:, 0].min() / every.best_cost - 1.0)
        found |= {"excess": excess, "gradient": len(descent.index)}
    return found


def _summary(found: list[dict[str, float]]) -> list[str]:
    total = {name: sum(each[name] for each in found) for name in found[0] if name != "excess"}
    excess = np.array([each["excess"] for each in found if each["feasible"]])
    share = total["bounded"] / total["of_all"]
    return [
        f"{total['feasible']:.0f}",
        f"{total['points']:,.0f}",
        f"{total['same']:.0f}",
        f"{100 * share:.0f} % of those that can be",
        f"{(excess <= 0.02).sum()} of {len(excess)}",
        f"{100 * excess.max():.2f} %",
        f"{100 * total['gradient'] / total['of_all']:.0f} %",
    ]


def timed(work: Callable[[], _Found]) -> tuple[_Found, float, float]:
    """What work gives, and the seconds it takes: on the wall, and of the processors."""
    wall, user = time.perf_counter(), time.process_time()
    found = work()
    return found, time.perf_counter() - wall, time.process_time() - user


SECTIONS = {"usual": usual, "speed": speed, "drawn": drawn}


if __name__ == "__main__":
    main()
