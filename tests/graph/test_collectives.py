"""Which parts on different ranks are one collective: by group, order, number, peer or name."""

from collections.abc import Mapping

import pytest

from jaxperf.graph import TaskKind
from tests.graph.asked import codes
from tests.graph.several import Ranks, collectives, meetings, note, offsets_us, waits_us

# Ends of a collective after another, at irregular times, so that a shift by one is seen.
ENDS_US = (100, 230, 420, 510, 800, 870, 1190, 1240, 1600, 1670)


def met(*keys: tuple[int, int]) -> frozenset[tuple[int, int]]:
    return frozenset(keys)


def in_turn(ranks: int, places: int) -> set[frozenset[tuple[int, int]]]:
    """All ranks meet in each of their collectives."""
    return {met(*((rank, place) for rank in range(ranks))) for place in range(places)}


# -- groups ---------------------------------------------------------------------------------


def test_several_communicators_on_one_stream_are_told_apart_by_their_members(tmp_path):
    ranks = Ranks(0, 1, 2, 3)
    # The pairs meet at once, in each pair's own time; then all four; and again.
    ranks.collective({0: 0, 1: 40}, 100, group="1")
    ranks.collective({2: 10, 3: 0}, 130, group="2")
    ranks.collective({0: 110, 1: 120, 2: 140, 3: 150}, 200, group="0")
    ranks.collective({2: 210, 3: 260}, 300, group="2")
    ranks.collective({0: 230, 1: 210}, 310, group="1")
    ranks.collective({0: 320, 1: 330, 2: 340, 3: 325}, 400, group="0")
    graph = ranks.graph(tmp_path)
    assert meetings(graph) == {
        met((0, 0), (1, 0)),
        met((2, 0), (3, 0)),
        met((0, 1), (1, 1), (2, 1), (3, 1)),
        met((2, 2), (3, 2)),
        met((0, 2), (1, 2)),
        met((0, 3), (1, 3), (2, 3), (3, 3)),
    }
    assert waits_us(graph)[0, 1] == pytest.approx(40)


def test_one_communicator_on_several_streams_keeps_its_own_order(tmp_path):
    ranks = Ranks(0, 1)
    for place, end in enumerate(ENDS_US):
        ranks.collective({0: end - 60, 1: end - 50}, end, stream=20 + 4 * (place % 3))
    assert meetings(ranks.graph(tmp_path)) == in_turn(2, 10)


def test_members_tell_the_group_where_its_name_differs_between_ranks(tmp_path):
    ranks = Ranks(0, 1)
    for end in ENDS_US:
        for rank in (0, 1):
            ranks.part(rank, end - 50, end, members=(0, 1), group=f"pg{7 + rank}")
    assert meetings(ranks.graph(tmp_path)) == in_turn(2, 10)


def test_groups_of_other_members_and_the_same_name_do_not_meet(tmp_path):
    ranks = Ranks(0, 1, 2, 3)
    # Frameworks number groups rank by rank, so each pair may call its group "1".
    for end in ENDS_US:
        ranks.collective({0: end - 50, 1: end - 40}, end, group="1")
        ranks.collective({2: end - 35, 3: end - 30}, end + 5, group="1")
    expected = {met((0, i), (1, i)) for i in range(10)} | {met((2, i), (3, i)) for i in range(10)}
    assert meetings(ranks.graph(tmp_path)) == expected


@pytest.mark.parametrize("numbered", [True, False])
def test_two_groups_of_the_same_members_keep_apart(tmp_path, numbered):
    # Each has a stream of its own, and the ranks reach the two in different order.
    ranks = Ranks(0, 1)
    for i, end in enumerate(range(200, 1200, 200)):
        said = {"Seq": i} if numbered else {}
        ranks.collective({0: end - 90, 1: end - 60}, end - 40, group="1", stream=20, said=said)
        ranks.collective({0: end - 70, 1: end - 80}, end - 10, group="2", stream=24, said=said)
    graph = ranks.graph(tmp_path)
    expected = {met((0, 2 * i), (1, 2 * i + 1)) for i in range(5)}
    expected |= {met((0, 2 * i + 1), (1, 2 * i)) for i in range(5)}
    assert meetings(graph) == expected
    assert waits_us(graph)[0, 0] == pytest.approx(30)
    assert waits_us(graph)[1, 0] == pytest.approx(10)


