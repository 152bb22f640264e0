"""TorchRec's planner in compatibility mode, against estimates that TorchRec itself computed."""

from collections import defaultdict
from pathlib import Path

import numpy as np
from _tables import markdown
from embedding_torchrec import golden_rows, planner_errors


def table(shared: Path) -> str:
    errors = planner_errors(shared)
    by_kernel = defaultdict(list)
    for (row, _), error in zip(golden_rows(shared), errors, strict=True):
        by_kernel[row["compute_kernel"]].append(error)
    by_kernel["all"] = errors
    columns = ("kernel", "rows", "within 1e-9", "largest relative error")
    rows = [
        (kernel, len(found), int((np.array(found) <= 1e-9).sum()), f"{max(found):.1e}")
        for kernel, found in by_kernel.items()
    ]
    return markdown(columns, rows)
