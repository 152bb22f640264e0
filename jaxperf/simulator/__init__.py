"""An event-by-event simulator of training jobs, and the profiler traces it writes.

It is a layer by itself: it imports nothing but errors, and serves as a second opinion on what the
rest of the package concludes from a trace. `simulate` runs a GPT training job, `execute` runs
programs written by hand, and `write_traces` writes what a profiler would have recorded.
"""

from jaxperf.simulator._cost import SimulatedHardware as SimulatedHardware
from jaxperf.simulator._executor import execute as execute
from jaxperf.simulator._job import (
    SimulatedJob as SimulatedJob,
    build_programs as build_programs,
    simulate as simulate,
)
from jaxperf.simulator._program import (
    Annotation as Annotation,
    Await as Await,
    Call as Call,
    Collective as Collective,
    Copy as Copy,
    Instruction as Instruction,
    Kernel as Kernel,
    Launch as Launch,
    LaunchGraph as LaunchGraph,
    Noise as Noise,
    Op as Op,
    Poll as Poll,
    Query as Query,
    Rank as Rank,
    Record as Record,
    Set as Set,
    Signal as Signal,
    StreamWait as StreamWait,
    SynchronizeDevice as SynchronizeDevice,
    SynchronizeEvent as SynchronizeEvent,
    SynchronizeStream as SynchronizeStream,
    Timing as Timing,
    Work as Work,
)
from jaxperf.simulator._run import (
    DeviceRow as DeviceRow,
    HostRow as HostRow,
    RankRecord as RankRecord,
    SimulatedRun as SimulatedRun,
    SyncRow as SyncRow,
)
from jaxperf.simulator._scale import SELECTABLE_CLASSES as SELECTABLE_CLASSES
from jaxperf.simulator._writer import write_traces as write_traces
