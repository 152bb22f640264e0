"""Words and numbers for people: shared by the terminal and the page."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from jaxperf.replay import Breakdown, Replay, TimeComparison
from jaxperf.trace import Note

UNKNOWN = "–"

BREAKDOWN_PARTS: tuple[tuple[str, str], ...] = (
    ("compute_us", "compute"),
    ("overlap_us", "overlap"),
    ("exposed_communication_us", "exposed communication"),
    ("memory_us", "copies and sets"),
    ("idle_us", "idle"),
)
"""Fields of a `Breakdown` that add up to its total, with the words for them."""

CLASS_WORDS: dict[str, str] = {
    "gemm": "matrix multiplication",
    "moe": "expert routing",
    "memcpy": "copies",
    "host": "host work",
    "launch": "launches",
    "other": "other kernels",
}
"""Words for the classes whose own name is not yet a word."""


def time_text(time_us: float) -> str:
    """A time with four significant digits and the unit that suits it.

    Args:
        time_us: time in us; NaN where it is not known.

    Returns:
        Such as `12.35 ms`.

    Example:
        >>> time_text(12345.6), time_text(0.5), time_text(float("nan"))
        ('12.35 ms', '0.500 µs', '–')
    """
    if not math.isfinite(time_us):
        return UNKNOWN
    size = abs(time_us)
    scale, unit = (1e6, "s") if size >= 999_950 else (1e3, "ms") if size >= 999.95 else (1.0, "µs")
    value = time_us / scale
    digits = 3 if abs(value) < 9.9995 else 2 if abs(value) < 99.995 else 1
    return f"{value:.{digits}f} {unit}"


def percent_text(percent: float, signed: bool = False) -> str:
    """An error in percent.

    Args:
        percent: the error; NaN where it is not known.
        signed: also write the sign of a positive value.

    Returns:
        Such as `+0.42 %`.

    Example:
        >>> percent_text(0.4211, signed=True), percent_text(12.04)
        ('+0.42 %', '12.04 %')
    """
    if not math.isfinite(percent):
        return UNKNOWN
    value = round(percent, 2) + 0.0  # no "-0.00"
    return f"{value:+.2f} %" if signed and value else f"{value:.2f} %"


def share_text(percent: float) -> str:
    """A part of a whole in percent.

    Args:
        percent: the share; NaN where it is not known.

    Returns:
        Such as `61.0 %`.

    Example:
        >>> share_text(61.04)
        '61.0 %'
    """
    return f"{percent:.1f} %" if math.isfinite(percent) else UNKNOWN


def headline(replay: Replay) -> TimeComparison:
    """The one span that answers "how long": the mean step, or the window where there are no steps.

    Args:
        replay: the result of a replay.

    Returns:
        The span, named for a title: `step`, `mean of 3 steps` or `window`.
    """
    steps = replay.steps
    if not steps:
        return TimeComparison("window", replay.window.measured_us, replay.window.replayed_us)
    name = "step" if len(steps) == 1 else f"mean of {len(steps)} steps"
    return TimeComparison(
        name,
        sum(step.measured_us for step in steps) / len(steps),
        sum(step.replayed_us for step in steps) / len(steps),
    )


def class_word(name: str) -> str:
    """The word for a class.

    Args:
        name: name of the class, in lower case.

    Returns:
        A word for a person.

    Example:
        >>> class_word("gemm")
        'matrix multiplication'
    """
    return CLASS_WORDS.get(name, name)


def critical_shares(replay: Replay) -> list[tuple[str, float, float]]:
    """The critical path by class, the longest first.

    Args:
        replay: the result of a replay.

    Returns:
        Class name, time in us, and percentage of the path; classes without time left out.
    """
    total = sum(replay.critical_path_us.values())
    shares = [
        (name, time, 100.0 * time / total)
        for name, time in replay.critical_path_us.items()
        if time > 0
    ]
    return sorted(shares, key=lambda share: (-share[1], share[0]))


def critical_path_title(replay: Replay) -> str:
    """What a critical path by class is of, and how long it is.

    Args:
        replay: the result of a replay.

    Returns:
        Such as `Critical path of the window, 227.0 ms`.
    """
    of = replay.critical_path_step or "the window"
    return f"Critical path of {of}, {time_text(sum(replay.critical_path_us.values()))}"


def bound_sentence(replay: Replay) -> str:
    """What bounds the time, in one sentence.

    Args:
        replay: the result of a replay.

    Returns:
        A sentence, naming classes until they make up most of the critical path.
    """
    shares = critical_shares(replay)
    if not shares:
        return "What bounds it is not known: the replay has no critical path."
    named, covered = [], 0.0
    for name, _, share in shares[:3]:
        if covered >= 80.0 or (named and share < 5.0):
            break
        named.append(f"{share:.0f} % {class_word(name)}")
        covered += share
    return f"The critical path is {_listed(named)}."


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


@dataclass(frozen=True, slots=True)
class NoteGroup:
    """Notes of one code.

    Attributes:
        code: their code.
        notes: the notes, in order, none twice.
    """

    code: str
    notes: tuple[Note, ...]


def group_notes(notes: Iterable[Note]) -> list[NoteGroup]:
    """Notes by code, in order of first appearance; equal notes once.

    Args:
        notes: what was repaired, guessed or set aside.

    Returns:
        One group per code.

    Example:
        >>> [group.code for group in group_notes([Note("b", "x"), Note("a", "y"), Note("b", "z")])]
        ['b', 'a']
    """
    groups: dict[str, dict[Note, None]] = {}
    for note in notes:
        groups.setdefault(note.code, {})[note] = None
    return [NoteGroup(code, tuple(members)) for code, members in groups.items()]


def breakdown_parts(breakdown: Breakdown) -> list[tuple[str, str, float]]:
    """The parts of a breakdown: field, words and time in us.

    Args:
        breakdown: where the time of a step goes.

    Returns:
        One row per part, in the order of `BREAKDOWN_PARTS`.
    """
    return [(field, words, getattr(breakdown, field)) for field, words in BREAKDOWN_PARTS]
