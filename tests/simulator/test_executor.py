"""Each instruction against times worked out by hand, and what must hold of every run."""

import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.errors import ConfigError
from jaxperf.simulator import (
    Annotation,
    Await,
    Call,
    Collective,
    Copy,
    Kernel,
    Launch,
    LaunchGraph,
    Noise,
    Op,
    Poll,
    Query,
    Rank,
    Record,
    Set,
    Signal,
    StreamWait,
    SynchronizeDevice,
    SynchronizeEvent,
    SynchronizeStream,
    Timing,
    Work,
    execute,
)

# Round numbers, so that sums are done in the head; no two constants are alike.
TIMING = Timing(
    launch_latency_us=10.0,
    kernel_gap_us=1.0,
    wait_lag_us=2.0,
    sync_return_us=5.0,
    hand_over_us=20.0,
    launch_call_us=4.0,
    event_call_us=3.0,
    query_call_us=6.0,
    sync_call_us=7.0,
)


def run(*main, timing=TIMING, scale=None, **others):
    return execute({0: Rank({"main": list(main), **others}, timing)}, scale=scale).ranks[0]


def kernel(duration_us, name="k", kind="other"):
    return Kernel(name, duration_us, kind)


def device_us(record):
    """(start, end) of device rows in microseconds, in order of their end."""
    return [(row.start_ns / 1e3, row.end_ns / 1e3) for row in record.device]


def calls_us(record, name):
    return [(row.start_ns / 1e3, row.end_ns / 1e3) for row in record.host if row.name == name]


# -- launches and streams -----------------------------------------------------------------


def test_a_kernel_starts_a_launch_latency_after_its_call_began():
    record = run(Work(30.0), Launch(kernel(8.0)))
    assert calls_us(record, "cudaLaunchKernel") == [(30.0, 34.0)]
    assert device_us(record) == [(40.0, 48.0)]


def test_a_kernel_starts_a_gap_after_the_one_before_it_on_the_stream():
    assert device_us(run(Launch(kernel(50.0)), Launch(kernel(8.0)))) == [(10.0, 60.0), (61.0, 69.0)]


def test_streams_run_side_by_side():
    record = run(Launch(kernel(50.0)), Launch(kernel(8.0), stream=20))
    assert device_us(record) == [(14.0, 22.0), (10.0, 60.0)]


def test_one_stream_number_on_two_devices_is_two_streams():
    record = run(Launch(kernel(50.0)), Launch(kernel(8.0), device=1))
    assert device_us(record) == [(14.0, 22.0), (10.0, 60.0)]


def test_a_graph_launch_owns_all_its_kernels():
    record = run(LaunchGraph((kernel(5.0), kernel(6.0)), call_us=9.0), Launch(kernel(7.0)))
    assert calls_us(record, "cudaGraphLaunch") == [(0.0, 9.0)]
    assert device_us(record) == [(10.0, 15.0), (16.0, 22.0), (23.0, 30.0)]
    assert [row.correlation for row in record.device] == [1, 1, 2]


def test_a_graph_without_works_is_refused():
    with pytest.raises(ConfigError, match="graph without works"):
        LaunchGraph(())


def test_copies_and_sets_run_on_streams_too():
    record = run(Launch(Copy("HtoD", 3.0, 64)), Launch(Set(2.0, 32)))
    assert device_us(record) == [(10.0, 13.0), (14.0, 16.0)]
    assert [row.name for row in record.host] == ["cudaMemcpyAsync", "cudaMemsetAsync"]


def test_a_launch_blocks_while_the_queue_is_full():
    timing = Timing(launch_latency_us=10.0, kernel_gap_us=1.0, launch_call_us=4.0, launch_queue=2)
    record = run(*[Launch(kernel(100.0))] * 3, Work(1.0), timing=timing)
    # The third waits from 8 until the first kernel ends at 110, then takes its own 4.
    assert calls_us(record, "cudaLaunchKernel") == [(0.0, 4.0), (4.0, 8.0), (8.0, 114.0)]
    assert [row.waited_ns for row in record.host] == [0, 0, 102_000]
    assert device_us(record) == [(10.0, 110.0), (111.0, 211.0), (212.0, 312.0)]


