"""Small captures of one rank, written call by call, each about one phenomenon."""

from pathlib import Path

from jaxperf.graph import ExecutionGraph, build_graph
from jaxperf.trace import Run, Trace
from tests.trace.written import document, kernel, read, row

MAIN, AUTOGRAD, WATCHDOG = 100, 101, 102
"""Threads."""


class Capture:
    """Rows of a trace in the making; times are microseconds, correlations are given out in turn.

    capture = Capture()
    capture.step(0, 100)
    capture.launch("gemm", at=10, start=20, dur=50)
    graph = capture.graph(tmp_path)
    """

    def __init__(self):
        self.rows: list[dict] = []
        self.correlation = 0

    def step(self, ts: float, dur: float) -> None:
        number = 1 + sum(r["name"].startswith("ProfilerStep") for r in self.rows)
        self.rows.append(row(f"ProfilerStep#{number}", "user_annotation", ts, dur, tid=MAIN))

    def op(self, name: str, ts: float, dur: float, thread: int = MAIN) -> None:
        self.rows.append(row(name, "cpu_op", ts, dur, tid=thread))

    def call(self, name: str, ts: float, dur: float = 1.0, thread: int = MAIN) -> int:
        """A runtime call; its correlation."""
        self.correlation += 1
        given = {"correlation": self.correlation}
        self.rows.append(row(name, "cuda_runtime", ts, dur, tid=thread, **given))
        return self.correlation

    def work(
        self,
        name: str,
        ts: float,
        dur: float,
        correlation: int | None = None,
        *,
        stream: int = 7,
        device: int = 0,
    ) -> None:
        """Device work: a copy or set by its name, else a kernel. An orphan without correlation."""
        if correlation is None:
            self.correlation += 1
            correlation = self.correlation
        made = kernel(name, ts, dur, stream, device, correlation=correlation)
        for prefix in ("Memcpy", "Memset"):
            if name.startswith(prefix):
                made["cat"] = f"gpu_{prefix.lower()}"
        self.rows.append(made)

    def launch(
        self,
        name: str,
        at: float,
        start: float,
        dur: float,
        *,
        call: str = "cudaLaunchKernel",
        call_us: float = 4.0,
        stream: int = 7,
        device: int = 0,
        thread: int = MAIN,
    ) -> None:
        """A call at a time and the work it launches."""
        correlation = self.call(call, at, call_us, thread)
        self.work(name, start, dur, correlation, stream=stream, device=device)

    def sync_row(self, kind: str, ts: float, dur: float, correlation: int, **args: object) -> None:
        """What a recent profiler writes beside a call that waits; keys are written as they are."""
        made = row(kind, "cuda_sync", ts, dur, pid=0, tid=-1)
        given = {"cuda_sync_kind": kind, "device": 0, "correlation": correlation} | args
        self.rows.append(made | {"args": given})

    def trace(self, folder: Path) -> Trace:
        return read(folder, document(self.rows))

    def graph(self, folder: Path, *, between_streams: bool = True) -> ExecutionGraph:
        run = Run((self.trace(folder),), (), ())
        return build_graph(run, between_streams=between_streams)
