"""Orders of passes, against a simulation of the pipeline and what their papers say of them."""

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from jaxperf.config import SCHEDULES
from jaxperf.errors import ConfigError
from jaxperf.workload._schedules import (
    Pass,
    PassKind,
    bubble_fraction,
    bubble_us,
    dependencies,
    overlapped_passes,
    passes_in_flight,
    schedule_passes,
    virtual_stage,
)

FORWARD, BACKWARD, OF_INPUT, OF_WEIGHT = PassKind


@st.composite
def pipelines(draw, schedules=SCHEDULES[1:]):
    """Schedule, stages, micro-batches and chunks of a rank that go together."""
    schedule = draw(st.sampled_from(schedules))
    stages = draw(st.integers(1, 9))
    micro_batches = draw(st.integers(1, 30))
    chunks = 1
    if schedule == "interleaved":
        micro_batches = stages * draw(st.integers(1, 4))
        chunks = draw(st.integers(1, 4))
    if schedule == "dualpipe":
        stages = 2 * draw(st.integers(1, 5))
        micro_batches = 2 * (stages + draw(st.integers(0, 8)))
    return schedule, stages, micro_batches, chunks


def needs(schedule, stages, chunks, rank, each):
    """What a pass waits for, from the definition: (forward, micro-batch, place in the model)."""
    last = stages - 1 if schedule == "dualpipe" else stages * chunks - 1
    stage = (
        (rank if each.chunk == 0 else stages - 1 - rank)
        if schedule == "dualpipe"
        else each.chunk * stages + rank
    )
    if each.kind == FORWARD:
        return [(True, each.micro_batch, stage - 1)] if stage else [], stage
    if each.kind == OF_WEIGHT:
        return [(False, each.micro_batch, stage)], stage
    after = [(False, each.micro_batch, stage + 1)] if stage < last else []
    return [(True, each.micro_batch, stage), *after], stage


def simulate(pipeline, duration, pair=None):
    """The times at which the ranks end, and how long each waits until the last does.

    Args:
        pipeline: schedule, stages, micro-batches, chunks.
        duration: of a pass, by kind.
        pair: of a forward pass and a backward pass that run at once.
    """
    schedule, stages, micro_batches, chunks = pipeline
    orders = schedule_passes(*pipeline)
    together = overlapped_passes(schedule, orders)
    left = [
        [
            order[at : at + 2] if at in pairs and pair else order[at : at + 1]
            for at in range(len(order))
            if not (pair and at - 1 in pairs)
        ]
        for order, pairs in zip(orders, together, strict=True)
    ]
    end, clock, busy = {}, [0] * stages, [0] * stages
    moved = True
    while moved:
        moved = False
        for rank in range(stages):
            while left[rank]:
                group = left[rank][0]
                waited, made = [], []
                for each in group:
                    inputs, stage = needs(schedule, stages, chunks, rank, each)
                    waited += inputs
                    if each.kind != OF_WEIGHT:
                        made.append((each.kind == FORWARD, each.micro_batch, stage))
                if any(key not in end for key in waited):
                    break
                takes = pair if len(group) == 2 else duration[group[0].kind]
                clock[rank] = max([clock[rank], *(end[key] for key in waited)]) + takes
                busy[rank] += takes
                end.update(dict.fromkeys(made, clock[rank]))
                left[rank].pop(0)
                moved = True
    assert not any(left), "the ranks wait for one another"
    return clock, [max(clock) - time for time in busy]


def durations(forward, backward, weight):
    return {
        FORWARD: forward,
        BACKWARD: backward,
        OF_INPUT: backward - weight,
        OF_WEIGHT: weight,
    }


@given(pipelines())
def test_every_pass_is_done_once_and_no_rank_waits_for_ever(pipeline):
    schedule, stages, micro_batches, chunks = pipeline
    simulate(pipeline, durations(3, 5, 2))
    for order in schedule_passes(*pipeline):
        done = Counter(order)
        assert set(done.values()) == {1}
        forward = {each[1:] for each in order if each.kind == FORWARD}
        whole = {each[1:] for each in order if each.kind == BACKWARD}
        of_input = {each[1:] for each in order if each.kind == OF_INPUT}
        of_weight = {each[1:] for each in order if each.kind == OF_WEIGHT}
        assert whole | of_input == forward
        assert not whole & of_input
        assert of_input == of_weight
        if schedule == "dualpipe":
            half = micro_batches // 2
            expected = {(batch, int(batch >= half)) for batch in range(micro_batches)}
        else:
            expected = {(batch, chunk) for batch in range(micro_batches) for chunk in range(chunks)}
        assert forward == expected


