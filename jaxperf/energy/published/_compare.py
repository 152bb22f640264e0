"""Which results may be compared, and why others may not."""

import math
import re
from dataclasses import dataclass
from pathlib import PurePath

from jaxperf.energy._score_types import EnergyScore, MeasuredWindow
from jaxperf.energy.published._benchmarks import benchmark_of, rule_since, rule_text, scenario_of
from jaxperf.energy.published._results import INFERENCE_SCALES, EnergyResult, Window, boundary_of
from jaxperf.errors import ConfigError

_CONVERSION_CHECK = "conversion efficiency given"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two results that may be compared.

    Attributes:
        first, second: the results.
        ratio: how many times better the second is: more work by energy, or less energy.
    """

    first: EnergyResult
    second: EnergyResult
    ratio: float


def comparable(first: EnergyResult | EnergyScore, second: EnergyResult | EnergyScore) -> str | None:
    """Why two results may not be compared.

    What neither tells is taken as equal, except where a training was measured: without that, no
    two trainings compare.

    Args:
        first, second: rows of a table, or scores of logs; of a score, the official window counts.

    Returns:
        One sentence, or `None` where they may be compared.

    Example:
        >>> from jaxperf.energy._score_types import Metric, MeasuredWindow
        >>> window = MeasuredWindow(30_000.0, 500.0, 60.0, math.nan, 60)
        >>> power = Metric("average power", 500.0, "W")
        >>> work = [Metric("samples per joule", each, "1/J") for each in (4.0, 6.0)]
        >>> old, new = (
        ...     EnergyScore("logs", "inference", "resnet50", "Offline", None, power, each,
        ...                 500.0, 30_000.0, 60.0, window, window, (), (), ())
        ...     for each in work
        ... )
        >>> comparable(result_of_score(old), result_of_score(new, "run"))
        'one is of the official window, the other of the run window'
    """
    one, other = _result(first), _result(second)
    return next(filter(None, (differs(one, other) for differs in _RULES)), None)


def compare_results(
    first: EnergyResult | EnergyScore, second: EnergyResult | EnergyScore
) -> Comparison:
    """How many times better the second of two results is.

    Args:
        first, second: as for `comparable`.

    Returns:
        The comparison.

    Raises:
        ConfigError: they may not be compared; the message says why.

    Example:
        >>> from jaxperf.energy._score_types import Metric, MeasuredWindow
        >>> window = MeasuredWindow(30_000.0, 500.0, 60.0, math.nan, 60)
        >>> power = Metric("average power", 500.0, "W")
        >>> work = [Metric("samples per joule", each, "1/J") for each in (4.0, 6.0)]
        >>> old, new = (
        ...     EnergyScore("logs", "inference", "resnet50", "Offline", None, power, each,
        ...                 500.0, 30_000.0, 60.0, window, window, (), (), ())
        ...     for each in work
        ... )
        >>> compare_results(old, new).ratio
        1.5
    """
    one, other = _result(first), _result(second)
    reason = comparable(one, other)
    if reason is not None:
        raise ConfigError(
            "may not be compared", where=f"{_name(one)} and {_name(other)}", got=reason
        )
    ratio = other.value / one.value if one.higher_is_better else one.value / other.value
    return Comparison(one, other, ratio)


def result_of_score(
    score: EnergyScore,
    window: Window = "official",
    *,
    round: str = "",
    scale: str = "",
    boundary: str = "",
) -> EnergyResult:
    """A score of logs as a result that can be compared.

    Args:
        score: of a submission.
        window: `official`, or `run` for the readings of the run alone.
        round, scale: of the submission, where known; logs do not name them.
        boundary: where a training was measured, `AC` or `DC`; by default `DC by conversion` where
            its logs give a conversion efficiency, else as its system or folder is named.

    Returns:
        The result; its value is NaN where the rules of the log give no work by energy.

    Example:
        >>> from jaxperf.energy._score_types import Metric, MeasuredWindow
        >>> window = MeasuredWindow(30_000.0, 500.0, 60.0, math.nan, 60)
        >>> power = Metric("average power", 500.0, "W")
        >>> work = [Metric("samples per joule", each, "1/J") for each in (4.0, 6.0)]
        >>> old, new = (
        ...     EnergyScore("logs", "inference", "resnet50", "Offline", None, power, each,
        ...                 500.0, 30_000.0, 60.0, window, window, (), (), ())
        ...     for each in work
        ... )
        >>> result_of_score(old).value, result_of_score(old).unit
        (4.0, 'samples/J')
    """
    measured = score.official if window == "official" else score.run_window
    unit, value = _work(score, measured)
    scale = scale or ("training" if _trains(score) else score.division)
    return EnergyResult(
        source=score.source,
        round=round,
        public_id="",
        org="",
        system=score.system or "",
        accelerator="",
        accelerators=math.nan,
        scale=scale,
        benchmark=benchmark_of(score.benchmark or ""),
        scenario=scenario_of(score.scenario or ""),
        boundary=boundary or _boundary_of_score(score, scale),
        window=window,
        unit=unit,
        value=value,
        rate_per_s=math.nan,
        duration_s=measured.duration_s,
        power_w=measured.average_power_w,
        line=0,
    )


def _trains(score: EnergyScore) -> bool:
    return score.division in ("training", "hpc")


def _work(score: EnergyScore, measured: MeasuredWindow) -> tuple[str, float]:
    """Unit and value of a score in one of its windows: work by energy, or energy of a training."""
    if _trains(score):
        return "J", measured.energy_j
    if score.efficiency is None:
        return score.metric.unit, math.nan
    unit = re.split(r"[ _]", score.efficiency.name)[0] + "/J"
    if measured is score.official:
        return unit, score.efficiency.value
    # The same work in the same run: only its power differs between the windows.
    ratio = score.official.average_power_w / measured.average_power_w
    return unit, score.efficiency.value * ratio


def _boundary_of_score(score: EnergyScore, scale: str) -> str:
    if any(c.name == _CONVERSION_CHECK and c.outcome == "pass" for c in score.checks):
        return "DC by conversion"
    return boundary_of(scale, f"{score.system or ''} {PurePath(score.source).name}")


def _result(result: EnergyResult | EnergyScore) -> EnergyResult:
    return result_of_score(result) if isinstance(result, EnergyScore) else result


def _name(result: EnergyResult) -> str:
    words = (result.round, result.public_id, str(result.benchmark), result.scenario)
    return " ".join(word for word in words if word) or result.source


def _scale(one: EnergyResult, other: EnergyResult) -> str | None:
    either = {one.scale, other.scale}
    if "inference" in either and either <= set(INFERENCE_SCALES):
        return None
    return _differ("the divisions differ", one.scale, other.scale)


def _benchmark(one: EnergyResult, other: EnergyResult) -> str | None:
    if one.benchmark.name != other.benchmark.name or not one.benchmark.name:
        names = one.benchmark.name or "one not told", other.benchmark.name or "one not told"
        return f"the benchmarks differ: {names[0]} against {names[1]}"
    if one.benchmark.target != other.benchmark.target:
        targets = [f"{x.benchmark.target or 'one not told'}" for x in (one, other)]
        return f"the accuracy targets differ: {targets[0]} against {targets[1]}"
    return None


def _scenario(one: EnergyResult, other: EnergyResult) -> str | None:
    if one.scenario != other.scenario:
        return f"the scenarios differ: {one.scenario or 'none'} against {other.scenario or 'none'}"
    return None


def _rules(one: EnergyResult, other: EnergyResult) -> str | None:
    if not (one.round and other.round):
        return None
    name, scenario = one.benchmark.name, one.scenario
    since = sorted(rule_since(name, scenario, x.round) for x in (one, other))
    if since[0] != since[1]:
        what = rule_text(name, scenario, since[1])
        return f"the rules changed in {since[1]}, between {one.round} and {other.round}: {what}"
    return None


def _unit(one: EnergyResult, other: EnergyResult) -> str | None:
    return _differ("the units differ", one.unit, other.unit)


def _boundary(one: EnergyResult, other: EnergyResult) -> str | None:
    if not one.higher_is_better and not (one.boundary and other.boundary):
        silent = _name(one if not one.boundary else other)
        return f"it is not told whether {silent} was measured in AC or DC"
    return _differ("power was measured at different places", one.boundary, other.boundary)


def _window(one: EnergyResult, other: EnergyResult) -> str | None:
    if one.window != other.window:
        return f"one is of the {one.window} window, the other of the {other.window} window"
    return None


def _value(one: EnergyResult, other: EnergyResult) -> str | None:
    for result in (one, other):
        if not 0.0 < result.value < math.inf:
            return f"{_name(result)} has no work by energy"
    return None


def _differ(what: str, one: str, other: str) -> str | None:
    return f"{what}: {one} against {other}" if one and other and one != other else None


_RULES = (_scale, _benchmark, _scenario, _rules, _value, _unit, _boundary, _window)
