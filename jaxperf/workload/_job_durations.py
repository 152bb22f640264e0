"""How long each task of an iteration takes: its kernel or message, and what comes on top.

The same numbers as in the closed form (`_closed_form.py`), each where it acts:

- A stream is idle for `kernel_gap_us` after each task of a pass.
- The host launches each kernel and each collective of a pass, and works besides; a pass does not
  end before it.
- A message between stages takes `message_us` besides its transfer.
- Where kernels and messages of a rank run at the same time, both take longer, so that only
  `overlap_share (1 - overlap_slowdown)` of that time is gained. The time is that of a replay in
  which they do not.
- The host ends the step.
- Everything takes longer by `straggler_share` for each doubling of the nodes: the timeline is that
  of the slowest of them.
"""

from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxperf.compiled import Program, compile_program
from jaxperf.config import Job
from jaxperf.cost import CostModel, Work, cost_us
from jaxperf.replay import start_times_us
from jaxperf.workload._build import build_job_graph
from jaxperf.workload._hosted_graph import HostedGraph, add_host
from jaxperf.workload._pack import pack_traced_work
from jaxperf.workload._step_parameters import StepParameters
from jaxperf.workload._table import job_pieces


@dataclass(frozen=True, eq=False)
class PreparedJob:
    """A job whose iteration can be replayed for many machines and sizes.

    Attributes:
        hosted: its graph.
        program: the graph, compiled.
    """

    hosted: HostedGraph
    program: Program


@dataclass(frozen=True, eq=False)
class JobTimes:
    """When everything happens in an iteration.

    Attributes:
        step_us: () the iteration, to the end of the last rank.
        start_us, duration_us: (tasks,) of `HostedGraph.graph`.
        lag_us: (dependencies,) of it.
    """

    step_us: Array
    start_us: Array
    duration_us: Array
    lag_us: Array


@dataclass(frozen=True, eq=False)
class _Tables:
    """What of a prepared job the compiled function reads; see `HostedGraph`."""

    row_of_task: np.ndarray
    is_stage_message: np.ndarray
    kernels: np.ndarray
    collectives: np.ndarray
    micro_batches: np.ndarray
    has_gap: np.ndarray
    kernels_beside: tuple[np.ndarray, np.ndarray]
    messages_beside: tuple[np.ndarray, np.ndarray]


_KINDS = ("kind", "task_class", "precision", "operation")

for _noun in (JobTimes, _Tables):
    jax.tree_util.register_dataclass(_noun, [f.name for f in fields(_noun)], [])


def prepare_job(job: Job) -> PreparedJob:
    """Build and compile the graph of one iteration of a job.

    Args:
        job: the job.

    Returns:
        What `job_times` replays.

    Raises:
        ConfigError: as `build_job_graph`.
    """
    hosted = add_host(build_job_graph(job))
    return PreparedJob(hosted, compile_program(hosted.graph))


def job_times(
    prepared: PreparedJob,
    model: CostModel,
    parameters: StepParameters,
    job: Job | None = None,
) -> JobTimes:
    """Replay one iteration.

    Differentiable, in reverse mode, in every leaf of the model and the parameters, and in the
    sizes of a job.

    Args:
        prepared: of `prepare_job`.
        model: the machine.
        parameters: of framework and cluster.
        job: the job with other sizes, or another number of replicas, which may be jax scalars; as
            it was prepared by default.

    Returns:
        The times.

    Example:
        >>> from jaxperf.config import load_hardware
        >>> from jaxperf.cost import default_model
        >>> from jaxperf.workload._step_parameters import default_step_parameters
        >>> prepared = prepare_job(Job(layers=2, hidden_size=512, attention_heads=8,
        ...     vocabulary_size=1000, sequence_length=512))
        >>> model = default_model(load_hardware("h100"))
        >>> bool(10e3 < job_times(prepared, model, default_step_parameters()).step_us < 20e3)
        True
    """
    hosted = prepared.hosted
    work = hosted.built.work
    if job is not None:
        work = pack_traced_work(job_pieces(job, hosted.built.layout).pieces)
    kinds = tuple((name, tuple(np.asarray(getattr(work, name)).tolist())) for name in _KINDS)
    sizes: dict[str, Any] = {
        f.name: getattr(work, f.name) for f in fields(Work) if f.name not in _KINDS
    }
    price_us = _price_us(kinds, sizes, model)
    ranks = (job or hosted.built.job).world_size
    nodes = jnp.maximum(ranks / jnp.asarray(model.device.gpus_per_node), 1.0)
    columns = {f.name: getattr(hosted, f.name) for f in fields(_Tables)}
    tables, program = _Tables(**columns), prepared.program
    # Compiled apart, so that the replay is compiled once for both times.
    duration_us, lag_us = _apart(tables, price_us, parameters, nodes)
    start_us = start_times_us(program, duration_us, lag_us)
    duration_us = _lengthened(tables, start_us, duration_us, parameters)
    start_us = start_times_us(program, duration_us, lag_us)
    return JobTimes(jnp.max(start_us + duration_us), start_us, duration_us, lag_us)


