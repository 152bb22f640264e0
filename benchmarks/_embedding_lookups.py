"""Lookups measured on an H100, against TorchRec's formulas and corrected ones."""

from pathlib import Path

from embedding_torchrec import configurations, measured_lookups, medians


def table(shared: Path) -> str:
    measured = measured_lookups(shared)
    return f"{medians(measured)}\n\n{configurations(measured)}"
