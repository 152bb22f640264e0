"""Kernel models beside measured tables: as they come, and fitted to a few shapes.

The tables are those of `groundtruth/aiconfigurator`: matrix multiplies on four GPUs, and causal
attention on H100; streams are those of `groundtruth/neusight`. `docs/cost.md` says what the columns
mean.
"""

import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _tables import markdown, number
from jax.flatten_util import ravel_pytree

from jaxperf.calibrate._optimise import PRIOR
from jaxperf.config import load_hardware
from jaxperf.cost import (
    PRECISIONS,
    CostModel,
    Work,
    attention_work,
    cost_us,
    default_model,
    matmul_work,
    select_work,
)
from jaxperf.cost._attention import attention_us
from jaxperf.cost._matmul import matmul_us
from jaxperf.cost._roofline import default_memory_parameters
from jaxperf.graph import TaskClass
from jaxperf.replay import double_precision

GPUS = ("a100", "h100", "h200", "b200")
SHAPES = 200
"""How many the models are fitted to."""
SEEDS = 5
_PRECISIONS = {"bfloat16": "bf16", "fp8": "fp8", "nvfp4": "fp4"}
_LARGE_FLOPS, _LARGE_ROWS = 2e9, 1024
_FIRST_SPREAD, _LEAST_SPREAD, _HUBER, _ITERATIONS = 0.2, 0.005, 2.0, 60
_MODELS: dict[str, Callable] = {"matmul": matmul_us, "attention": attention_us}
_STREAMS = {
    "elem": TaskClass.ELEMENTWISE,
    "softmax": TaskClass.ELEMENTWISE,
    "ln": TaskClass.NORMALIZATION,
}
_FITTED_BELOW = 0.8
"""Quantile of the operations below which shapes are fitted, and above which they are tested."""


@dataclass(frozen=True)
class Errors:
    """Mean absolute errors in percent: over all shapes, and over the large ones."""

    all: float
    large: float


@dataclass(frozen=True)
class Row:
    """One table of one GPU."""

    name: str
    shapes: int
    light: Errors
    roofline: Errors
    default: Errors
    fitted: Errors
    beyond: float
    neighbours: Errors


def measure_matmul(shared: Path, gpu: str, dtype: str) -> Row | None:
    """All shapes of one type on one GPU; `None` where it has no such table."""
    columns = _gemm_table(shared, gpu, dtype)
    if columns is None:
        return None
    m, n, k, time_us = columns
    work = matmul_work(m, n, k, precision=_PRECISIONS[dtype])
    model = default_model(load_hardware(gpu))
    return _row(f"{gpu.upper()} {_PRECISIONS[dtype]}", model, work, time_us, "matmul")


def measure_other_matmuls(shared: Path) -> list[Row]:
    """fp32 on other GPUs and of other people: the model's form was not chosen on these."""
    folder = shared / "groundtruth/neusight"
    found = []
    for path in sorted((folder / "device_configs").glob("*.json")):
        description = json.loads(path.read_text())
        for operation in ("linear", "bmm"):
            every = _rows(folder / f"op_latency_test/{operation}.csv.gz")
            rows = [row for row in every if row["Device"] == description["Device"]]
            if len(rows) < 2 * SHAPES:
                continue
            names = ("M", "N", "K", "B", "Latency")
            m, n, k, batch, time_ms = (np.array([float(row[x]) for row in rows]) for x in names)
            work = matmul_work(m, n, k, batch=batch, precision="fp32")
            name = f"{description['Device']} {operation}"
            model = _described(description)
            found.append(_row(name, model, work, time_ms * 1e3, "matmul"))
    return found


def _described(description: dict) -> CostModel:
    """The default model of a device with what NeuSight says of it: no tensor cores for fp32."""
    model = default_model(load_hardware("a100"))
    device = replace(
        model.device,
        peak_flops_per_s=np.full(len(PRECISIONS), description["SingleFLOPs"] * 1e9),
        memory_bytes_per_s=np.float64(description["Mem_Bw"] * 1e9),
        streaming_multiprocessors=np.float64(description["Num_Sm"]),
    )
    return replace(model, device=device)


def measure_attention(shared: Path, dtype: str = "bfloat16") -> Row:
    """Causal attention of whole sequences on H100."""
    path = next((shared / "groundtruth/aiconfigurator/h100_sxm").rglob("context_attention*.gz"))
    rows = [
        row
        for row in _rows(path)
        if row["attn_dtype"] == row["kv_cache_dtype"] == dtype
        and row["window_size"] == "0"
        and int(row["isl"]) > 1
    ]
    names = ("batch_size", "num_heads", "num_key_value_heads", "isl", "isl", "head_dim")
    sizes = [np.array([float(row[name]) for row in rows]) for name in names]
    work = attention_work(*sizes, causal=True, precision=_PRECISIONS[dtype])
    time_us = np.array([float(row["latency"]) for row in rows]) * 1e3
    model = default_model(load_hardware("h100"))
    return _row("H100 attention", model, work, time_us, "attention")


