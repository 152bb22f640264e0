"""A machine as cost models see it: numbers that may be changed, fitted or searched."""

from dataclasses import dataclass, fields

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxperf.config import Hardware, node_and_network
from jaxperf.cost._work import PRECISIONS

# Where a type has no peak of its own, it is computed in the next of these that has.
_COMPUTED_AS = {
    "fp64": ("fp32",),
    "tf32": ("fp32",),
    "bf16": ("tf32", "fp32"),
    "fp16": ("bf16", "tf32", "fp32"),
    "fp8": ("bf16", "fp16"),
    "int8": ("fp8", "bf16", "fp16"),
    "fp4": ("fp8", "bf16", "fp16"),
    "fp32": ("tf32",),
}


# Of data-center accelerators since 2020, where a description does not tell: A100 40 MB, H100 50 MB.
_USUAL_L2_BYTES = 50e6


@dataclass(frozen=True, eq=False)
class Device:
    """What the models need of one accelerator and its links. Every field is a leaf.

    Attributes:
        peak_flops_per_s: (precisions,) dense peak of each of `PRECISIONS`.
        memory_bytes_per_s: () bandwidth of the device's memory.
        l2_bytes: () size of its last-level cache.
        streaming_multiprocessors: () how many it has (compute units on AMD).
        gpus_per_node: () accelerators that the node's own link joins.
        node_bus_bytes_per_s, node_latency_us: () that link: bus bandwidth of a large collective
            per accelerator, and time of a small one.
        node_sums_in_switch: () 1 where the switch of that link can reduce, else 0.
        network_bus_bytes_per_s, network_latency_us: () the same between nodes.
    """

    peak_flops_per_s: ArrayLike
    memory_bytes_per_s: ArrayLike
    l2_bytes: ArrayLike
    streaming_multiprocessors: ArrayLike
    gpus_per_node: ArrayLike
    node_bus_bytes_per_s: ArrayLike
    node_latency_us: ArrayLike
    node_sums_in_switch: ArrayLike
    network_bus_bytes_per_s: ArrayLike
    network_latency_us: ArrayLike


jax.tree_util.register_dataclass(Device, [f.name for f in fields(Device)], [])


def peak_sources(hardware: Hardware) -> tuple[str, ...]:
    """The type whose peak each of `PRECISIONS` is computed at on a machine.

    Example:
        >>> from jaxperf.config import load_hardware
        >>> peak_sources(load_hardware("v100"))[PRECISIONS.index("bf16")]
        'fp32'
    """
    peaks = hardware.peak_flops_per_s
    fastest = max(peaks, key=lambda name: peaks[name])
    return tuple(
        next((p for p in (name, *_COMPUTED_AS[name]) if p in peaks), fastest) for name in PRECISIONS
    )


def device_of(hardware: Hardware) -> Device:
    """The device that a hardware file describes.

    Args:
        hardware: of `load_hardware`.

    Returns:
        Its numbers as float64 arrays. A type without a peak of its own has that of the type which
        it is computed in; a missing link is as quick as the other one.
    """
    peak = [hardware.peak_flops_per_s[name] for name in peak_sources(hardware)]
    node, network = node_and_network(hardware)
    numbers = (
        hardware.memory_bytes_per_s,
        _USUAL_L2_BYTES if hardware.l2_bytes is None else hardware.l2_bytes,
        hardware.streaming_multiprocessors,
        hardware.gpus_per_node,
        node.bus_bytes_per_s,
        node.latency_us,
        node.sums_in_switch,
        network.bus_bytes_per_s,
        network.latency_us,
    )
    return Device(np.array(peak), *(np.float64(number) for number in numbers))


def moved_device(device: Device, recorded: Device, other: Device) -> Device:
    """A fitted device moved to another machine: it keeps its distance from the nominal numbers.

    Args:
        device: as fitted; the leaves may have further leading axes.
        recorded: the machine that it was fitted on, as described.
        other: the other machine, as described.

    Returns:
        The other machine as it would be fitted.
    """

    def moved(fitted, old, new):
        # What the recorded machine does not have at all cannot be kept in proportion.
        share = np.where(np.asarray(old) == 0, 1.0, np.divide(fitted, np.where(old == 0, 1.0, old)))
        return share * new

    pairs = zip(*(jax.tree.leaves(each) for each in (device, recorded, other)), strict=True)
    return jax.tree.unflatten(jax.tree.structure(device), [moved(*each) for each in pairs])
