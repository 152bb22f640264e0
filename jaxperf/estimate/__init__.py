"""What a job that was never run would take: time, utilization, memory."""

from jaxperf.estimate._types import Estimate as Estimate
from jaxperf.estimate._verb import estimate as estimate
