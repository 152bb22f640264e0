"""What a node draws while it computes and while it does not, and so at any scale of its job."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from jaxperf.errors import ConfigError


@dataclass(frozen=True, slots=True, eq=False)
class NodeIntervals:
    """What one node did and drew, by intervals of its log.

    Attributes:
        energy_j: (intervals,) of the node.
        training_s, evaluation_s: (intervals,) time that it computed.
        stalled_s: (intervals,) the rest: it waited, or did nothing but communicate.
    """

    energy_j: np.ndarray
    training_s: np.ndarray
    evaluation_s: np.ndarray
    stalled_s: np.ndarray


@dataclass(frozen=True, slots=True)
class NodePower:
    """What a node draws by what it does. NaN is what its log does not tell.

    Attributes:
        training_w, evaluation_w: while it computes.
        stalled_w: while it waits, or does nothing but communicate.
    """

    training_w: float
    evaluation_w: float
    stalled_w: float


def fit_node_power(intervals: NodeIntervals, *, stalled_w: float | None = None) -> NodePower:
    """The powers that explain the energies of a node's intervals best.

    energy = training_w training_s + evaluation_w evaluation_s + stalled_w stalled_s, by
    non-negative least squares; an interval weighs as the readings in it, so by its length.

    Args:
        intervals: of one node, or of several runs of one job on nodes of one kind.
        stalled_w: known from elsewhere, such as another job on the same nodes; fitted by default.

    Returns:
        The powers; NaN for what no interval has.

    Raises:
        ConfigError: an interval has no length, or a column another length than the others.

    Example:
        >>> intervals = NodeIntervals(
        ...     energy_j=np.array([70e3, 49e3]),
        ...     training_s=np.array([10.0, 5.0]),
        ...     evaluation_s=np.zeros(2),
        ...     stalled_s=np.array([0.0, 5.0]),
        ... )
        >>> power = fit_node_power(intervals)
        >>> round(power.training_w), round(power.stalled_w)
        (7000, 2800)
    """
    from scipy.optimize import nnls

    times_s = _times_s(intervals)
    energy_j = np.asarray(intervals.energy_j, np.float64)
    fitted: np.ndarray = (times_s > 0.0).sum(axis=0) > 0
    power_w = np.full(3, np.nan)
    if stalled_w is not None:
        energy_j = energy_j - stalled_w * times_s[:, 2]
        fitted[2], power_w[2] = False, stalled_w
    weight = 1.0 / np.sqrt(times_s.sum(axis=1))
    power_w[fitted] = nnls(times_s[:, fitted] * weight[:, None], energy_j * weight)[0]
    return NodePower(*power_w.tolist())


def predict_node_power(
    power: NodePower, *, training_s: ArrayLike, evaluation_s: ArrayLike, duration_s: ArrayLike
) -> np.ndarray:
    """Mean power of a node over a run, from how long it computed.

    Args:
        power: of the node.
        training_s, evaluation_s: (...) time that the node computed. Where only samples are known,
            the time that its share of them takes on one node alone.
        duration_s: (...) of the run. What is left of it is stalled.

    Returns:
        (...) watts.

    Example:
        >>> power = NodePower(training_w=7000.0, evaluation_w=6900.0, stalled_w=3000.0)
        >>> float(predict_node_power(power, training_s=50.0, evaluation_s=0.0, duration_s=100.0))
        5000.0
    """
    training_s = np.asarray(training_s, np.float64)
    evaluation_s = np.asarray(evaluation_s, np.float64)
    # Work that takes less time at scale than alone leaves nothing stalled, not less than nothing.
    stalled_s = np.maximum(np.asarray(duration_s, np.float64) - training_s - evaluation_s, 0.0)
    energy_j = (
        _energy_j(power.training_w, training_s)
        + _energy_j(power.evaluation_w, evaluation_s)
        + _energy_j(power.stalled_w, stalled_s)
    )
    return np.asarray(energy_j / (training_s + evaluation_s + stalled_s))


def _energy_j(power_w: float, time_s: np.ndarray) -> np.ndarray:
    """Nothing where there is no time, even at an unknown power."""
    return np.where(time_s > 0.0, power_w * time_s, 0.0)


def _times_s(intervals: NodeIntervals) -> np.ndarray:
    """(intervals, 3)."""
    columns = (intervals.training_s, intervals.evaluation_s, intervals.stalled_s)
    shapes = [np.shape(column) for column in (intervals.energy_j, *columns)]
    if len(set(shapes)) != 1:
        raise ConfigError("columns differ in length", where="NodeIntervals", got=str(shapes))
    times_s = np.stack([np.asarray(column, np.float64) for column in columns], axis=1)
    if not (times_s.sum(axis=1) > 0.0).all() or (times_s < 0.0).any():
        raise ConfigError(
            "an interval without length", where="NodeIntervals", expected="times of 0 s or more"
        )
    return times_s