@given(pipelines())
def test_forward_comes_before_backward_and_gradients_of_weights_come_last(pipeline):
    for order in schedule_passes(*pipeline):
        at = {each: position for position, each in enumerate(order)}
        for each, position in at.items():
            if each.kind in (BACKWARD, OF_INPUT):
                assert at[each._replace(kind=FORWARD)] < position
            if each.kind == OF_WEIGHT:
                assert at[each._replace(kind=OF_INPUT)] < position


@given(pipelines())
def test_a_pass_depends_on_that_of_the_layers_beside_it(pipeline):
    schedule, stages, _, chunks = pipeline
    orders = schedule_passes(*pipeline)
    for rank, row in enumerate(dependencies(schedule, orders)):
        for each, places in zip(orders[rank], row, strict=True):
            found = [
                (
                    orders[other][at].kind == FORWARD,
                    orders[other][at].micro_batch,
                    virtual_stage(schedule, stages, other, orders[other][at].chunk),
                )
                for other, at in places
            ]
            assert found == needs(schedule, stages, chunks, rank, each)[0]
            assert all(orders[other][at].kind != OF_WEIGHT for other, at in places)


@given(pipelines(("gpipe", "1F1B")), st.integers(1, 9), st.integers(1, 9))
def test_the_bubble_of_gpipe_and_one_f_one_b_is_p_minus_one_over_m(pipeline, forward, backward):
    schedule, stages, micro_batches, _ = pipeline
    ends, _ = simulate(pipeline, durations(forward, backward, 0))
    assert max(ends) == (micro_batches + stages - 1) * (forward + backward)
    fraction = bubble_fraction(
        schedule, stages, micro_batches, forward_us=forward, backward_us=backward
    )
    assert fraction == pytest.approx((stages - 1) / micro_batches, rel=1e-12)


