"""Collectives without a counterpart are listed, by rank and kernel."""

import numpy as np

from jaxperf.graph._collectives import Matches, match_collectives
from jaxperf.graph._device import device_work
from tests.graph.several import Ranks, note

REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
GATHER = "ncclDevKernel_AllGather_RING_LL"


def both_and_more() -> Ranks:
    """Three all-reduces that two ranks share, and what only one of them has."""
    ranks = Ranks(0, 1)
    for start in (100, 300, 500):
        ranks.collective({0: start, 1: start + 20}, start + 100)
    for start in (650, 700):
        ranks.part(0, start, start + 10, operation="allgather", members=(0, 1))
    ranks.part(1, 800, 810, operation="broadcast", members=(1, 2))
    return ranks


def matched(ranks: Ranks, folder) -> Matches:
    traces = ranks.run(folder).traces
    return match_collectives(traces, [device_work(trace) for trace in traces])


def listed(ranks: Ranks, folder) -> str:
    """What the note lists, after its first sentence."""
    return note(ranks.graph(folder), "collectives-unmatched").text


def test_parts_without_a_counterpart_are_kept_by_rank_and_work(tmp_path):
    matches = matched(both_and_more(), tmp_path)
    assert len(matches.match) == 6
    assert matches.unmatched_rank.tolist() == [0, 0, 1]
    assert matches.unmatched_work.tolist() == [3, 4, 3]
    assert matches.unmatched_rank.dtype == matches.unmatched_work.dtype == np.int64


def test_every_part_is_either_matched_or_not(tmp_path):
    ranks = both_and_more()
    for start in (900, 950, 990):
        ranks.part(0, start, start + 5, members=(0, 1))
    matches = matched(ranks, tmp_path)
    both = [
        *zip(matches.rank.tolist(), matches.work.tolist(), strict=True),
        *zip(matches.unmatched_rank.tolist(), matches.unmatched_work.tolist(), strict=True),
    ]
    assert sorted(both) == [(0, k) for k in range(8)] + [(1, k) for k in range(4)]


def test_nothing_is_left_where_all_is_matched(tmp_path):
    ranks = Ranks(0, 1)
    ranks.collective({0: 100, 1: 150}, 200)
    matches = matched(ranks, tmp_path)
    assert matches.unmatched_rank.shape == matches.unmatched_work.shape == (0,)


def test_the_note_lists_them_by_rank_and_kernel(tmp_path):
    assert listed(both_and_more(), tmp_path) == (
        "3 collectives have no counterpart in the other traces and take as long as measured: "
        f"rank 0: 2 {GATHER}; rank 1: 1 ncclDevKernel_Broadcast_RING_LL"
    )


def test_a_long_list_ends_with_how_many_are_left(tmp_path):
    ranks = Ranks(0, 1)
    ranks.collective({0: 100, 1: 150}, 200)
    for k in range(9):
        for repeat in range(k + 1):
            start = 300 + 100 * k + 5 * repeat
            ranks.work(
                k % 2,
                f"void (anonymous namespace)::multimem_{k}<int>(int)",
                start,
                start + 2,
            )
    text = listed(ranks, tmp_path)
    # Kernels of different names are never one collective, whatever bracket their names begin with.
    assert text.startswith("45 collectives ")
    assert text.endswith(
        ": rank 0: 1 multimem_0, 3 multimem_2, 5 multimem_4, "
        "7 multimem_6, 9 multimem_8; rank 1: 2 multimem_1; and 18 more"
    )