def test_a_graph_takes_one_place_in_the_queue_until_its_last_kernel():
    timing = Timing(launch_latency_us=10.0, kernel_gap_us=1.0, launch_call_us=4.0, launch_queue=1)
    record = run(LaunchGraph((kernel(30.0),) * 3), Launch(kernel(1.0)), timing=timing)
    assert calls_us(record, "cudaLaunchKernel") == [(4.0, 106.0)]


def test_places_in_a_full_queue_go_to_the_launch_that_waited_longest():
    timing = Timing(launch_latency_us=10.0, launch_call_us=4.0, launch_queue=1)
    record = run(
        Launch(kernel(50.0, "first")),
        Launch(kernel(1.0, "second")),
        other=[Work(6.0), Launch(kernel(1.0, "third"))],
        timing=timing,
    )
    assert [row.work.name for row in record.device] == ["first", "second", "third"]


# -- events -------------------------------------------------------------------------------


def test_a_wait_holds_later_work_until_the_event():
    record = run(
        Launch(kernel(100.0)),  # 10 to 110
        Record("e"),
        StreamWait("e", stream=20),
        Launch(kernel(5.0), stream=20),
    )
    assert device_us(record) == [(10.0, 110.0), (112.0, 117.0)]


def test_work_launched_before_the_wait_is_not_held():
    record = run(
        Launch(kernel(100.0)),
        Launch(kernel(5.0), stream=20),
        Record("e"),
        StreamWait("e", stream=20),
    )
    assert device_us(record)[0] == (14.0, 19.0)


def test_an_event_covers_only_what_was_launched_before_its_record():
    record = run(
        Launch(kernel(100.0)),  # 10 to 110
        Record("e"),
        Launch(kernel(100.0)),
        StreamWait("e", stream=20),
        Launch(kernel(5.0), stream=20),
    )
    assert device_us(record)[1] == (112.0, 117.0)


def test_the_latest_of_several_waits_counts():
    record = run(
        Launch(kernel(100.0), stream=20),  # 10 to 110
        Record("a", stream=20),
        Launch(kernel(300.0), stream=24),  # 17 to 317
        Record("b", stream=24),
        StreamWait("b"),
        StreamWait("a"),
        Launch(kernel(5.0)),
    )
    assert device_us(record)[-1] == (319.0, 324.0)


def test_an_event_recorded_behind_waits_carries_them_with_one_lag():
    record = run(
        Launch(kernel(100.0), stream=20),  # 10 to 110
        Record("a", stream=20),
        StreamWait("a", stream=24),
        Record("b", stream=24),
        StreamWait("b"),
        Launch(kernel(5.0)),
    )
    assert device_us(record)[-1] == (112.0, 117.0)


def test_a_wait_is_for_the_latest_record_before_it():
    record = run(
        Launch(kernel(100.0)),  # 10 to 110
        Record("e"),
        StreamWait("e", stream=20),
        Launch(kernel(100.0)),  # 111 to 211
        Record("e"),
        Launch(kernel(5.0), stream=20),
        StreamWait("e", stream=24),
        Launch(kernel(5.0), stream=24),
    )
    assert device_us(record) == [(10.0, 110.0), (112.0, 117.0), (111.0, 211.0), (213.0, 218.0)]


def test_a_wait_for_an_event_that_was_never_recorded_holds_nothing():
    record = run(StreamWait("e"), Launch(kernel(5.0)))
    assert device_us(record) == [(13.0, 18.0)]
    assert (record.syncs[0].record_correlation, record.syncs[0].event) == (-1, -1)


def test_sync_rows_name_the_record_and_its_stream():
    record = run(Record("e", stream=20), StreamWait("e", stream=24))
    (row,) = record.syncs
    assert (row.kind, row.stream, row.record_stream) == ("Stream Wait Event", 24, 20)
    assert (row.record_correlation, row.correlation) == (1, 2)


# -- the host waits ------------------------------------------------------------------------


def test_a_stream_synchronise_returns_after_that_stream():
    record = run(
        Launch(kernel(100.0)),  # 10 to 110
        Launch(kernel(300.0), stream=20),
        SynchronizeStream(),
    )
    assert calls_us(record, "cudaStreamSynchronize") == [(8.0, 115.0)]
    # Of its 107 us, 7 are its own work.
    assert record.host[-1].waited_ns == 100_000


