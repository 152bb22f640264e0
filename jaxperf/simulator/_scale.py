"""Factors on durations, by class or by name: how the simulator is asked a what-if."""

import math
import re
from collections.abc import Mapping
from functools import cache

from jaxperf.errors import ConfigError

KERNEL_CLASSES: frozenset[str] = frozenset(
    {
        "gemm",
        "attention",
        "convolution",
        "normalization",
        "elementwise",
        "optimizer",
        "embedding",
        "moe",
        "other",
    }
)
"""Classes of kernels that compute."""

SELECTABLE_CLASSES: frozenset[str] = KERNEL_CLASSES | {
    "compute",
    "communication",
    "memcpy",
    "memset",
    "host",
    "launch",
}
"""Words that a change can be asked for by; `compute` is every kernel that does not communicate."""

_SELECTOR = re.compile(r"(?:rank:(?P<rank>\d+)/)?(?:name:(?P<name>.+)|(?P<word>[a-z]+))")


class Scale:
    """Parsed factors; those of several selectors that hold for one task are multiplied."""

    def __init__(self, factors: Mapping[str, float] | None):
        self._rules = [_parse(selector, factor) for selector, factor in (factors or {}).items()]
        # Few distinct names stand behind very many tasks.
        self.of_device_work = cache(self._of_device_work)
        self.of_call = cache(self._of_call)
        self.of_host_work = cache(lambda rank: self._product(rank, {"host"}))
        self.of_latency = cache(lambda rank: self._product(rank, {"launch"}))

    def _of_device_work(self, rank: int, kind: str, name: str) -> float:
        words = {kind, "compute"} if kind in KERNEL_CLASSES else {kind}
        return self._product(rank, words, name)

    def _of_call(self, rank: int, name: str) -> float:
        return self._product(rank, {"host"}, name)

    def _product(self, rank: int, words: set[str], name: str | None = None) -> float:
        product = 1.0
        for only_rank, pattern, word, factor in self._rules:
            if only_rank is not None and only_rank != rank:
                continue
            if word in words or (pattern and name is not None and pattern.search(name)):
                product *= factor
        return product


def _parse(
    selector: str, factor: float
) -> tuple[int | None, re.Pattern[str] | None, str | None, float]:
    match = _SELECTOR.fullmatch(selector)
    if not match or (match["word"] and match["word"] not in SELECTABLE_CLASSES):
        raise ConfigError(
            "unknown selector",
            where="scale",
            got=repr(selector),
            expected="name:REGEX or one of " + ", ".join(sorted(SELECTABLE_CLASSES)),
        )
    if not (math.isfinite(factor) and factor >= 0):
        raise ConfigError(
            "not a factor", where=f"scale {selector}", got=repr(factor), expected="0 or more"
        )
    try:
        pattern = re.compile(match["name"]) if match["name"] else None
    except re.error as error:
        raise ConfigError("not a regular expression", where=selector, got=str(error)) from None
    rank = int(match["rank"]) if match["rank"] else None
    return rank, pattern, match["word"], factor
