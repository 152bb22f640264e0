"""What a rule finds: an outcome, and why."""

from jaxperf.energy._score_types import Outcome

Finding = tuple[Outcome, str]


def fail(text: str) -> Finding:
    """A rule is broken."""
    return "fail", text


def warning(text: str) -> Finding:
    """A rule is kept, but an auditor should look."""
    return "warning", text
