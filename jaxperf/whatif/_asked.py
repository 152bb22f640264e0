"""What can be asked, before anything is read."""

from collections.abc import Sequence

from jaxperf.config import Scenario
from jaxperf.errors import ConfigError

_FEW_SAMPLES = 20
"""With fewer there is no telling where 5 % begin and end."""


def check_asked(scenarios: Sequence[Scenario], samples: int) -> None:
    """Refuse a question that no trace could answer.

    Args:
        scenarios: what is asked.
        samples: how often durations are drawn.

    Raises:
        ConfigError: nothing is asked, or the samples are too few for an interval.
    """
    if not scenarios:
        raise ConfigError(
            "nothing is asked",
            where="whatif",
            expected="--scale, --set or --scenarios (in Python scale, change or scenarios)",
        )
    if samples < 0:
        raise ConfigError(
            "not a number of samples", where="samples", got=str(samples), expected="0 or more"
        )
    if 0 < samples < _FEW_SAMPLES:
        raise ConfigError(
            "too few samples",
            where="samples",
            got=str(samples),
            expected=f"{_FEW_SAMPLES} or more, or 0 for no intervals",
        )
