"""How long each part of a training step takes on each rank; the graph says when."""

from dataclasses import dataclass, fields

import numpy as np

from jaxperf.errors import ConfigError


@dataclass(frozen=True, eq=False)
class StepParts:
    """Durations of the parts of one step, in microseconds.

    One rank stands for all where all do the same.

    Attributes:
        indices_us: (ranks,) all-to-all of the indices to the ranks that hold their rows.
        fetch_us: (ranks, tiers) rows of a batch that come from each slower tier, and go back to it.
        fill_us: (ranks,) of the device's memory, with rows that enter and leave its cache.
        lookup_us: (ranks,) pooled lookups of the rank's tables, of the whole batch.
        pooled_us: (ranks,) all-to-all of the pooled rows.
        bottom_forward_us, top_forward_us: (ranks,) the layers of the dense inputs; the interaction
            and the layers after it.
        top_backward_us, bottom_backward_us: (ranks,) the same backward.
        gradients_us: (ranks,) all-to-all of the gradients of the pooled rows.
        update_us: (ranks,) backward lookups and optimizer of the rows.
        all_reduce_us: (ranks,) gradients of the dense part.
    """

    indices_us: np.ndarray
    fetch_us: np.ndarray
    fill_us: np.ndarray
    lookup_us: np.ndarray
    pooled_us: np.ndarray
    bottom_forward_us: np.ndarray
    top_forward_us: np.ndarray
    top_backward_us: np.ndarray
    bottom_backward_us: np.ndarray
    gradients_us: np.ndarray
    update_us: np.ndarray
    all_reduce_us: np.ndarray

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.lookup_us)


def check_parts(parts: StepParts) -> None:
    """Refuse durations that do not fit each other or are no times.

    Raises:
        ConfigError: a shape is wrong, or a duration is negative or no number.
    """
    for field in fields(parts):
        value = np.asarray(getattr(parts, field.name))
        expected = (parts.ranks,) if field.name != "fetch_us" else (parts.ranks, value.shape[-1])
        if value.shape != expected or not (np.isfinite(value) & (value >= 0)).all():
            raise ConfigError(
                "not the durations of a part",
                where=field.name,
                got=f"{value.shape} {value.reshape(-1)[:4].tolist()}",
                expected=f"{expected}, 0 or more",
            )