def test_a_device_synchronise_returns_after_all_streams():
    record = run(Launch(kernel(100.0)), Launch(kernel(300.0), stream=20), SynchronizeDevice())
    assert calls_us(record, "cudaDeviceSynchronize") == [(8.0, 319.0)]


def test_an_event_synchronise_returns_after_the_event():
    record = run(Launch(kernel(100.0)), Record("e"), Launch(kernel(300.0)), SynchronizeEvent("e"))
    assert calls_us(record, "cudaEventSynchronize") == [(11.0, 115.0)]


@pytest.mark.parametrize(
    "wait", [SynchronizeStream(), SynchronizeDevice(), SynchronizeEvent("never")]
)
def test_a_synchronise_with_nothing_to_wait_for_takes_its_own_time(wait):
    (row,) = run(wait).host
    assert (row.end_ns, row.waited_ns) == (7_000, 0)


def test_a_synchronise_long_after_the_device_was_done_takes_its_own_time():
    record = run(Launch(kernel(5.0)), Work(500.0), SynchronizeStream())
    assert calls_us(record, "cudaStreamSynchronize") == [(504.0, 511.0)]


def test_a_blocking_copy_returns_after_the_copy():
    record = run(Launch(kernel(100.0)), Launch(Copy("DtoH", 9.0), blocking=True))
    assert device_us(record)[1] == (111.0, 120.0)
    assert calls_us(record, "cudaMemcpy") == [(4.0, 125.0)]
    assert record.host[-1].waited_ns == 117_000


def test_polling_ends_with_the_first_query_that_began_after_the_event():
    record = run(Launch(kernel(20.0)), Record("e"), Poll("e", between_us=2.0))  # ends at 30
    # Queries begin at 7, 15, 23, 31.
    assert calls_us(record, "cudaEventQuery") == [(7, 13), (15, 21), (23, 29), (31, 37)]


def test_polling_without_any_time_of_its_own_ends():
    record = run(Launch(kernel(0.05)), Record("e"), Poll("e"), scale={"host": 0.0})
    assert device_us(record) == [(10.0, 10.05)]


def test_a_query_waits_for_nothing():
    assert calls_us(run(Launch(kernel(50.0)), Record("e"), Query("e")), "cudaEventQuery") == [
        (7.0, 13.0)
    ]


# -- threads --------------------------------------------------------------------------------


def test_an_awaited_flag_arrives_a_hand_over_later():
    record = run(
        Work(10.0),
        Signal("go"),
        Await("done"),
        Call("end", 1.0),
        autograd=[Await("go"), Work(5.0), Signal("done")],
    )
    # 10, handed over until 30, worked until 35, handed back until 55.
    assert calls_us(record, "end") == [(55.0, 56.0)]


def test_host_changes_scale_waking_up_too():
    woken = [Await("go"), Call("end", 1.0)]
    record = run(Work(10.0), Signal("go"), scale={"host": 2.0}, autograd=woken)
    assert calls_us(record, "end") == [(60.0, 62.0)]


def test_a_flag_raised_long_ago_costs_no_waiting():
    record = run(Signal("go"), other=[Work(90.0), Await("go"), Call("end", 1.0)])
    assert calls_us(record, "end") == [(90.0, 91.0)]


def test_a_flag_is_raised_once():
    with pytest.raises(ConfigError, match="raised twice"):
        run(Signal("go"), Signal("go"))


def test_rows_nest_and_calls_know_their_operator():
    record = run(
        Annotation("ProfilerStep#1", [Op("outer", [Work(2.0), Op("inner", [Launch(kernel(1.0))])])])
    )
    rows = {row.name: row for row in record.host}
    assert (rows["outer"].start_ns, rows["outer"].end_ns) == (0, 6_000)
    assert (rows["inner"].start_ns, rows["inner"].end_ns) == (2_000, 6_000)
    assert rows["cudaLaunchKernel"].external_id == rows["inner"].external_id
    assert record.device[0].external_id == rows["inner"].external_id
    assert [name for _, name in record.device[0].annotations] == ["ProfilerStep#1"]


