"""A table of published values as results, each in the unit of its rules."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from jaxperf.energy._efficiency import (
    inferences_per_joule,
    samples_per_joule,
    samples_per_joule_of_stream,
)
from jaxperf.energy.published._benchmarks import (
    LOWEST_TARGET,
    Benchmark,
    benchmark_of,
    has_two_targets,
    round_order,
    scenario_of,
)
from jaxperf.energy.published._facts import UNITS, Facts
from jaxperf.energy.published._results import (
    INFERENCE_SCALES,
    TOKENS_PER_SAMPLE,
    EnergyResult,
    TokensPerSample,
    boundary_of,
)
from jaxperf.trace import Note

Pairing = Literal["lines", "any"]


@dataclass(frozen=True)
class NormalisedFacts:
    """The results of a table.

    Attributes:
        source: the file.
        results: by round, scale, benchmark, scenario, submission.
        notes: what was assumed or set aside.
    """

    source: str
    results: tuple[EnergyResult, ...]
    notes: tuple[Note, ...]


def normalise(
    facts: Facts,
    *,
    pairing: Pairing = "lines",
    tokens_per_sample: Mapping[str, TokensPerSample] = TOKENS_PER_SAMPLE,
) -> NormalisedFacts:
    """The results of a table, each in the unit of its rules.

    Args:
        facts: the table.
        pairing: where several results stand under one id, system, benchmark and scenario: `lines`
            takes a value with the one beside it in the file, and sets aside what has none beside
            it; `any` takes every value with every other, as a join of the columns does, and so
            also makes results that nobody measured.
        tokens_per_sample: for which benchmarks, and by what, tokens are made into samples.

    Returns:
        The results. Equal ones of one submission count once.

    Example:
        A table of one server: 1000 samples/s at 500 W.

        >>> import tempfile, pathlib
        >>> text = ("round,scale,public_id,org,system,accelerator,total_accelerators,model,"
        ...     "scenario,metric,unit,value\\n"
        ...     "v4.1,datacenter,1,A,S,G,8,ResNet,Offline,throughput,samples/s,1000\\n"
        ...     "v4.1,datacenter,1,A,S,G,8,ResNet,Offline,power,W,500\\n")
        >>> from jaxperf.energy.published import read_facts
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "facts.csv"
        ...     _ = path.write_text(text)
        ...     [result.value for result in normalise(read_facts(path)).results]
        [2.0]
    """
    groups, assumed = _groups(facts)
    results: dict[tuple, EnergyResult] = {}
    several: list[int] = []
    unpaired: list[int] = []
    for key in sorted(groups, key=lambda key: (round_order(key[0]), *key)):
        for work, partner in _paired(facts, groups[key], pairing, several, unpaired):
            result = _result(facts, key, work, partner, tokens_per_sample)
            results.setdefault((key, result.unit, result.value, result.power_w), result)
    notes = [*facts.notes, *_target_notes(facts, assumed)]
    notes += _pairing_notes(facts, several, unpaired, pairing)
    notes += _token_notes(facts, results.values(), tokens_per_sample)
    notes += _doubtful(facts, list(results.values()))
    return NormalisedFacts(facts.source, tuple(results.values()), tuple(notes))


def _groups(facts: Facts) -> tuple[dict[tuple, dict[str, list[int]]], list[int]]:
    """Rows by what they are of, then by metric; and the rows whose target was assumed."""
    groups: dict[tuple, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    assumed: list[int] = []
    for row in range(facts.rows):
        benchmark = benchmark_of(str(facts.model[row]))
        inference = facts.scale[row] in INFERENCE_SCALES
        if inference and not benchmark.target and has_two_targets(benchmark.name):
            # What was published met at least the lower target.
            benchmark = Benchmark(benchmark.name, LOWEST_TARGET)
            assumed.append(row)
        key = (
            *(str(facts.__dict__[name][row]) for name in ("round", "scale", "public_id", "system")),
            benchmark,
            scenario_of(str(facts.scenario[row])),
        )
        groups[key][str(facts.metric[row])].append(row)
    return groups, assumed


_PARTNER = {
    "throughput": "power",
    "energy_per_stream": "latency",
    "energy_per_inference": "latency",
    "energy_to_train": "time_to_train",
}


def _paired(
    facts: Facts,
    group: Mapping[str, list[int]],
    pairing: Pairing,
    several: list[int],
    unpaired: list[int],
) -> Iterable[tuple[int, int | None]]:
    """Rows of work or energy, each with the row of its power or time."""
    for metric, partner in _PARTNER.items():
        works = sorted(group.get(metric, ()), key=lambda row: facts.line[row])
        partners = sorted(group.get(partner, ()), key=lambda row: facts.line[row])
        if len(works) == len(partners) == 1:
            yield works[0], partners[0]
            continue
        if len(works) > 1 and len({float(facts.value[row]) for row in works}) > 1:
            several.extend(works)
        for i, work in enumerate(works):
            if pairing == "any" and partners:
                yield from ((work, row) for row in partners)
            elif len(works) == len(partners) and _beside(facts, work, partners[i]):
                yield work, partners[i]
            elif metric == "throughput":
                unpaired.append(work)
            else:
                yield work, None


def _beside(facts: Facts, one: int, other: int) -> bool:
    return abs(int(facts.line[one]) - int(facts.line[other])) == 1


def _result(
    facts: Facts,
    key: tuple,
    work: int,
    partner: int | None,
    tokens_per_sample: Mapping[str, TokensPerSample],
) -> EnergyResult:
    round_name, scale, public_id, system, benchmark, scenario = key
    metric = str(facts.metric[work])
    amount = _si(facts, work)
    other = math.nan if partner is None else _si(facts, partner)
    rate, duration, power = math.nan, math.nan, math.nan
    if metric == "throughput":
        rate, power = amount, other
        unit = "tokens/J" if facts.unit[work] == "tokens/s" else "samples/J"
        if unit == "tokens/J" and benchmark.name in tokens_per_sample:
            unit, rate = "samples/J", rate / tokens_per_sample[benchmark.name].tokens
        value = samples_per_joule(rate, power)
    elif metric == "energy_per_stream":
        # The published latency is a percentile, so it is no duration of this energy.
        unit, value = "samples/J", samples_per_joule_of_stream(scenario, amount)
    else:
        duration, power = other, amount / other
        tiny = metric == "energy_per_inference"
        unit = "inferences/J" if tiny else "J"
        value = inferences_per_joule(amount) if tiny else amount
    return EnergyResult(
        source=f"{facts.source}, line {facts.line[work]}",
        round=round_name,
        public_id=public_id,
        org=str(facts.org[work]),
        system=system,
        accelerator=str(facts.accelerator[work]),
        accelerators=float(facts.total_accelerators[work]),
        scale=scale,
        benchmark=benchmark,
        scenario=scenario,
        boundary=boundary_of(scale, system),
        window="official",
        unit=unit,
        value=value,
        rate_per_s=rate,
        duration_s=duration,
        power_w=power,
        line=int(facts.line[work]),
    )


def _si(facts: Facts, row: int) -> float:
    return float(facts.value[row]) * UNITS[str(facts.metric[row])][str(facts.unit[row])]


def _target_notes(facts: Facts, assumed: list[int]) -> list[Note]:
    if not assumed:
        return []
    text = (
        f"{len(assumed)} rows name no accuracy target of a benchmark that has two; taken as "
        f"{LOWEST_TARGET} %"
    )
    return [Note("accuracy-target-assumed", text, _place(facts, assumed))]


def _pairing_notes(
    facts: Facts, several: list[int], unpaired: list[int], pairing: Pairing
) -> list[Note]:
    notes = []
    how = (
        "each value is taken with the one beside it"
        if pairing == "lines"
        else "every value is taken with every other, so results appear that nobody measured"
    )
    if several:
        ids = sorted({str(facts.public_id[row]) for row in several})
        notes.append(
            Note(
                "several-results-of-one-id",
                f"{len(several)} values share id, system, benchmark and scenario with another "
                f"({', '.join(ids)}); {how}",
                _place(facts, several),
            )
        )
    if unpaired:
        notes.append(
            Note(
                "unpaired-result",
                f"{len(unpaired)} throughputs have no power beside them and were set aside",
                _place(facts, unpaired),
            )
        )
    return notes


def _token_notes(
    facts: Facts,
    results: Iterable[EnergyResult],
    tokens_per_sample: Mapping[str, TokensPerSample],
) -> list[Note]:
    lines = {int(line): row for row, line in enumerate(facts.line)}
    made: dict[str, int] = {}
    for result in results:
        if facts.unit[lines[result.line]] == "tokens/s" and result.unit == "samples/J":
            name = result.benchmark.name
            made[name] = min(made.get(name, result.line), result.line)
    return [
        Note(
            "tokens-per-sample-assumed",
            f"tokens of {name} were made into samples by {tokens_per_sample[name].tokens:g} tokens "
            f"a sample: {tokens_per_sample[name].source}",
            f"{facts.source}, line {line}",
        )
        for name, line in made.items()
    ]


def _doubtful(facts: Facts, results: list[EnergyResult]) -> list[Note]:
    """Rows that look like values of another column or of another submission."""
    rows = {int(line): row for row, line in enumerate(facts.line)}
    notes = []
    owners: dict[tuple, list[EnergyResult]] = defaultdict(list)
    for result in results:
        row = rows[result.line]
        if facts.metric[row] == "throughput":
            # As published: tokens made into samples would hide the same number.
            published = _si(facts, row)
            owners[result.round, published, result.power_w].append(result)
            if published == result.power_w:
                text = f"{_of(result)}: the two are one number"
                notes.append(Note("throughput-equals-power", text, result.source))
    for same in owners.values():
        if len({result.public_id for result in same}) > 1:
            notes.append(
                Note(
                    "values-of-another-submission",
                    f"{_of(same[-1])} has throughput and power of {_of(same[0])}",
                    same[-1].source,
                )
            )
    return notes


def _of(result: EnergyResult) -> str:
    return f"{result.public_id} {result.benchmark} {result.scenario}"


def _place(facts: Facts, rows: list[int]) -> str:
    return f"{facts.source}, line {min(int(facts.line[row]) for row in rows)}"
