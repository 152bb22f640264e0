"""Rows of the JAX profiler, which writes no categories: process and thread tell what each is.

`jax.profiler` names its processes `/host:CPU` and `/device:GPU:0`; the threads of a device are its
streams (`Stream #22(Compute)`), and lanes such as `XLA Modules` that were made of the streams.
"""

import re
from dataclasses import dataclass

from msgspec import Raw

from jaxperf.trace._categories import STEP_PREFIX, category_of, device_category_of
from jaxperf.trace._events import Args, integer
from jaxperf.trace._types import MISSING, Category

_DEVICE = re.compile(r"/device:\w+?:(\d{1,5})\b")
_STREAM = re.compile(r"Stream #(\d{1,9})\b")
_GRAPH_OF_CALL = re.compile(r" \(CudaGraph:\d+\)$")
_COPY = re.compile(r"Memcpy(\w)2(\w)")
# kind_src:device kind_dst:pageable size:4096 dest:0 async:1
_MEMORY = re.compile(r"kind_src:(\w+) kind_dst:(\w+)")
_BYTES = re.compile(r"\b(?:size|num_bytes):(\d{1,18})\b")
# regs:32 static_shared:0 dynamic_shared:0 grid:16,1,1 block:256,1,1 occ_pct:100
_SIZES = re.compile(r"\bgrid:([\d,]+) block:([\d,]+)")

MOST_EVENTS = 1_000_000
"""XLA writes as many into its JSON by default, the earliest ones, and drops the rest unsaid."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where rows of the JAX profiler lie.

    Attributes:
        device: of a device, `None` on the host.
        stream: of a stream, `None` on the host and in lanes that repeat what streams show.
    """

    device: int | None = None
    stream: int | None = None


def place_of(process: str, thread: str) -> Place | None:
    """The place that the names of a process and a thread tell; `None` for another profiler's."""
    if process.startswith("/host:"):
        return Place()
    if not process.startswith("/device:"):
        return None
    device, stream = _DEVICE.match(process), _STREAM.match(thread)
    if device is None or stream is None:
        return Place(device=0 if device is None else int(device[1]))
    return Place(int(device[1]), int(stream[1]))


def settle(name: str, args: Args, place: Place) -> tuple[Category, str]:
    """What a row is, and its name in Kineto's words; fills `args` with what its texts tell.

    Args:
        name: as written.
        args: the row's own; changed.
        place: where the row lies.

    Returns:
        Its category and its name.
    """
    if place.device is None:
        return _on_host(name, args)
    if place.stream is None:
        return Category.OTHER, name
    args.device, args.stream = place.device, place.stream
    details = args.memcpy_details or args.memset_details or ""
    if size := _BYTES.search(details):
        args.bytes = int(size[1])
    if sizes := _SIZES.search(args.kernel_details or ""):
        args.grid, args.block = (Raw(f"[{part}]".encode()) for part in sizes.groups())
    copy, memory = _COPY.match(name), _MEMORY.search(details)
    if copy and memory:
        source, target = (word.capitalize() for word in memory.groups())
        return Category.MEMCPY, f"Memcpy {copy[1]}to{copy[2]} ({source} -> {target})"
    return device_category_of(name), name


def _on_host(name: str, args: Args) -> tuple[Category, str]:
    step = integer(args.step_num)
    if step != MISSING:
        return Category.ANNOTATION, f"{STEP_PREFIX}{step}"
    if name.startswith("$"):
        return Category.PYTHON, name  # `$file.py:12 function`
    name = _GRAPH_OF_CALL.sub("", name)
    return category_of("", name), name
