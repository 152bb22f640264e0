"""Work by energy: the formula of each kind of benchmark, for logs and for tables alike."""

from collections.abc import Mapping

SAMPLES_PER_QUERY: Mapping[str, int] = {"singlestream": 1, "multistream": 8}
"""Of the scenarios scored by energy per query (MLPerf Inference, from v2.0 on)."""


def samples_per_joule(throughput_per_s: float, power_w: float) -> float:
    """Work by energy in the scenarios scored by throughput: Offline, Server, Interactive.

    Args:
        throughput_per_s: samples (or tokens) per second.
        power_w: average of the same run.

    Returns:
        Samples (or tokens) per joule.

    Example:
        >>> samples_per_joule(25_000.0, 6_250.0)
        4.0
    """
    return throughput_per_s / power_w


def samples_per_joule_of_stream(scenario: str, energy_per_query_j: float) -> float:
    """Work by energy in the scenarios scored by energy per query.

    Args:
        scenario: `singlestream`, of one sample a query, or `multistream`, of eight.
        energy_per_query_j: average.

    Returns:
        Samples per joule.

    Example:
        >>> samples_per_joule_of_stream("multistream", 0.5)
        16.0
    """
    return SAMPLES_PER_QUERY[scenario] / energy_per_query_j


def inferences_per_joule(energy_per_inference_j: float) -> float:
    """Work by energy in MLPerf Tiny.

    Args:
        energy_per_inference_j: median of the windows.

    Returns:
        Inferences per joule.

    Example:
        >>> inferences_per_joule(0.25)
        4.0
    """
    return 1.0 / energy_per_inference_j
