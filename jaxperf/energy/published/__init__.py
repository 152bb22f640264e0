"""Published energy results: normalised, compared where the rules allow it, and over the rounds."""

from jaxperf.energy.published._benchmarks import (
    Benchmark as Benchmark,
    RuleChange as RuleChange,
    benchmark_of as benchmark_of,
    round_order as round_order,
)
from jaxperf.energy.published._compare import (
    Comparison as Comparison,
    comparable as comparable,
    compare_results as compare_results,
    result_of_score as result_of_score,
)
from jaxperf.energy.published._facts import Facts as Facts, read_facts as read_facts
from jaxperf.energy.published._figures import (
    AccuracyPrice as AccuracyPrice,
    TrainingEnergy as TrainingEnergy,
    efficiency_ratio as efficiency_ratio,
    energy_to_train as energy_to_train,
    joules_per_sample as joules_per_sample,
    power_range_w as power_range_w,
    result_of as result_of,
)
from jaxperf.energy.published._normalise import (
    NormalisedFacts as NormalisedFacts,
    normalise as normalise,
)
from jaxperf.energy.published._results import (
    TOKENS_PER_SAMPLE as TOKENS_PER_SAMPLE,
    EnergyResult as EnergyResult,
    TokensPerSample as TokensPerSample,
    joules_per_unit as joules_per_unit,
)
from jaxperf.energy.published._trends import (
    PowerRange as PowerRange,
    Series as Series,
    TrendPoint as TrendPoint,
    Trends as Trends,
    label_of as label_of,
    trends as trends,
)
