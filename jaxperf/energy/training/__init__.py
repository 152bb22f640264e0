"""Energy to train: submissions to MLPerf Training and HPC with power, by their rules."""

from jaxperf.energy.training._power_logs import PowerLog, read_power_log
from jaxperf.energy.training._result_logs import ResultLog, read_result_log
from jaxperf.energy.training._run_logs import LoggedRun, is_training_submission, read_runs
from jaxperf.energy.training._score import score_training

__all__ = [
    "LoggedRun",
    "PowerLog",
    "ResultLog",
    "is_training_submission",
    "read_power_log",
    "read_result_log",
    "read_runs",
    "score_training",
]
