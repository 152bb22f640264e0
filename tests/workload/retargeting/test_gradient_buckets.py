"""Where gradients are summed, and in how many messages."""

import msgspec
import pytest

from jaxperf.config import Job
from jaxperf.workload._parameters import embedding_parameters, head_parameters, layer_parameters
from jaxperf.workload.retargeting._gradient_buckets import Sum, gradient_buckets

JOB = Job(
    layers=8,
    hidden_size=64,
    attention_heads=4,
    vocabulary_size=100,
    sequence_length=96,
    data_parallel=4,
)
LAYER = 4.0 * float(layer_parameters(JOB, experts=False).total)


def changed(**values):
    return msgspec.structs.replace(JOB, **values)


def summary(buckets):
    return [(bucket.after, bucket.piece.message_bytes) for bucket in buckets]


def test_the_same_job_sums_as_it_did():
    seen = {"only": (Sum(1.5, 100.0), Sum(9, 50.0))}
    assert summary(gradient_buckets(JOB, seen, JOB, 0)) == [(1.5, 100.0), (9, 50.0)]


def test_messages_of_another_width_grow_with_the_parameters_of_a_layer():
    seen = {"only": (Sum(8, 100.0),)}
    wide = changed(hidden_size=128)
    ratio = layer_parameters(wide, experts=False).total / layer_parameters(JOB, experts=False).total
    ((_, size),) = summary(gradient_buckets(JOB, seen, wide, 0))
    assert size == pytest.approx(100.0 * float(ratio))


def test_as_many_messages_as_the_job_says_are_spread_over_more_layers():
    seen = {"only": tuple(Sum(2.0 * (k + 1), 2 * LAYER) for k in range(4))}
    found = summary(gradient_buckets(JOB, seen, changed(layers=16), 0))
    assert found == [(4 * (k + 1), pytest.approx(4 * LAYER)) for k in range(4)]


def test_messages_are_no_more_than_layers():
    seen = {"only": tuple(Sum(2.0 * (k + 1), 2 * LAYER) for k in range(4))}
    found = summary(gradient_buckets(JOB, seen, changed(layers=2), 0))
    assert found == [(1, pytest.approx(LAYER)), (2, pytest.approx(LAYER))]


def test_buckets_of_a_size_are_filled_and_the_rest_is_sent_at_the_end():
    head, embedding = (4.0 * float(f(JOB).total) for f in (head_parameters, embedding_parameters))
    seen = {"only": (Sum(3, head + 3 * LAYER), Sum(9, 5 * LAYER + embedding))}
    found = summary(gradient_buckets(JOB, seen, changed(layers=16), 0))
    assert sum(size for _, size in found) == pytest.approx(head + 16 * LAYER + embedding)
    assert all(size >= 5 * LAYER for _, size in found[:-1])
    assert found[-1][0] == 17


def test_nobody_to_sum_with_means_no_message():
    assert gradient_buckets(JOB, {}, changed(data_parallel=1), 0) == []
    assert gradient_buckets(JOB, {}, changed(sharding="zero3"), 0) == []


def test_without_any_recorded_message_all_parameters_are_summed():
    alone = changed(data_parallel=1)
    found = summary(gradient_buckets(alone, {}, changed(gradient_buckets=2), 0))
    head, embedding = (4.0 * float(f(JOB).total) for f in (head_parameters, embedding_parameters))
    assert len(found) == 2
    assert sum(size for _, size in found) == pytest.approx(head + 8 * LAYER + embedding)


def test_the_embedding_is_summed_where_it_was():
    head, embedding = (4.0 * float(f(JOB).total) for f in (head_parameters, embedding_parameters))
    total = head + 8 * LAYER + embedding
    seen = {"only": tuple(Sum(2.0 * (k + 1), total / 4) for k in range(4))}
    found = summary(gradient_buckets(JOB, seen, changed(layers=16), 0))
    assert sum(size for _, size in found) == pytest.approx(head + 16 * LAYER + embedding)
