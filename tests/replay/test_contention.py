"""Contention: what is fitted from kernels seen both ways, and what another overlap then does."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.graph import TaskClass, TaskKind
from jaxperf.replay import Timeline, communication_overlap_us, fit_contention
from jaxperf.replay._contention import (
    Contention,
    contended_durations_us,
    overlapped_us,
)
from tests.helpers import make_graph


def beside(slowdown, kernels=60, noise=0.01, seed=0, ranks=1):
    """Kernels of three shapes, every second one beside a collective over a part of its time."""
    rng = np.random.default_rng(seed)
    kind, task_class, trace, shape = [], [], [], []
    start, end = [], []
    for rank in range(ranks):
        now = 0.0
        for k in range(kernels):
            alone = [40.0, 90.0, 200.0][k % 3] * (1 + noise * rng.standard_normal())
            share = 0.0 if k % 2 else 1.0 if k % 4 else rng.uniform(0.6, 1.0)
            # The part of the work that is done beside communication takes longer.
            beside_us = alone * share / (1.0 - slowdown)
            finish = now + alone * (1.0 - share) + beside_us
            kind.append(TaskKind.KERNEL)
            task_class.append(TaskClass.GEMM)
            shape.append(k % 3)
            start.append(now)
            end.append(finish)
            trace.append(rank)
            if share:
                kind.append(TaskKind.COLLECTIVE)
                task_class.append(TaskClass.COMMUNICATION)
                shape.append(-1)
                start.append(now - 1.0)
                end.append(now + beside_us)
                trace.append(rank)
            now = finish + 10.0
    tasks = len(start)
    graph = replace(
        make_graph(
            np.zeros(tasks, int), [], release_ns={i: 0 for i in range(tasks)}, task_class=task_class
        ),
        ranks=tuple(range(ranks)),
        kind=np.array(kind, np.int8),
        trace=np.array(trace, np.int32),
    )
    return graph, Timeline(np.array(start), np.array(end)), np.array(shape)


@pytest.mark.parametrize("slowdown", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("ranks", [1, 3])
def test_the_slowdown_that_was_put_in_is_found(slowdown, ranks):
    contention = fit_contention(*beside(slowdown, ranks=ranks))
    assert contention is not None
    (found,) = contention.classes
    assert found.task_class == TaskClass.GEMM
    assert found.slowdown == pytest.approx(slowdown, abs=4 * found.standard_error)
    assert found.standard_error < 0.02
    assert len(contention.kernel) == 60 * ranks


def test_noise_alone_is_no_slowdown():
    found = [fit_contention(*beside(0.0, noise=0.1, seed=seed)) for seed in range(20)]
    assert sum(each is not None for each in found) == 0


def test_kernels_that_were_seen_one_way_only_tell_nothing():
    graph, timeline, shapes = beside(0.4)
    # Each kernel with a shape of its own: there is nothing to compare it with.
    assert fit_contention(graph, timeline, np.arange(graph.tasks)) is None
    without = replace(graph, kind=np.full(graph.tasks, TaskKind.KERNEL, np.int8))
    without = replace(without, task_class=np.full(graph.tasks, TaskClass.GEMM, np.int8))
    assert fit_contention(without, timeline, shapes) is None


def by_brute_force(kernels, messages):
    """Time of each kernel in which any message is under way, counted nanosecond by nanosecond."""
    return [
        sum(any(b <= t < e for b, e in messages) for t in range(start, end))
        for start, end in kernels
    ]


@pytest.mark.parametrize("seed", range(8))
def test_overlap_on_the_device_equals_brute_force_and_the_host(seed):
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, 60, 14)
    ends = starts + rng.integers(0, 30, 14)
    kernels, messages = int(rng.integers(1, 13)), None
    messages = 14 - kernels
    contention = Contention(
        classes=(),
        kernel=np.arange(kernels, dtype=np.int32),
        slowdown=np.zeros(kernels),
        begin=np.arange(kernels, 14, dtype=np.int32),
        end=np.arange(kernels, 14, dtype=np.int32),
        kernel_bounds=(0, kernels),
        communication_bounds=(0, messages),
    )
    found = overlapped_us(contention, jnp.asarray(starts, float), jnp.asarray(ends, float))
    pairs = list(zip(starts.tolist(), ends.tolist(), strict=True))
    expected = by_brute_force(pairs[:kernels], pairs[kernels:])
    assert np.asarray(found).tolist() == expected
    graph = replace(
        make_graph([0] * 14, [], release_ns={i: 0 for i in range(14)}),
        kind=np.array([TaskKind.KERNEL] * kernels + [TaskKind.COLLECTIVE] * messages, np.int8),
        task_class=np.array(
            [TaskClass.GEMM] * kernels + [TaskClass.COMMUNICATION] * messages, np.int8
        ),
    )
    timeline = Timeline(starts.astype(float), ends.astype(float))
    assert communication_overlap_us(graph, timeline)[:kernels].tolist() == expected


def one_kernel(slowdown):
    return Contention(
        classes=(),
        kernel=np.array([0], np.int32),
        slowdown=np.array([slowdown]),
        begin=np.array([1], np.int32),
        end=np.array([1], np.int32),
        kernel_bounds=(0, 1),
        communication_bounds=(0, 1),
    )


@pytest.mark.parametrize(
    "message_us, expected_us", [(0.0, 100.0), (50.0, 120.0), (1000.0, 100.0 / 0.6)]
)
def test_a_kernel_takes_longer_by_its_overlap_and_no_more(message_us, expected_us):
    # Beside 50 us of communication it does the work of 30 us: 20 us are lost.
    alone = jnp.array([[100.0], [message_us]])
    found = contended_durations_us(one_kernel(0.4), jnp.zeros_like, alone, alone)
    assert float(found[0, 0]) == pytest.approx(expected_us, rel=0.02)
    assert float(found[1, 0]) == message_us


def test_the_gradient_of_contended_durations_equals_central_differences():
    def total(message_us):
        alone = jnp.stack([jnp.array([100.0]), message_us])
        return contended_durations_us(one_kernel(0.3), jnp.zeros_like, alone, alone)[0, 0]

    at = jnp.array([40.0])
    step = 1e-4
    numeric = (total(at + step) - total(at - step)) / (2 * step)
    assert float(jax.jacfwd(total)(at)[0]) == pytest.approx(float(numeric), abs=1e-6)
    assert float(numeric) == pytest.approx(0.3)
