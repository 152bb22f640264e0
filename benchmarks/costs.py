"""The cost models beside measured tables: kernels and collectives, and the goals beside both.

    python benchmarks/costs.py SHARED [--write docs] [--tables TEXT ...] [--seeds N]

SHARED is the folder with `groundtruth/`. The tables go to docs/cost.md, which says what their
columns mean, and the goals to docs/validation.md.
"""

import argparse
import sys
from pathlib import Path

import _collective_tables as collectives
import _matmul_tables as matmuls
from _tables import markdown, number, write

GOALS = {"bf16": 10.0, "bf16, large": 6.0, "NCCL": 8.0}
"""In percent: all shapes, large ones, and each collective on sizes that were not fitted."""
TABLES = ("kernels", "other kernels", "streams", "collectives")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--write", type=Path, help="the folder of cost.md and validation.md")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--seeds", type=int, default=matmuls.SEEDS, help="fits of each table")
    arguments = parser.parse_args()
    shared, seeds, wanted = arguments.shared, arguments.seeds, arguments.tables
    texts, kernels, nccl = {}, [], []
    if "kernels" in wanted:
        kernels = _kernels(shared, seeds)
        texts["kernels"] = matmuls.table([*kernels, matmuls.measure_attention(shared, seeds=seeds)])
    if "other kernels" in wanted:
        texts["other kernels"] = matmuls.table(matmuls.measure_other_matmuls(shared, seeds))
    if "streams" in wanted:
        texts["streams"] = matmuls.streams_table(shared)
    if "collectives" in wanted:
        nccl = _nccl(shared)
        texts["collectives"] = collectives.table(nccl)
    if kernels and nccl:
        texts["goals"] = goals_table(kernels, nccl)
    for mark, text in texts.items():
        print(f"{mark}\n\n{text}\n", flush=True)
        if arguments.write:
            page = "validation.md" if mark == "goals" else "cost.md"
            write(arguments.write / page, mark, text)
    return 0


def _kernels(shared: Path, seeds: int) -> list[matmuls.Row]:
    tables = ((gpu, dtype) for dtype in ("bfloat16", "fp8", "nvfp4") for gpu in matmuls.GPUS)
    rows = (matmuls.measure_matmul(shared, gpu, dtype, seeds) for gpu, dtype in tables)
    return [row for row in rows if row is not None]


def _nccl(shared: Path) -> list[collectives.Row]:
    """All parts of the GPUs that have a hardware file, and half of the sizes of the others."""
    found = []
    for table, hardware in collectives.NCCL_TABLES.items():
        machine = table.split("/")[0].removesuffix("_sxm")
        own = machine == hardware
        name = hardware.upper() if own else f"{machine.upper()} as {hardware.upper()}"
        path = shared / "groundtruth/aiconfigurator" / table / "nccl_perf.csv.gz"
        parts = () if own else (collectives.HALF,)
        found += collectives.measure_nccl(name, path, hardware, parts=parts)
    return found


def goals_table(kernels: list[matmuls.Row], nccl: list[collectives.Row]) -> str:
    """One line a GPU: each goal's figure, and whether all are met."""
    lines = []
    for row in kernels:
        gpu, _, dtype = row.name.partition(" ")
        if dtype != "bf16":
            continue
        half = next(r for r in nccl if r.name == gpu and r.what == collectives.HALF)
        worst = max(half.error_percent)
        met = {
            "bf16": row.fitted.all <= GOALS["bf16"],
            "bf16, large": row.fitted.large <= GOALS["bf16, large"],
            "NCCL": worst <= GOALS["NCCL"],
        }
        missed = [what for what, yes in met.items() if not yes]
        figures = (row.fitted.all, row.neighbours.all, row.fitted.large, row.neighbours.large)
        lines.append(
            [
                gpu,
                *(number(figure) for figure in figures),
                *(number(error, 1) for error in half.error_percent),
                ", ".join(missed) or "-",
            ]
        )
    columns = [
        "GPU",
        f"bf16, goal {GOALS['bf16']:.0f}",
        "neighbours",
        f"bf16, large, goal {GOALS['bf16, large']:.0f}",
        "neighbours",
        *(f"{name.replace('_', '-')}, goal {GOALS['NCCL']:.0f}" for name in collectives.MEASURED),
        "missed",
    ]
    return markdown(columns, lines)


if __name__ == "__main__":
    sys.exit(main())
