"""Seconds of a call: of the clock on the wall, and of the processors."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Seconds:
    """How long a call took.

    Attributes:
        wall: on the wall's clock, so also while others had the processors.
        user: of this process and its children, of all threads together.
    """

    wall: float
    user: float


def timed(function: Callable[..., Any], *arguments: object) -> tuple[Any, Seconds]:
    """What a call returns, and its seconds."""
    user, wall = _user(), time.perf_counter()
    result = function(*arguments)
    return result, Seconds(time.perf_counter() - wall, _user() - user)


def machine_load() -> str:
    """A sentence on what else the machine did, for a table of seconds."""
    cores, load = os.cpu_count(), os.getloadavg()[0]
    busy = load > 1.5
    told = "others used it as well, so wall seconds are too long" if busy else "little else ran"
    return f"{cores} cores, load {load:.1f} when this began: {told}."


def _user() -> float:
    spent = os.times()
    return spent.user + spent.children_user
