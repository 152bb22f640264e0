"""MLPerf Inference with power: sessions of a benchmark, an analyzer and the rules on both."""

from jaxperf.energy.inference._checks import check_session as check_session
from jaxperf.energy.inference._loadgen import LoadgenRun as LoadgenRun
from jaxperf.energy.inference._metrics import (
    efficiency_metric as efficiency_metric,
    energy_metric as energy_metric,
)
from jaxperf.energy.inference._ptdaemon import AnalyzerSamples as AnalyzerSamples
from jaxperf.energy.inference._score import score_inference as score_inference
from jaxperf.energy.inference._session import (
    Phase as Phase,
    Session as Session,
    SessionRecord as SessionRecord,
    read_session as read_session,
    session_folders as session_folders,
)
from jaxperf.energy.inference._windows import (
    average_power_factor as average_power_factor,
    official_window as official_window,
    run_window as run_window,
)
