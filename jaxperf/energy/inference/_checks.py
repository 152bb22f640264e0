"""The eleven rules of mlcommons/power-dev applied to a session.

Source: `compliance/check.py` there, as of commit c4b3ad8, and its copy in mlcommons/inference.

A rule is a generator of what it finds, in the order in which that program looks; the first finding
is its outcome, and a rule that finds nothing has passed.
"""

from collections.abc import Callable, Iterator

from jaxperf.energy._score_types import Check
from jaxperf.energy.inference._check_phases import (
    no_debugging,
    phases_alike,
    same_messages,
    same_session_name,
    same_uuids,
)
from jaxperf.energy.inference._check_ptd import (
    commands_and_replies,
    daemon_configuration,
    daemon_log,
)
from jaxperf.energy.inference._check_sources import (
    client_sources,
    results_unchanged,
    server_sources,
)
from jaxperf.energy.inference._findings import Finding
from jaxperf.energy.inference._session import Session

_RULES: tuple[tuple[str, Callable[[Session], Iterator[Finding]]], ...] = (
    ("Check client sources checksum", client_sources),
    ("Check server sources checksum", server_sources),
    ("Check PTD commands and replies", commands_and_replies),
    ("Check UUID", same_uuids),
    ("Check session name", same_session_name),
    ("Check time difference", phases_alike),
    ("Check client server messages", same_messages),
    ("Check results checksum", results_unchanged),
    ("Check errors and warnings from PTD logs", daemon_log),
    ("Check PTD configuration", daemon_configuration),
    ("Check debug is disabled on server-side", no_debugging),
)


def check_session(session: Session) -> tuple[Check, ...]:
    """The outcome of every rule.

    Args:
        session: a session.

    Returns:
        Eleven checks, in the order and by the names of the rules' own program.
    """
    findings = ((name, next(rule(session), ("pass", ""))) for name, rule in _RULES)
    return tuple(Check(name, outcome, text) for name, (outcome, text) in findings)
