"""Which kernel of the job a recorded kernel is: by order, by shape, by place."""

import pytest

from jaxperf.config import Job
from jaxperf.errors import ConfigError
from jaxperf.graph import TaskClass, TaskKind
from jaxperf.workload._kernels import layer_backward, layer_forward
from jaxperf.workload.retargeting._items import COMPUTE, DeviceItem, Item, ItemKind
from jaxperf.workload.retargeting._matched_pieces import match_pieces

JOB = Job(layers=2, hidden_size=64, attention_heads=4, vocabulary_size=100, sequence_length=96)


def launch(name, task_class, shape=None):
    work = DeviceItem(
        name, TaskKind.KERNEL, task_class, COMPUTE, 1.0, 0.0, True, 0.0, 0.0, shape=shape
    )
    return Item(ItemKind.LAUNCH, True, 1.0, 1.0, (work,))


def gemm(*shape):
    return launch("gemm", TaskClass.GEMM, tuple(sorted(map(float, shape))) if shape else None)


NORM, ADD, GELU = (
    launch("norm", TaskClass.NORMALIZATION),
    launch("add", TaskClass.ELEMENTWISE),
    launch("gelu", TaskClass.ELEMENTWISE),
)
ATTENTION = launch("flash", TaskClass.ATTENTION)


def names(items, pieces):
    return [each for one in match_pieces(items, pieces, "layer") for each in one]


def test_a_layer_is_matched_in_order_with_and_without_shapes():
    pieces = layer_forward(JOB, experts=False)
    told = [gemm(96, 192, 64), ATTENTION, gemm(96, 64, 64), gemm(96, 256, 64), gemm(96, 64, 256)]
    for qkv, attention, projection, up, down in (told, [gemm(), ATTENTION, gemm(), gemm(), gemm()]):
        items = [NORM, qkv, attention, projection, ADD, NORM, up, GELU, down, ADD]
        assert names(items, pieces) == [
            "attention norm",
            "qkv",
            "attention",
            "projection",
            "attention residual",
            "ffn norm",
            "up",
            "activation",
            "down",
            "ffn residual",
        ]


def test_queries_keys_and_values_of_their_own_are_all_the_one_piece():
    three = [gemm(96, 64, 64)] * 3
    items = [NORM, *three, ATTENTION, gemm(96, 64, 64), gemm(96, 256, 64), gemm(96, 64, 256)]
    found = names(items, layer_forward(JOB, experts=False))
    assert found[1:5] == ["qkv", "qkv", "qkv", "attention"]
    assert found[5:] == ["projection", "up", "down"]


def test_gradients_of_input_and_weights_are_told_apart_by_order():
    items = [gemm(), gemm(), GELU, gemm(), gemm(), NORM, gemm(), gemm(), ATTENTION, gemm(), gemm()]
    found = names(items, layer_backward(JOB, experts=False))
    assert found[:2] == ["down input gradient", "down weight gradient"]
    assert found[3:5] == ["up input gradient", "up weight gradient"]


def test_a_shape_that_the_job_does_not_have_is_refused():
    items = [NORM, gemm(96, 384, 128), ATTENTION, gemm(96, 128, 128)]
    with pytest.raises(
        ConfigError, match="does not have the trace's shapes.*expected .* for 'qkv'"
    ):
        match_pieces(items, layer_forward(JOB, experts=False), "layer forward")


def test_parts_of_a_multiply_have_to_add_up():
    two = [gemm(96, 64, 64)] * 2
    items = [NORM, *two, ATTENTION, gemm(96, 64, 64), gemm(96, 256, 64), gemm(96, 64, 256)]
    with pytest.raises(ConfigError, match="does not have the trace's shapes"):
        match_pieces(items, layer_forward(JOB, experts=False), "layer forward")


def test_a_multiply_that_the_trace_does_not_have_is_refused():
    items = [NORM, gemm(96, 192, 64), ATTENTION, gemm(96, 64, 64), gemm(96, 256, 64)]
    with pytest.raises(ConfigError, match="got no multiply of that shape.*'down'"):
        match_pieces(items, layer_forward(JOB, experts=False), "layer forward")


def test_what_the_job_has_nothing_like_has_no_name():
    assert names([ADD], []) == [None]
