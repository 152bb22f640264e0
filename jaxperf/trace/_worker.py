"""Read trace files in processes of our own.

A child is a fresh interpreter started with this module, not one of `multiprocessing`: those import
the caller's main module again (which fails in a notebook, from standard input, and in a script
without a `__main__` guard), or fork (which deadlocks once jax has started its threads).

The parent writes one path per line; for each, the child answers with one pickle on its standard
output. A child that dies closes that pipe, which the parent sees at once.
"""

import json
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import BinaryIO

from jaxperf.errors import TraceError
from jaxperf.trace._reader import read_file
from jaxperf.trace._types import Trace

Outcome = tuple[Trace, ...] | TraceError

_CHILD = "from jaxperf.trace._worker import serve; serve()"


def read_or_error(path: Path) -> Outcome:
    """The traces of a file, or what is wrong with it."""
    try:
        return read_file(path)
    except TraceError as error:
        return error


def read_in_parallel(
    paths: Sequence[Path], workers: int, progress: Callable[[int, int], None] | None = None
) -> list[Outcome]:
    """Read several files at once.

    Args:
        paths: the files.
        workers: number of processes.
        progress: called with the number of files read so far and of all files, from any thread.

    Returns:
        The outcome of each file, in the order of `paths`.

    Raises:
        TraceError: a process died while it read a file.
    """
    outcomes: dict[Path, Outcome] = {}
    waiting: SimpleQueue[Path] = SimpleQueue()
    # The largest first, so that no process is left alone with it at the end.
    for path in sorted(paths, key=_size, reverse=True):
        waiting.put(path)
    children = [_Child() for _ in range(workers)]

    def drain(child: _Child) -> None:
        while True:
            try:
                path = waiting.get_nowait()
            except Empty:
                return
            outcomes[path] = child.read(path)
            if progress:
                progress(len(outcomes), len(paths))

    try:
        with ThreadPoolExecutor(workers) as threads:
            futures = [threads.submit(drain, child) for child in children]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                for child in children:
                    child.kill()  # ends the other threads' wait
                raise
    finally:
        for child in children:
            child.close()
    return [outcomes[path] for path in paths]


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


class _Child:
    def __init__(self):
        code_folder = str(Path(__file__).parents[2])
        search = [code_folder, *(folder or os.getcwd() for folder in sys.path)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(search)},
        )

    def read(self, path: Path) -> Outcome:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin and stdout
        try:
            stdin.write(json.dumps(str(path)).encode() + b"\n")
            stdin.flush()
            kind, value = pickle.load(stdout)  # noqa: S301 - from our own child
        except (OSError, EOFError, pickle.UnpicklingError):
            raise TraceError(
                f"the process that read it ended before it was done ({self._fate()})",
                where=str(path),
                remedy="it may have run out of memory: try workers=1, or a larger machine",
            ) from None
        if kind == "bug":
            raise RuntimeError(f"while reading {path}:\n{value}")
        return value

    def _fate(self) -> str:
        code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdout.close()
        try:
            self._process.stdin.close()
        except OSError:
            pass
        self._process.wait()


def serve() -> None:
    """The child: answer each path on standard input, until it is closed."""
    answers: BinaryIO = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a stray print must not end up among the answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us where the user interrupts
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # without a parent, nobody is to hear of it
    for line in sys.stdin.buffer:
        try:
            answer: tuple[str, object] = ("outcome", read_or_error(Path(json.loads(line))))
        except Exception:
            answer = ("bug", traceback.format_exc())
        pickle.dump(answer, answers, protocol=5)
        answers.flush()
