"""What a person sees: terminal tables, JSON, a Chrome trace, and an HTML page."""

from jaxperf.report._calibration import (
    calibration_to_json as calibration_to_json,
    print_calibration as print_calibration,
    write_fit as write_fit,
)
from jaxperf.report._chrome import write_trace as write_trace
from jaxperf.report._comparison import (
    comparison_to_json as comparison_to_json,
    print_comparison as print_comparison,
)
from jaxperf.report._critical_path import (
    critical_path_to_json as critical_path_to_json,
    print_critical_path as print_critical_path,
)
from jaxperf.report._embedding_plan import (
    plan_to_json as plan_to_json,
    print_plan as print_plan,
)
from jaxperf.report._embedding_profile import (
    print_profile as print_profile,
    profile_to_json as profile_to_json,
    write_profile as write_profile,
)
from jaxperf.report._energy_prediction import (
    prediction_to_json as prediction_to_json,
    print_prediction as print_prediction,
    write_power_series as write_power_series,
)
from jaxperf.report._energy_score import (
    print_score as print_score,
    score_to_json as score_to_json,
)
from jaxperf.report._energy_trends import (
    print_trends as print_trends,
    trends_svg as trends_svg,
    trends_to_json as trends_to_json,
    write_trends as write_trends,
)
from jaxperf.report._estimate import (
    estimate_to_json as estimate_to_json,
    print_estimate as print_estimate,
)
from jaxperf.report._export import export_to_json as export_to_json, print_export as print_export
from jaxperf.report._inspection import (
    inspection_to_json as inspection_to_json,
    print_inspection as print_inspection,
)
from jaxperf.report._json import notes_to_json as notes_to_json, replay_to_json as replay_to_json
from jaxperf.report._page_file import write_report as write_report
from jaxperf.report._power_fit import (
    power_fit_to_json as power_fit_to_json,
    print_power_fit as print_power_fit,
    write_power as write_power,
)
from jaxperf.report._search import (
    point_command as point_command,
    print_search as print_search,
    search_to_json as search_to_json,
    write_front as write_front,
)
from jaxperf.report._terminal import print_replay as print_replay
from jaxperf.report._whatif import print_whatif as print_whatif, whatif_to_json as whatif_to_json
from jaxperf.report._words import time_text as time_text
