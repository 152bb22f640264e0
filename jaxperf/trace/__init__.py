"""Read and write traces: columns of events, per rank. Host only: numpy, never jax."""

from jaxperf.trace._types import ALL_STREAMS as ALL_STREAMS
from jaxperf.trace._types import MISSING as MISSING
from jaxperf.trace._types import Category as Category
from jaxperf.trace._types import Collective as Collective
from jaxperf.trace._types import Flows as Flows
from jaxperf.trace._types import Lane as Lane
from jaxperf.trace._types import Note as Note
from jaxperf.trace._types import Run as Run
from jaxperf.trace._types import SetAside as SetAside
from jaxperf.trace._types import Trace as Trace