@partial(jax.jit, static_argnums=0)
def _price_us(
    kinds: tuple[tuple[str, tuple[int, ...]], ...], sizes: dict[str, Any], model: CostModel
) -> Array:
    """Times of pieces; compiled once for all jobs whose pieces are of the same kinds."""
    columns: dict[str, Any] = {name: np.array(column, np.int8) for name, column in kinds}
    return cost_us(model, Work(**columns, **sizes))


@jax.jit
def _apart(
    tables: _Tables, price_us: Array, parameters: StepParameters, nodes: ArrayLike
) -> tuple[Array, Array]:
    """Durations and lags of a world in which no kernel is slower beside a message."""
    slowest = 1.0 + parameters.straggler_share * jnp.log2(nodes)
    host_us = (
        tables.kernels * jnp.asarray(parameters.launch_us)
        + tables.collectives * jnp.asarray(parameters.collective_launch_us)
        + tables.micro_batches * jnp.asarray(parameters.micro_batch_us) / 2
    )
    rows_us = jnp.concatenate(
        [
            price_us + jnp.where(tables.is_stage_message, parameters.message_us, 0.0),
            host_us,
            jnp.asarray(parameters.step_us)[None],
        ]
    )
    lag_us = jnp.where(tables.has_gap, slowest * parameters.kernel_gap_us, 0.0)
    return (jnp.asarray(slowest) * rows_us)[tables.row_of_task], jnp.asarray(lag_us)


@jax.jit
def _lengthened(
    tables: _Tables, start_us: Array, duration_us: Array, parameters: StepParameters
) -> Array:
    """Durations with what kernels and messages lose that run at the same time."""
    lost = 1.0 - parameters.overlap_share * (1.0 - jnp.asarray(parameters.overlap_slowdown))
    # One axis for all streams of all ranks, one after another.
    apart_us = 2.0 * jax.lax.stop_gradient(jnp.max(start_us + duration_us)) + 1.0
    kernels, messages = (
        _Spans(
            jnp.asarray(tasks),
            start_us[tasks] + apart_us * place.astype(start_us.dtype),
            duration_us[tasks],
        )
        for tasks, place in (tables.kernels_beside, tables.messages_beside)
    )
    if not len(messages.tasks):
        return duration_us
    for one, other in ((kernels, messages), (messages, kernels)):
        both_us = _busy_us(other, jnp.stack([one.begin_us, one.begin_us + one.span_us]))
        duration_us = duration_us.at[one.tasks].add(lost * (both_us[1] - both_us[0]))
    return duration_us


class _Spans(NamedTuple):
    """Tasks that follow each other on an axis of time: (n,) each."""

    tasks: Array
    begin_us: Array
    span_us: Array


def _busy_us(spans: _Spans, time_us: Array) -> Array:
    """How long any of them has run up to some moments."""
    # A processor adds in turn as fast as it reads, and compiles that at once.
    add = lambda done, span: (done + span, done)
    _, before_us = jax.lax.scan(add, 0.0 * spans.span_us[0], spans.span_us)
    last = jnp.searchsorted(spans.begin_us, time_us, side="right") - 1
    in_last_us = jnp.clip(time_us - spans.begin_us[last], 0.0, spans.span_us[last])
    return jnp.where(last >= 0, before_us[last] + in_last_us, 0.0)
