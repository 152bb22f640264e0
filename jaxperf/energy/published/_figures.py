"""What the figures of the MLPerf Power paper show, for any table and any submission."""

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from jaxperf.energy.published._benchmarks import Benchmark, benchmark_of, round_order, scenario_of
from jaxperf.energy.published._facts import Facts
from jaxperf.energy.published._normalise import normalise
from jaxperf.energy.published._results import EnergyResult, joules_per_unit
from jaxperf.energy.published._trends import PowerRange, range_of
from jaxperf.errors import ConfigError


@dataclass(frozen=True, slots=True)
class AccuracyPrice:
    """What a higher accuracy target costs in one round.

    Attributes:
        round: of the submissions.
        median: of the ratios of efficiency.
        by_id: the ratio of each submission.
    """

    round: str
    median: float
    by_id: dict[str, float]


@dataclass(frozen=True, slots=True)
class TrainingEnergy:
    """One training result.

    Attributes:
        round, public_id: whose.
        accelerators: of the system; NaN where not told.
        energy_j, duration_s: of one training.
        power_w: the first by the second.
    """

    round: str
    public_id: str
    accelerators: float
    energy_j: float
    duration_s: float
    power_w: float


def power_range_w(
    facts: Facts, scale: str, *, scenario: str | None = None, through: str | None = None
) -> PowerRange:
    """The least and the most average power of published results (figure 2).

    Args:
        facts: the table.
        scale: `datacenter`, `edge`, `tiny` or `training`.
        scenario: only of this one; all of them by default.
        through: the last round that counts; all of them by default.

    Returns:
        The range. In Tiny the power is energy by latency, in training energy by time.

    Raises:
        ConfigError: no such result has a power.

    Example:
        >>> import tempfile
        >>> head = "round,scale,public_id,org,system,accelerator,total_accelerators,model,"
        >>> head += "scenario,metric,unit,value\\n"
        >>> row1 = "v4.1,datacenter,1,A,S,G,8,ResNet,Offline,throughput,samples/s,1000\\n"
        >>> row2 = "v4.1,datacenter,1,A,S,G,8,ResNet,Offline,power,W,500\\n"
        >>> from jaxperf.energy.published import read_facts
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write(head + row1 + row2)
        ...     file.flush()
        ...     power_range_w(read_facts(file.name), "datacenter").most_w
        500.0
    """
    results = tuple(
        result
        for result in normalise(facts).results
        if through is None or round_order(result.round) <= round_order(through)
    )
    wanted = None if scenario is None else scenario_of(scenario)
    found = range_of(results, scale, wanted)
    if found is None:
        raise _nothing(facts, f"power of {scale} {scenario or ''} through {through or 'the last'}")
    return found