def test_a_step_lasts_until_the_next_begins_and_the_last_until_its_end():
    record = run(
        Annotation("ProfilerStep#1", [Work(10.0)]),
        Work(5.0),
        Annotation("ProfilerStep#2", [Work(7)]),
    )
    assert record.step_names == ("ProfilerStep#1", "ProfilerStep#2")
    assert record.steps_us == (15.0, 7.0)


# -- ranks ----------------------------------------------------------------------------------


def reduce(duration_us, ranks=(0, 1)):
    return Launch(Collective("allreduce", "dp", ranks, duration_us), stream=24)


def test_a_collective_ends_a_transfer_after_its_last_member_began():
    result = execute(
        {
            0: Rank({"main": [reduce(30.0), Launch(kernel(1.0), stream=24)]}, TIMING),
            1: Rank({"main": [Work(100.0), reduce(40.0)]}, TIMING),
        }
    )
    # Both kernels are there at 110; the longer of the two transfers counts.
    assert device_us(result.ranks[0]) == [(10.0, 150.0), (151.0, 152.0)]
    assert device_us(result.ranks[1]) == [(110.0, 150.0)]
    assert [result.ranks[r].device[0].waited_ns for r in (0, 1)] == [100_000, 0]


def test_members_meet_in_order_of_launch_on_the_group():
    ranks = {
        0: Rank({"main": [reduce(10.0), reduce(20.0)]}, TIMING),
        1: Rank({"main": [reduce(10.0), Work(500.0), reduce(20.0)]}, TIMING),
    }
    result = execute(ranks)
    assert [row.sequence for row in result.ranks[0].device] == [0, 1]
    assert device_us(result.ranks[0])[1] == (21.0, 534.0)


def test_a_send_meets_its_receive_by_direction():
    def move(operation, source, destination, stream):
        work = Collective(operation, "pp", (0, 1), 10.0, source=source, destination=destination)
        return Launch(work, stream=stream)

    result = execute(
        {
            0: Rank({"main": [move("recv", 1, 0, 28), move("send", 0, 1, 32)]}, TIMING),
            1: Rank({"main": [move("recv", 0, 1, 28), Work(50.0), move("send", 1, 0, 32)]}, TIMING),
        }
    )
    assert device_us(result.ranks[0]) == [(14.0, 24.0), (10.0, 74.0)]
    assert device_us(result.ranks[1]) == [(10.0, 24.0), (64.0, 74.0)]


def test_a_collective_that_a_member_never_launches_is_an_error_that_says_where():
    ranks = {0: Rank({"main": [reduce(30.0), SynchronizeDevice()]}), 1: Rank({"main": [Work(1.0)]})}
    with pytest.raises(ConfigError, match="for ever.*rank 0 thread main.*rank 0 stream 24"):
        execute(ranks)


def test_a_collective_of_a_strange_group_is_an_error():
    with pytest.raises(ConfigError, match="no member"):
        execute({0: Rank({"main": [reduce(1.0, ranks=(1, 2))]})})


# -- changes and chance ----------------------------------------------------------------------

MIXED = [
    Work(10.0),
    Launch(kernel(100.0, "sgemm", "gemm")),
    Launch(kernel(50.0, "gelu", "elementwise")),
    Launch(Copy("DtoH", 20.0), blocking=True),
    Call("end", 0.0),
]


@pytest.mark.parametrize(
    "scale, end_us",
    [
        # 10 work, 10 latency, 100 + 1 + 50 + 1 + 20 device, 5 return.
        (None, 197.0),
        ({"gemm": 0.5}, 147.0),
        ({"gemm": 0.5, "elementwise": 2.0}, 197.0),
        ({"compute": 2.0}, 347.0),
        # Nothing delays the copy but its own launch: 18 + 10 + 20 + 5.
        ({"name:ge": 0.0}, 53.0),
        ({"memcpy": 0.0}, 177.0),
        # 20 more before the launch, and 10 more for the return.
        ({"host": 3.0}, 227.0),
        ({"launch": 0.1}, 188.0),
        ({"rank:0/gemm": 0.5}, 147.0),
        ({"rank:1/gemm": 0.5}, 197.0),
        ({"compute": 0.5, "gemm": 2.0}, 172.0),
    ],
)
def test_a_change_scales_what_it_names(scale, end_us):
    assert calls_us(run(*MIXED, scale=scale), "end")[0][0] == end_us


