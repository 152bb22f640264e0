"""Which runs a score keeps, and what it is scaled by."""

from collections.abc import Sequence

import msgspec
import numpy as np

from jaxperf._json import NOT_READABLE
from jaxperf.energy._log_files import LogFiles
from jaxperf.errors import LogError

RUNS = {
    "bert": 10,
    "dlrm": 5,
    "dlrm_dcnv2": 10,
    "gnmt": 10,
    "gnn": 10,
    "gpt3": 3,
    "llama2_70b_lora": 10,
    "maskrcnn": 5,
    "minigo": 10,
    "ncf": 10,
    "resnet": 5,
    "retinanet": 5,
    "rgat": 10,
    "rnnt": 10,
    "ssd": 5,
    "stable_diffusion": 10,
    "transformer": 10,
    "unet3d": 40,
    "cosmoflow": 10,
    "deepcam": 5,
    "oc20": 5,
    "openfold": 10,
}
"""Runs that a submission needs. Source: mlcommons/logging, benchmark_meta.py."""

HPC_BENCHMARKS = frozenset({"cosmoflow", "deepcam", "oc20", "openfold"})


def _dropped_at_each_end(benchmark: str | None) -> int:
    """Runs that the score leaves out at each end of their order by time.

    Source: mlcommons/logging, result_summarizer.py; HPC's strong scaling follows the same.
    """
    return 4 if benchmark == "unet3d" else 1


def kept_runs(duration_s: Sequence[float], benchmark: str | None, where: str) -> np.ndarray:
    """Which runs the Olympic scoring keeps: all but the fastest and the slowest by time.

    A run that did not converge is one of the slowest.

    Args:
        duration_s: of each run; NaN where it did not converge.
        benchmark: as its log names it.
        where: the submission, for messages.

    Returns:
        bool[runs]. All False where too few runs are left.

    Raises:
        LogError: more runs did not converge than the scoring leaves out.

    Example:
        >>> kept_runs([30.0, 10.0, 20.0], "gpt3", "gpt3_v40")
        array([False, False,  True])
    """
    time = np.asarray(duration_s, np.float64)
    drop = _dropped_at_each_end(benchmark)
    failed = int(np.isnan(time).sum())
    if failed > drop or failed == len(time):
        raise LogError(
            "too many runs that did not converge",
            where=where,
            got=f"{failed} of {len(time)}",
            expected=f"at most {drop}, and one that did",
        )
    order = np.argsort(time, kind="stable")
    kept = np.zeros(len(time), bool)
    kept[order[drop : max(len(time) - drop, 0)]] = True
    return kept


def scaling_factor(logs: LogFiles) -> float:
    """What a review scaled the score by, for convergence faster than the reference: 1 without.

    Raises:
        LogError: `scaling.json` has no factor.

    Example:
        >>> scaling_factor(LogFiles("gpt3", {"scaling.json": b'{"scaling_factor": 1.01}'.strip}))
        1.01
    """
    if "scaling.json" not in logs:
        return 1.0
    try:
        factor = msgspec.json.decode(logs.read("scaling.json"), type=dict)["scaling_factor"]
    except (*NOT_READABLE, KeyError):
        factor = None
    if not isinstance(factor, int | float) or isinstance(factor, bool) or not factor > 0:
        raise LogError(
            "no scaling factor",
            where=logs.where("scaling.json"),
            got=repr(factor),
            expected='{"scaling_factor": 1.01}',
        )
    return float(factor)
