"""How long the simulated hardware takes: a roofline with latencies, of the simulator's own.

It stands beside, not on, the cost models that are fitted to traces: a fit to its traces is a fit to
hardware that was not known beforehand.
"""

import math
from dataclasses import dataclass, field

from jaxperf.simulator._program import Kernel, Timing, Work

_KERNEL_FLOOR_US = 1.8
_GEMM_TILE = 128
_GEMM_EFFICIENCY = 0.74
_ATTENTION_EFFICIENCY = 0.46
_MEMORY_EFFICIENCY = 0.82


@dataclass(frozen=True, slots=True)
class SimulatedHardware:
    """The machines a job is simulated on.

    Attributes:
        name: of the devices.
        streaming_multiprocessors: of a device.
        peak_flops_per_s: of a device, 16-bit matrix multiplication.
        memory_bytes_per_s: of a device's memory.
        gpus_per_node: ranks that share a node.
        node_bus_bytes_per_s, network_bus_bytes_per_s: bus bandwidth per device of a large
            collective, inside a node and across nodes.
        node_latency_us, network_latency_us: of a collective or send.
        operator_host_us: what Python and the dispatcher take for one operator, its calls apart.
        timing: constants of host and devices.
    """

    name: str = "Simulated GPU"
    streaming_multiprocessors: int = 132
    peak_flops_per_s: float = 900e12
    memory_bytes_per_s: float = 3.2e12
    gpus_per_node: int = 8
    node_bus_bytes_per_s: float = 350e9
    node_latency_us: float = 10.0
    network_bus_bytes_per_s: float = 45e9
    network_latency_us: float = 26.0
    operator_host_us: float = 9.0
    timing: Timing = field(default_factory=Timing)


def host_work(hardware: SimulatedHardware, share: float = 1.0) -> Work:
    """A share of what Python and the dispatcher take for one operator."""
    return Work(hardware.operator_host_us * share)


def gemm(hardware: SimulatedHardware, m: int, n: int, k: int, layout: str) -> Kernel:
    """A matrix multiplication (m, k) x (k, n) of 16-bit numbers, in whole waves of tiles."""
    tiles = math.ceil(m / _GEMM_TILE) * math.ceil(n / _GEMM_TILE)
    processors = hardware.streaming_multiprocessors
    filled = tiles / (math.ceil(tiles / processors) * processors)
    flops_per_s = hardware.peak_flops_per_s * _GEMM_EFFICIENCY * filled
    flops, size_bytes = 2 * m * n * k, 2 * (m * k + k * n + m * n)
    seconds = max(flops / flops_per_s, size_bytes / hardware.memory_bytes_per_s)
    name = f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_{layout}_n_tilesize128x128x64"
    return Kernel(
        name,
        _KERNEL_FLOOR_US + seconds * 1e6,
        "gemm",
        grid=(tiles, 1, 1),
        block=(384, 1, 1),
        registers_per_thread=168,
        shared_memory_bytes=213 * 1024,
    )


def attention(
    hardware: SimulatedHardware,
    sequences: int,
    heads: int,
    sequence_length: int,
    head_size: int,
    backward: bool,
) -> Kernel:
    """Causal attention in one kernel; the backward does 2.5 times the work of the forward."""
    flops = 2 * sequences * heads * sequence_length**2 * head_size * (2.5 if backward else 1.0)
    seconds = flops / (hardware.peak_flops_per_s * _ATTENTION_EFFICIENCY)
    direction = "bwd" if backward else "fwd"
    return Kernel(
        f"pytorch_flash::flash_{direction}_kernel<Flash_{direction}_kernel_traits>",
        _KERNEL_FLOOR_US + seconds * 1e6,
        "attention",
        grid=(math.ceil(sequence_length / _GEMM_TILE), sequences, heads),
        block=(128, 1, 1),
        registers_per_thread=255,
        shared_memory_bytes=48 * 1024,
    )


def memory_bound(hardware: SimulatedHardware, name: str, kind: str, size_bytes: float) -> Kernel:
    """A kernel that reads and writes `size_bytes` in all."""
    seconds = size_bytes / (hardware.memory_bytes_per_s * _MEMORY_EFFICIENCY)
    blocks = max(1, math.ceil(size_bytes / 8192))
    return Kernel(name, _KERNEL_FLOOR_US + seconds * 1e6, kind, grid=(blocks, 1, 1))


def transfer_us(
    hardware: SimulatedHardware, operation: str, ranks: tuple[int, ...], size_bytes: float
) -> float:
    """Time of a collective of `size_bytes` a rank once all are there: latency and bus bandwidth.

    The traffic per rank is that of a ring: 2 (n-1)/n of the size for an all-reduce, the size
    itself for a send.
    """
    nodes = {rank // hardware.gpus_per_node for rank in ranks}
    members = len(ranks)
    traffic = 2 * (members - 1) / members if operation == "allreduce" else 1.0
    if len(nodes) == 1:
        latency_us, bytes_per_s = hardware.node_latency_us, hardware.node_bus_bytes_per_s
    else:
        latency_us, bytes_per_s = hardware.network_latency_us, hardware.network_bus_bytes_per_s
    return latency_us + traffic * size_bytes / bytes_per_s * 1e6
