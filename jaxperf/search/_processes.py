"""A search in one process or in several: the same chunks, and the same code that settles them.

Children are fresh interpreters, for the reasons given in `jaxperf.trace._worker`. The parent sends
the search and then one chunk at a time; it alone writes the folder.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO

from jaxperf.errors import ConfigError, JaxperfError
from jaxperf.replay import double_precision
from jaxperf.search._archive import Archive
from jaxperf.search._parts import Outcome, Parts, Shard, joined, settle
from jaxperf.search._saved import Folder
from jaxperf.search._tally import Progress, Tally

_CHILD = "from jaxperf.search._processes import serve; serve()"
_ATTEMPTS = 3


def search_parts(
    parts: Parts,
    *,
    folder: Folder | None = None,
    shard: Shard | None = None,
    processes: int = 1,
    progress: Progress | None = None,
) -> tuple[Archive, Tally]:
    """Settle the chunks of a search that are not settled yet.

    An interrupt (control-C) ends the search; what is settled until then is returned.

    Args:
        parts: of `parts_of`.
        folder: of `open_folder`, where each chunk is kept as soon as it is settled, and looked up.
        shard: settle only its chunks, as others settle theirs with the same folder.
        processes: on this machine, 1 for this one alone.
        progress: called with how many points of these chunks are settled, and how many there are.

    Returns:
        The best and the front of all chunks that were settled here or are in the folder, and what
        became of their points.

    Raises:
        ConfigError: a file of the folder is damaged, or a chunk ended its process each time.
        OutputError: the folder cannot be written.
    """
    shard = shard or Shard()
    known: dict[int, Outcome] = {}
    for number in range(parts.count) if folder else ():
        kept = folder.chunk(number) if folder else None
        if kept is not None:
            known[number] = kept
    mine = shard.chunks(parts)
    total = sum(map(parts.points, mine))

    def keep(outcome: Outcome) -> None:
        if folder is not None:
            folder.save(outcome, shard.count)
        known[outcome.chunk] = outcome
        tell()

    def tell() -> None:
        if progress is not None:
            progress(sum(parts.points(number) for number in mine if number in known), total)

    tell()
    waiting = [number for number in mine if number not in known]
    try:
        # The others exclude points by what chunk 0 found, whoever settles them.
        if waiting and parts.method == "bound" and 0 not in known:
            keep(settle(parts, 0))
            waiting = [number for number in waiting if number]
        first = known[0].archive if waiting and parts.method == "bound" else None
        with closing(_settled(parts, waiting, first, processes)) as outcomes:
            for outcome in outcomes:
                keep(outcome)
    except KeyboardInterrupt:
        pass
    return joined(parts, known.values())


def merge(parts: Parts, folder: Folder) -> tuple[Archive, Tally]:
    """What a search found whose chunks are all in a folder.

    Args:
        parts: of `parts_of`.
        folder: of `open_folder`.

    Raises:
        ConfigError: chunks are missing; it says which, and of which shards. Or a file is damaged.
    """
    return joined(parts, folder.all_chunks())


def _settled(
    parts: Parts, numbers: Sequence[int], known: Archive | None, processes: int
) -> Generator[Outcome, None, None]:
    processes = min(processes, len(numbers))
    if processes > 1:
        yield from _settled_in_processes(parts, numbers, known, processes)
    else:
        yield from (settle(parts, number, known) for number in numbers)


# Several processes
# ---------------------------------------------------------------------------------------


def _settled_in_processes(
    parts: Parts, numbers: Sequence[int], known: Archive | None, processes: int
) -> Generator[Outcome, None, None]:
    waiting: SimpleQueue[int] = SimpleQueue()
    for number in numbers:
        waiting.put(number)
    answers: SimpleQueue[Outcome | BaseException] = SimpleQueue()
    search = pickle.dumps((parts, known), protocol=5)
    crews = [_Crew(search, waiting, answers) for _ in range(processes)]
    try:
        for crew in crews:
            crew.thread.start()
        for _ in numbers:
            answer = answers.get()
            if isinstance(answer, BaseException):
                raise answer
            yield answer
    finally:
        for crew in crews:
            crew.stop()
        for crew in crews:
            if crew.thread.ident is not None:
                crew.thread.join()


class _Crew:
    """Has a child settle chunks, and another one where that is lost."""

    def __init__(self, search: bytes, waiting: SimpleQueue, answers: SimpleQueue):
        self.thread = threading.Thread(target=self._run, daemon=True)
        self._search, self._waiting, self._answers = search, waiting, answers
        self._stopped, self._lock = False, threading.Lock()
        self._child: _Child | None = None

    def _run(self) -> None:
        try:
            while not self._stopped:
                self._answers.put(self._settle(self._waiting.get_nowait()))
        except Empty:
            pass
        except BaseException as error:
            self._answers.put(error)
        finally:
            self.stop()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._child is not None:
                self._child.end()
                self._child = None

    def _settle(self, number: int) -> Outcome:
        fate = ""
        for _ in range(_ATTEMPTS):
            child = self._living()
            if child is None:
                break
            answer = child.settle(number)
            if isinstance(answer, Outcome):
                return answer
            fate = answer
            with self._lock:
                child.end()
                self._child = None
        raise ConfigError(
            f"ended the process that settled it, {_ATTEMPTS} times",
            where=f"chunk {number} of the search",
            got=fate,
            remedy="it may have run out of memory: try fewer processes, or a larger machine",
        )

    def _living(self) -> "_Child | None":
        with self._lock:
            if self._child is None and not self._stopped:
                self._child = _Child(self._search)
            return self._child


class _Child:
    def __init__(self, search: bytes):
        code_folder = str(Path(__file__).parents[2])
        path = [code_folder, *(folder or os.getcwd() for folder in sys.path)]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        )
        self._search: bytes | None = search

    def settle(self, number: int) -> Outcome | str:
        """The outcome of a chunk, or how the process ended."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin and stdout
        try:
            if self._search is not None:
                stdin.write(self._search)
                self._search = None
            pickle.dump(number, stdin, protocol=5)
            stdin.flush()
            answer = pickle.load(stdout)  # noqa: S301 - from our own child
        except (OSError, ValueError, EOFError, pickle.UnpicklingError):
            code = self.process.wait()
            return f"signal {-code}" if code < 0 else f"exit code {code}"
        if isinstance(answer, Outcome):
            return answer
        if isinstance(answer, JaxperfError):
            raise answer
        raise RuntimeError(f"while chunk {number} was settled:\n{answer}")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            try:
                pipe.close()
            except OSError:  # what was still to be written to it
                pass


def serve() -> None:
    """The child: settle each chunk that standard input names, until it is closed."""
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a stray print must not end up among the answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us where the user interrupts
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # without a parent, nobody is to hear of it
    try:
        with double_precision():  # or its arrays would lose digits
            parts, known = pickle.load(asked)  # noqa: S301 - from our own parent
        while True:
            _answer(answers, parts, pickle.load(asked), known)  # noqa: S301
    except EOFError:
        pass


def _answer(answers: BinaryIO, parts: Parts, number: int, known: Archive | None) -> None:
    answer: Any
    try:
        answer = settle(parts, number, known)
    except JaxperfError as error:
        answer = error
    except Exception:
        answer = traceback.format_exc()
    pickle.dump(answer, answers, protocol=5)
    answers.flush()
