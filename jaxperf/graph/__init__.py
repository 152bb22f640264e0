"""The execution graph: tasks of CPU threads and device streams, and why each waits for another."""

from jaxperf.graph._classes import COMPUTE_CLASSES as COMPUTE_CLASSES
from jaxperf.graph._classes import TaskClass as TaskClass
from jaxperf.graph._classes import classify_kernel as classify_kernel
from jaxperf.graph._classes import classify_names as classify_names
from jaxperf.graph._types import DependencyKind as DependencyKind
from jaxperf.graph._types import ExecutionGraph as ExecutionGraph
from jaxperf.graph._types import GraphLane as GraphLane
from jaxperf.graph._types import Step as Step
from jaxperf.graph._types import TaskKind as TaskKind
