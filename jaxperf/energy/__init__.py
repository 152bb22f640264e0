"""Energy: power logs scored by the rules of MLPerf Power, and the power of what was replayed."""

from typing import TYPE_CHECKING

from jaxperf._lazy import lazy_names
from jaxperf.energy._predict import predict as predict
from jaxperf.energy._prediction_types import (
    Accounting as Accounting,
    BoundaryEnergy as BoundaryEnergy,
    EnergyPrediction as EnergyPrediction,
    PredictedSeries as PredictedSeries,
    RankPower as RankPower,
)
from jaxperf.energy._score import score as score
from jaxperf.energy._score_types import (
    Check as Check,
    EnergyScore as EnergyScore,
    HostEnergy as HostEnergy,
    MeasuredWindow as MeasuredWindow,
    Metric as Metric,
    RunScore as RunScore,
)
from jaxperf.energy._series import (
    PowerSeries as PowerSeries,
    energy_j as energy_j,
    energy_of as energy_of,
    gaps as gaps,
    mean_power_w as mean_power_w,
)
from jaxperf.energy._series_files import read_power_series as read_power_series
from jaxperf.energy.calibration._kernel_power import (
    KernelCounters as KernelCounters,
    KernelPower as KernelPower,
    fit_kernel_power as fit_kernel_power,
    kernel_power_w as kernel_power_w,
)
from jaxperf.energy.calibration._node_power import (
    NodeIntervals as NodeIntervals,
    NodePower as NodePower,
    fit_node_power as fit_node_power,
    predict_node_power as predict_node_power,
)
from jaxperf.energy.calibration._types import (
    FittedPower as FittedPower,
    PowerFit as PowerFit,
    ReadingErrors as ReadingErrors,
    SeenSum as SeenSum,
)
from jaxperf.energy.clocks._types import ClockAnswer as ClockAnswer, ClockWhatIf as ClockWhatIf
from jaxperf.energy.published import (
    Trends as Trends,
    comparable as comparable,
    compare_results as compare_results,
    read_facts as read_facts,
    result_of_score as result_of_score,
    trends as trends,
)

if TYPE_CHECKING:
    from jaxperf.energy.calibration._verb import calibrate as calibrate
    from jaxperf.energy.clocks._frontier import (
        Frontier as Frontier,
        clock_frontier as clock_frontier,
    )
    from jaxperf.energy.clocks._limits import (
        LimitAnswers as LimitAnswers,
        limit_scenarios as limit_scenarios,
    )
    from jaxperf.energy.clocks._scenarios import (
        ClockAnswers as ClockAnswers,
        clock_scenarios as clock_scenarios,
    )
    from jaxperf.energy.power._builder import (
        power_tasks as power_tasks,
        tasks_of_work as tasks_of_work,
    )
    from jaxperf.energy.power._model import (
        PowerModel as PowerModel,
        moved_energy_j as moved_energy_j,
        power_model as power_model,
        static_power_w as static_power_w,
        task_energy_j as task_energy_j,
        task_time_us as task_time_us,
    )
    from jaxperf.energy.power._prediction import predict_timeline as predict_timeline
    from jaxperf.energy.power._tasks import PowerTasks as PowerTasks
    from jaxperf.energy.power._timeline_power import power_series_w as power_series_w

# What computes with jax is imported when it is first used.
_MODULES = {
    "ClockAnswers": "jaxperf.energy.clocks._scenarios",
    "Frontier": "jaxperf.energy.clocks._frontier",
    "LimitAnswers": "jaxperf.energy.clocks._limits",
    "PowerModel": "jaxperf.energy.power._model",
    "PowerTasks": "jaxperf.energy.power._tasks",
    "calibrate": "jaxperf.energy.calibration._verb",
    "clock_frontier": "jaxperf.energy.clocks._frontier",
    "clock_scenarios": "jaxperf.energy.clocks._scenarios",
    "limit_scenarios": "jaxperf.energy.clocks._limits",
    "moved_energy_j": "jaxperf.energy.power._model",
    "power_model": "jaxperf.energy.power._model",
    "power_series_w": "jaxperf.energy.power._timeline_power",
    "power_tasks": "jaxperf.energy.power._builder",
    "predict_timeline": "jaxperf.energy.power._prediction",
    "static_power_w": "jaxperf.energy.power._model",
    "task_energy_j": "jaxperf.energy.power._model",
    "task_time_us": "jaxperf.energy.power._model",
    "tasks_of_work": "jaxperf.energy.power._builder",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
