"""A bound for caches of every size: prices of some options, and what no size of a cache is below.

For any prices `p >= 0` of the pooled program's constraints, no placement is faster than

    sum over tables of the least p . loads(option)  +  sum_s p_s fixed_s  -  sum_j p_j capacity_j

(weak duality), whether the prices are the best ones or those of a few options. An option's loads
are linear in the rows that each tier misses, in the conflicts of the first one and in the sizes of
the caches, and each of these depends on one cache alone: the slowest so far. So the least of a
table falls into one function of each cache's size, and as misses and conflicts never rise with it,
such a function is on an interval of sizes nowhere below what its ends say.
"""

from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxperf.embedding.hierarchy._curves import distinct_rows, hit_ratio, pinned_ratio
from jaxperf.embedding.hierarchy._flows import (
    conflict_rows,
    flows_of_missed,
    set_associative_ratio,
)
from jaxperf.embedding.hierarchy._model import Design, HierarchyRules, ModelArrays
from jaxperf.embedding.hierarchy._tiers import Machine
from jaxperf.embedding.placement._milp import Relaxation
from jaxperf.embedding.placement._options import loads_of_flows, table_alone
from jaxperf.embedding.placement._problem import PlacementProblem
from jaxperf.embedding.placement._study import Study
from jaxperf.replay import double_precision

_POINTS = 64  # sizes that are added at once
_LOGITS = (-18.0, 9.0)  # of the part of the rows: from 1e-8 of them to all but 1e-4
_ROUNDS = 12
_SLACK = 5e-4  # of the bound, that more sizes may be worth


@dataclass(frozen=True, eq=False)
class SizeCurves:
    """What caches of each table miss, by size.

    Attributes:
        cached: (sizes, tables) rows of the cache, from 0.
        in_sets: (sizes, tables) rows of a batch that a first cache misses, in its sets.
        in_any: (sizes, tables) the same of a cache where any row may lie anywhere.
        pinned: (sizes, tables) the same of a cache of the hottest rows.
        conflicts: (sizes, tables) rows of two batches without a place.
    """

    cached: Array
    in_sets: Array
    in_any: Array
    pinned: Array
    conflicts: Array


@dataclass(frozen=True, eq=False)
class _Prices:
    """Of the loads of one server, by the fields of `OptionLoads`."""

    size_bytes: np.ndarray
    busy_us: np.ndarray
    wear_us: np.ndarray
    update_us: np.ndarray


@dataclass(frozen=True, eq=False)
class _Pattern:
    """Which tiers have a cache of a table whose home is one of them, and by which policy."""

    home: np.ndarray
    used: np.ndarray
    pinned: np.ndarray


for _noun in (SizeCurves, _Prices, _Pattern):
    jax.tree_util.register_dataclass(_noun, [f.name for f in fields(_noun)], [])


