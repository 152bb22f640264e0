"""What work costs on a machine: kernels and collectives, by models whose numbers can be fitted."""

from jaxperf.cost._collectives import (
    CollectiveParameters as CollectiveParameters,
    chosen_protocol as chosen_protocol,
    collective_us as collective_us,
    default_collective_parameters as default_collective_parameters,
)
from jaxperf.cost._device import (
    Device as Device,
    device_of as device_of,
    moved_device as moved_device,
    peak_sources as peak_sources,
)
from jaxperf.cost._fit import (
    Fit as Fit,
    draw_models as draw_models,
    fitted_model as fitted_model,
    load_fit as load_fit,
)
from jaxperf.cost._messages import (
    operation_index as operation_index,
)
from jaxperf.cost._model import (
    CostModel as CostModel,
    cost_ratio as cost_ratio,
    cost_us as cost_us,
    default_model as default_model,
    element_names as element_names,
    model_leaves as model_leaves,
    path_text as path_text,
)
from jaxperf.cost._protocols import (
    CHOICES as CHOICES,
    algorithm_bandwidth_bytes_per_s as algorithm_bandwidth_bytes_per_s,
    bus_bandwidth_bytes_per_s as bus_bandwidth_bytes_per_s,
)
from jaxperf.cost._work import (
    COLLECTIVE_OPERATIONS as COLLECTIVE_OPERATIONS,
    ELEMENT_BYTES as ELEMENT_BYTES,
    PRECISIONS as PRECISIONS,
    Work as Work,
    WorkKind as WorkKind,
    distinct_work as distinct_work,
    select_work as select_work,
    unknown_work as unknown_work,
    work_quantities as work_quantities,
)
from jaxperf.cost._work_formulas import (
    attention_work as attention_work,
    collective_work as collective_work,
    matmul_work as matmul_work,
    memory_work as memory_work,
)
from jaxperf.cost._work_of_tasks import known_work as known_work, task_work as task_work
