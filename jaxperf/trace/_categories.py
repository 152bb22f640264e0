"""What a row is, from the names that profilers of all years gave it."""

import re

from jaxperf.trace._types import Category

# Lower-cased: Kineto of 2021 wrote Operator, Runtime, Kernel, Memcpy, Memset and Trace.
_BY_NAME = {
    "cpu_op": Category.CPU_OP,
    "operator": Category.CPU_OP,
    "user_annotation": Category.ANNOTATION,
    "python_function": Category.PYTHON,
    "runtime": Category.RUNTIME,
    "cuda_runtime": Category.RUNTIME,
    "hip_runtime": Category.RUNTIME,
    "xpu_runtime": Category.RUNTIME,
    "privateuse1_runtime": Category.RUNTIME,
    "cuda_driver": Category.DRIVER,
    "hip_driver": Category.DRIVER,
    "xpu_driver": Category.DRIVER,
    "privateuse1_driver": Category.DRIVER,
    "kernel": Category.KERNEL,
    "concurrent_kernel": Category.KERNEL,
    "gpu_memcpy": Category.MEMCPY,
    "memcpy": Category.MEMCPY,
    "gpu_memset": Category.MEMSET,
    "memset": Category.MEMSET,
    "cuda_sync": Category.SYNC,
    "gpu_user_annotation": Category.GPU_ANNOTATION,
    "overhead": Category.OVERHEAD,
    "trace": Category.PROFILER,
}

_DRIVER_CALL = re.compile(r"cu[A-Z]\w*")
_RUNTIME_CALL = re.compile(r"(cuda|hip)[A-Z]\w*")
STEP_PREFIX = "ProfilerStep#"
"""What the name of a step begins with, whatever the program called it."""

_STEP = re.compile(STEP_PREFIX + r"\d+")

LAUNCH_FLOWS = frozenset({"ac2g", "async", "async_cpu_to_gpu", "async_gpu", "launch"})
FORWARD_BACKWARD_FLOWS = frozenset({"fwdbwd", "forward_backward", "fwd_bwd"})

DEVICE_WORK = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)


def category_of(written: str, name: str) -> Category:
    """The category of a row.

    Args:
        written: the `cat` of the event, empty where it has none.
        name: its `name`.
    """
    known = _BY_NAME.get(written.lower())
    if known is Category.CPU_OP and _STEP.match(name):
        return Category.ANNOTATION  # the profiler of 2021 called its steps operators
    if known is not None:
        return known
    if written:
        return Category.OTHER
    # The autograd profiler of old and the JAX profiler write no categories.
    if _RUNTIME_CALL.fullmatch(name):
        return Category.RUNTIME
    if _DRIVER_CALL.fullmatch(name):
        return Category.DRIVER
    if _STEP.match(name):
        return Category.ANNOTATION
    return Category.CPU_OP


def device_category_of(name: str) -> Category:
    """The category of an event without one that lies on a stream of a device."""
    lowered = name.lower()
    if lowered.startswith("memcpy"):
        return Category.MEMCPY
    if lowered.startswith("memset"):
        return Category.MEMSET
    return Category.KERNEL
