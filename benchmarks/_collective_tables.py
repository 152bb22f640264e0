"""Collectives as the model says beside collectives as measured, on sizes that were not fitted."""

import gzip
import json
from collections.abc import Sequence
from csv import DictReader
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _tables import markdown, mean, number

from jaxperf.config import load_hardware
from jaxperf.cost._collectives import (
    CollectiveParameters,
    collective_us,
    default_collective_parameters,
)
from jaxperf.cost._device import Device, device_of
from jaxperf.cost._work import (
    COLLECTIVE_OPERATIONS,
    PRECISIONS,
    Work,
    WorkKind,
    select_work,
    unknown_work,
)

NCCL_TABLES = {
    "a100_sxm/comm/nccl/2.27.3": "a100",
    "h100_sxm/comm/nccl/2.29.2": "h100",
    "h200_sxm/comm/nccl/2.29.2": "h200",
    "b200_sxm/comm/nccl/2.29.2": "b200",
    "b300_sxm/comm/nccl/2.29.2": "b200",
    "gb200/comm/nccl/2.29.2": "b200",
    "gb300/comm/nccl/2.29.2": "b200",
    "l40s/comm/nccl/2.27.3": "a100",
}
"""Hardware file whose numbers stand for the machine of each table."""
CUSTOM_TABLES = {
    ("a100_sxm/comm/vllm/0.14.0", "vLLM_custom_graph"): "a100",
    ("h100_sxm/comm/vllm/0.24.0", "vLLM_custom_graph"): "h100",
    ("h100_sxm/comm/sglang/0.5.14", "SGLang_CustomAllReduce_graph"): "h100",
    ("h100_sxm/comm/trtllm/1.3.0rc20", "TRTLLM"): "h100",
    ("h200_sxm/comm/trtllm/1.3.0rc20", "TRTLLM"): "h200",
    ("b200_sxm/comm/trtllm/1.3.0rc20", "TRTLLM"): "b200",
}
"""All-reduces that are not NCCL's: table, kernel, and the hardware file."""
MEASURED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
HALF = "every second size fitted"
_PRIOR = 0.25
_ROBUST = 0.03
_STEPS = 800


@dataclass(frozen=True, eq=False)
class Measured:
    """Collectives and how long they took."""

    work: Work
    time_us: np.ndarray


@dataclass(frozen=True)
class Row:
    """Mean absolute error in percent of each of `MEASURED`."""

    name: str
    what: str
    error_percent: tuple[float, ...]


def load_nccl(path: Path) -> Measured:
    """A table of aiconfigurator; repeated measurements become their median."""
    times: dict[tuple[int, int, float, float], list[float]] = {}
    for row in _rows(path):
        precision = {"half": "fp16", "int8": "int8"}[row["nccl_dtype"]]
        operation = row["op_name"].replace("alltoall", "all_to_all")
        key = (
            COLLECTIVE_OPERATIONS.index(operation),
            PRECISIONS.index(precision),
            # Sizes are in elements of the whole buffer.
            float(row["message_size"]) * (2 if precision == "fp16" else 1),
            float(row["num_gpus"]),
        )
        times.setdefault(key, []).append(float(row["latency"]) * 1e3)
    operation, precision, size, ranks = np.array(sorted(times)).T
    time_us = np.array([np.median(times[key]) for key in sorted(times)])
    return Measured(_work(operation, size, ranks, precision=precision), time_us)


def load_custom(path: Path, kernel: str) -> Measured:
    """An all-reduce of an inference engine."""
    rows = [row for row in _rows(path) if row["kernel_source"] == kernel]
    size = np.array([float(row["message_size"]) * 2 for row in rows])
    ranks = np.array([float(row["num_gpus"]) for row in rows])
    time_us = np.array([float(row["latency"]) * 1e3 for row in rows])
    return Measured(_work(np.zeros(len(rows)), size, ranks), time_us)


def load_vidur(path: Path) -> Measured:
    """All-reduces or sends of Vidur, in one node and across two."""
    name = path.name.partition(".")[0]
    rows = [row for row in _rows(path) if row["rank"] == "0"]
    time_us = np.array([float(row[f"time_stats.{name}.median"]) * 1e3 for row in rows])
    ranks, local = (
        np.array([float(row[key]) for row in rows]) for key in ("num_workers", "devices_per_node")
    )
    stride = np.where(ranks > local, 8 / local, 1.0)
    size = np.array([float(row["size"]) for row in rows])
    operation = COLLECTIVE_OPERATIONS.index(name.replace("send_recv", "send_receive"))
    work = _work(np.full(len(rows), operation), size, ranks, stride)
    return _select(Measured(work, time_us), time_us > 0)


def load_galvatron(path: Path) -> Measured:
    """Times of collectives in a node of eight."""
    known = json.loads(path.read_text())
    operation, ranks, size = [], [], []
    for key in known:
        name, _, members, mebibytes, _ = key.split("_")
        operation.append(0 if name == "allreduce" else COLLECTIVE_OPERATIONS.index("all_to_all"))
        ranks.append(float(members))
        size.append(float(mebibytes.removesuffix("MB")) * 2**20)
    time_us = np.array(list(known.values())) * 1e3
    return Measured(_work(np.array(operation), np.array(size), np.array(ranks)), time_us)


def load_nnscaler(folder: Path) -> Measured:
    """Times of collectives in a node of MI200."""
    operation, ranks, size, time_us = [], [], [], []
    for members in (2, 4, 8, 16):
        for name, table in json.loads((folder / f"intra_{members}.json").read_text()).items():
            for mebibytes, seconds in zip(*table, strict=True):
                operation.append(COLLECTIVE_OPERATIONS.index(name.replace(" ", "_")))
                ranks.append(float(members))
                size.append(mebibytes * 2**20)
                time_us.append(seconds * 1e6)
    work = _work(*(np.array(column) for column in (operation, size, ranks)))
    return Measured(work, np.array(time_us))


