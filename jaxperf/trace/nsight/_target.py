"""What an Nsight Systems export says of the machine: its GPUs, processes, threads and clock."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxperf.trace.nsight._rows import process_of, thread_of
from jaxperf.trace.nsight._tables import Tables

_LATEST_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, by Kineto's names; `None` where not told.

    Attributes:
        name: such as `NVIDIA H100 80GB HBM3`.
        multiprocessors: how many.
        memory_bytes: all of its memory.
    """

    name: str | None = None
    multiprocessors: int | None = None
    memory_bytes: int | None = None


class Target:
    """The machine of an export.

    Args:
        tables: of the export.
        strings: its texts.

    Attributes:
        start_ns: start of the session, nanoseconds since 1970 in UTC; 0 where not told.
        process_names: by process.
        thread_names: by process and thread.
        mpi_ranks: by process.
    """

    def __init__(self, tables: Tables, strings: dict[int, str]):
        start = tables.numbers("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))["utcEpochNs"]
        self.start_ns = int(start[0]) if len(start) and 0 < start[0] < _LATEST_NS else 0
        processes = tables.texts("PROCESSES", "globalPid", "name")
        self.process_names = {
            process: Path(name).name or name
            for process, name in zip(_processes(list(processes)), processes.values(), strict=True)
        }
        threads = tables.numbers("ThreadNames", ("globalTid", "nameId"))
        self.thread_names = {
            (process, thread): strings[name]
            for process, thread, name in zip(
                process_of(threads["globalTid"]).tolist(),
                thread_of(threads["globalTid"]).tolist(),
                threads["nameId"].tolist(),
                strict=True,
            )
            if strings.get(name)
        }
        ranks = tables.numbers("MPI_RANKS", ("globalTid", "rank"))
        of_ranks = process_of(ranks["globalTid"]).tolist()
        self.mpi_ranks = {
            process: rank
            for process, rank in zip(of_ranks, ranks["rank"].tolist(), strict=True)
            if 0 <= rank < 1 << 31
        }
        self._devices = tables.numbers("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
        columns = ("id", "cuDevice", "smCount", "totalMemory")
        self._gpus, self._gpu_names = tables.read("TARGET_INFO_GPU", columns, "name")

    def gpu_number(self, process: int, device: int) -> int:
        """Number on the machine of what a process calls `device`; `device` where not told."""
        known = self._devices
        # A process id beyond 24 bits is cut in the identity of the rows.
        mine = (process_of(known["pid"] << 24) == process) & (known["cudaId"] == device)
        return int(known["gpuId"][mine][0]) if mine.any() else device

    def gpu(self, process: int, device: int) -> Gpu:
        """The GPU that a process calls `device`."""
        told = self._gpus
        number = self.gpu_number(process, device)
        matches = [told["id"] == number, told["cuDevice"] == device]
        rows = [int(np.argmax(match)) for match in matches if match.any()]
        if not rows:
            return Gpu()

        def known(column: str) -> int | None:
            value = int(told[column][rows[0]])
            return value if 0 < value < 1 << 62 else None

        return Gpu(self._gpu_names[rows[0]], known("smCount"), known("totalMemory"))


def _processes(global_ids: list[int]) -> list[int]:
    return process_of(np.array(global_ids, np.int64)).tolist()