@pytest.mark.parametrize("members_written", [True, False])
def test_a_group_of_one_waits_for_nobody(tmp_path, members_written):
    ranks = Ranks(0, 1)
    for rank in (0, 1):
        ranks.part(rank, 100 * rank, 100 * rank + 20, members=(rank,), group="2")
    ranks.collective({0: 300, 1: 310}, 350)
    if not members_written:
        for rows in ranks.rows.values():
            for row in rows:
                if row["args"]["Group size"] == 1:
                    del row["args"]["Process Group Ranks"]
    graph = ranks.graph(tmp_path)
    assert meetings(graph) == {met((0, 1), (1, 1))}
    alone = [tasks[0] for tasks in collectives(graph).values()]
    assert graph.duration_ns[alone].tolist() == [20_000, 20_000]
    assert "collectives-unmatched" not in codes(graph)


def test_other_operations_of_a_group_do_not_meet(tmp_path):
    ranks = Ranks(0, 1)
    for end in ENDS_US:
        ranks.collective({0: end - 60, 1: end - 50}, end - 30, operation="allgather")
        ranks.collective({0: end - 25, 1: end - 20}, end, operation="allreduce")
    assert meetings(ranks.graph(tmp_path)) == in_turn(2, 20)


def test_a_barrier_is_a_collective(tmp_path):
    ranks = Ranks(0, 1, 2)
    ranks.collective({0: 0, 1: 90, 2: 30}, 100, operation="barrier")
    ranks.collective({0: 110, 1: 120, 2: 130}, 180)
    graph = ranks.graph(tmp_path)
    assert meetings(graph) == in_turn(3, 2)
    assert waits_us(graph)[0, 0] == pytest.approx(90)


def test_members_that_were_not_recorded_are_named_and_the_others_meet(tmp_path):
    ranks = Ranks(0, 2)
    for end in ENDS_US:
        ranks.collective({0: end - 60, 2: end - 50}, end, members=(0, 1, 2, 3))
    graph = ranks.graph(tmp_path)
    assert meetings(graph) == {met((0, i), (2, i)) for i in range(10)}
    assert "ranks 1, 3 " in note(graph, "ranks-not-recorded").text


# -- sends and receives -----------------------------------------------------------------------


def test_sends_in_both_directions_meet_their_receives(tmp_path):
    ranks = Ranks(0, 1)
    # Either rank sends first and receives then; both directions are under way at once.
    ranks.message((0, 10), (1, 40), 100)
    ranks.message((1, 20), (0, 30), 90)
    ranks.message((0, 210), (1, 240), 300)
    ranks.message((1, 220), (0, 250), 310)
    graph = ranks.graph(tmp_path)
    # Rank 0: send, receive, send, receive. Rank 1: send, receive, send, receive.
    assert meetings(graph) == {
        met((0, 0), (1, 1)),
        met((0, 1), (1, 0)),
        met((0, 2), (1, 3)),
        met((0, 3), (1, 2)),
    }
    assert waits_us(graph)[0, 0] == pytest.approx(30)
    assert waits_us(graph)[1, 0] == pytest.approx(10)


def test_a_send_without_a_peer_meets_the_receive_of_the_other_of_two(tmp_path):
    ranks = Ranks(0, 1)
    for end in ENDS_US:
        ranks.message((0, end - 60), (1, end - 50), end)
    for rows in ranks.rows.values():
        for row in rows:
            del row["args"]["Src Rank"], row["args"]["Dst Rank"]
    assert meetings(ranks.graph(tmp_path)) == in_turn(2, 10)


def test_numbers_of_sends_count_all_sends_and_receives_of_a_rank(tmp_path):
    # ProcessGroupNCCL counts the sends and receives of a group on each rank, whoever the peer is:
    # the middle stage of three has twice as many, so the numbers at both ends differ.
    stages = (0, 1, 2)
    ranks = Ranks(*stages)
    for i, end in enumerate(ENDS_US):
        ranks.message((0, end - 70), (1, end - 65), end - 40, sequence=(i, 2 * i), members=stages)
        ranks.message((1, end - 30), (2, end - 25), end, sequence=(2 * i + 1, i), members=stages)
    expected = {met((0, i), (1, 2 * i)) for i in range(10)}
    expected |= {met((1, 2 * i + 1), (2, i)) for i in range(10)}
    assert meetings(ranks.graph(tmp_path)) == expected


