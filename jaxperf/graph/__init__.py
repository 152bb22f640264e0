"""The execution graph: tasks of CPU threads and device streams, and why each waits for another."""

from jaxperf.graph._build import build_graph as build_graph
from jaxperf.graph._classes import (
    COMPUTE_CLASSES as COMPUTE_CLASSES,
    KERNEL_CLASSES as KERNEL_CLASSES,
    KernelClasses as KernelClasses,
    TaskClass as TaskClass,
    classify_kernel as classify_kernel,
    classify_names as classify_names,
    extend_classes as extend_classes,
    load_classes as load_classes,
)
from jaxperf.graph._device import calls_by_correlation as calls_by_correlation
from jaxperf.graph._launch_queue import (
    bounded_by_queue as bounded_by_queue,
    with_launch_queue as with_launch_queue,
)
from jaxperf.graph._launches import (
    LaunchStatistics as LaunchStatistics,
    launch_statistics as launch_statistics,
)
from jaxperf.graph._rank import HOST_NAME as HOST_NAME
from jaxperf.graph._select import (
    SELECTABLE_CLASSES as SELECTABLE_CLASSES,
    is_launch_selector as is_launch_selector,
    select_launch_lags as select_launch_lags,
    select_tasks as select_tasks,
)
from jaxperf.graph._types import (
    DependencyKind as DependencyKind,
    ExecutionGraph as ExecutionGraph,
    GraphLane as GraphLane,
    RankClock as RankClock,
    Step as Step,
    TaskKind as TaskKind,
)
