"""Names of benchmarks, scenarios and rounds, and where a rule changed what a name stands for."""

import re
from dataclasses import dataclass

_OTHER_NAMES: dict[str, str] = dict(
    zip("rnn-t resnet50".split(), "rnnt resnet".split(), strict=True)
)

_TWO_TARGETS = "3d-unet bert dlrm dlrm-v2 gptj llama2-70b".split()
"""Benchmarks with a target of 99 % and one of 99.9 % of the reference's accuracy."""

LOWEST_TARGET = "99"


@dataclass(frozen=True, order=True, slots=True)
class Benchmark:
    """A benchmark and the accuracy it must reach.

    Attributes:
        name: in lower case.
        target: percent of the reference's accuracy, as written; empty where it has one target.

    Example:
        >>> str(Benchmark("bert", "99.9"))
        'bert-99.9'
    """

    name: str
    target: str = ""

    def __str__(self) -> str:
        return f"{self.name}-{self.target}" if self.target else self.name


@dataclass(frozen=True, slots=True)
class RuleChange:
    """From a round on, a name stands for other work.

    Attributes:
        benchmark, scenario: whose; `None` for all.
        since: the first round of the new rule.
        text: what changed.
    """

    benchmark: str | None
    scenario: str | None
    since: str
    text: str


RULE_CHANGES = (
    RuleChange("3d-unet", None, "v2.0", "its data set became KiTS19, before BraTS 2019"),
    RuleChange(
        None, "multistream", "v2.0", "a query is 8 samples; before, streams at a fixed rate counted"
    ),
)
"""Changes of MLPerf Inference that make the same name incomparable (inference_rules of v1.1, v2.0).
"""


def benchmark_of(model: str) -> Benchmark:
    """A benchmark by any of the spellings in use.

    Args:
        model: such as `BERT-99.0`, `bert-99` or `RNN-T`.

    Returns:
        The benchmark. A name alone of a benchmark with two targets stays without one.

    Example:
        >>> str(benchmark_of("BERT-99.0")), str(benchmark_of("RNN-T"))
        ('bert-99', 'rnnt')
    """
    written = model.strip().lower()
    target = re.search(r"-(99(\.\d)?)$", written)
    name = written[: target.start()] if target else written
    percent = target.group(1).removesuffix(".0") if target else ""
    return Benchmark(_OTHER_NAMES.get(name, name), percent)


def has_two_targets(name: str) -> bool:
    """Whether the rules know this benchmark at 99 % and at 99.9 %.

    Example:
        >>> has_two_targets("bert"), has_two_targets("resnet")
        (True, False)
    """
    return name in _TWO_TARGETS


def scenario_of(text: str) -> str:
    """A scenario in lower case, without spaces or hyphens; empty stays empty.

    Example:
        >>> scenario_of("Single Stream")
        'singlestream'
    """
    return re.sub(r"[ _-]", "", text.lower())


def round_order(name: str) -> tuple[int, ...]:
    """What rounds are sorted by: `v0.7` before `v1.0`, `v4.1` before `v10.0`.

    Example:
        >>> round_order("v4.1") < round_order("v10.0")
        True
    """
    return tuple(int(part) for part in name.removeprefix("v").split("."))


def rule_since(benchmark: str, scenario: str, round_name: str) -> str:
    """The round whose rules hold for a result: the last change, or empty before any.

    Example:
        >>> rule_since("3d-unet", "offline", "v3.0"), rule_since("3d-unet", "offline", "v1.0")
        ('v2.0', '')
    """
    reached = [
        change.since
        for change in RULE_CHANGES
        if change.benchmark in (None, benchmark)
        and change.scenario in (None, scenario)
        and round_order(change.since) <= round_order(round_name)
    ]
    return max(reached, key=round_order, default="")


def rule_text(benchmark: str, scenario: str, since: str) -> str:
    """What changed in a round, for a message.

    Example:
        >>> rule_text("3d-unet", "offline", "v2.0")
        'its data set became KiTS19, before BraTS 2019'
    """
    return "; ".join(
        change.text
        for change in RULE_CHANGES
        if change.benchmark in (None, benchmark)
        and change.scenario in (None, scenario)
        and change.since == since
    )
