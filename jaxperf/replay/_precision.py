"""Double precision where it is needed, whatever the caller has set jax to."""

from contextlib import AbstractContextManager


def double_precision() -> AbstractContextManager:
    """What jax computes inside is float64; outside nothing changes."""
    try:
        from jax import enable_x64
    except ImportError:  # before jax 0.8
        from jax.experimental import enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    return enable_x64(True)
