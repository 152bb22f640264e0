"""The execution graph: tasks of CPU threads and device streams, and why each waits for another."""

from jaxperf.graph._build import build_graph as build_graph
from jaxperf.graph._classes import (
    COMPUTE_CLASSES as COMPUTE_CLASSES,
    TaskClass as TaskClass,
    classify_kernel as classify_kernel,
    classify_names as classify_names,
)
from jaxperf.graph._launches import (
    LaunchStatistics as LaunchStatistics,
    launch_statistics as launch_statistics,
)
from jaxperf.graph._rank import HOST_NAME as HOST_NAME
from jaxperf.graph._types import (
    DependencyKind as DependencyKind,
    ExecutionGraph as ExecutionGraph,
    GraphLane as GraphLane,
    RankClock as RankClock,
    Step as Step,
    TaskKind as TaskKind,
)
