"""The verb `plan`: tables over memories and servers, and how few servers do."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from jaxperf.config import RecommendationModel, Server, load_server, load_tables
from jaxperf.embedding.placement._plan_types import EmbeddingPlan
from jaxperf.errors import ConfigError
from jaxperf.trace import Note

if TYPE_CHECKING:
    from jaxperf.embedding.hierarchy import HierarchyRules, LocalityCurves
    from jaxperf.embedding.placement._solve import Solution, Solver

SERVER = "zionex"
"""Taken where none is given."""
_MOST_NODES = 4096
_LEAST_S = 5.0  # for the placement itself, however long the search for a number took


def plan(
    tables: RecommendationModel | str,
    *,
    server: Server | str | None = None,
    nodes: int | None = None,
    target_samples_per_s: float | None = None,
    time_limit_s: float = 60.0,
    curves: "LocalityCurves | None" = None,
    rules: "HierarchyRules | None" = None,
) -> EmbeddingPlan:
    """Place the tables of a model on the memories of as few servers as reach its rate.

    The bound holds for caches of every size and for tables in any parts, however short the search;
    the placement is no slower than the greedy one, and no faster than the rated endurance of what
    wears allows.

    Args:
        tables: the model; a TOML file of it, or a name of one that comes with the package.
        server: one of the servers, as `tables`; the one of MTrainS's baseline where not given.
        nodes: servers; the least that reach the rate where not given, and with no rate the least
            that hold the tables.
        target_samples_per_s: the rate; the model's own where not given.
        time_limit_s: for the search, curves and compilation not counted.
        curves: reuse of each table; from the model's own description where not given.
        rules: how the hierarchy is run.

    Returns:
        The plan.

    Raises:
        ConfigError: a description is not valid; the tables do not fit, or the rate asked for here
            cannot be reached, with what is short.

    Example:
        >>> found = plan("demo", server="zionex")
        >>> found.nodes, found.binding, found.bound_gap < 0.01
        (1, 'network', True)
    """
    from jaxperf.embedding.hierarchy import HierarchyRules, model_arrays
    from jaxperf.embedding.hierarchy._model import curve_notes
    from jaxperf.embedding.placement._solve import Solver
    from jaxperf.embedding.placement._study import study_of
    from jaxperf.embedding.placement._summary import summarize

    model = tables if isinstance(tables, RecommendationModel) else load_tables(tables)
    described = server if isinstance(server, Server) else load_server(server or SERVER)
    target = model.target_samples_per_s if target_samples_per_s is None else target_samples_per_s
    _check(nodes, target, time_limit_s)
    arrays = model_arrays(model, curves)
    assumed = () if server is not None else (_server_assumed(described),)
    guessed = curve_notes(model) if curves is None else ()
    study = study_of(model, arrays, described, HierarchyRules() if rules is None else rules)
    solver = Solver(study)
    deadline = time.monotonic() + time_limit_s
    if nodes is None:
        step_us = math.inf if target is None else model.batch_size / target * 1e6
        nodes, solution, doubtful = _least_nodes(solver, step_us, deadline)
        if solution is None:
            raise _too_slow(solver, model.batch_size / step_us * 1e6)
        found = summarize(study, nodes, solution, _what_binds_below(solver, nodes), target)
        return _with_notes(found, (*assumed, *_of_number(target, doubtful)), guessed)
    solution = _solve(solver, nodes, deadline)
    assert solution is not None
    if target_samples_per_s is not None:
        _check_rate(solver, solution, nodes, target_samples_per_s)
    return _with_notes(summarize(study, nodes, solution, None, target), assumed, guessed)


def _server_assumed(server: Server) -> Note:
    return Note("server-assumed", f"no server was given: taken to be {server.name}")


def _check(nodes: int | None, target: float | None, time_limit_s: float) -> None:
    for key, value in (
        ("nodes", nodes),
        ("target_samples_per_s", target),
        ("time_limit_s", time_limit_s),
    ):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ConfigError("not a quantity", where=key, got=repr(value), expected="above 0")


def _solve(
    solver: "Solver", nodes: int, deadline: float, step_us: float = math.inf
) -> "Solution | None":
    deadline = max(deadline, time.monotonic() + _LEAST_S)
    try:
        return solver.solve(nodes, deadline, step_us)
    except ConfigError as error:
        raise _named(error, solver, nodes) from None


def _named(error: ConfigError, solver: "Solver", nodes: int) -> ConfigError:
    where = f"{nodes} x {solver.study.server.name}"
    return ConfigError(
        error.what, where=where, got=error.got, expected=error.expected, remedy=error.remedy
    )


def _check_rate(solver: "Solver", solution: "Solution", nodes: int, target: float) -> None:
    from jaxperf.embedding.placement._summary import binding_word

    step = solution.placement.packing.step
    rate = solver.study.model.batch_size / step.step_us * 1e6
    if rate >= target:
        return
    word = binding_word(solver.study, nodes, step)
    raise ConfigError(
        f"{word} does not allow the rate: exceeded by {100 * (target / rate - 1):.3g} %",
        where=f"{nodes} x {solver.study.server.name}",
        got=f"{rate:,.0f} samples/s",
        expected=f"{target:,.0f}",
    )


def _least_nodes(
    solver: "Solver", step_us: float, deadline: float
) -> tuple[int, "Solution | None", list[int]]:
    """The least number of servers with such a step, and fewer that no bound excludes.

    More servers may be slower: ranks of one server speak over its own links, those of several over
    the network. Without the network they are not, so that halving finds the numbers that the bound
    without it excludes; each further one is tried, by its own bound and then by a placement.
    """
    low = least_not_excluded(
        lambda nodes: solver.excludes(nodes, step_us, network=False), _MOST_NODES
    )
    doubtful = []
    for nodes in range(low, _MOST_NODES + 1):
        if solver.excludes(nodes, step_us, network=True):
            continue
        try:
            solution = _solve(solver, nodes, _half(deadline), step_us)
        except ConfigError:
            if nodes == _MOST_NODES:
                raise
            continue
        if solution is None:
            continue
        if solution.placement.step_us <= step_us:
            return nodes, solution, doubtful
        doubtful.append(nodes)
    return _MOST_NODES, None, doubtful


def _with_notes(
    found: EmbeddingPlan, first: tuple[Note, ...], last: tuple[Note, ...]
) -> EmbeddingPlan:
    return replace(found, notes=(*first, *found.notes, *last))


def _of_number(target: float | None, doubtful: list[int]) -> tuple[Note, ...]:
    notes = []
    if target is None:
        text = "neither servers nor a rate were given: the fewest servers that hold the tables"
        notes.append(Note("nodes-assumed", text))
    if doubtful:
        numbers = ", ".join(map(str, doubtful))
        text = f"of {numbers} servers no placement reached the rate, and no bound excludes it"
        notes.append(Note("fewer-not-excluded", text))
    return tuple(notes)


def _half(deadline: float) -> float:
    now = time.monotonic()
    return now + (deadline - now) / 2


def least_not_excluded(excluded: Callable[[int], bool], most: int) -> int:
    """The first number that is not excluded, where one that is excludes all below it.

    Args:
        excluded: whether a number is.
        most: not to be exceeded.

    Returns:
        The number; one more than `most` where all are excluded.

    Example:
        >>> least_not_excluded(lambda number: number < 11, 100)
        11
    """
    low, high = 0, 1
    while excluded(high):
        if high >= most:
            return most + 1
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if excluded(middle) else (low, middle)
    return high


def _too_slow(solver: "Solver", target: float) -> ConfigError:
    return ConfigError(
        "no number of servers reaches the rate",
        where=solver.study.server.name,
        got=_what_binds_below(solver, _MOST_NODES + 1) or "nothing",
        expected=f"{target:,.0f} samples/s on at most {_MOST_NODES} servers",
    )


def _what_binds_below(solver: "Solver", nodes: int) -> str | None:
    """What one server less is short of; `None` where there is none less."""
    from jaxperf.embedding.placement._problem import pooled_step
    from jaxperf.embedding.placement._summary import binding_word

    if nodes == 1:
        return None
    try:
        problem, relaxed = solver.bound(nodes - 1)
    except ConfigError:
        return "capacity"
    return binding_word(solver.study, nodes - 1, pooled_step(problem, relaxed.shares))
