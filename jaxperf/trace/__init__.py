"""Read and write traces: columns of events, per rank. Host only: numpy, never jax."""

from jaxperf.trace._categories import DEVICE_WORK as DEVICE_WORK
from jaxperf.trace._execution_trace import with_execution_trace as with_execution_trace
from jaxperf.trace._reader import read_file as read_file
from jaxperf.trace._run import read_run as read_run
from jaxperf.trace._shards import merge_shards as merge_shards, read_shard as read_shard
from jaxperf.trace._tree import (
    JITTER_NS as JITTER_NS,
    CallTree as CallTree,
    call_tree as call_tree,
    owning_operator as owning_operator,
)
from jaxperf.trace._types import (
    ALL_STREAMS as ALL_STREAMS,
    MISSING as MISSING,
    Category as Category,
    Collective as Collective,
    Flows as Flows,
    Lane as Lane,
    Note as Note,
    Run as Run,
    SetAside as SetAside,
    Trace as Trace,
)
