"""Capture a trace of a training loop that has all that a replay needs.

PyTorch is what is profiled, and no dependency: it is imported when a capture begins.
"""

import gzip
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from jaxperf._files import check_new_file, new_file
from jaxperf.errors import ConfigError, OutputError, TraceError

if TYPE_CHECKING:
    from torch.profiler import profile as Profiler  # type: ignore[import-not-found]

# Training waits while the file is written; level 9, the usual one, takes four times as long.
_GZIP_LEVEL = 6
_BLOCK_BYTES = 1 << 20


@contextmanager
def capture(
    folder: str | os.PathLike[str], *, wait: int = 5, warmup: int = 2, active: int = 3
) -> "Iterator[Profiler]":
    """Profile some steps of a training loop, into one file for each rank.

    `wait` steps run as if there were no profiler, `warmup` steps with the profiler on and nothing
    kept, and `active` steps are recorded. The file is written as the last of them ends, and what
    follows runs without the profiler. A loop that ends earlier, or fails, leaves a trace of the
    steps that it completed. In a distributed job every rank captures, each after
    `torch.distributed.init_process_group`.

    Args:
        folder: where `rank0.json.gz` and its like go; it is made if it does not exist.
        wait: steps before the profiler is on: compilation, autotuning, caches that fill.
        warmup: steps with the profiler on that are not recorded, at least 1.
        active: steps to record, at least 1.

    Yields:
        PyTorch's profiler; call its `step` at the end of each step.

    Raises:
        ConfigError: a number of steps, or the environment's `RANK`, is not valid.
        OutputError: this rank's file exists, which is told before the first step, or cannot be
            written.
        TraceError: PyTorch is not installed, or the loop ended before a step was recorded.

    Example:
        >>> with capture("run/") as profile:  # doctest: +SKIP
        ...     for batch in loader:
        ...         train_step(batch)
        ...         profile.step()
    """
    for name, steps, least in (("wait", wait, 0), ("warmup", warmup, 1), ("active", active, 1)):
        if steps < least:
            raise ConfigError(
                "too few steps", where=name, got=str(steps), expected=f"at least {least}"
            )
    torch = _torch()
    place = _place(torch.distributed)
    path = Path(folder) / f"rank{place['rank']}.json.gz"
    _check_place(path)
    first = wait + warmup
    profile = torch.profiler.profile(
        activities=_activities(torch.profiler),
        schedule=torch.profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=1),
        on_trace_ready=partial(_write, path=path, first=first),
        record_shapes=True,
        experimental_config=_experimental_config(),
    )
    if not _is_distributed(torch.distributed):
        profile.preset_metadata_json("distributedInfo", json.dumps(place))
    with profile:
        try:
            yield profile
        except BaseException:
            # Whoever reads the traceback looks for what ended the training, not for a full disk.
            profile.on_trace_ready = partial(_write_if_possible, path=path, first=first)
            raise
    if not path.exists():
        raise TraceError(
            "no step was recorded",
            where=str(path),
            got=f"{profile.step_num} calls of step()",
            expected=f"{first + active} to record {active} steps, or {first + 1} to record one: "
            f"{wait} wait and {warmup} warm up",
            remedy="run more steps, or lower wait",
        )


def _torch() -> Any:
    try:
        import torch  # type: ignore[import-not-found]
        import torch.distributed  # type: ignore[import-not-found]
        import torch.profiler  # type: ignore[import-not-found]
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise TraceError(
            "PyTorch is not installed, so there is nothing to capture", remedy="pip install torch"
        ) from None
    return torch


def _is_distributed(distributed: Any) -> bool:
    return distributed.is_available() and distributed.is_initialized()


def _place(distributed: Any) -> dict[str, int]:
    """Rank and, where it is known, size of the job, as `distributedInfo` has them."""
    if _is_distributed(distributed):
        return {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
    if "RANK" not in os.environ:
        return {"rank": 0, "world_size": 1}
    rank = os.environ["RANK"]
    if not (rank.isascii() and rank.isdigit()):
        raise ConfigError(
            "not a rank", where="environment variable RANK", got=repr(rank), expected="0, 1, ..."
        )
    world_size = os.environ.get("WORLD_SIZE", "")
    known = world_size.isascii() and world_size.isdigit()
    return {"rank": int(rank)} | ({"world_size": int(world_size)} if known else {})


def _check_place(path: Path) -> None:
    """Make the folder of a file, unless the file is there or could not be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            "cannot be made", where=str(path.parent), got=error.strerror or str(error)
        ) from error
    if path.exists():
        raise OutputError(
            "exists already", where=str(path), remedy="capture into another folder, or move it away"
        )
    check_new_file(path)


def _activities(profiler: Any) -> list[Any]:
    wanted = (profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA)
    supported = profiler.supported_activities()
    return [activity for activity in wanted if activity in supported]


def _experimental_config() -> Any:
    """Rows that tell which stream waits for which, where this PyTorch has them."""
    try:
        from torch._C._profiler import (  # type: ignore[import-not-found]
            _ExperimentalConfig,
        )

        return _ExperimentalConfig(enable_cuda_sync_events=True)
    except (ImportError, TypeError):
        return None


def _write_if_possible(profile: "Profiler", path: Path, first: int) -> None:
    with suppress(Exception):
        _write(profile, path, first)


def _write(profile: "Profiler", path: Path, first: int) -> None:
    """Write what the profiler holds, unless no step from `first` on was completed."""
    if profile.step_num <= first:
        return
    with new_file(path) as file, tempfile.TemporaryDirectory() as scratch:
        plain = Path(scratch, "trace.json")
        profile.export_chrome_trace(str(plain))
        with (
            plain.open("rb") as text,
            gzip.GzipFile("", "wb", _GZIP_LEVEL, file) as compressed,
        ):
            _copy(text, compressed, unfinished=profile.step_num)


def _copy(text: BinaryIO, out: gzip.GzipFile, unfinished: int) -> None:
    """Copy a trace, in which a step that the loop did not complete is called by another name."""
    name = b"ProfilerStep#%d" % unfinished
    while lines := text.readlines(_BLOCK_BYTES):
        out.write(b"".join(lines).replace(b'"%b"' % name, b'"unfinished %b"' % name))
