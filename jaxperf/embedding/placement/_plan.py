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

_SERVER = "zionex"
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

    The bound is that of the linear relaxation; the placement is no slower than the greedy one, and
    no faster than the rated endurance of what wears allows.

    Args:
        tables: the model; a TOML file of it, or a name of one that comes with the package.
        server: one of the servers, as `tables`; the one of MTrainS's baseline where not given.
        nodes: servers; the least that reach the rate where not given.
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
    from jaxperf.embedding.placement._solve import Solver
    from jaxperf.embedding.placement._study import study_of
    from jaxperf.embedding.placement._summary import summarize

    model = tables if isinstance(tables, RecommendationModel) else load_tables(tables)
    described = server if isinstance(server, Server) else load_server(server or _SERVER)
    target = model.target_samples_per_s if target_samples_per_s is None else target_samples_per_s
    _check(nodes, target, time_limit_s, model.name)
    arrays = model_arrays(model, curves)
    study = study_of(model, arrays, described, HierarchyRules() if rules is None else rules)
    solver = Solver(study)
    deadline = time.monotonic() + time_limit_s
    if nodes is None:
        assert target is not None
        found = summarize(study, *_least_nodes(solver, target, deadline), target)
        return found if server is not None else _with_assumed_server(found)
    solution = _solve(solver, nodes, deadline)
    if target_samples_per_s is not None:
        _check_rate(solver, solution, nodes, target_samples_per_s)
    found = summarize(study, nodes, solution, None, target)
    return found if server is not None else _with_assumed_server(found)


def _with_assumed_server(found: EmbeddingPlan) -> EmbeddingPlan:
    text = f"no server was given: taken to be {found.server}"
    return replace(found, notes=(Note("server-assumed", text), *found.notes))


def _check(nodes: int | None, target: float | None, time_limit_s: float, name: str) -> None:
    for key, value in (
        ("nodes", nodes),
        ("target_samples_per_s", target),
        ("time_limit_s", time_limit_s),
    ):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ConfigError("not a quantity", where=key, got=repr(value), expected="above 0")
    if nodes is None and target is None:
        raise ConfigError(
            "neither a number of nodes nor a rate",
            where=f"{name}: target_samples_per_s",
            remedy="give one of the two",
        )


def _solve(solver: "Solver", nodes: int, deadline: float) -> "Solution":
    deadline = max(deadline, time.monotonic() + _LEAST_S)
    try:
        return solver.solve(nodes, deadline)
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
    solver: "Solver", target: float, deadline: float
) -> tuple[int, "Solution", str | None]:
    """The least number of servers, their placement, and what keeps one less from the rate."""
    step_us = solver.study.model.batch_size / target * 1e6
    nodes = _least(lambda number: _bound_us(solver, number) <= step_us, solver, target)
    solution = _solve(solver, nodes, _half(deadline))
    if solution.placement.step_us <= step_us:
        # Finer caches than those of the first bound may do with fewer.
        while nodes > 1 and _fine_bound_us(solver, nodes - 1, deadline) <= step_us:
            fewer = _solve(solver, nodes - 1, _half(deadline))
            if fewer.placement.step_us > step_us:
                break
            nodes, solution = nodes - 1, fewer
    while solution.placement.step_us > step_us:
        nodes += 1
        if nodes > _MOST_NODES:
            raise _too_slow(solver, target)
        solution = _solve(solver, nodes, _half(deadline))
    return nodes, solution, _what_binds_below(solver, nodes)


def _half(deadline: float) -> float:
    now = time.monotonic()
    return now + (deadline - now) / 2


def _least(enough: Callable[[int], bool], solver: "Solver", target: float) -> int:
    high = 1
    while not enough(high):
        if high >= _MOST_NODES:
            raise _too_slow(solver, target)
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _too_slow(solver: "Solver", target: float) -> ConfigError:
    return ConfigError(
        "no number of servers reaches the rate",
        where=solver.study.server.name,
        got=_what_binds_below(solver, _MOST_NODES + 1) or "nothing",
        expected=f"{target:,.0f} samples/s on at most {_MOST_NODES} servers",
    )


def _bound_us(solver: "Solver", nodes: int) -> float:
    try:
        return solver.bound(nodes)[1].bound_us
    except ConfigError:
        return math.inf


def _fine_bound_us(solver: "Solver", nodes: int, deadline: float) -> float:
    try:
        return solver.fine_bound(nodes, deadline)[1].bound_us
    except ConfigError:
        return math.inf


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
