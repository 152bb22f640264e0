"""Forms fitted to the kernels of a trace: what they find, and what they keep of one kernel."""

import math

import pytest

from jaxperf.config import load_hardware, set_hardware
from jaxperf.graph import TaskClass
from jaxperf.workload._pieces import Piece, WorkKind, multiply, stream
from jaxperf.workload.retargeting._kernel_times import (
    Observed,
    bus_factor,
    fit_kernel_times,
    spans_nodes,
)

H100 = load_hardware("h100")
SMS = H100.streaming_multiprocessors
SHAPES = [
    (2048, 3072, 2048),
    (2048, 2048, 1024),
    (2048, 4096, 2048),
    (2048, 2048, 4096),
    (2048, 25600, 2048),
    (1024, 2048, 2048),
]


def product(m, n, k):
    return multiply("product", m, n, k, precision="bf16")


def tiled_us(m, n, k, tile=(128, 256)):
    waves = math.ceil(math.ceil(m / tile[0]) * math.ceil(n / tile[1]) / SMS)
    return 5.0 + waves * (1.0 + 0.0115 * k)


def message(operation, size, ranks=2, stride=1):
    return Piece(
        "message",
        WorkKind.COLLECTIVE,
        TaskClass.COMMUNICATION,
        "bf16",
        operation=operation,
        message_bytes=size,
        ranks=ranks,
        stride=stride,
    )


def test_multiplies_in_waves_of_one_tile_are_told_at_sizes_that_were_not_seen():
    times = fit_kernel_times([Observed(product(*s), tiled_us(*s)) for s in SHAPES], H100)
    for shape in [(4096, 4096, 4096), (2048, 12288, 4096), (512, 1024, 8192)]:
        assert times.time_us(product(*shape)) == pytest.approx(tiled_us(*shape), rel=0.03)


def test_a_kernel_of_the_same_size_keeps_its_time():
    times = fit_kernel_times([Observed(product(*s), tiled_us(*s)) for s in SHAPES], H100)
    same = product(*SHAPES[0])
    assert times.resized_us(77.0, same, same) == 77.0


def test_what_a_form_leaves_of_a_long_kernel_grows_with_it():
    times = fit_kernel_times([Observed(product(*s), tiled_us(*s)) for s in SHAPES], H100)
    small, large = product(4096, 4096, 4096), product(4096, 4096, 8192)
    expected = times.time_us(large) / times.time_us(small)
    slow = times.resized_us(1.2 * times.time_us(small), small, large)
    assert slow == pytest.approx(1.2 * expected * times.time_us(small), rel=0.02)


def test_what_a_form_leaves_of_a_short_kernel_is_added_once():
    times = fit_kernel_times([], H100)
    small = stream("norm", TaskClass.NORMALIZATION, 1e3, "bf16")
    large = stream("norm", TaskClass.NORMALIZATION, 1e8, "bf16")
    late_us = 3.0
    found = times.resized_us(times.time_us(small) + late_us, small, large)
    assert found == pytest.approx(times.time_us(large) + late_us, rel=0.01)


def test_messages_keep_to_the_bandwidth_that_is_known():
    node = H100.links["nvlink"]

    def us(size):
        return 16.0 + 1e6 * size / node.bus_bytes_per_s

    seen = [Observed(message("all_reduce", size), us(size)) for size in (8e6, 1e8)]
    times = fit_kernel_times(seen, H100)
    assert times.time_us(message("all_reduce", 4e8)) == pytest.approx(us(4e8), rel=0.01)
    across = times.time_us(message("all_reduce", 4e8, ranks=2, stride=8))
    assert across == pytest.approx(1e6 * 4e8 / H100.links["network"].bus_bytes_per_s, rel=0.02)


def test_smaller_nodes_send_messages_over_the_network():
    sent = message("all_gather", 1e8, ranks=4)
    times = fit_kernel_times([Observed(sent, 300.0)], H100)
    apart = times.with_nodes_of(2)
    assert apart.resized_us(300.0, sent, sent) > 3 * 300.0
    assert times.resized_us(300.0, sent, sent) == 300.0


def test_a_group_spans_nodes_when_its_last_member_is_beyond_the_first_node():
    assert not spans_nodes(message("all_reduce", 1.0, ranks=4, stride=2), H100)
    assert spans_nodes(message("all_reduce", 1.0, ranks=8, stride=2), H100)
    assert spans_nodes(
        message("all_reduce", 1.0, ranks=4), set_hardware(H100, {"gpus_per_node": 2})
    )


@pytest.mark.parametrize(
    "operation, factor",
    [("all_reduce", 1.75), ("all_gather", 0.875), ("reduce_scatter", 0.875), ("send_receive", 1.0)],
)
def test_bus_factors_are_those_of_nccl_tests(operation, factor):
    assert bus_factor(operation, 8) == factor