def fit(start: CollectiveParameters, device: Device, measured: Measured) -> CollectiveParameters:
    """Parameters that make log(model / measured) small, near where they start."""
    # `jaxperf.calibrate.fit_factors` compiles for 8 s at each fit, twice what this takes.
    origin = jax.tree.map(lambda leaf: jnp.log(jnp.asarray(leaf, float)), start)

    def loss(logs):
        model_us = collective_us(jax.tree.map(jnp.exp, logs), device, measured.work)
        error = jnp.log(model_us / measured.time_us) / _ROBUST
        moved = jax.tree.map(lambda a, b: jnp.sum((a - b) ** 2), logs, origin)
        prior = jax.tree.reduce(jnp.add, moved) / _PRIOR**2 / 2
        return jnp.sum(jnp.sqrt(1 + error**2) - 1) + prior

    optimizer = optax.adam(optax.cosine_decay_schedule(0.03, _STEPS))

    def step(carry, _):
        logs, state = carry
        updates, state = optimizer.update(jax.grad(loss)(logs), state)
        return (optax.apply_updates(logs, updates), state), None

    @jax.jit
    def descend(logs):
        return jax.lax.scan(step, (logs, optimizer.init(logs)), length=_STEPS)[0][0]

    return jax.tree.map(lambda leaf: np.exp(np.asarray(leaf)), descend(origin))


def errors_percent(
    parameters: CollectiveParameters, device: Device, measured: Measured
) -> np.ndarray:
    """(rows,) absolute error of each."""
    model_us = np.asarray(collective_us(parameters, device, measured.work))
    return 100 * np.abs(model_us / measured.time_us - 1)


def measure_nccl(name: str, path: Path, hardware: str, *, parts: Sequence[str] = ()) -> list[Row]:
    """Defaults; fits of half and of a third of the sizes; and extrapolations: all, or some."""
    measured, device = load_nccl(path), device_of(load_hardware(hardware))
    power = np.round(np.log2(measured.work.message_bytes)).astype(int)
    eight = measured.work.ranks == 8
    masks = {
        HALF: power % 2 == 1,
        "the other sizes fitted": power % 2 == 0,
        "a random half fitted": np.random.default_rng(0).random(len(power)) < 0.5,
        "every third size fitted": power % 3 == 0,
        "2 and 4 GPUs fitted, 8 asked": ~eight,
        "below 32 MiB fitted, above asked": power < 25,
    }
    start = default_collective_parameters()
    rows = [_row(name, "nothing fitted", start, device, measured)]
    for what, part in masks.items():
        if part.all() or (parts and what not in parts):
            continue
        fitted = fit(start, device, _select(measured, part))
        rows.append(_row(name, what, fitted, device, _select(measured, ~part)))
    return rows


def measure_custom(name: str, path: Path, kernel: str, hardware: str) -> list[Row]:
    """All-reduces of inference engines: nothing fitted, and half of the sizes."""
    measured, device = load_custom(path, kernel), device_of(load_hardware(hardware))
    part = np.round(np.log2(measured.work.message_bytes)).astype(int) % 2 == 1
    start = default_collective_parameters()
    fitted = fit(start, device, _select(measured, part))
    return [
        _row(name, "nothing fitted", start, device, measured),
        _row(name, HALF, fitted, device, _select(measured, ~part)),
    ]


def measure_nodes(path: Path, device: Device) -> list[tuple[str, int, float, float]]:
    """Vidur above 4 MB by ranks and ranks a node: rows, mean absolute and mean signed error."""
    measured = load_vidur(path)
    measured = _select(measured, measured.work.message_bytes > 4e6)
    model_us = np.asarray(collective_us(default_collective_parameters(), device, measured.work))
    error = 100 * (model_us / measured.time_us - 1)
    local = np.minimum(8 / measured.work.stride, measured.work.ranks)
    found = []
    for ranks, members in sorted(set(zip(measured.work.ranks, local, strict=True))):
        rows = (measured.work.ranks == ranks) & (local == members)
        name = f"{ranks:.0f} ranks, {members:.0f} a node"
        size, signed = float(np.abs(error[rows]).mean()), float(error[rows].mean())
        found.append((name, int(rows.sum()), size, signed))
    return found


def table(rows: Sequence[Row]) -> str:
    """One line a row, with the mean over collectives."""
    lines = [
        [
            row.name,
            row.what,
            *(number(error, 1) for error in row.error_percent),
            number(mean(row.error_percent), 1),
        ]
        for row in rows
    ]
    return markdown(["table", "rows fitted", *MEASURED, "mean"], lines)


def _row(name, what, parameters, device, measured) -> Row:
    error = errors_percent(parameters, device, measured)
    masks = [measured.work.operation == COLLECTIVE_OPERATIONS.index(o) for o in MEASURED]
    return Row(name, what, tuple(mean(error[mask]) for mask in masks))


def _select(measured: Measured, rows: np.ndarray) -> Measured:
    return Measured(select_work(measured.work, rows), measured.time_us[rows])


def _work(operation, size, ranks, stride=None, precision=None) -> Work:
    rows = len(size)
    precision = PRECISIONS.index("fp16") if precision is None else precision
    return replace(
        unknown_work(rows),
        kind=np.full(rows, WorkKind.COLLECTIVE, np.int8),
        precision=np.broadcast_to(precision, rows).astype(np.int8),
        operation=operation.astype(np.int8),
        message_bytes=size,
        ranks=ranks,
        stride=np.ones(rows) if stride is None else stride,
    )


def _rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt") as file:
        return list(DictReader(file))
