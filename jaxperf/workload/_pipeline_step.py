"""The formulae of a step: passes of stages, their pipeline, and what messages it does not hide."""

from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxperf.cost import CostModel
from jaxperf.workload._step_parameters import StepParameters, pass_us
from jaxperf.workload._step_table import EMBEDDING, SCHEDULES, StepRows


@dataclass(frozen=True, eq=False)
class StepTime:
    """A step and its parts, which add up to it, as the slowest stage sees it. Each (rows,) or ().

    Attributes:
        step_us: the step.
        computation_us: kernels of forward and backward passes.
        communication_us: tensor, context and expert parallel messages and gathered weights within
            passes, as far as they are not hidden.
        host_us: gaps between kernels, passes that wait for the host, and its work once a step.
        bubble_us: waiting for other stages.
        pipeline_us: messages between stages, not hidden.
        data_us: gradients and weights between replicas, not hidden.
        optimizer_us: norm of the gradients, and the update.
        straggler_us: waiting for the slowest node.
    """

    step_us: Array
    computation_us: Array
    communication_us: Array
    host_us: Array
    bubble_us: Array
    pipeline_us: Array
    data_us: Array
    optimizer_us: Array
    straggler_us: Array


jax.tree_util.register_dataclass(StepTime, [f.name for f in fields(StepTime)], [])


def step_of_sums(
    rows: StepRows, sums: dict[str, Array], model: CostModel, parameters: StepParameters
) -> StepTime:
    """The step of each job from the sums of its pieces.

    Args:
        rows: of a table.
        sums: microseconds of each job's parts, see `PART_SHAPES`; of stages (rows, stages).
        model: the machine.
        parameters: of framework and cluster.

    Returns:
        The steps, each part (rows,).
    """
    batches = jnp.asarray(rows.micro_batches)
    held = np.arange(rows.blocks.shape[1], dtype=float)[None, :] < rows.stages[:, None]
    each = {
        name: jnp.where(held[:, :, None], values, 0.0)
        for name, values in _stage_passes(rows, sums, parameters).items()
    }
    waiting = each["device"] - each["kernels"]
    forward, backward = (each["pass"][..., way] for way in range(2))
    weights = each["of_weights"].sum(-1)
    slowest = jnp.argmax(jnp.where(held, forward + backward, -1.0), axis=1)

    def of_slowest(values: Array) -> Array:
        return jnp.take_along_axis(values, slowest[:, None], axis=1)[:, 0]

    message_us = sums["stage"] + jnp.where(rows.stages > 1, parameters.message_us, 0.0)
    hideable_us = jnp.minimum(each["exchanges"], each["kernels"]).sum(-1)
    hidden = jnp.asarray(parameters.overlap_share * hideable_us)
    passes = _Passes(forward, backward, weights, hidden, held, of_slowest)
    steady_us, total_us = _pipeline(rows, batches, passes, jnp.zeros_like(message_us))
    bubble_us = total_us - steady_us
    _, total_us = _pipeline(rows, batches, passes, message_us)
    pipeline_us = total_us - steady_us - bubble_us

    # The gradients of a stage are ready before those of the stages before it, which have a pass of
    # one chunk to do yet; and its weights may come later, as it waits for theirs.
    before_us, after_us = (
        jnp.cumsum(hop_us, axis=1) - hop_us
        for way in (forward, backward)
        for hop_us in [way / rows.virtual_stages[:, None] + message_us[:, None]]
    )
    share = rows.overlap_gradients[:, None] * parameters.overlap_share
    sent_us = _not_hidden(rows, batches, sums["gradients"], backward * share, parameters)
    end_us = total_us[:, None] - after_us + sent_us
    summed_us = jnp.max(jnp.where(held, end_us, -jnp.inf), axis=1) + sums["tied"]
    optimizer_us = sums["optimizer"].max(axis=1)
    share = rows.overlap_parameters[:, None] * parameters.overlap_share
    gathered_us = _not_hidden(rows, batches, sums["weights"], forward * share, parameters)
    gathered_us -= rows.overlap_parameters[:, None] * before_us
    gathered_us = jnp.maximum(gathered_us.max(axis=1), 0.0)

    nodes = jnp.maximum(rows.ranks / jnp.asarray(model.device.gpus_per_node), 1.0)
    alone_us = summed_us + optimizer_us + gathered_us + parameters.step_us
    straggler_us = alone_us * parameters.straggler_share * jnp.log2(nodes)
    computation_us = batches * of_slowest(each["kernels"].sum(-1))
    communication_us = batches * of_slowest(waiting.sum(-1))
    host_us = batches * of_slowest((each["pass"] - each["device"]).sum(-1)) + parameters.step_us
    # What dualpipe hides, it hides of the communication.
    communication_us += steady_us - batches * of_slowest(forward + backward)
    return StepTime(
        step_us=alone_us + straggler_us,
        computation_us=computation_us,
        communication_us=communication_us,
        host_us=host_us,
        bubble_us=bubble_us,
        pipeline_us=pipeline_us,
        data_us=summed_us - total_us + gathered_us,
        optimizer_us=optimizer_us,
        straggler_us=straggler_us,
    )