def fit(start: CostModel, work: Work, time_us: np.ndarray, part: str) -> CostModel:
    """A model whose parameters of one kind of work are fitted to measured times.

    The loss is that of `jaxperf.calibrate`; its minimum is compiled once for all tables.
    """
    # `jaxperf.calibrate.fit_factors` gets the same errors (6.87 % on H100, both), but compiles for
    # 7 s each time, and there are hundreds of fits of 0.03 s here.
    with double_precision():
        x, unravel = ravel_pytree(jax.tree.map(jnp.asarray, getattr(start, part)))
        log_factor, spread = jnp.zeros(len(x)), _FIRST_SPREAD
        for _ in range(3):
            log_factor, residual = _minimum(
                part, unravel, log_factor, x, start.device, work, time_us, spread
            )
            spread = max(1.4826 * float(jnp.median(jnp.abs(residual))), _LEAST_SPREAD)
        fitted = unravel(x * jnp.exp(log_factor))
        return replace(start, **{part: jax.tree.map(np.asarray, fitted)})


@partial(jax.jit, static_argnums=(0, 1))
def _minimum(part: str, unravel: Callable, begin, default, device, work, time_us, spread):
    """The most probable log factors, and the residuals there."""

    def residuals(log_factor):
        return jnp.log(
            _MODELS[part](unravel(default * jnp.exp(log_factor)), device, work) / time_us
        )

    def loss(log_factor):
        scaled = residuals(log_factor) / spread / _HUBER
        huber = _HUBER**2 * (jnp.sqrt(1.0 + scaled**2) - 1.0)
        return huber.sum() + jnp.sum((log_factor / PRIOR) ** 2) / 2.0

    solver = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(loss)

    def once(carried, _):
        at, state = carried
        value, gradient = value_and_grad(at, state=state)
        update, state = solver.update(
            gradient, state, at, value=value, grad=gradient, value_fn=loss
        )
        return (optax.apply_updates(at, update), state), None

    (end, _), _ = jax.lax.scan(once, (begin, solver.init(begin)), None, _ITERATIONS)
    return end, residuals(end)


def streams_table(shared: Path) -> str:
    """Streams: a latency and a bandwidth fitted to half of the sizes, tested on the others."""
    folder = shared / "groundtruth/neusight"
    lines = []
    for path in sorted((folder / "device_configs").glob("*.json")):
        device = json.loads(path.read_text())
        cells = []
        for name, task_class in _STREAMS.items():
            by_operation = defaultdict(list)
            for row in _rows(folder / f"op_latency_test/{name}.csv.gz"):
                if row["Device"] == device["Device"]:
                    by_operation[row["OPName"]].append(row)
            errors = [
                _stream_errors(operation, rows, device["Mem_Bw"] * 1e9, task_class)
                for operation, rows in by_operation.items()
            ]
            if errors:
                default, fitted = np.mean(errors, 0)
                cells.append(f"{number(default, 1)} / {number(fitted, 1)}")
        if cells:
            lines.append([device["Device"], *cells])
    return markdown(["not fitted / fitted", "element-wise", "softmax", "layer norm"], lines)


def _stream_errors(
    operation: str, rows: list[dict[str, str]], bytes_per_s: float, task_class: TaskClass
) -> tuple[float, float]:
    """Errors in percent of the default numbers, and of a latency and a share that were fitted."""
    elements = np.array([float(row["B"]) * float(row["H"]) for row in rows])
    time_us = np.array([float(row["Latency"]) for row in rows]) * 1e3
    operands = 3 if operation in {"add", "mul", "div", "pow"} else 2
    bytes_us = 4.0 * operands * elements / bytes_per_s * 1e6
    parameters = default_memory_parameters()
    latency_us, overhead = (
        float(np.asarray(leaf)[task_class]) for leaf in (parameters.latency_us, parameters.overhead)
    )
    terms = np.stack([np.ones(len(rows)), bytes_us], 1) / time_us[:, None]
    half = np.random.default_rng(0).permutation(len(rows)) < len(rows) // 2
    fitted, *_ = np.linalg.lstsq(terms[half], np.ones(half.sum()))
    default = np.array([latency_us, 1.0 + overhead])
    at_default, at_fitted = (np.abs(terms[~half] @ x - 1.0).mean() for x in (default, fitted))
    return 100.0 * float(at_default), 100.0 * float(at_fitted)


