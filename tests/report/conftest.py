"""One replay for all tests of the report."""

import pytest

from jaxperf.replay import Replay
from tests.report.fabricated import make_replay


@pytest.fixture(scope="session")
def replay() -> Replay:
    """Two ranks, two steps, four layers; rank 1 is slow and starts 50 us late."""
    return make_replay()
