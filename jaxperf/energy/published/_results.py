"""One published result: whose it is, where it was measured, and its work by energy."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from jaxperf.energy.published._benchmarks import Benchmark

INFERENCE_SCALES = ("datacenter", "edge", "inference")
"""The last where it is not told which of the two."""

Window = Literal["official", "run"]


@dataclass(frozen=True, slots=True)
class TokensPerSample:
    """How many tokens a benchmark makes of one sample.

    Attributes:
        tokens: mean over its data set.
        source: where the number comes from.
    """

    tokens: float
    source: str


TOKENS_PER_SAMPLE: Mapping[str, TokensPerSample] = {
    "gptj": TokensPerSample(
        69.0,
        "the tokens/s that loadgen infers in v4.1 are 69.0 times its samples/s; the paper's number",
    ),
    "llama2-70b": TokensPerSample(
        292.0,
        "the paper's number; the rules state 294.45 and accept 10 % either way, summaries "
        "of loadgen have 290 to 291",
    ),
}
"""By benchmark. Of others it is not known, and their tokens are never taken for samples."""


@dataclass(frozen=True, slots=True)
class EnergyResult:
    """One result: how much work a joule did, or how many joules one training took.

    Attributes:
        source: the file, and the line in it, or the folder of logs.
        round, public_id, org, system, accelerator: whose; empty where not told.
        accelerators: of the system; NaN where not told.
        scale: `datacenter`, `edge`, `tiny` or `training`; `inference` where it is not told which
            of the first two.
        benchmark: with its accuracy target.
        scenario: in lower case, without spaces; empty where the benchmark has none.
        boundary: where it was measured: `AC`, `DC`, `DC by conversion` of AC readings, `DC at the
            device`; empty where not told.
        window: of the log that the power is taken from.
        unit: `samples/J`, `tokens/J`, `inferences/J`, or `J` for one training.
        value: in that unit.
        rate_per_s: samples or tokens per second; NaN where the metric is none.
        duration_s: of one inference or training; NaN where the metric is none.
        power_w: average; NaN where the table does not tell.
        line: of the table, 0 elsewhere.
    """

    source: str
    round: str
    public_id: str
    org: str
    system: str
    accelerator: str
    accelerators: float
    scale: str
    benchmark: Benchmark
    scenario: str
    boundary: str
    window: Window
    unit: str
    value: float
    rate_per_s: float
    duration_s: float
    power_w: float
    line: int

    @property
    def higher_is_better(self) -> bool:
        """Whether more of the value is better: of work by energy, not of energy."""
        return self.unit != "J"


def joules_per_unit(result: EnergyResult) -> float:
    """Energy of one sample, token, inference or training.

    Args:
        result: any.

    Returns:
        Joules.

    Example:
        >>> from jaxperf.energy import Metric, MeasuredWindow, EnergyScore, result_of_score
        >>> window = MeasuredWindow(30_000.0, 500.0, 60.0, float("nan"), 60)
        >>> power = Metric("average power", 500.0, "W")
        >>> work = Metric("samples per joule", 4.0, "1/J")
        >>> score = EnergyScore("logs", "inference", "resnet50", "Offline", None, power, work,
        ...                     500.0, 30_000.0, 60.0, window, window, (), (), ())
        >>> joules_per_unit(result_of_score(score))
        0.25
    """
    return 1.0 / result.value if result.higher_is_better else result.value


def boundary_of(scale: str, name: str) -> str:
    """Where power was measured: by the rules of the scale, or as a name of a training tells it.

    Example:
        >>> boundary_of("edge", "any"), boundary_of("training", "smc-dc-power")
        ('AC', 'DC')
    """
    if scale in INFERENCE_SCALES:
        return "AC"
    if scale == "tiny":
        return "DC at the device"
    told = set(re.findall(r"(?<![a-z])(ac|dc)(?![a-z])", name.lower()))
    return told.pop().upper() if len(told) == 1 else ""
