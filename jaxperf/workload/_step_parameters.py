"""What of a step no kernel and no collective explains: the host, gaps, overlap, stragglers."""

from dataclasses import dataclass, fields

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike


@dataclass(frozen=True, eq=False)
class StepParameters:
    """How a framework and a cluster run a step. Every field is () and not negative.

    Attributes:
        kernel_gap_us: a stream is idle for so long between two kernels.
        launch_us: host time of a kernel as `Piece` counts them: what PyTorch runs in several small
            kernels is one there. A pass is never shorter than its launches.
        collective_launch_us: host time to launch a collective.
        micro_batch_us: host work of a forward and backward pass besides, split evenly.
        step_us: host work of a step: input, gradient norm, loss scaling, logging.
        message_us: what a message between stages takes besides its transfer, until the next stage
            goes on.
        overlap_slowdown: how much slower computation is while a collective runs beside it, as a
            share; from 0 to 1, at which nothing is gained by running both at once.
        overlap_share: part of a collective beside computation that is hidden, of what could be;
            from 0 to 1.
        straggler_share: how much longer a step takes with each doubling of the nodes, as a share:
            the slowest of more, and a network that more of them share.
    """

    kernel_gap_us: ArrayLike
    launch_us: ArrayLike
    collective_launch_us: ArrayLike
    micro_batch_us: ArrayLike
    step_us: ArrayLike
    message_us: ArrayLike
    overlap_slowdown: ArrayLike
    overlap_share: ArrayLike
    straggler_share: ArrayLike


jax.tree_util.register_dataclass(StepParameters, [f.name for f in fields(StepParameters)], [])


def default_step_parameters() -> StepParameters:
    """Parameters typical of PyTorch, where no step was measured.

    Example:
        >>> float(default_step_parameters().kernel_gap_us)
        1.0
    """
    return StepParameters(
        kernel_gap_us=np.float64(1.0),
        launch_us=np.float64(20.0),
        collective_launch_us=np.float64(50.0),
        micro_batch_us=np.float64(500.0),
        step_us=np.float64(10e3),
        message_us=np.float64(30.0),
        overlap_slowdown=np.float64(0.1),
        overlap_share=np.float64(0.95),
        straggler_share=np.float64(0.005),
    )


def no_overheads() -> StepParameters:
    """Nothing but kernels and collectives, and these overlap fully.

    Example:
        >>> float(no_overheads().step_us)
        0.0
    """
    nothing = {field.name: np.float64(0.0) for field in fields(StepParameters)}
    return StepParameters(**nothing | {"overlap_share": np.float64(1.0)})


def pass_us(
    parameters: StepParameters, device_us: ArrayLike, kernels: ArrayLike, collectives: ArrayLike
) -> jax.Array:
    """Time of a pass of a micro-batch through the layers of a stage: device or host, the longer.

    Steps of passes that are bound by the device say nothing of the host, and the other way round:
    there the gradient in the other's numbers is 0, and a fit leaves them at their defaults.

    Args:
        parameters: of the framework.
        device_us: (...) its kernels and the collectives that are not hidden.
        kernels: (...) how many kernels, collectives not counted.
        collectives: (...) how many collectives.

    Returns:
        (...) microseconds.

    Example:
        >>> float(pass_us(default_step_parameters(), 100.0, 90.0, 1.0))
        2100.0
    """
    on_device_us = device_us + parameters.kernel_gap_us * (kernels + jnp.asarray(collectives))
    on_host_us = parameters.launch_us * jnp.asarray(kernels)
    on_host_us = on_host_us + parameters.collective_launch_us * jnp.asarray(collectives)
    return jnp.maximum(on_device_us, on_host_us + parameters.micro_batch_us / 2)
