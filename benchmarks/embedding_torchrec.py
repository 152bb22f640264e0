"""TorchRec's planner: agreement with its own estimates, and both modes beside measured lookups.

    python benchmarks/embedding_torchrec.py SHARED

SHARED is the folder with `dlrm/`.
"""

import argparse
import csv
import gzip
import json
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from _tables import markdown, number

from jaxperf.config import EmbeddingTable
from jaxperf.embedding.torchrec import (
    H100_RATES,
    LookupRates,
    MeasuredLookups,
    ShardPerf,
    Topology,
    enumerate_options,
    estimate_shards,
    fit_lookup_rates,
    lookup_errors,
    read_measured_lookups,
)

SHEET_RATES = LookupRates(
    device_bytes_per_s=0.9 * 3.35e12,
    device_update_bytes_per_s=0.6 * 3.35e12,
    host_read_bytes_per_s=0.85 * 64e9,
    host_update_bytes_per_s=0.7 * 64e9,
    repeat_share=0.5,
    sort_keys_per_s=10e9,
    cache_lookups_per_s=0.5e9,
    launch_ms=0.1,
)
"""Round shares of an H100's peaks: what the fits start from and lean on."""
H100_PEAKS = Topology(1, 1, device_bytes_per_s=3.35e12, host_link_bytes_per_s=64e9)
TIMES = ("forward", "backward", "training", "evaluation")
LEFT_OUT: Mapping[str, Callable[[MeasuredLookups], Hashable]] = {
    "one configuration": lambda each: each.label,
    "one and its like": lambda each: (
        each.compute_kernel,
        each.work.state_row_bytes,
        each.work.missing_rows,
    ),
    "one optimizer": lambda each: each.work.state_row_bytes,
    "one kernel": lambda each: each.compute_kernel,
}
PARTS = (
    "fwd_compute_ms",
    "fwd_comms_ms",
    "bwd_compute_ms",
    "bwd_comms_ms",
    "input_dist_comms_ms",
    "prefetch_compute_ms",
    "total_ms",
)


def golden_rows(shared: Path) -> Iterator[tuple[dict[str, str], dict[str, float]]]:
    """Each row of TorchRec's own estimates, with ours of the same columns."""
    folder = shared / "dlrm" / "oracles"
    rates = json.loads((folder / "torchrec_planner_golden.json").read_text())["topologies"]
    with gzip.open(folder / "torchrec_planner_golden.csv.gz", "rt") as lines:
        for row in csv.DictReader(lines):
            yield row, _estimate(row, rates[row["case"]])


def _estimate(row: dict[str, str], rates: dict[str, float]) -> dict[str, float]:
    topology = Topology(
        int(row["world_size"]),
        int(row["local_world_size"]),
        device_bytes_per_s=1000 * rates["hbm_mem_bw"],
        host_link_bytes_per_s=1000 * rates["hbm_to_ddr_mem_bw"],
        intra_host_bytes_per_s=1000 * rates["intra_host_bw"],
        inter_host_bytes_per_s=1000 * rates["inter_host_bw"],
    )
    table = EmbeddingTable(
        name=row["table"],
        rows=int(row["rows"]),
        dimension=int(row["dim"]),
        pooling=float(row["pooling_factor"]),
    )
    options = enumerate_options(table, topology, sharding_types=[row["sharding_type"]])
    option = next(each for each in options if each.compute_kernel == row["compute_kernel"])
    shards = estimate_shards(option, topology, int(row["batch_size_per_rank"]))
    found = shards[int(row["shard_index"])]
    return {
        "num_shards": len(option.shards),
        "shard_rows": found.shard.rows,
        "shard_cols": found.shard.columns,
        "hbm_bytes": found.storage.hbm_bytes,
        "ddr_bytes": found.storage.ddr_bytes,
        **{part: getattr(found.perf, part) for part in PARTS},
    }


