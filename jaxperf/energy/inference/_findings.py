"""What a rule finds: an outcome, and why."""

from jaxperf.energy._score_types import Outcome

Finding = tuple[Outcome, str]


def fail(text: str) -> Finding:
    """A rule is broken.

    Example:
        >>> fail("the server ran in debug mode")
        ('fail', 'the server ran in debug mode')
    """
    return "fail", text


def warning(text: str) -> Finding:
    """A rule is kept, but an auditor should look.

    Example:
        >>> warning("testing was short")
        ('warning', 'testing was short')
    """
    return "warning", text