def test_numbers_of_sends_in_both_directions_need_not_agree(tmp_path):
    # Both ranks send (1, 3, ...) and then receive (2, 4, ...): no send has its receive's number.
    ranks = Ranks(0, 1)
    for i, end in enumerate(ENDS_US):
        ranks.message((0, end - 60), (1, end - 40), end, sequence=(2 * i + 1, 2 * i + 2))
        ranks.message((1, end - 59), (0, end - 41), end, sequence=(2 * i + 1, 2 * i + 2))
    expected = {met((0, 2 * i), (1, 2 * i + 1)) for i in range(10)}
    expected |= {met((0, 2 * i + 1), (1, 2 * i)) for i in range(10)}
    assert meetings(ranks.graph(tmp_path)) == expected


# -- captures that begin or end in between ------------------------------------------------------


def captured(
    *places: range,
    clock_us: Mapping[int, float] | None = None,
    bare: bool = False,
    numbered: bool = False,
) -> Ranks:
    """Collectives of all ranks, of which each rank's capture holds only those places."""
    ranks = Ranks(*range(len(places)), clock_us=clock_us)
    for place, end in enumerate(ENDS_US):
        for rank, recorded in enumerate(places):
            if place in recorded:
                members = None if bare else range(len(places))
                said = {"Seq": place} if numbered else {}
                ranks.part(rank, end - 40 - 3 * rank, end, members=members, said=said)
    return ranks


def true_meetings(*places: range) -> set[frozenset[tuple[int, int]]]:
    """Those that two or more recorded, in each rank's own count."""
    found = set()
    for place in range(len(ENDS_US)):
        there = [(r, place - rec.start) for r, rec in enumerate(places) if place in rec]
        if len(there) > 1:
            found.add(met(*there))
    return found


LATE, EARLY, WHOLE = range(3, 10), range(0, 7), range(10)
CLOCKS = {1: 5_000.0, 2: -70_000.0}


@pytest.mark.parametrize("bare", [False, True], ids=["arguments", "bare"])
@pytest.mark.parametrize(
    "places", [(WHOLE, LATE), (LATE, WHOLE), (WHOLE, EARLY), (EARLY, WHOLE), (LATE, LATE, WHOLE)]
)
def test_captures_that_begin_later_or_end_earlier_match_what_both_have(tmp_path, places, bare):
    graph = captured(*places, clock_us=CLOCKS, bare=bare).graph(tmp_path)
    assert meetings(graph) >= {m for m in true_meetings(*places) if len(m) == len(places)}
    assert meetings(graph) <= true_meetings(*places)
    right = {rank: CLOCKS[rank] for rank in range(1, len(places))}
    assert offsets_us(graph) == pytest.approx({0: 0.0, **right}, abs=0.01)


@pytest.mark.parametrize(
    "places", [(LATE, EARLY), (EARLY, LATE), (WHOLE, LATE, EARLY), (range(5), WHOLE, range(5, 10))]
)
def test_numbers_match_captures_that_are_cut_at_either_end(tmp_path, places):
    graph = captured(*places, clock_us=CLOCKS, numbered=True).graph(tmp_path)
    assert meetings(graph) == true_meetings(*places)


def test_a_short_capture_does_not_part_the_others(tmp_path):
    places = (WHOLE, WHOLE, EARLY)
    graph = captured(*places).graph(tmp_path)
    assert meetings(graph) == true_meetings(*places)
    assert "collectives-unmatched" not in codes(graph)


def test_one_capture_may_begin_late_where_another_ends_early(tmp_path):
    # No one shift fits all three, yet the ends tell each rank's own.
    places = (WHOLE, LATE, EARLY)
    graph = captured(*places, clock_us=CLOCKS).graph(tmp_path)
    assert meetings(graph) == true_meetings(*places)
    assert offsets_us(graph) == pytest.approx({0: 0.0, **CLOCKS}, abs=0.01)


def test_a_capture_that_begins_within_a_collective_has_its_part_from_there_on(tmp_path):
    # The profiler of rank 1 saw only the last 15 us of the first collective.
    ranks = Ranks(0, 1)
    ranks.collective({0: 10, 1: 85}, 100)
    for end in ENDS_US[1:]:
        ranks.collective({0: end - 60, 1: end - 50}, end)
    graph = ranks.graph(tmp_path)
    assert meetings(graph) == in_turn(2, 10)
    assert offsets_us(graph)[1] == pytest.approx(0, abs=0.01)


