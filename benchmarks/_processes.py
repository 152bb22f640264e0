"""What work takes in a process of its own: seconds, and the most memory it ever has."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
PEAK_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes in one of `ru_maxrss`."""
# Started from a small process, for the peak of a program begins with what its parent had.
_RUN = """
import resource, subprocess, sys, time
begin = time.perf_counter()
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
wall_s = time.perf_counter() - begin
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss)
sys.exit(done.returncode)
"""


@dataclass(frozen=True)
class Spent:
    """What a command took.

    Attributes:
        wall_s: on the wall's clock.
        cpu_s: of all its threads, and of processes that it waited for.
        peak_bytes: the most memory of it, or of one of those.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int


def in_own_process(
    function: Callable[_Arguments, _Result],
    *arguments: _Arguments.args,
    **named: _Arguments.kwargs,
) -> _Result:
    """What a function of a module gives in a fresh interpreter."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **named).result()


def peak_bytes() -> int:
    """The most memory that this process has had so far."""
    # `ru_maxrss` begins with what the parent had when it started the process; this does not.
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * PEAK_UNIT


def run_command(words: Sequence[object], **environment: str) -> Spent:
    """Run a program without its output, with more in its environment; fail where it does."""
    command = [sys.executable, "-IS", "-c", _RUN, *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment)
    if done.returncode:
        raise SystemExit(f"exit {done.returncode}: {' '.join(map(str, words))}")
    wall_s, cpu_s, peak = map(float, done.stdout.split())
    return Spent(wall_s, cpu_s, int(peak) * PEAK_UNIT)


def jaxperf(*words: object) -> Spent:
    """Run a verb as a user does for the first time: nothing that XLA compiled is found."""
    command = [sys.executable, "-m", "jaxperf", *words, "--json", "--quiet"]
    with TemporaryDirectory() as cache:
        return run_command(command, JAX_COMPILATION_CACHE_DIR=cache)
