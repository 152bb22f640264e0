"""How the best efficiency of each benchmark grew, round by round."""

import os
from collections import defaultdict
from dataclasses import dataclass

from jaxperf.energy.published._benchmarks import Benchmark, round_order, rule_since, rule_text
from jaxperf.energy.published._facts import Facts, read_facts
from jaxperf.energy.published._normalise import Pairing, normalise
from jaxperf.energy.published._results import EnergyResult
from jaxperf.trace import Note


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """A series up to and with one round.

    Attributes:
        round: one that has results.
        best: the best value so far, in the unit of the series.
        improvement: how many times better that is than the best of the first round.
        of_round: the best value of this round alone.
        results: number of results in this round.
        public_id, system: of the best so far.
        line: of the best so far, in the table.
    """

    round: str
    best: float
    improvement: float
    of_round: float
    results: int
    public_id: str
    system: str
    line: int


@dataclass(frozen=True, slots=True)
class Series:
    """Results that may be compared with one another, over the rounds.

    Attributes:
        scale, benchmark, scenario, boundary, unit: what they have in common.
        since: the round in which the rules changed; empty where they hold from the first.
        points: by round.
    """

    scale: str
    benchmark: Benchmark
    scenario: str
    boundary: str
    unit: str
    since: str
    points: tuple[TrendPoint, ...]


@dataclass(frozen=True, slots=True)
class PowerRange:
    """The least and the most average power of some results.

    Attributes:
        scale: whose.
        scenario: whose; `None` for all.
        results: number of results whose power is known.
        least_w, most_w: average power.
        least_id, most_id: of the submissions.
    """

    scale: str
    scenario: str | None
    results: int
    least_w: float
    most_w: float
    least_id: str
    most_id: str


@dataclass(frozen=True)
class Trends:
    """What a table of published results shows over the rounds.

    Attributes:
        source: the table.
        series: by scale, scenario, benchmark.
        power_ranges: of each scale.
        notes: what was assumed, set aside, or not mixed.
    """

    source: str
    series: tuple[Series, ...]
    power_ranges: tuple[PowerRange, ...]
    notes: tuple[Note, ...]


def trends(facts: Facts | str | os.PathLike[str], *, pairing: Pairing = "lines") -> Trends:
    """The best efficiency up to each round, for all results that may be compared.

    Args:
        facts: the table, or its file.
        pairing: of several results under one id; see `normalise`.

    Returns:
        One series for each scale, benchmark with its target, scenario, place of measurement, unit
        and set of rules. A round without results has no point.

    Raises:
        LogError: the table cannot be read; see `read_facts`.

    Example:
        >>> import tempfile
        >>> head = "round,scale,public_id,org,system,accelerator,total_accelerators,model,"
        >>> head += "scenario,metric,unit,value\\n"
        >>> row1 = "v4.1,datacenter,1,A,S,G,8,ResNet,Offline,throughput,samples/s,1000\\n"
        >>> row2 = "v4.1,datacenter,1,A,S,G,8,ResNet,Offline,power,W,500\\n"
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write(head + row1 + row2)
        ...     file.flush()
        ...     (series,) = trends(file.name).series
        >>> [(point.round, point.best) for point in series.points]
        [('v4.1', 2.0)]
    """
    if not isinstance(facts, Facts):
        facts = read_facts(facts)
    table = normalise(facts, pairing=pairing)
    groups: dict[tuple, list[EnergyResult]] = defaultdict(list)
    for result in table.results:
        since = rule_since(result.benchmark.name, result.scenario, result.round)
        groups[
            (
                result.scale,
                result.scenario,
                result.benchmark,
                result.boundary,
                result.unit,
                since,
            )
        ].append(result)
    series = tuple(_series(key, groups[key]) for key in sorted(groups))
    ranges = [range_of(table.results, scale) for scale in sorted({s.scale for s in series})]
    return Trends(
        facts.source,
        series,
        tuple(found for found in ranges if found is not None),
        table.notes + _not_mixed(series, facts.source),
    )


def label_of(series: Series) -> str:
    """A benchmark with what else tells its series from others of the scale and scenario."""
    since = f"from {series.since}" if series.since else ""
    place = series.boundary if series.scale == "training" else ""
    tokens = series.unit if series.unit.startswith("tokens") else ""
    return " ".join(filter(None, (str(series.benchmark), place, tokens, since)))


def range_of(
    results: tuple[EnergyResult, ...], scale: str, scenario: str | None = None
) -> PowerRange | None:
    """The least and the most power of the results of a scale; `None` where none has one."""
    known = [
        result
        for result in results
        if result.scale == scale
        and scenario in (None, result.scenario)
        and result.power_w == result.power_w
    ]
    if not known:
        return None
    by_power = lambda result: (result.power_w, result.public_id)
    least, most = min(known, key=by_power), max(known, key=by_power)
    return PowerRange(
        scale, scenario, len(known), least.power_w, most.power_w, least.public_id, most.public_id
    )


def _series(key: tuple, results: list[EnergyResult]) -> Series:
    scale, scenario, benchmark, boundary, unit, since = key
    # The best comes first; between equals, the first line.
    rank = lambda result: (
        -result.value if result.higher_is_better else result.value,
        result.line,
    )
    rounds: dict[str, list[EnergyResult]] = defaultdict(list)
    for result in results:
        rounds[result.round].append(result)
    points: list[TrendPoint] = []
    best: EnergyResult | None = None
    for name in sorted(rounds, key=round_order):
        of_round = min(rounds[name], key=rank)
        best = of_round if best is None else min(best, of_round, key=rank)
        first = points[0].best if points else best.value
        points.append(
            TrendPoint(
                round=name,
                best=best.value,
                improvement=best.value / first if best.higher_is_better else first / best.value,
                of_round=of_round.value,
                results=len(rounds[name]),
                public_id=best.public_id,
                system=best.system,
                line=best.line,
            )
        )
    return Series(scale, benchmark, scenario, boundary, unit, since, tuple(points))


def _not_mixed(series: tuple[Series, ...], source: str) -> tuple[Note, ...]:
    units: dict[tuple, list[Series]] = defaultdict(list)
    for one in series:
        units[one.scale, one.scenario, one.benchmark, one.boundary].append(one)
    notes = []
    for (scale, scenario, benchmark, _), parts in units.items():
        what = f"{benchmark}, {scale} {scenario}".strip()
        first = {part.unit: part.points[0].round for part in reversed(parts)}
        if len(first) > 1:
            named = ", ".join(f"{unit} from {name}" for unit, name in sorted(first.items()))
            notes.append(
                Note("units-not-mixed", f"{what}: {named}; they stand as series apart", source)
            )
        for since in sorted({part.since for part in parts if part.since})[:1]:
            if any(not part.since for part in parts):
                text = rule_text(benchmark.name, scenario, since)
                notes.append(Note("rules-changed", f"{what}: in {since}, {text}", source))
    return tuple(notes)
