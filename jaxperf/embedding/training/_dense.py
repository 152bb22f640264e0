"""The dense part of a recommendation model by its layers, priced as matrix multiplies."""

from dataclasses import dataclass
from itertools import pairwise

import jax
import numpy as np

from jaxperf.cost import CostModel, cost_us, matmul_work
from jaxperf.errors import ConfigError
from jaxperf.replay import double_precision


@dataclass(frozen=True, slots=True)
class DenseLayers:
    """Widths of the dense layers, such as those of MLPerf's DLRM.

    Attributes:
        bottom: of the dense inputs and of each layer that they pass.
        top: of what the interaction gives, and of each layer after it.
        precision: type of the operands, a name of `jaxperf.cost.PRECISIONS`.
    """

    bottom: tuple[int, ...]
    top: tuple[int, ...]
    precision: str = "tf32"

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        return sum(n * (k + 1) for widths in (self.bottom, self.top) for k, n in pairwise(widths))


@dataclass(frozen=True, slots=True)
class DenseTimes:
    """How long the dense part takes on one rank, in microseconds."""

    bottom_forward_us: float
    top_forward_us: float
    top_backward_us: float
    bottom_backward_us: float


def dense_times(layers: DenseLayers, samples: float, model: CostModel) -> DenseTimes:
    """How long the dense part of one rank takes.

    A layer is one matrix multiply forward and two backward: gradients of its inputs and of its
    weights. What is left out: the interaction itself, activations, biases, loss and optimizer.

    Args:
        layers: widths.
        samples: of the rank.
        model: of the accelerator.

    Returns:
        The times.

    Raises:
        ConfigError: there is no layer, or no such precision.

    Example:
        >>> from jaxperf.config import load_hardware
        >>> from jaxperf.cost import default_model
        >>> layers = DenseLayers((13, 512, 256, 128), (479, 1024, 1024, 512, 256, 1))
        >>> times = dense_times(layers, 8192, default_model(load_hardware("a100")))
        >>> times.bottom_forward_us < times.top_forward_us < times.top_backward_us
        True
    """
    if len(layers.bottom) < 2 or len(layers.top) < 2:
        raise ConfigError(
            "no dense layer",
            where="bottom" if len(layers.bottom) < 2 else "top",
            expected="two widths at least",
        )

    parts = [
        multiply
        for widths in (layers.bottom, layers.top)
        for multiply in _multiplies(widths, samples)
    ]
    work = matmul_work(*np.concatenate(parts, axis=1), precision=layers.precision)
    with double_precision():
        time_us = np.asarray(jax.jit(lambda model: cost_us(model, work))(model))
    part = np.repeat(np.arange(4), [multiply.shape[1] for multiply in parts])
    bottom, bottom_back, top, top_back = np.bincount(part, time_us, 4).tolist()
    return DenseTimes(bottom, top, top_back, bottom_back)


def _multiplies(widths: tuple[int, ...], samples: float) -> tuple[np.ndarray, np.ndarray]:
    """(3, layers) m, n and k forward; (3, 2 layers) backward, by inputs and by weights."""
    k, n = np.array(list(pairwise(widths)), float).T
    m = np.full(len(k), float(samples))
    backward = [np.stack([m, k, n]), np.stack([k, n, m])]
    return np.stack([m, n, k]), np.concatenate(backward, axis=1)