@given(pipelines(("interleaved",)), st.integers(1, 9), st.integers(1, 9))
def test_the_bubble_of_interleaved_is_p_minus_one_over_m_v(pipeline, forward, backward):
    """A chunk takes `forward` and `backward`, so a stage v times as long."""
    schedule, stages, micro_batches, chunks = pipeline
    ends, waits = simulate(pipeline, durations(forward, backward, 0))
    both = chunks * (forward + backward)
    assert max(ends) == micro_batches * both + (stages - 1) * both // chunks
    assert set(waits) == {(stages - 1) * both // chunks}
    fraction = bubble_fraction(schedule, stages, micro_batches, chunks)
    assert fraction == pytest.approx((stages - 1) / (micro_batches * chunks), rel=1e-12)


@given(pipelines(("zero-bubble",)), st.integers(1, 9), st.integers(0, 9), st.integers(0, 9))
def test_the_bubble_of_zero_bubble_h1_is_as_published(pipeline, weight, more_forward, more_input):
    _, stages, micro_batches, _ = pipeline
    pipeline = ("zero-bubble", stages, micro_batches + stages - 1, 1)
    forward, of_input = weight + more_forward, weight + more_input
    ends, waits = simulate(pipeline, durations(forward, of_input + weight, weight))
    assert waits[0] == (stages - 1) * (forward + of_input - weight)
    times = {"forward_us": forward, "backward_us": of_input + weight, "weight_us": weight}
    assert waits[0] == bubble_us(*pipeline, **times)
    assert ends[0] == max(ends)


def test_zero_bubble_h1_has_a_third_of_the_bubble_of_one_f_one_b():
    """Qi et al., section 2.1, with passes of one length."""
    assert bubble_fraction("zero-bubble", 8, 32) == bubble_fraction("1F1B", 8, 32) / 3


@given(pipelines(("dualpipe",)), st.integers(1, 9), st.integers(0, 9), st.integers(1, 40))
def test_the_bubble_of_dualpipe_is_as_published(pipeline, weight, more, pair):
    """In the middle of the pipeline; where F&B is less than both, the outer ranks wait less."""
    _, stages, *_ = pipeline
    forward = weight + more
    backward = forward + weight
    pair = forward + backward - min(pair, weight)
    _, waits = simulate(pipeline, durations(forward, backward, weight), pair)
    published = (stages // 2 - 1) * (pair + backward - 3 * weight)
    assert waits[stages // 2] == waits[stages // 2 - 1] == max(waits) == published
    assert published == bubble_us(
        *pipeline,
        forward_us=forward,
        backward_us=backward,
        weight_us=weight,
        overlapped_us=pair,
    )


@given(pipelines(("dualpipe",)))
def test_dualpipe_without_overlap_keeps_every_rank_waiting_alike(pipeline):
    _, waits = simulate(pipeline, durations(2, 4, 2), 6)
    assert len(set(waits)) == 1


@given(pipelines())
def test_activations_in_flight_are_as_published(pipeline):
    schedule, stages, micro_batches, chunks = pipeline
    expected = {
        "gpipe": lambda rank: micro_batches,
        "1F1B": lambda rank: min(micro_batches, stages - rank),
        "interleaved": lambda rank: min(
            micro_batches * chunks, (stages - rank - 1) * 2 + (chunks - 1) * stages + 1
        ),
        # Each rank as the first: what the weight part still needs counts.
        "zero-bubble": lambda rank: min(micro_batches, stages),
        "dualpipe": lambda rank: stages + 1,
    }[schedule]
    assert passes_in_flight(*pipeline) == tuple(map(expected, range(stages)))


def test_the_first_rank_of_interleaved_holds_the_activations_that_megatron_counts():
    """Korthikanti et al., arXiv 2205.05198, section 4.2.3: L (1 + (p - 1) / (p m)) layers."""
    stages, chunks, layers = 8, 3, 96
    held = passes_in_flight("interleaved", stages, 64, chunks)[0]
    in_layers = held * layers / (stages * chunks)
    assert in_layers == pytest.approx(layers * (1 + (stages - 1) / (stages * chunks)))


def test_one_stage_alone_takes_turns():
    ((first, second, *rest),) = schedule_passes("none", 1, 3)
    assert (first, second, len(rest)) == (Pass(FORWARD, 0, 0), Pass(BACKWARD, 0, 0), 4)
    assert schedule_passes("1F1B", 1, 3) == schedule_passes("none", 1, 3)
    assert bubble_fraction("none", 1, 3) == 0


def test_the_order_of_interleaved_is_that_of_megatron():
    """Narayanan et al., arXiv 2104.04473, figure 4 below: 4 devices, 8 micro-batches, 2 chunks."""
    orders = schedule_passes("interleaved", 4, 8, 2)
    forward = [[(p.micro_batch, p.chunk) for p in order if p.kind == FORWARD] for order in orders]
    one = [(batch, chunk) for chunk in (0, 1) for batch in range(4)]
    assert forward == [one + [(batch + 4, chunk) for batch, chunk in one]] * 4
    assert [order.index(Pass(BACKWARD, 0, 1)) for order in orders] == [11, 9, 7, 5]


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (("1f1b", 2, 2), "schedule: unknown schedule; got 1f1b; expected none, gpipe, 1F1B"),
        (("none", 2, 2), "several stages need a schedule"),
        (("gpipe", 2, 0), "micro_batches: too few; got 0; expected 1 or more"),
        (("1F1B", 4, 8, 2), "virtual_stages: schedule 1F1B has one chunk"),
        (("interleaved", 4, 10, 2), "got 10; expected 8 or 12"),
        (("interleaved", 4, 3, 2), "got 3; expected 4"),
        (("dualpipe", 3, 12), "pipeline_parallel: dualpipe needs an even number"),
        (("dualpipe", 4, 6), "got 6; expected 8"),
        (("dualpipe", 4, 13), "got 13; expected 12 or 14"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(pipeline, message):
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        schedule_passes(*pipeline)
