"""The cost models beside measured tables: kernels and collectives.

    python benchmarks/costs.py SHARED [--only NAME ...] [--write docs/cost.md]

SHARED is the folder with `groundtruth/`; docs/cost.md says what the columns mean. The goals beside
both are a table of docs/validation.md, which `validation.py` makes.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import _collective_tables as collectives
import _matmul_tables as matmuls
from _script import make_tables
from _tables import markdown, number

GOALS = {"bf16": 10.0, "bf16, large": 6.0, "NCCL": 8.0}
"""In percent: all shapes, large ones, and each collective on sizes that were not fitted."""
DTYPES = ("bfloat16", "fp8", "nvfp4")


def kernels_table(shared: Path) -> str:
    """Matrix multiplies of each type and GPU, and attention."""
    return matmuls.table([*_kernels(shared, DTYPES), matmuls.measure_attention(shared)])


def other_kernels_table(shared: Path) -> str:
    """Other tables of matrix multiplies."""
    return matmuls.table(matmuls.measure_other_matmuls(shared))


def collectives_table(shared: Path) -> str:
    """NCCL's."""
    return collectives.table(_nccl(shared))


def _kernels(shared: Path, dtypes: Sequence[str]) -> list[matmuls.Row]:
    tables = ((gpu, dtype) for dtype in dtypes for gpu in matmuls.GPUS)
    rows = (matmuls.measure_matmul(shared, gpu, dtype) for gpu, dtype in tables)
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


def goals_table(shared: Path) -> str:
    """One line a GPU: each goal's figure, and whether all are met."""
    nccl, lines = _nccl(shared), []
    for row in _kernels(shared, ["bfloat16"]):
        gpu, _, _ = row.name.partition(" ")
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


TABLES = {
    "kernels": kernels_table,
    "other kernels": other_kernels_table,
    "streams": matmuls.streams_table,
    "collectives": collectives_table,
}


if __name__ == "__main__":
    sys.exit(make_tables(__doc__, TABLES))
