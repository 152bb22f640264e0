"""Writing the page of a replay or an estimate."""

import os

from jaxperf._files import new_file
from jaxperf.estimate import Estimate
from jaxperf.replay import Replay
from jaxperf.report._estimate_page import estimate_page
from jaxperf.report._html import replay_page


def write_report(
    result: Replay | Estimate, path: str | os.PathLike, overwrite: bool = False
) -> None:
    """Write a replay or an estimate as one HTML file that opens without a network.

    Args:
        result: of a replay, or an estimate.
        path: the file to write.
        overwrite: replace a file that is there.

    Raises:
        OutputError: the file exists, or cannot be written.

    Example:
        >>> import pathlib, tempfile
        >>> from jaxperf.replay import replay
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = replay(write_traces(simulate(SimulatedJob(layers=1)), folder))
        ...     write_report(result, f"{folder}/report.html")
        ...     pathlib.Path(folder, "report.html").stat().st_size > 10_000
        True
    """
    with new_file(path, overwrite) as file:
        # A name can hold half a surrogate pair, which no encoding of a page allows.
        page = replay_page(result) if isinstance(result, Replay) else estimate_page(result)
        file.write(page.encode("utf-8", "replace"))