@pytest.mark.parametrize("selector", ["gem", "rank:x/gemm", "name:", "name:(", "gemm "])
def test_an_unknown_selector_is_refused(selector):
    with pytest.raises(ConfigError):
        run(Work(1.0), scale={selector: 1.0})


@pytest.mark.parametrize("factor", [-1.0, float("nan"), float("inf")])
def test_a_factor_must_be_a_finite_number_from_zero(factor):
    with pytest.raises(ConfigError, match="not a factor"):
        run(Work(1.0), scale={"gemm": factor})


def noisy(seed, scale=None):
    main = [Launch(kernel(100.0, "a", "gemm")), Launch(kernel(100.0, "b")), Work(50.0)] * 20
    noise = Noise(kernel=0.05, host=0.1, latency=0.1)
    return execute({0: Rank({"main": main})}, noise=noise, seed=seed, scale=scale).ranks[0]


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    assert noisy(1).device == noisy(1).device
    assert noisy(1).host == noisy(1).host
    assert noisy(1).device != noisy(2).device


def test_a_task_keeps_its_noise_under_a_change():
    def durations(record):
        return [row.end_ns - row.start_ns for row in record.device]

    before, after = durations(noisy(1)), durations(noisy(1, {"gemm": 2.0}))
    assert after[1::2] == before[1::2]
    assert all(abs(b - 2 * a) <= 1 for a, b in zip(before[::2], after[::2], strict=True))
    assert len(set(before)) > 30


# -- what holds of every run -------------------------------------------------------------------

_streams = st.sampled_from([7, 20, 24])
_events = st.sampled_from(["a", "b", "c"])
_instructions = st.one_of(
    st.builds(Work, st.floats(0, 20)),
    st.builds(Launch, st.builds(kernel, st.floats(0, 60)), _streams),
    st.builds(lambda d, s: Launch(Copy("DtoH", d), s, blocking=True), st.floats(0, 9), _streams),
    st.builds(Record, _events, _streams),
    st.builds(StreamWait, _events, _streams),
    st.builds(SynchronizeEvent, _events),
    st.builds(SynchronizeStream, _streams),
    st.builds(Poll, _events),
)
_programs = st.lists(_instructions, max_size=40)


@settings(max_examples=60)
@given(_programs, _programs)
def test_work_keeps_the_order_of_its_stream_and_follows_its_launch(first, second):
    record = run(*first, timing=Timing(), other=second)
    calls = {row.correlation: row for row in record.host if row.correlation >= 0}
    assert len(record.device) == sum(isinstance(i, Launch) for i in [*first, *second])
    assert all(
        row.start_ns >= calls[row.correlation].start_ns + 6_000 and row.end_ns >= row.start_ns
        for row in record.device
    )
    for stream in (7, 20, 24):
        rows = [row for row in record.device if row.stream == stream]
        for earlier, later in zip(rows, rows[1:], strict=False):
            assert later.start_ns >= earlier.end_ns + 1_200
            assert later.correlation > earlier.correlation


_launches = st.lists(
    st.one_of(
        st.builds(Work, st.floats(0, 20)),
        st.builds(Launch, st.builds(kernel, st.floats(0, 60)), _streams),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(_launches, _launches, st.integers(1, 4))
def test_never_more_works_are_pending_than_the_queue_holds(first, second, places):
    record = run(*first, timing=Timing(launch_queue=places), other=second)
    given_ns = {row.correlation: row.start_ns + row.waited_ns for row in record.host}
    for row in record.device:
        now_ns = given_ns[row.correlation]
        pending = [
            other
            for other in record.device
            if other.correlation < row.correlation
            and given_ns[other.correlation] <= now_ns < other.end_ns
        ]
        assert len(pending) < places


@settings(max_examples=60)
@given(_programs, st.floats(1.0, 4.0))
def test_longer_kernels_never_end_a_program_without_polling_earlier(program, factor):
    program = [i for i in program if not isinstance(i, Poll)]
    short = execute({0: Rank({"main": program}, TIMING)}).end_us
    long = execute({0: Rank({"main": program}, TIMING)}, scale={"other": factor}).end_us
    assert long >= short
