"""Why no point of a space is feasible, and what has to give so that one is."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, floor, log10

import numpy as np

from jaxperf.config import MEASURES
from jaxperf.errors import ConfigError
from jaxperf.search._evaluate import Measured, limits_of
from jaxperf.search._problem import Problem, values_of

_MOST_TOLD = 4
_LEAST = 1e-12


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A constraint that has to give.

    Attributes:
        constraint: name of a limit, or what a rule says.
        limit: what is asked for; `None` of a rule.
        needed: the nearest value with which `Conflict.point` is feasible; `None` of a rule.
    """

    constraint: str
    limit: float | None = None
    needed: float | None = None


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why no point is feasible.

    Attributes:
        points: that were looked at.
        excluded: how many points each constraint excludes, whatever others do; the most first.
        relax: the smallest set of constraints without which a point is feasible; of several such
            sets the one without which most are. Empty where a point is feasible already.
        freed: points that nothing else excludes. Where a rule is among `relax`, nothing else is
            known of them: what breaks a rule has no measures, and further rules may not have been
            looked at.
        point: the number of the one of these that is nearest to the limits.
    """

    points: int
    excluded: Mapping[str, int]
    relax: tuple[Relaxation, ...]
    freed: int
    point: int | None


def conflict(problem: Problem, measured: Iterable[Measured]) -> Conflict:
    """Why no point of a space is feasible.

    A set of limits alone is preferred to any with a rule: it is known to be enough, and it can be
    relaxed without other axes. Where several machines differ in memory, each is a constraint of its
    own.

    Args:
        problem: the search.
        measured: of `evaluate`, batches that make up the space.

    Returns:
        The constraints, and those that have to give.

    Example:
        >>> from jaxperf.config import SearchSpace, load_hardware, load_job
        >>> from jaxperf.search._evaluate import evaluate
        >>> from jaxperf.search._problem import pose
        >>> space = SearchSpace("small", {"micro_batch_size": (1, 3)}, 8, 64, None,
        ...                     {"memory_bytes": 1e9})
        >>> problem = pose(load_job("llama3-8b"), load_hardware("h100"), space)
        >>> found = conflict(problem, [evaluate(problem, np.arange(2))])
        >>> found.excluded["memory_bytes"], found.relax[0].constraint, found.point
        (1, 'memory_bytes', 0)
    """
    points, excluded = 0, {}
    sets: dict[frozenset[str], _Set] = {}
    for batch in measured:
        constraints = _constraints(problem, batch)
        points += len(batch.points.index)
        for name, rows in constraints.items():
            excluded[name] = excluded.get(name, 0) + int(rows.sum())
        for members, rows in _alike(constraints, len(batch.points.index)):
            found = _set_of(problem, batch, members, rows)
            sets[members] = _together(sets[members], found) if members in sets else found
    excluded = {
        name: count for name, count in sorted(excluded.items(), key=lambda item: -item[1]) if count
    }
    if not sets:
        return Conflict(points, excluded, (), 0, None)

    def order(members: frozenset[str]):
        rules = any(_is_rule(name) for name in members)
        return rules, len(members), -sets[members].points, sorted(members)

    smallest = min(sets, key=order)
    found = sets[smallest]
    relax = [found.relaxed.get(name, Relaxation(name)) for name in smallest]
    relax.sort(key=lambda each: (-excluded[each.constraint], each.constraint))
    return Conflict(points, excluded, tuple(relax), found.points, found.point)


def conflict_error(problem: Problem, conflict: Conflict) -> ConfigError:
    """The error that says why no point is feasible.

    Args:
        problem: the search.
        conflict: of `conflict`, with something to relax.

    Returns:
        One line: how many points each constraint excludes, the smallest set that has to give, and
        of limits how far.
    """
    told = [f"{name} ({count})" for name, count in conflict.excluded.items()]
    more = [f"{len(told) - _MOST_TOLD} more"] if len(told) > _MOST_TOLD else []
    rules = [each.constraint for each in conflict.relax if each.limit is None]
    wanted = [_wanted(each) for each in conflict.relax if each.limit is not None]
    if rules:
        wanted.append(f"values of which this is not so: {' and '.join(rules)}")
    assert conflict.point is not None
    values = ", ".join(f"{k} = {v}" for k, v in values_of(problem, conflict.point).items())
    nothing_else = "nothing else is known to exclude" if rules else "nothing else excludes"
    remedy = f"{nothing_else} {conflict.freed} points, such as {values or 'the only one'}"
    if not rules and any(_is_memory(each.constraint) for each in conflict.relax):
        remedy += "; more GPUs need less memory each"
    return ConfigError(
        "no point is feasible",
        where=f"space {problem.space.name}",
        got=f"{conflict.points} points, excluded by {', '.join(told[:_MOST_TOLD] + more)}",
        expected=" and ".join(wanted),
        remedy=remedy,
    )


def _is_rule(name: str) -> bool:
    return name.partition(" ")[0] not in MEASURES


def _is_memory(name: str) -> bool:
    return name.partition(" ")[0] == "memory_bytes"


def _most(name: str) -> bool:
    """Whether a limit is the least value that is allowed."""
    return MEASURES[name.partition(" ")[0]] == "most"


def _wanted(each: Relaxation) -> str:
    assert each.limit is not None and each.needed is not None
    most = _most(each.constraint)
    needed = _outward(each.needed, down=most)
    bound = "at most" if most else "at least"
    if _is_memory(each.constraint):
        told = f"{needed / 1e9:g} GB, not {each.limit / 1e9:.4g} GB"
    else:
        told = f"{needed:g}, not {each.limit:g}"
    return f"{each.constraint} of {bound} {told}"


def _outward(value: float, *, down: bool) -> float:
    """A value in four digits that is enough as a limit."""
    if not value:
        return value
    unit = 10.0 ** (floor(log10(abs(value))) - 3)
    return (floor if down else ceil)(value / unit) * unit


def _constraints(problem: Problem, batch: Measured) -> dict[str, np.ndarray]:
    """(rows,) bool by name of a constraint, the points that it excludes."""
    found: dict[str, np.ndarray] = {}
    for rule in batch.points.broken:
        name = rule.text.partition(";")[0]
        found[name] = found.get(name, np.zeros(len(rule.jobs), bool)) | rule.jobs
    devices = [machine.hardware.name for machine in problem.machines]
    apart = len(set(devices)) > 1 and "memory_bytes" not in problem.space.limits
    for name, over in batch.over.items():
        if name == "memory_bytes" and apart:
            for device in sorted(set(devices)):
                here = np.array([each == device for each in devices])[batch.points.machine]
                found[f"{name} of {device}"] = over & here
        else:
            found[name] = over
    return found


def _alike(
    constraints: Mapping[str, np.ndarray], count: int
) -> Iterator[tuple[frozenset[str], np.ndarray]]:
    """Sets of constraints, and the rows that each of them excludes."""
    if not count:
        return
    names = list(constraints)
    held = np.array([constraints[name] for name in names]).reshape(len(names), count)
    _, first, group = np.unique(
        np.packbits(held, axis=0), axis=1, return_index=True, return_inverse=True
    )
    rows_of_group = np.argsort(group.reshape(-1), kind="stable")
    ends = np.cumsum(np.bincount(group.reshape(-1)))
    for place, rows in zip(first, np.split(rows_of_group, ends[:-1]), strict=True):
        yield frozenset(names[each] for each in np.flatnonzero(held[:, place])), rows


@dataclass(frozen=True, slots=True)
class _Set:
    """What is known of the points that a set of constraints excludes, and no other.

    Attributes:
        points: how many.
        excess: of the one nearest to the limits, the greatest share by which it is beyond any.
        point: its number.
        relaxed: by limit, what it needs; empty where a rule is among the constraints.
    """

    points: int
    excess: float
    point: int
    relaxed: Mapping[str, Relaxation]


def _set_of(problem: Problem, batch: Measured, members: frozenset[str], rows: np.ndarray) -> _Set:
    limits = limits_of(problem, batch.points.machine[rows])
    measured = not any(_is_rule(name) for name in members)
    values, asked, excess = {}, {}, np.zeros(len(rows))
    for name in members if measured else ():
        measure = name.partition(" ")[0]
        values[name] = batch.measures[measure][rows]
        asked[name] = np.broadcast_to(limits[measure], rows.shape)
        beyond = np.abs(values[name] - asked[name])
        excess = np.maximum(excess, beyond / np.maximum(np.abs(asked[name]), _LEAST))
    at = int(np.argmin(excess))
    relaxed = {
        name: Relaxation(name, float(asked[name][at]), float(values[name][at])) for name in values
    }
    return _Set(len(rows), float(excess[at]), int(batch.points.index[rows[at]]), relaxed)


def _together(one: _Set, other: _Set) -> _Set:
    nearest = other if other.excess < one.excess else one
    return replace(nearest, points=one.points + other.points)