def efficiency_ratio(
    facts: Facts, model: str, reference: str, *, scale: str, scenario: str
) -> tuple[AccuracyPrice, ...]:
    """The efficiency of one accuracy target by that of another (figures 8 and 9).

    This is no comparison of results: both are of the same submission, and the ratio is what the
    target costs.

    Args:
        facts: the table.
        model, reference: one benchmark at two targets, such as `BERT-99.9` and `BERT-99.0`.
        scale, scenario: of the results.

    Returns:
        By round, the ratio of each submission that has both. Rows without a named target do not
        count, nor does an id with several results.

    Raises:
        ConfigError: the two are not one benchmark, or no submission has both.
    """
    above, below = benchmark_of(model), benchmark_of(reference)
    if above.name != below.name or above.target == below.target:
        raise ConfigError(
            "not one benchmark at two accuracy targets",
            got=f"{model} and {reference}",
            expected="such as BERT-99.9 and BERT-99.0",
        )
    named = _where(facts, lambda row: bool(benchmark_of(str(facts.model[row])).target))
    values: dict[tuple, dict[Benchmark, list[EnergyResult]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for result in named:
        if (result.scale, result.scenario) == (scale, scenario_of(scenario)):
            values[result.round, result.public_id][result.benchmark].append(result)
    rounds: dict[str, dict[str, float]] = defaultdict(dict)
    for (name, public_id), found in values.items():
        if len(found[above]) == len(found[below]) == 1:
            one, other = found[above][0], found[below][0]
            if one.unit == other.unit:
                rounds[name][public_id] = one.value / other.value
    if not rounds:
        raise _nothing(facts, f"submission with {model} and {reference}, {scale} {scenario}")
    return tuple(
        AccuracyPrice(name, median(rounds[name].values()), rounds[name])
        for name in sorted(rounds, key=round_order)
    )


def joules_per_sample(
    facts: Facts, *, public_id: str, scenario: str = "Offline"
) -> dict[str, float]:
    """Energy of one sample for each benchmark of a submission (figure 7).

    Args:
        facts: the table.
        public_id: of the submission.
        scenario: of the results.

    Returns:
        Joules, by benchmark. A benchmark in tokens of unknown number a sample is left out.

    Raises:
        ConfigError: the submission has no such result, or several of one benchmark.

    Example:
        >>> import tempfile
        >>> head = "round,scale,public_id,org,system,accelerator,total_accelerators,model,"
        >>> head += "scenario,metric,unit,value\\n"
        >>> row1 = "v4.1,datacenter,1,A,S,G,8,ResNet,Offline,throughput,samples/s,1000\\n"
        >>> row2 = "v4.1,datacenter,1,A,S,G,8,ResNet,Offline,power,W,500\\n"
        >>> from jaxperf.energy.published import read_facts
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write(head + row1 + row2)
        ...     file.flush()
        ...     joules_per_sample(read_facts(file.name), public_id="1")
        {'resnet': 0.5}
    """
    found: dict[str, float] = {}
    for result in normalise(facts).results:
        if result.public_id == public_id and result.scenario == scenario_of(scenario):
            if result.unit not in ("samples/J", "inferences/J"):
                continue
            if str(result.benchmark) in found:
                raise ConfigError(
                    "several results of one benchmark",
                    where=result.source,
                    got=f"{public_id} {result.benchmark}",
                )
            found[str(result.benchmark)] = joules_per_unit(result)
    if not found:
        raise _nothing(facts, f"result of {public_id} in {scenario}")
    return found


def energy_to_train(facts: Facts, model: str, *, boundary: str) -> tuple[TrainingEnergy, ...]:
    """Energy of one training on systems of growing size (figure 6).

    Args:
        facts: the table.
        model: the benchmark.
        boundary: where it was measured, `AC` or `DC`; the two do not mix.

    Returns:
        By round and number of accelerators.

    Raises:
        ConfigError: there is no such result.
    """
    found = [
        TrainingEnergy(
            result.round,
            result.public_id,
            result.accelerators,
            result.value,
            result.duration_s,
            result.power_w,
        )
        for result in normalise(facts).results
        if result.scale == "training"
        and result.benchmark == benchmark_of(model)
        and result.boundary == boundary
    ]
    if not found:
        raise _nothing(facts, f"training of {model} measured in {boundary}")
    return tuple(sorted(found, key=lambda one: (round_order(one.round), one.accelerators)))


def result_of(facts: Facts, *, public_id: str, model: str, scenario: str) -> EnergyResult:
    """One result of a submission (figure 11).

    Args:
        facts: the table.
        public_id: of the submission.
        model, scenario: of the result.

    Returns:
        The result.

    Raises:
        ConfigError: there is none, or more than one.

    Example:
        >>> import tempfile
        >>> head = "round,scale,public_id,org,system,accelerator,total_accelerators,model,"
        >>> head += "scenario,metric,unit,value\\n"
        >>> row1 = "v4.1,datacenter,1,A,S,G,8,ResNet,Offline,throughput,samples/s,1000\\n"
        >>> row2 = "v4.1,datacenter,1,A,S,G,8,ResNet,Offline,power,W,500\\n"
        >>> from jaxperf.energy.published import read_facts
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write(head + row1 + row2)
        ...     file.flush()
        ...     found = result_of(
        ...         read_facts(file.name), public_id="1", model="ResNet", scenario="Offline"
        ...     )
        >>> found.value, found.unit
        (2.0, 'samples/J')
    """
    found = [
        result
        for result in normalise(facts).results
        if result.public_id == public_id
        and result.benchmark == benchmark_of(model)
        and result.scenario == scenario_of(scenario)
    ]
    if len(found) != 1:
        raise ConfigError(
            "not one result",
            where=facts.source,
            got=f"{len(found)} of {public_id} {model} {scenario}",
            expected="one",
        )
    return found[0]


def _where(facts: Facts, wanted) -> list[EnergyResult]:
    lines = {int(facts.line[row]) for row in range(facts.rows) if wanted(row)}
    return [result for result in normalise(facts).results if result.line in lines]


def _nothing(facts: Facts, what: str) -> ConfigError:
    return ConfigError(f"no {what.strip()}", where=facts.source)
