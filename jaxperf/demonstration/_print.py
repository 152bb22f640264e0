"""What `jaxperf demo` prints: each step with its command, its answer, and what its maker knows."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from rich.console import Console
from rich.markup import escape

from jaxperf.demonstration._demo import Demo
from jaxperf.report import (
    print_calibration,
    print_plan,
    print_prediction,
    print_profile,
    print_replay,
    print_search,
    print_whatif,
    time_text,
)


@dataclass(frozen=True)
class _Step:
    """One step: the attribute of the demo, the question, how to print it, and what is known."""

    name: str
    question: str
    print: Callable[[Console], None]
    truth: str = ""


def print_demo(demo: Demo, console: Console) -> None:
    """Print what was made, what each verb makes of it, and where the files lie."""
    events = sum(summary.events for summary in demo.replay.ranks)
    console.print(
        f"Simulated a GPT training job: {len(demo.traces)} ranks, two pipeline stages of two "
        f"replicas, {len(demo.replay.steps)} steps; {events:,} events traced.\n",
        highlight=False,
    )
    for step in _steps(demo):
        console.rule(step.question)
        _print_whole(console, f"$ {escape(demo.commands[step.name])}", style="bold")
        step.print(console)
        if step.truth:
            console.print(step.truth, highlight=False)
    console.print("\nFiles", style="bold")
    for path, what in (
        (demo.report, "the report: open it in a browser"),
        (demo.replayed_trace, "the replayed timeline, for ui.perfetto.dev"),
        (demo.job, "the job, for jaxperf whatif --job and jaxperf estimate"),
        (demo.fit, "the fitted numbers, for jaxperf whatif --fit"),
        (demo.traces[0].parent, "the traces, one per rank"),
        (demo.accesses, "the lookups, for jaxperf embedding profile"),
        (demo.tables, "the tables, for jaxperf embedding plan"),
    ):
        _print_whole(console, f"  {escape(str(path))}  [dim]{what}[/dim]")


def _steps(demo: Demo) -> tuple[_Step, ...]:
    # Notes of the traces are printed once, with the replay.
    return (
        _Step(
            "replay",
            "How long does a step take, and why?",
            lambda console: print_replay(demo.replay, console),
            f"The simulator, which ran it, knows {time_text(demo.true_step_us)}.",
        ),
        _Step(
            "whatif",
            "What if matrix products took half the time?",
            lambda console: print_whatif(replace(demo.whatif, notes=()), console),
            f"The simulator, asked the same, measures {time_text(demo.true_whatif_us)}.",
        ),
        _Step(
            "retargeted",
            "What if the job ran on sixteen ranks: four stages, two shards of each layer?",
            lambda console: print_whatif(replace(demo.retargeted, notes=()), console),
            f"The simulator, run with that job, measures {time_text(demo.true_retargeted_us)}.",
        ),
        _Step(
            "calibration",
            "How well does a cost model tell the kernels?",
            lambda console: print_calibration(replace(demo.calibration, notes=()), console),
        ),
        _Step(
            "search",
            "What is the best way to run it on 64 GPUs?",
            lambda console: print_search(replace(demo.search, notes=()), console),
        ),
        _Step(
            "energy",
            "What energy does it take, and what at a lower clock?",
            lambda console: print_prediction(replace(demo.energy, notes=()), console),
        ),
        _Step(
            "profile",
            "How often would a cache hold the embedding rows that are asked for?",
            lambda console: print_profile(demo.profile, console),
            _hit_ratios_text(demo.true_hit_ratios),
        ),
        _Step(
            "plan",
            "Which embedding table goes to which memory?",
            lambda console: print_plan(demo.plan, console),
        ),
    )


def _hit_ratios_text(hit_ratios: dict[int, float]) -> str:
    found = ", ".join(f"{ratio:.4f} with {rows:,} rows" for rows, ratio in hit_ratios.items())
    return (
        "Who knows by which popularity they were drawn, and keeps the most popular rows, "
        f"expects {found}."
    )


def _print_whole(console: Console, text: str, *, style: str | None = None) -> None:
    # Not wrapped: a path or a command is to be copied whole.
    console.print(text, style=style, highlight=False, soft_wrap=True)
