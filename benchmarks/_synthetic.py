"""A trace of one rank as Kineto writes it, of any size: operators, launches, kernels, steps."""

import random
from collections.abc import Iterator
from pathlib import Path

LAUNCHES_A_STEP = 5_000
_ROW_BYTES = 284
_ROWS_A_LAUNCH = 6
_OPERATORS = (
    ("aten::addmm", "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn"),
    ("aten::native_layer_norm", "void at::native::vectorized_layer_norm_kernel<c10::BFloat16>"),
    ("aten::copy_", "void at::native::vectorized_elementwise_kernel<4, at::native::copy>"),
)


def write_trace(path: Path, megabytes: float) -> None:
    """A trace of about so many megabytes of text, its steps of equally many launches."""
    launches = int(megabytes * 1e6 / _ROW_BYTES / _ROWS_A_LAUNCH)
    with open(path, "w") as file:
        file.write('{\n  "schemaVersion": 1,\n  "baseTimeNanoseconds": 1727743122000000000,\n')
        file.write('  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},\n')
        file.write('  "traceEvents": [\n  {\n    "ph": "M", "name": "process_name", "pid": 4242\n')
        for row in _rows(launches):
            file.write("  },\n  {\n    " + row + "\n")
        file.write('  }\n  ],\n  "traceName": "synthetic"\n}\n')


def _rows(launches: int) -> Iterator[str]:
    """A thread that launches kernels on one stream, and waits for the device after each step."""
    draw = random.Random(0)
    begin_us = now_us = device_us = 3_600_000_000_000.0
    for index in range(launches):
        now_us += draw.uniform(3, 20)
        start_us = max(now_us + 20, device_us + 1)
        device_us = start_us + draw.uniform(8, 50)
        yield from _launch(index, *draw.choice(_OPERATORS), now_us, start_us, device_us - start_us)
        now_us += 32
        if (index + 1) % LAUNCHES_A_STEP == 0 or index + 1 == launches:
            end_us = max(device_us, now_us) + 5
            yield _row("cuda_runtime", "cudaDeviceSynchronize", now_us, end_us - now_us) + (
                ',\n    "args": {\n      "cbid": 165\n    }'
            )
            step = f"ProfilerStep#{index // LAUNCHES_A_STEP}"
            yield _row("user_annotation", step, begin_us, end_us + 1 - begin_us)
            begin_us = now_us = end_us + 2


def _launch(
    index: int, operator: str, kernel: str, now_us: float, start_us: float, duration_us: float
) -> Iterator[str]:
    """An operator within its Python frame, the call that it makes, and the kernel."""
    size = (1024, 4096, 16384)[index % 3]
    yield _row("python_function", "torch/nn/modules/linear.py(125): forward", now_us, 31.5) + (
        f',\n    "args": {{\n      "Python parent id": 1, "Python id": {index},'
        f' "Ev Idx": {index}\n    }}'
    )
    yield _row("cpu_op", operator, now_us + 0.25, 31) + (
        f',\n    "args": {{\n      "External id": {index + 1},"Sequence number": {index},'
        f' "Fwd thread id": 0, "Record function id": 0, "Concrete Inputs": ["", "", "1", ""],'
        f' "Input type": ["c10::BFloat16", "c10::BFloat16", "Scalar", ""],'
        f' "Input Strides": [[{size}, 1], [1, {size}], [], []],'
        f' "Input Dims": [[512, {size}], [{size}, 1024], [], []], "Ev Idx": {index}\n    }}'
    )
    yield _row("cuda_runtime", "cudaLaunchKernel", now_us + 10, 5.12) + (
        f',\n    "args": {{\n      "External id": {index + 1},"cbid": 211,'
        f' "correlation": {index + 1}\n    }}'
    )
    yield (
        f'"ph": "s", "id": {index + 1}, "pid": 4242, "tid": 4242, "ts": {now_us + 10:.3f},\n'
        f'    "cat": "ac2g", "name": "ac2g"'
    )
    yield _row("kernel", kernel, start_us, duration_us, process=0, thread=7) + (
        f',\n    "args": {{\n      "External id": {index + 1},"queued": 0, "device": 0,'
        f' "context": 1, "stream": 7, "correlation": {index + 1},\n'
        f'      "registers per thread": 168,'
        f' "shared memory": 81920, "blocks per SM": 2.370370,\n      "warps per SM": 9.481482,'
        f' "grid": [8, {size // 128}, 1],\n      "block": [128, 1, 1],'
        f' "est. achieved occupancy %": 15\n    }}'
    )
    yield (
        f'"ph": "f", "id": {index + 1}, "pid": 0, "tid": 7, "ts": {start_us:.3f},\n'
        f'    "cat": "ac2g", "name": "ac2g", "bp": "e"'
    )


def _row(
    category: str,
    name: str,
    start_us: float,
    duration_us: float,
    *,
    process: int = 4242,
    thread: int = 4242,
) -> str:
    return (
        f'"ph": "X", "cat": "{category}", "name": "{name}", "pid": {process}, "tid": {thread},\n'
        f'    "ts": {start_us:.3f}, "dur": {duration_us:.3f}'
    )