def table(rows: list[Row]) -> str:
    """One line a table: errors of all shapes and of the large ones, in percent."""
    columns = [
        "table",
        "shapes",
        "speed of light",
        "0.75 of the peak",
        "not fitted",
        f"fitted to {SHAPES}",
        "largest fifth, fitted below",
        "neighbours",
    ]
    return markdown(
        columns,
        [
            [
                row.name,
                f"{row.shapes:,}",
                *map(_cell, (row.light, row.roofline, row.default, row.fitted)),
                number(row.beyond, 1),
                _cell(row.neighbours),
            ]
            for row in rows
        ],
    )


def _cell(errors: Errors) -> str:
    return f"{number(errors.all, 1)} / {number(errors.large, 1)}"


def _row(name: str, model: CostModel, work: Work, time_us: np.ndarray, part: str) -> Row:
    large = (work.flops >= _LARGE_FLOPS) & (work.m >= _LARGE_ROWS)

    def errors(modelled_us: np.ndarray, tested: np.ndarray | slice = slice(None)) -> Errors:
        error = 100.0 * np.abs(modelled_us[tested] / time_us[tested] - 1.0)
        return Errors(float(error.mean()), float(error[large[tested]].mean()))

    fitted, beyond = [], []
    for seed in range(SEEDS):
        random = np.random.default_rng(seed)
        rows = random.choice(len(time_us), SHAPES, replace=False)
        tested = np.ones(len(time_us), bool)
        tested[rows] = False
        fitted.append(errors(_fitted_us(model, work, time_us, rows, part), tested))
        small = np.flatnonzero(work.flops <= np.quantile(work.flops, _FITTED_BELOW))
        rows = random.choice(small, SHAPES, replace=False)
        tested = work.flops > np.quantile(work.flops, _FITTED_BELOW)
        beyond.append(errors(_fitted_us(model, work, time_us, rows, part), tested).all)
    light_us, roofline_us = _rooflines_us(model, work)
    return Row(
        name=name,
        shapes=len(time_us),
        light=errors(light_us),
        roofline=errors(roofline_us),
        default=errors(_cost_us(model, work)),
        fitted=Errors(
            *(float(np.mean([getattr(e, f.name) for e in fitted])) for f in fields(Errors))
        ),
        beyond=float(np.mean(beyond)),
        neighbours=_neighbours(work, time_us, large),
    )


def _fitted_us(
    model: CostModel, work: Work, time_us: np.ndarray, rows: np.ndarray, part: str
) -> np.ndarray:
    return _cost_us(fit(model, select_work(work, rows), time_us[rows], part), work)


def _cost_us(model: CostModel, work: Work) -> np.ndarray:
    with double_precision():
        return np.asarray(cost_us(model, work))


def _rooflines_us(model: CostModel, work: Work) -> tuple[np.ndarray, np.ndarray]:
    """Both with no parameter: the speed of light, and PyTorch's share of the peak."""
    peak = np.asarray(model.device.peak_flops_per_s)[work.precision]
    flops_us = work.flops / peak * 1e6
    bytes_us = work.memory_bytes / np.asarray(model.device.memory_bytes_per_s) * 1e6
    return np.maximum(flops_us, bytes_us), np.maximum(flops_us / 0.75, bytes_us)


def _neighbours(work: Work, time_us: np.ndarray, large: np.ndarray) -> Errors:
    """How far apart the times of m and m + 1 rows are, over the root of two.

    That is noise, and changes of kernel from one shape to the next.
    """
    index = {key: i for i, key in enumerate(zip(work.m, work.n, work.k, strict=True))}
    pairs = np.array(
        [
            (i, index[m + 1, n, k])
            for (m, n, k), i in index.items()
            if m >= 16 and (m + 1, n, k) in index
        ],
        dtype=int,
    ).reshape(-1, 2)
    apart = 100.0 * np.abs(np.log(time_us[pairs[:, 1]] / time_us[pairs[:, 0]])) / np.sqrt(2.0)
    mean: Callable = lambda values: float(values.mean()) if len(values) else float("nan")
    return Errors(mean(apart), mean(apart[large[pairs[:, 0]]]))


def _gemm_table(shared: Path, gpu: str, dtype: str) -> tuple[np.ndarray, ...] | None:
    """m, n, k and us of one type."""
    path = next((shared / f"groundtruth/aiconfigurator/{gpu}_sxm/gemm").rglob("gemm_perf.csv.gz"))
    rows = [row for row in _rows(path) if row["gemm_dtype"] == dtype]
    if not rows:
        return None
    m, n, k, time_ms = (
        np.array([float(row[name]) for row in rows]) for name in ("m", "n", "k", "latency")
    )
    return m, n, k, time_ms * 1e3


def _rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
