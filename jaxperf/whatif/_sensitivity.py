"""What a little more of each number of the machine would be worth."""

import os

import jax
import jax.numpy as jnp
import numpy as np

from jaxperf.compiled import compile_program
from jaxperf.config import Hardware, hardware_numbers
from jaxperf.cost import Device, Fit, peak_sources
from jaxperf.graph import ExecutionGraph
from jaxperf.replay import double_precision, makespan_us, steady_weights, step_times_us
from jaxperf.trace import Run
from jaxperf.whatif._machines import recorded_machine

_PERCENT = 0.01


def hardware_sensitivities(
    run: Run,
    graph: ExecutionGraph,
    *,
    hardware: Hardware | str | os.PathLike[str] | None = None,
    fit: Fit | str | os.PathLike[str] | None = None,
) -> tuple[tuple[str, float], ...]:
    """How the steady step changes with one per cent more of each number of the machine.

    The gradient of the replayed step through the cost model: what the first per cent is worth, of
    the kernels and collectives whose work the traces tell.

    Args:
        run, graph: the run.
        hardware, fit: see `whatif`.

    Returns:
        Key of the number and change of the step in us, the largest gain first.

    Raises:
        ConfigError: the recorded machine is not known.
    """
    machine = recorded_machine(run, graph, hardware, fit)
    assert machine.recorded is not None and machine.model is not None and machine.ratio is not None
    model, ratio_of = machine.model, machine.ratio
    does = np.flatnonzero(machine.work_of_task >= 0)
    of_task = machine.work_of_task[does]
    weights = steady_weights(graph)
    program = compile_program(graph)
    duration_us = graph.duration_ns / 1e3

    def step_us(log_scale: Device):
        device = jax.tree.map(lambda leaf, x: leaf * jnp.exp(x), model.device, log_scale)
        ratio = ratio_of(model, device)[of_task]
        durations = jnp.asarray(duration_us).at[does].multiply(ratio, unique_indices=True)
        if weights.any():
            return jnp.asarray(weights) @ step_times_us(program, durations)
        return makespan_us(program, durations)

    with double_precision():
        none = jax.tree.map(lambda leaf: jnp.zeros(np.shape(leaf)), model.device)
        gradient = jax.jit(jax.grad(step_us))(none)
    found = [
        (key, _PERCENT * float(value))
        for key, value in _by_key(gradient, machine.recorded).items()
        if value != 0
    ]
    return tuple(sorted(found, key=lambda each: each[1]))


def _by_key(gradient: Device, hardware: Hardware) -> dict[str, float]:
    """The gradient to each number of a hardware file."""
    node = next((name for name in hardware.links if name != "network"), "network")
    fields = {
        "memory_bytes_per_s": gradient.memory_bytes_per_s,
        "l2_bytes": gradient.l2_bytes,
        "streaming_multiprocessors": gradient.streaming_multiprocessors,
        f"links.{node}.bus_bytes_per_s": gradient.node_bus_bytes_per_s,
        f"links.{node}.latency_us": gradient.node_latency_us,
        "links.network.bus_bytes_per_s": gradient.network_bus_bytes_per_s,
        "links.network.latency_us": gradient.network_latency_us,
    }
    found = {key: float(np.asarray(value)) for key, value in fields.items()}
    # A peak also counts for the types that are computed at it.
    for name, value in zip(
        peak_sources(hardware), np.asarray(gradient.peak_flops_per_s).tolist(), strict=True
    ):
        key = f"peak_flops_per_s.{name}"
        found[key] = found.get(key, 0.0) + value
    known = hardware_numbers(hardware)
    return {key: value for key, value in found.items() if key in known}