# -- without arguments ----------------------------------------------------------------------------


def test_kernels_without_arguments_meet_by_order_and_the_note_says_how_sure_that_is(tmp_path):
    graph = captured(WHOLE, WHOLE, bare=True).graph(tmp_path)
    assert meetings(graph) == in_turn(2, 10)
    text = note(graph, "collectives-matched-by-order").text
    assert text.startswith("10 collectives")
    assert "100 % end within" in text


def test_a_poor_match_by_order_is_said_to_be_poor(tmp_path):
    # Rank 1 lacks one kernel in the middle: no shift brings all ends together.
    ranks = captured(WHOLE, WHOLE, bare=True)
    del ranks.rows[1][4]
    for rows in ranks.rows.values():
        for row in rows:
            row["ts"] *= 10
    text = note(ranks.graph(tmp_path), "collectives-matched-by-order").text
    assert text.startswith("9 collectives")
    assert "100 %" not in text


def test_matches_by_arguments_are_no_guess(tmp_path):
    assert "collectives-matched-by-order" not in codes(captured(WHOLE, WHOLE).graph(tmp_path))


def test_the_head_of_a_capture_without_arguments_belongs_to_the_group_of_its_stream(tmp_path):
    ranks = captured(WHOLE, WHOLE)
    kept = ("device", "stream", "correlation")
    for place in range(3):
        row = ranks.rows[0][place]
        row["args"] = {key: row["args"][key] for key in kept}
    graph = ranks.graph(tmp_path)
    assert meetings(graph) == in_turn(2, 10)
    assert "collectives-matched-by-order" not in codes(graph)


def test_kernels_without_arguments_meet_their_like_only(tmp_path):
    ranks = Ranks(0, 1)
    for end in ENDS_US:
        for rank in (0, 1):
            ranks.part(rank, end - 60 + rank, end - 30, operation="allgather")
            ranks.part(rank, end - 20 + rank, end, operation="allreduce")
    # Their order differs, as two streams may have it.
    ranks.rows[1].reverse()
    assert meetings(ranks.graph(tmp_path)) == in_turn(2, 20)


# -- what has no counterpart -----------------------------------------------------------------------


def test_what_cannot_be_matched_is_listed_and_as_measured(tmp_path):
    ranks = Ranks(0, 1)
    ranks.collective({0: 0, 1: 20}, 50)
    ranks.part(0, 100, 140, members=(0, 1), group="5", operation="broadcast")
    graph = ranks.graph(tmp_path)
    alone = collectives(graph)[0][1]
    assert graph.arrival[alone] == -1
    assert graph.kind[alone] == TaskKind.COLLECTIVE
    assert graph.duration_ns[alone] == 40_000
    assert note(graph, "collectives-unmatched").text.startswith("1 collectives")


def test_every_part_is_joined_or_listed(tmp_path):
    ranks = captured(WHOLE, WHOLE, EARLY)
    ranks.message((0, 1700), (1, 1710), 1750)
    ranks.part(1, 1800, 1850, operation="recv", members=(1, 2), said={"Src Rank": 2})
    graph = ranks.graph(tmp_path)
    in_all = sum(len(tasks) for tasks in collectives(graph).values())
    assert in_all == 10 + 10 + 7 + 3
    joined = sum(len(meeting) for meeting in meetings(graph))
    listed = int(note(graph, "collectives-unmatched").text.split()[0])
    assert joined + listed == in_all


def test_nothing_in_common_leaves_the_ranks_apart(tmp_path):
    ranks = Ranks(0, 1, clock_us={1: 9_000.0})
    ranks.work(0, "gemm", 0, 100)
    ranks.work(1, "gemm", 0, 120)
    graph = ranks.graph(tmp_path)
    assert meetings(graph) == set()
    assert offsets_us(graph) == pytest.approx({0: 0.0, 1: float("nan")}, nan_ok=True)
    assert "ranks 1 " in note(graph, "clock-unknown").text
    # Each begins with its first event.
    assert graph.start_ns.tolist() == [0, 0]
    assert graph.end_ns.tolist() == [100_000, 120_000]
