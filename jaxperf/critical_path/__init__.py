"""What bounds the step of a run: path, shares, waits, and the rank that holds the others up."""

from jaxperf.critical_path._hops import Hop as Hop
from jaxperf.critical_path._shares import (
    ClassShare as ClassShare,
    GroupShare as GroupShare,
    RankShare as RankShare,
    TaskShare as TaskShare,
    Wait as Wait,
)
from jaxperf.critical_path._straggler import Straggler as Straggler
from jaxperf.critical_path._verb import (
    CriticalPathReport as CriticalPathReport,
    critical_path as critical_path,
)
