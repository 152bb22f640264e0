import dataclasses
import io

from rich.console import Console

from jaxperf.report import print_replay
from jaxperf.report._words import time_text


def printed(replay, width=80):
    file = io.StringIO()
    print_replay(replay, Console(file=file, width=width))
    return file.getvalue()


def test_the_answer_comes_first_and_fits_80_columns(replay):
    lines = printed(replay).splitlines()
    assert lines[0].startswith("Mean of 2 steps: ")
    assert "0.81 % on steps held out" in lines[1]
    assert lines[2].startswith("The critical path is 61 % matrix multiplication")
    assert max(map(len, lines)) <= 80
    path_us = sum(replay.critical_path_us.values())
    titles = [
        f"Critical path of the window, {time_text(path_us)}",
        "Where a step's time goes",
        "Steps",
        "Ranks",
        "Notes",
    ]
    assert [line for line in lines if line in titles] == titles


def test_the_path_of_one_step_is_titled_by_that_step(replay):
    text = printed(dataclasses.replace(replay, critical_path_step="ProfilerStep#7"))
    assert "Critical path of ProfilerStep#7, " in text and "of the window" not in text


def test_a_pipe_gets_no_escape_codes(replay):
    assert "\x1b" not in printed(replay)


def test_what_looks_like_markup_is_printed_as_it_is(replay):
    odd = dataclasses.replace(replay.steps[0], name="[bold]step[/bold]")
    device = dataclasses.replace(replay.ranks[0], device="[red]GPU")
    text = printed(dataclasses.replace(replay, steps=(odd, odd), ranks=(device,)))
    assert "[bold]step[/bold]" in text
    assert "[red]GPU" in text


def test_notes_of_one_kind_are_told_once(replay):
    text = " ".join(printed(replay).split())
    assert "16 inferred. (and 1 more of this kind)" in text
    assert "12 inferred." not in text


def test_what_there_is_not_is_left_out(replay):
    bare = dataclasses.replace(
        replay,
        steps=(),
        breakdown_measured=None,
        breakdown_replayed=None,
        critical_path_us={},
        hold_out=None,
        notes=(),
    )
    text = printed(bare)
    assert text.startswith("Window: ")
    assert "Notes" not in text and "Steps" not in text and "Critical path of" not in text
    assert "nan" not in text.lower()


def test_many_ranks_end_with_how_many_more_there_are(replay):
    text = printed(dataclasses.replace(replay, ranks=replay.ranks * 32))
    assert "and 48 more" in text
