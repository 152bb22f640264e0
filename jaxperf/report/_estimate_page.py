"""The page of an estimate: the answer, memory, and the timeline of a rank of each stage."""

from jaxperf.estimate import Estimate
from jaxperf.report._escape import markup_text
from jaxperf.report._estimate import (
    MEMORY_PARTS,
    estimate_rates,
    fit_sentence,
    gigabytes_text,
    memory_parts,
    remedy_text,
)
from jaxperf.report._estimated_replay import estimated_replay
from jaxperf.report._html import (
    breakdowns_section,
    critical_path_section,
    html_table,
    notes_section,
    section,
    whole_page,
)
from jaxperf.report._words import (
    BREAKDOWN_PARTS,
    bound_sentence,
    share_text,
    time_text,
)


def estimate_page(estimate: Estimate) -> str:
    """An estimate as one HTML file.

    Args:
        estimate: of `estimate`.

    Returns:
        The page.
    """
    replay = estimated_replay(estimate)
    tables = "".join(
        [_breakdown(estimate), _memory(estimate), _out_of_range(estimate), notes_section(replay)]
    )
    return whole_page(
        replay,
        title=f"{time_text(estimate.step_us)} estimated – jaxperf",
        facts=_facts(estimate),
        answer=_answer(estimate, bound_sentence(replay)),
        cards=critical_path_section(replay) + breakdowns_section(replay, measured=False),
        tables=f'<div class="tables">{tables}</div>',
        measured=False,
    )


def _facts(estimate: Estimate) -> str:
    shown = len(estimate.graph.ranks)
    return markup_text(
        " · ".join(
            [
                estimate.job.name,
                estimate.hardware.name,
                f"{estimate.gpus:,} GPUs",
                f"{shown} rank{'s' * (shown != 1)} shown, one of each stage",
                f"{estimate.graph.tasks:,} tasks",
            ]
        )
    )


def _answer(estimate: Estimate, bound: str) -> str:
    numbers = [("", time_text(estimate.step_us), "a step, estimated")]
    numbers += [("small", value, words) for words, value in estimate_rates(estimate)]
    listed = "".join(
        f'<div class="{kind}"><dt>{markup_text(words)}</dt><dd>{markup_text(value)}</dd></div>'
        for kind, value, words in numbers
    )
    return (
        f'<dl class="numbers">{listed}</dl><div><p class="sentence">{markup_text(bound)}</p>'
        f'<p class="aside">{markup_text(fit_sentence(estimate))}</p></div>'
    )


def _breakdown(estimate: Estimate) -> str:
    total_us = estimate.breakdown.total_us
    rows = [
        [words, time_text(time_us), share_text(100.0 * time_us / total_us)]
        for field, words in (*BREAKDOWN_PARTS, ("total_us", "total"))
        for time_us in [getattr(estimate.breakdown, field)]
    ]
    return section("A step, mean of ranks", html_table(["", "estimated", ""], rows, numbers=2))


def _memory(estimate: Estimate) -> str:
    stages = estimate.memory.stages
    rows = [
        [str(stage.stage), *(gigabytes_text(size) for _, size in memory_parts(stage))]
        for stage in stages
    ]
    head = ["stage", *(words for _, words in MEMORY_PARTS)]
    body = html_table(head, rows, numbers=len(MEMORY_PARTS))
    remedies = [remedy_text(remedy) for remedy in estimate.memory_fit.remedies]
    body += "".join(f"<p>{markup_text(text)}</p>" for text in remedies)
    return section("Memory of a rank, GB", body, wide=True)


def _out_of_range(estimate: Estimate) -> str:
    if not estimate.out_of_range:
        return ""
    rows = [[line] for line in estimate.out_of_range]
    return section("Without a basis", html_table(["what"], rows, numbers=0), wide=True)
