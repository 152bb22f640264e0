"""What changed between two runs, task by task and class by class, and what it cost."""

from jaxperf.comparison._types import (
    Baseline as Baseline,
    Change as Change,
    ChangeKind as ChangeKind,
    ClassDifference as ClassDifference,
    Comparison as Comparison,
    Coverage as Coverage,
)
from jaxperf.comparison._verb import compare as compare
