"""Replay a run and compare it with what was measured."""

from jaxperf.replay._types import Replay


def replay(paths, *, step=None, hold_out=False, baseline=None) -> Replay:
    """Replay the traces of a run."""
    raise NotImplementedError