def size_curves(study: Study) -> SizeCurves:
    """Misses of caches of sizes from none to all rows of a table.

    Args:
        study: the model, the server and the rules.

    Returns:
        Curves at a few sizes; `bound_us` has more of them where they matter.
    """
    # As close in the rows that a cache holds as in those that it does not.
    inner = 1 / (1 + np.exp(-np.linspace(*_LOGITS, 3 * _POINTS - 2 - _more_caches(study))))
    # Exclusive caches reach as far as all of them together.
    part = np.r_[0.0, inner, 1.0, np.arange(_more_caches(study)) + 2.0]
    tables = len(study.model.tables)
    pieces = [
        _curves_at(study, np.repeat(each[:, None], tables, axis=1))
        for each in np.split(part, len(part) // _POINTS)
    ]
    return _merged(pieces)


def _more_caches(study: Study) -> int:
    return 0 if study.rules.inclusive else len(study.server.tiers) - 1


def _curves_at(study: Study, part: np.ndarray) -> SizeCurves:
    with double_precision():
        return _curves(study.arrays, float(study.model.batch_size), part, study.rules)


def _merged(pieces: list[SizeCurves]) -> SizeCurves:
    """All points of some curves, ascending by size."""
    curves = jax.tree.map(lambda *each: np.concatenate(each), *pieces)
    order = np.argsort(curves.cached, axis=0, kind="stable")
    curves = jax.tree.map(lambda values: np.take_along_axis(values, order, axis=0), curves)
    # What is rounding of a sum may rise.
    falling = jax.tree.map(lambda values: np.minimum.accumulate(values, axis=0), curves)
    return replace(falling, cached=curves.cached)


@jax.jit
def _curves(model: ModelArrays, batch_size, part, rules: HierarchyRules) -> SizeCurves:
    lookups = batch_size * jnp.asarray(model.pooling)
    of_batches = jax.vmap(partial(distinct_rows, model.curves))
    distinct, of_two = of_batches(jnp.stack([lookups, 2 * lookups]))

    def at(part) -> SizeCurves:
        cached = part * jnp.asarray(model.rows)
        in_sets = set_associative_ratio(model.curves, cached, rules.ways)

        def missed(ratio):
            return jnp.minimum(distinct, lookups * (1 - ratio))

        return SizeCurves(
            cached=cached,
            in_sets=missed(in_sets),
            in_any=missed(hit_ratio(model.curves, cached)),
            pinned=missed(pinned_ratio(model.curves, cached)),
            conflicts=conflict_rows(of_two, cached, rules.ways),
        )

    return jax.lax.map(at, part, batch_size=_POINTS)


def bound_us(
    study: Study,
    nodes: int,
    problem: PlacementProblem,
    relaxed: Relaxation,
    curves: SizeCurves,
    *,
    asked_us: float = np.inf,
) -> float:
    """The time that no placement is below, with caches of any size and tables in any parts.

    Args:
        study: the model, the server and the rules.
        nodes: servers.
        problem: of them; its options do not matter.
        relaxed: any relaxation of those constraints, solved to the end or not.
        curves: of `size_curves`.
        asked_us: only whether the bound is above it is asked for.

    Returns:
        Microseconds, 0 at least.
    """
    relaxed = _feasible(problem, relaxed)
    tiers = len(study.server.tiers)
    prices = _Prices(
        size_bytes=relaxed.capacity_price_us[:tiers] / problem.capacity_bytes[:tiers],
        busy_us=relaxed.busy_price[:tiers] / nodes,
        wear_us=relaxed.wear_price[:tiers] / nodes,
        update_us=relaxed.busy_price[tiers, 0] / nodes,
    )
    besides_us = relaxed.stage_price @ problem.fixed_us - relaxed.capacity_price_us.sum()
    terms = _terms_of(study, prices)
    found_us = 0.0
    for _ in range(_ROUNDS):
        costs = [_Costs(study, terms, curves, index) for index in range(len(terms[0]))]
        least_us = np.min([cost.least_us for cost in costs], axis=0).sum() + besides_us
        known_us = np.min([cost.known_us for cost in costs], axis=0).sum() + besides_us
        found_us = max(found_us, float(least_us))
        if found_us > asked_us or (known_us <= asked_us < np.inf):
            break
        if known_us - least_us <= _SLACK * known_us:
            break
        curves = _merged([curves, _curves_at(study, _more_sizes(costs))])
    return max(found_us, float(problem.fixed_us.max()))


def _feasible(problem: PlacementProblem, relaxed: Relaxation) -> Relaxation:
    """Prices within the dual program's constraints, which a solver holds to a tolerance only."""
    stage = np.maximum(relaxed.stage_price, 0.0)
    wear = np.maximum(relaxed.wear_price, 0.0)
    whole = max(stage.sum() + wear.sum(), 1.0)
    stage, wear = stage / whole, wear / whole
    busy = np.maximum(relaxed.busy_price, 0.0)
    taken, allowed = busy.sum(axis=1), stage @ problem.stage_tiers
    part = np.where(taken > allowed, allowed / np.where(taken > 0, taken, 1.0), 1.0)
    return replace(
        relaxed,
        stage_price=stage,
        wear_price=wear,
        busy_price=busy * part[:, None],
        capacity_price_us=np.maximum(relaxed.capacity_price_us, 0.0),
    )


def _terms_of(study: Study, prices: _Prices) -> tuple[np.ndarray, ...]:
    with double_precision():
        terms = _terms(
            study.arrays,
            study.machine,
            float(study.model.batch_size),
            _patterns(len(study.server.tiers)),
            prices,
            study.rules,
        )
    return tuple(np.asarray(term) for term in terms)


class _Costs:
    """What a pattern of caches costs each table, by intervals of each cache's size.

    Attributes:
        least_us: (tables,) no sizes cost less.
        known_us: (tables,) of sizes that there are, but for which cache is the larger.
        caches: of each cache (intervals, tables) the least cost.
        middles: (intervals, tables) sizes, as parts of the rows.
    """

    def __init__(
        self, study: Study, terms: tuple[np.ndarray, ...], curves: SizeCurves, pattern: int
    ):
        fixed, of_missed, of_cached, of_conflicts = (term[pattern] for term in terms)
        patterns, (tables, tiers) = _patterns(of_missed.shape[1]), of_missed.shape
        used = np.flatnonzero(patterns.used[pattern]).tolist()
        self.least_us, self.known_us = fixed.copy(), fixed.copy()
        self.caches: list[np.ndarray] = []
        self.middles = (curves.cached[1:] + curves.cached[:-1]) / 2 / np.asarray(study.arrays.rows)
        nothing = np.zeros(tables)
        for tier, following in zip(used, [*used, tiers][1:], strict=True):
            size = of_cached[:, tier]
            if following < tiers and not study.rules.inclusive:
                # Their sizes are the differences of what they reach.
                size = size - of_cached[:, following]
            below_us, there_us = _on_intervals(
                curves,
                bool(patterns.pinned[pattern]),
                size,
                of_missed[:, 0] if tier == 0 else nothing,
                of_missed[:, max(tier, 1) : following].sum(axis=1),
                of_conflicts if tier == 0 else nothing,
            )
            self.caches.append(below_us)
            self.least_us += below_us.min(axis=0)
            self.known_us += there_us.min(axis=0)


def _more_sizes(costs: list[_Costs]) -> np.ndarray:
    """(points, tables) parts of the rows: of the cheapest intervals of the cheapest pattern."""
    best = np.argmin([cost.least_us for cost in costs], axis=0)
    part = np.ones((_POINTS, len(best)))
    for pattern in np.unique(best).tolist():
        cost, which = costs[pattern], np.flatnonzero(best == pattern)
        each = _POINTS // max(len(cost.caches), 1)
        for number, below_us in enumerate(cost.caches):
            cheapest = np.argpartition(below_us[:, which], each, axis=0)[:each]
            middles = np.take_along_axis(cost.middles[:, which], cheapest, axis=0)
            part[number * each : (number + 1) * each, which] = middles
    return part


def _on_intervals(
    curves: SizeCurves,
    pinned: bool,
    of_cached: np.ndarray,
    of_first: np.ndarray,
    of_others: np.ndarray,
    of_conflicts: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """(intervals, tables) what one cache costs at least, and at the upper end of the interval."""
    if pinned:
        first = least = most = curves.pinned
    else:
        first, most = curves.in_sets, curves.in_any
        # A slower cache has no fewer hits than the sets of one above it that is no larger.
        least = np.minimum(curves.in_any, curves.in_sets)
    cost_us, there_us = np.zeros_like(first[1:]), np.zeros_like(first[1:])
    for price, low, high, at in (
        (of_cached, curves.cached[:-1], curves.cached[1:], curves.cached[1:]),
        (of_first, first[1:], first[:-1], first[1:]),
        (of_others, least[1:], most[:-1], most[1:]),
        (of_conflicts, curves.conflicts[1:], curves.conflicts[:-1], curves.conflicts[1:]),
    ):
        if price.any():
            cost_us += price * np.where(price >= 0, low, high)
            there_us += price * at
    return cost_us, there_us


def _patterns(tiers: int) -> _Pattern:
    rows = [
        (home, [*used, *[0.0] * (tiers - home)], pinned)
        for home in range(tiers)
        for used in product((0.0, 1.0), repeat=home)
        for pinned in ((0.0, 1.0) if any(used) else (0.0,))
    ]
    home, used, pinned = zip(*rows, strict=True)
    return _Pattern(np.array(home), np.array(used), np.array(pinned))


@jax.jit
def _terms(
    model: ModelArrays,
    machine: Machine,
    batch_size,
    patterns: _Pattern,
    prices: _Prices,
    rules: HierarchyRules,
) -> tuple[Array, Array, Array, Array]:
    """(patterns, tables, ..) a cost as a constant, and what it has of misses, sizes, conflicts."""
    tables = jnp.arange(jnp.shape(model.rows)[0])

    def of_pattern(pattern: _Pattern):
        return jax.vmap(
            lambda table: _linear(
                table_alone(model, table), machine, batch_size, pattern, prices, rules
            )
        )(tables)

    return jax.lax.map(of_pattern, patterns)


def _linear(alone: ModelArrays, machine: Machine, batch_size, pattern, prices, rules):
    tiers = pattern.used.shape[0]
    home = jax.nn.one_hot(pattern.home, tiers, dtype=pattern.used.dtype)[None]
    pinned = pattern.pinned[None]
    lookups = batch_size * jnp.asarray(alone.pooling)
    distinct = distinct_rows(alone.curves, lookups)

    def cost_us(missed, cached, conflicts):
        design = Design(machine, 1.0, batch_size, home, cached[None], pinned, 1 - pinned)
        flows = flows_of_missed(
            design, rules, lookups, distinct, missed[None], missed[None], conflicts, conflicts
        )
        loads = loads_of_flows(alone, design, flows, rules)
        return sum(
            jnp.sum(jnp.asarray(getattr(prices, field.name)) * loads[field.name])
            for field in fields(prices)
        )

    # With no cache the first tier has none of the batch, and each after it none either.
    alone_missed = jnp.broadcast_to(distinct, (tiers,))
    before = jnp.cumsum(pattern.used) == 0
    missed = jnp.where(before, alone_missed, 0.0)
    at = (missed, pattern.used, jnp.zeros(1))
    value, slopes = jax.value_and_grad(cost_us, argnums=(0, 1, 2))(*at)
    of_missed, of_cached, of_conflicts = slopes
    constant = value - of_cached @ pattern.used
    # Of tiers before the first cache the misses are in the constant.
    return constant, jnp.where(before, 0.0, of_missed), of_cached, of_conflicts[0]