def planner_perf(measured: MeasuredLookups, topology: Topology) -> ShardPerf:
    """What TorchRec's formulas say of measured lookups, on one device."""
    work = measured.work
    row_bytes = float(np.asarray(work.row_bytes))
    table = EmbeddingTable(
        name="all", rows=int(np.asarray(work.table_rows)), dimension=round(row_bytes / 4)
    )
    options = enumerate_options(table, topology, sharding_types=["table_wise"])
    option = next(each for each in options if each.compute_kernel == measured.compute_kernel)
    cached = None if np.isnan(measured.cached_share) else measured.cached_share
    batch_size = round(float(np.asarray(work.lookups)))
    return estimate_shards(option, topology, batch_size, cache_load_factor=cached)[0].perf


def planner_ratios(measured: Sequence[MeasuredLookups], topology: Topology) -> np.ndarray:
    """(configurations, 4) TorchRec's formulas to measured, of `TIMES`."""
    rows = []
    for each in measured:
        perf = planner_perf(each, topology)
        forward, backward = perf.fwd_compute_ms, perf.bwd_compute_ms
        said = np.array([forward, backward, forward + backward, forward])
        rows.append(said / [getattr(each, f"{name}_ms") for name in TIMES])
    return np.array(rows)


def held_out_errors(
    measured: Sequence[MeasuredLookups], key: Callable[[MeasuredLookups], Hashable]
) -> np.ndarray:
    """(configurations, 4) errors of rates that were fitted without those of the same key."""
    errors = []
    for each in measured:
        others = [other for other in measured if key(other) != key(each)]
        errors.append(lookup_errors([each], fit_lookup_rates(others, SHEET_RATES))[0])
    return np.array(errors)


def planner_errors(shared: Path) -> list[float]:
    """The largest relative error of each row of TorchRec's own estimates."""
    return [
        max(
            abs(ours[name] - float(row[name])) / max(abs(float(row[name])), 1e-300) for name in ours
        )
        for row, ours in golden_rows(shared)
    ]


def measured_lookups(shared: Path) -> tuple[MeasuredLookups, ...]:
    """The lookups that were measured on an H100."""
    name = "nvidia_dynamicemb_h100_benchmark_results.json"
    return tuple(read_measured_lookups(shared / "dlrm" / "bench" / name))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    shared = parser.parse_args().shared
    worst = planner_errors(shared)
    print(f"TorchRec's own estimates: {len(worst)} rows, worst relative error {max(worst):.1e}\n")
    measured = measured_lookups(shared)
    print(f"{configurations(measured)}\n\n{medians(measured)}")
    return 0


def configurations(measured: Sequence[MeasuredLookups]) -> str:
    """A row for each configuration: measured times, and how far both modes are off."""
    default, peaks = (planner_ratios(measured, each) for each in (Topology(1, 1), H100_PEAKS))
    errors = lookup_errors(measured, H100_RATES)
    rows = [
        [
            each.label.split("D128_")[1].replace("_pool=none", ""),
            *(number(getattr(each, f"{name}_ms")) for name in TIMES[:2]),
            *(f"{value:.1f}" for value in (*default[index, :2], *peaks[index, :2])),
            *(f"{value:+.1%}" for value in errors[index]),
        ]
        for index, each in enumerate(measured)
    ]
    ratios = [f"{who}, {name}" for who in ("default", "H100") for name in TIMES[:2]]
    return markdown(["", "forward ms", "backward ms", *ratios, *TIMES], rows)


def medians(measured: Sequence[MeasuredLookups]) -> str:
    """A row for each mode, and for what was left out of the fit: median and worst errors."""
    off = [planner_ratios(measured, each) - 1 for each in (Topology(1, 1), H100_PEAKS)]
    rows = [
        ("TorchRec, its constants", off[0]),
        ("TorchRec, H100 peaks", off[1]),
        ("corrected, round shares of the peaks", lookup_errors(measured, SHEET_RATES)),
        ("corrected, H100_RATES", lookup_errors(measured, H100_RATES)),
        *(
            (f"corrected, without {what}", held_out_errors(measured, LEFT_OUT[what]))
            for what in LEFT_OUT
        ),
    ]
    percent = partial("{:.1%}".format)
    table = [
        [
            name,
            percent(np.median(np.abs(errors))),
            *map(percent, np.median(np.abs(errors), axis=0)),
            percent(np.abs(errors).max()),
        ]
        for name, errors in rows
    ]
    return markdown(["median error", "all", *TIMES, "worst"], table)


if __name__ == "__main__":
    sys.exit(main())
