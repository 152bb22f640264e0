"""Published energy results: normalised, compared where the rules allow it, and over the rounds."""

from jaxperf.energy.published._benchmarks import (
    Benchmark as Benchmark,
    RuleChange as RuleChange,
    benchmark_of as benchmark_of,
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
    MixedUnits as MixedUnits,
    TrainingEnergy as TrainingEnergy,
    efficiency_ratio as efficiency_ratio,
    energy_to_train as energy_to_train,
    joules_per_sample as joules_per_sample,
    power_range_w as power_range_w,
    ratio_if_units_mixed as ratio_if_units_mixed,
    result_of as result_of,
)
from jaxperf.energy.published._normalise import (
    NormalisedFacts as NormalisedFacts,
    normalise as normalise,
)
from jaxperf.energy.published._plot import trends_svg as trends_svg
from jaxperf.energy.published._results import (
    TOKENS_PER_SAMPLE as TOKENS_PER_SAMPLE,
    EnergyResult as EnergyResult,
    TokensPerSample as TokensPerSample,
    inferences_per_joule as inferences_per_joule,
    joules_per_unit as joules_per_unit,
    samples_per_joule as samples_per_joule,
    samples_per_joule_of_stream as samples_per_joule_of_stream,
)
from jaxperf.energy.published._trends import (
    PowerRange as PowerRange,
    Series as Series,
    TrendPoint as TrendPoint,
    Trends as Trends,
    trend_rows as trend_rows,
    trends as trends,
)