def _stage_passes(
    rows: StepRows, sums: dict[str, Array], parameters: StepParameters
) -> dict[str, Array]:
    """(rows, stages, 2) forward and backward pass of a micro-batch through each stage."""

    def of_stages(values) -> Array:
        return jnp.einsum("rsb,rbw->rsw", rows.blocks, values)

    each = {name: of_stages(sums[name]) for name in ("kernels", "of_weights", "exchanges")}
    device = each["kernels"] + of_stages(sums["messages"]) + _gathered(rows, sums, parameters)
    kernels, collectives = of_stages(rows.kernels), of_stages(rows.collectives)
    return {**each, "device": device, "pass": pass_us(parameters, device, kernels, collectives)}


GATHERED = np.array([[[1.0, 1.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]])
SCATTERED = np.array([[[0.0, 1.0]]])
"""By kind of block, in which pass its weights are gathered and its gradients scattered."""


def _gathered(rows: StepRows, sums: dict[str, Array], parameters: StepParameters) -> Array:
    """(rows, stages, 2) weights gathered and gradients scattered unit by unit, not hidden.

    Those of a unit go beside the layer before or after it. What a pass used last is not gathered
    again: the output layer backward, the embedding forward. As backward turns to forward only the
    embedding is beside the gradients of the first layers and the gather of the next ones.
    """
    gradients, weights = rows.overlap_gradients[:, None], rows.overlap_parameters[:, None]
    gather = sums["gathers"][:, :, None] * GATHERED
    scatter = sums["scatters"][:, :, None] * SCATTERED
    pass_us = sums["kernels"] + sums["messages"]
    layer_us = pass_us[:, :EMBEDDING]
    beside_us = jnp.concatenate([layer_us, *[layer_us.max(axis=1, keepdims=True)] * 2], axis=1)
    hidden = jnp.minimum(gather * weights[..., None] + scatter * gradients[..., None], beside_us)
    exposed = jnp.einsum("rsb,rbw->rsw", rows.blocks, gather + scatter)
    hidden = jnp.einsum("rsb,rbw->rsw", rows.blocks, hidden)

    first = rows.blocks[:, :, EMBEDDING]
    scattered, gathered = (
        sums[name][:, :EMBEDDING].max(axis=1, keepdims=True) for name in ("scatters", "gathers")
    )
    embedded = sums["scatters"][:, EMBEDDING, None]
    turn = gradients * (scattered + first * embedded) + weights * first * gathered
    embedding_us = pass_us[:, EMBEDDING].sum(axis=1)[:, None]
    turn = jnp.maximum(turn - first * embedding_us, 0.0)
    hidden -= jnp.minimum(turn[:, :, None] / 2, hidden)
    kept = parameters.overlap_share * (1.0 - parameters.overlap_slowdown)
    return exposed - kept * hidden


@dataclass(frozen=True, eq=False)
class _Passes:
    """(rows, stages) times of passes; `of_slowest` picks (rows,) the stage that takes longest."""

    forward: Array
    backward: Array
    weights: Array
    hidden: Array
    held: Any
    of_slowest: Any


def _pipeline(
    rows: StepRows, batches: Array, passes: _Passes, message_us: Array
) -> tuple[Array, Array]:
    """(rows,) all passes of the slowest stage, and the pipeline, by the schedule's formula."""
    both = passes.forward + passes.backward
    slowest_us = passes.of_slowest(both)
    others_us = both.sum(axis=1) - slowest_us
    # Of the weight parts that the slowest stage puts off, the stages before it fill their waiting.
    weights_us = passes.of_slowest(passes.weights)
    inputs_us = passes.backward - passes.weights
    forward_us, back_us = (
        way.sum(axis=1) - passes.of_slowest(way) for way in (passes.forward, inputs_us)
    )
    filled_us = rows.stages * weights_us - passes.weights[:, 0]
    split_us = forward_us + jnp.maximum(back_us - filled_us, 0.0)
    pair_us = jnp.max(jnp.where(passes.held, both - passes.hidden, -jnp.inf), axis=1)
    tail_us = pair_us + jnp.sum(passes.backward - 3.0 * passes.weights, axis=1) / rows.stages
    once_us, apart_us = (
        sum(reduce(way, axis=1) for way in (passes.forward, passes.backward))
        for reduce in (jnp.sum, jnp.max)
    )
    others = rows.stages - 1
    again = jnp.minimum(_again(batches, rows.stages), others)
    steady_us = batches * slowest_us
    total_us = _one_f_one_b(rows, batches, passes, message_us)
    for name, steady, total, messages in (
        ("gpipe", steady_us, once_us + (batches - 1) * apart_us, 2 * others),
        (
            "interleaved",
            steady_us,
            steady_us + others_us / rows.virtual_stages,
            2 * (rows.stages * rows.virtual_stages - 1),
        ),
        ("zero-bubble", steady_us, steady_us + split_us, 2 * (others + again)),
        (
            "dualpipe",
            batches * pair_us,
            batches * pair_us + (rows.stages / 2 - 1) * tail_us,
            others * (batches / rows.stages + 1),
        ),
    ):
        here = rows.schedule == SCHEDULES.index(name)
        steady_us = jnp.where(here, steady, steady_us)
        total_us = jnp.where(here, total + messages * message_us, total_us)
    return steady_us, total_us


def _one_f_one_b(rows: StepRows, batches: Array, passes: _Passes, message_us: Array) -> Array:
    """(rows,) the longest path through 1F1B.

    It goes to a stage, does that stage's m forward and backward passes, and comes back. On the way
    it may follow a micro-batch to the last stage and back, instead of the n - 1 forward passes of
    the warm-up, or of the n - 1 backward passes at the end, or again and again of n - 1 of both,
    with n the stages from this one on.
    """
    held, batches, message_us = passes.held, batches[:, None], message_us[:, None]
    both = passes.forward + passes.backward
    hop_us = jnp.where(held, both + 2 * message_us, 0.0)
    to_us = jnp.cumsum(hop_us, axis=1) - hop_us
    place = np.arange(held.shape[1], dtype=float)[None, :]
    left = jnp.where(held, rows.stages[:, None] - place, 1.0)
    beyond_us = both.sum(axis=1, keepdims=True) - jnp.cumsum(both, axis=1)
    beyond_us = beyond_us + 2 * (left - 1) * message_us
    skipped = jnp.minimum(left, batches) - 1
    begin_us, end_us = (beyond_us - skipped * way for way in (passes.forward, passes.backward))
    between_us = jnp.maximum(beyond_us - (left - 1) * both, 0.0)
    # With few micro-batches warm-up and end are one.
    detour_us = jnp.where(
        batches > left,
        jnp.maximum(begin_us, 0.0) + jnp.maximum(end_us, 0.0),
        jnp.maximum(jnp.maximum(begin_us, end_us), 0.0),
    )
    times = jnp.maximum(_again(batches, left) / jnp.maximum(left - 1, 1.0) - 1, 0.0)
    path_us = to_us + batches * both + detour_us + times * between_us
    return jnp.max(jnp.where(held, path_us, -jnp.inf), axis=1)


def _again(batches: Array, stages: Array) -> Array:
    """How many of the micro-batches but the first fill stages that another has emptied."""
    return (batches - 1) - jnp.ceil((batches - 1) / stages)


def _not_hidden(
    rows: StepRows, batches: Array, bucket_us: Array, pass_us: Array, parameters: StepParameters
) -> Array:
    """(rows, stages) what of several messages, ready one after another, is left after the passes.

    The gradients of a chunk are whole in the last of its passes. Of v chunks on a stage, the last p
    micro-batches pass one after another (Narayanan et al., arXiv 2104.04473, figure 4): all but the
    last one leave p passes of a v-th each to hide what is ready. The weights that are gathered
    before their first use are the same the other way round.
    """
    count, chunks = rows.buckets, rows.virtual_stages
    together = jnp.minimum(rows.stages, batches)

    def late_us(message):
        """With how much delay the last ends, of all from this one on, which was ready in time."""
        place = message * chunks / count
        before = jnp.ceil(place) - 1.0
        after = ((chunks - before - 1.0) * together + before + 1.0 - place) / chunks
        return bucket_us * (count - message + 1)[:, None] - pass_us * after[:, None]

    # In between there are none that wait longer: the rest of a chunk follows at once.
    of_last_chunk = jnp.floor(count * (chunks - 1) / chunks) + 1.0
    left_us = jnp.maximum(late_us(jnp.ones_like(count)), late_us(of_last_chunk))
    left_us = jnp.maximum(left_us, bucket_us)
    all_us = bucket_us * count[:, None]
    left_us = jnp.where(pass_us > 0, left_us, all_us)
    return left_us + parameters.overlap_slowdown * (all_us - left_us)
