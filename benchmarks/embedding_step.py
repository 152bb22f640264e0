"""Real training steps of recommendation models: what they are made of, and asked again.

    python benchmarks/embedding_step.py SHARED

Each run is replayed and asked again with its tables in the host's memory (unified memory), with a
tenth of the rows cached on the device and the others fetched ahead or on demand, and with lookups
balanced over ranks. The traces do not say how large the tables are: rows are inferred from the
recorded lookups, which is an upper bound. Assumed are a popularity of exponent 1.05, and 12 GB/s
over PCIe 3.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from jaxperf.config import load_hardware
from jaxperf.embedding.hierarchy import hit_ratio, zipf_curve
from jaxperf.embedding.training import (
    EmbeddingChange,
    RecordedStep,
    balanced_change,
    cached_change,
    find_embeddings,
    recorded_step,
    retarget_embeddings,
    unified_memory_change,
)
from jaxperf.graph import build_graph
from jaxperf.replay import double_precision, replay, replay_graph
from jaxperf.trace import read_run

RUNS = (
    "dlrm_param_v100_8rank_1step",
    "torchrec_sst_dlrm_v100_4rank_3step/run_a",
    "torchrec_sst_dlrm_v100_4rank_3step/run_b",
    "torchrec_sst_dlrm_v100_4rank_3step/run_c_sleep",
    "torchrec_resnet18_ddp_v100_2rank_3step",
)
LINK_BYTES_PER_S = 12e9
ROWS = 10_000_000
EXPONENT = 1.05


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    traces = parser.parse_args().shared / "traces"
    with double_precision():
        hits = float(hit_ratio(zipf_curve(ROWS, EXPONENT), np.array([ROWS / 10]))[0])
    print(f"hit ratio of a tenth of {ROWS:,} rows at exponent {EXPONENT}: {hits:.3f}")
    for name in RUNS:
        ask(traces / name, hits)
    return 0


def ask(folder: Path, hits: float) -> None:
    error = replay(folder).mean_abs_error_percent
    begin = time.perf_counter()
    run = read_run(folder)
    graph = build_graph(run)
    recorded = find_embeddings(graph, run)
    step = recorded_step(graph, recorded, replay_graph(graph))
    print(f"\n{'/'.join(folder.parts[-2:])}: {len(graph.ranks)} ranks, replay error {error:.2f} %")
    for field in RecordedStep.__dataclass_fields__:
        value = getattr(step, field)
        print(f"  {field:24}{value:12,.0f}{100 * value / step.step_us:8.1f} %")
    memory = load_hardware("v100").memory_bytes_per_s
    changes = {
        "no change": EmbeddingChange(),
        "unified memory": unified_memory_change(memory, LINK_BYTES_PER_S),
        "10 % cached, prefetch": cached_change(step, hits, memory, LINK_BYTES_PER_S),
        "10 % cached, on demand": cached_change(
            step, hits, memory, LINK_BYTES_PER_S, prefetch=False
        ),
        "lookups balanced": balanced_change(graph, recorded),
        "links twice as fast": EmbeddingChange(all_to_all_scale=0.5),
    }
    for name, change in changes.items():
        told = retarget_embeddings(graph, recorded, change)
        origins = ", ".join(f"{key} {100 * part:.0f} %" for key, part in told.origins.items())
        print(f"  {name:24}{told.step_us:12,.0f}{told.ratio:8.3f} x  path: {origins}")
    print(f"  {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    raise SystemExit(main())
