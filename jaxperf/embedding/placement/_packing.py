"""From shares of options to shards on devices: split, pack, and move.

Shards go, the greatest first, where the worst use of any unit grows least (the
longest-processing-time rule with several loads). Fewest shards come of filling: a table is whole
where some device has the time and the room for all of it, and otherwise fills the one that takes
most of it and goes on elsewhere (McNaughton's rule). Where several loads are in each other's way,
shares that would fill much of a device are split beforehand, by columns where those still move
whole blocks and by rows otherwise. Then the slowest device gives shards, or parts of their rows,
to others while that makes it faster.

Rows are taken to be dealt by hash: a part of the rows has that part of the accesses.
"""

from dataclasses import dataclass, field

import numpy as np

from jaxperf.embedding.placement._problem import (
    PlacementProblem,
    StepTime,
    even_loads,
    pooled_step,
    slowest,
    stage_times_us,
)

_PARTS = 0.5 ** np.arange(7)  # of a shard, that a move takes
_GOALS = 12  # devices that a move tries
_GOAL = 0.001  # over the pooled step, at which moves end
_LESS = 1e-6  # that a move has to gain, as a part
_CHECKED, _WORTH = 100, 2e-4  # so many moves have to gain this part, or they end
_ROUNDING = 1e-9
_OVER = (_ROUNDING, _GOAL, 0.01, 0.1, np.inf)  # even loads, that devices are filled to
_LEAST_PART = 1e-3  # of a shard, that goes where there is no room for all of it
_POWER = 4  # of loads: the higher, the more the fullest unit counts


@dataclass(frozen=True, eq=False)
class Packing:
    """Shards on devices.

    Attributes:
        option: (shards,) what each does.
        device: (shards,) where it is.
        rows: (shards,) its part of the table's rows.
        columns: (shards,) its part of the table's columns.
        step: the time of the slowest device, and what sets it.
    """

    option: np.ndarray
    device: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    step: StepTime

    def shares(self, options: int) -> np.ndarray:
        """(options,) of the tables, as they were packed."""
        return np.bincount(self.option, self.rows * self.columns, minlength=options)


def pack(
    problem: PlacementProblem,
    shares: np.ndarray,
    *,
    largest: float | None = None,
    moves: int = 1000,
) -> Packing | None:
    """Lay shares of options on devices.

    Args:
        problem: the options.
        shares: (options,) of the tables; they fit all units of each tier together.
        largest: part of a unit that a shard may take before it is split; devices are filled
            where not given.
        moves: most that are made.

    Returns:
        The packing; None where a shard fits no device.

    Example:
        >>> from jaxperf.embedding.placement._problem import example_problem
        >>> packing = pack(example_problem(), np.array([0.0, 1.0, 1.0, 0.0]))
        >>> packing.option, packing.device, packing.step.step_us
        (array([1, 2]), array([0, 0]), 42.0)
    """
    goal_us = pooled_step(problem, shares).step_us
    even = even_loads(problem, shares)
    whole = np.ones_like(problem.column_shards)
    for columns in (whole,) if largest is None else (problem.column_shards, whole):
        state = _split(problem, shares, even * (np.inf if largest is None else largest), columns)
        if _longest_first(problem, state, even, fill=largest is None):
            break
    else:
        return None
    before_us = np.inf
    for number in range(moves):
        step_us = _device_step_us(problem, state.loads[problem.unit_of_device, _tiers(problem)])
        if step_us.max() <= goal_us * (1 + _GOAL) or not _move(problem, state, step_us):
            break
        if number % _CHECKED == 0:
            if step_us.max() > before_us * (1 - _WORTH):
                break
            before_us = step_us.max()
    return _packing(problem, state)


@dataclass
class _State:
    """Shards, and loads of every unit: (units, tiers, loads) with size, busy times and wear."""

    option: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    device: np.ndarray
    loads: np.ndarray
    blocked: set[int] = field(default_factory=set)


def _tiers(problem: PlacementProblem) -> np.ndarray:
    return np.arange(len(problem.tiers))


def shard_loads(problem: PlacementProblem, option, rows, columns) -> np.ndarray:
    """(shards, tiers, loads) of the units that the shards are on.

    Args:
        problem: the options.
        option, rows, columns: (shards,) of them, as in `Packing`.
    """
    part = (rows * columns)[:, None]
    loads = np.empty((len(option), len(problem.tiers), len(problem.resources) + 2))
    loads[:, :, 0] = part * problem.size_bytes[option]
    # The problem's times are those of all units at once.
    loads[:, :, 1:-1] = part[:, :, None] * problem.busy_us[option] * problem.units[:, None]
    loads[:, :, -1] = part * problem.wear_us[option] * problem.units
    return loads


def _device_step_us(problem: PlacementProblem, loads: np.ndarray) -> np.ndarray:
    """(...) from the loads (..., tiers, loads) of the units that devices use."""
    stages_us = stage_times_us(problem, loads[..., 1:-1]).max(axis=-1)
    return np.maximum(stages_us, loads[..., -1].max(axis=-1))


def _split(
    problem: PlacementProblem, shares: np.ndarray, largest: np.ndarray, columns: np.ndarray
) -> _State:
    """Shards of which none takes more of a unit than `largest` (tiers, loads).

    Those by columns are alike, of as many of the (options,) `columns` each.
    """
    option = np.flatnonzero(shares > 0)
    share = shares[option]
    ones = np.ones(len(option))
    whole = shard_loads(problem, option, share, ones) / largest
    pieces = np.ceil(whole.max(axis=(1, 2)) - _ROUNDING).clip(1, problem.devices).astype(np.int64)
    # A column holds all rows: only a table that is whole in the option can be split by columns.
    by_columns = (share == 1.0) & (pieces > 1) & (pieces <= columns[option])
    for index in np.flatnonzero(by_columns).tolist():
        units = int(columns[option[index]])
        pieces[index] = next(n for n in range(pieces[index], units + 1) if units % n == 0)
    by_columns &= pieces <= problem.devices
    rows = np.where(by_columns, share, share / pieces)
    part = np.where(by_columns, 1.0 / pieces, 1.0)
    return _State(
        *(np.repeat(each, pieces) for each in (option, rows, part)),
        device=np.zeros(pieces.sum(), np.int64),
        loads=np.zeros((problem.devices, *largest.shape)),
    )


def _longest_first(
    problem: PlacementProblem, state: _State, even: np.ndarray, *, fill: bool
) -> bool:
    """Give each shard a device, the greatest first; False where one fits nowhere.

    Devices are filled to the loads of even sharing and somewhat more, or else to their bytes alone.
    """
    loads = shard_loads(problem, state.option, state.rows, state.columns)
    unit, tier = problem.unit_of_device, _tiers(problem)
    # What needs several tiers of one device comes first: what needs the first alone fills gaps.
    deepest = (loads[:, :, 0] > 0).cumsum(axis=1).argmax(axis=1)
    over = _OVER if fill else _OVER[-1:]
    for shard in np.lexsort((-(loads / even).max(axis=(1, 2)), -deepest)).tolist():
        left, level = loads[shard], 0
        while True:
            room = even * (1 + over[level])
            room[:, 0] = even[:, 0] * (1 + _ROUNDING)
            held = state.loads[unit, tier]
            fits = ((held + left <= room) | (left == 0)).all(axis=(1, 2))
            if fits.any():
                before, after = held / even, (held + left) / even
                grown = (after**_POWER - before**_POWER).sum(axis=(1, 2))
                device = int(np.where(fits, grown, np.inf).argmin())
                state.device[shard] = device
                state.loads[unit[device], tier] += left
                break
            device, part = _most_that_fits(room - held, left)
            if state.columns[shard] == 1.0 and part >= _LEAST_PART:
                _divide(state, shard, part, device)
                state.loads[unit[device], tier] += part * left
                left = (1.0 - part) * left
            elif level + 1 < len(over):
                level += 1
            else:
                return False
    return True


def _most_that_fits(room: np.ndarray, loads: np.ndarray) -> tuple[int, float]:
    """The device with room (devices, tiers, loads) for the greatest part of a shard, and it."""
    needed = loads > 0
    part = (room[:, needed] / loads[needed]).min(axis=1)
    return int(part.argmax()), float(part.max())


def _move(problem: PlacementProblem, state: _State, step_us: np.ndarray) -> bool:
    """Let one of the slowest devices give a shard, or a part, away; False where none can."""
    slow = np.flatnonzero(step_us >= step_us.max() * (1 - _LESS))
    for source in slow.tolist():
        if source not in state.blocked:
            if _give(problem, state, source, step_us):
                state.blocked.clear()
                return True
            state.blocked.add(source)
    return False


def _give(problem: PlacementProblem, state: _State, source: int, step_us: np.ndarray) -> bool:
    """Make the move that leaves this device and those it burdens fastest, if it is a gain."""
    unit, tier = problem.unit_of_device, _tiers(problem)
    goals = np.argsort(step_us, kind="stable")[:_GOALS]
    mine = np.flatnonzero(state.device == source)
    each = np.indices((len(mine), len(_PARTS), len(goals))).reshape(3, -1)
    shard, part, goal = mine[each[0]], _PARTS[each[1]], goals[each[2]]
    possible = (goal != source) & ((state.columns[shard] == 1.0) | (part == 1.0))
    shard, part, goal = shard[possible], part[possible], goal[possible]
    if not len(shard):
        return False
    moved = part[:, None, None] * shard_loads(
        problem, state.option[shard], state.rows[shard], state.columns[shard]
    )
    moved *= (unit[goal] != unit[source])[:, :, None]  # a unit that both use keeps its load
    left_us = _device_step_us(problem, state.loads[unit[source], tier] - moved)
    # Whoever shares a unit with the goal bears what moves there.
    mates = _mates(problem)[goal]
    shared = (unit[mates] == unit[goal][:, None])[..., None]
    burdened = state.loads[unit[mates], tier] + moved[:, None] * shared
    size = burdened[:, :, :, 0] * problem.units
    fits = (size <= problem.capacity_bytes * (1 + _ROUNDING)).all(axis=(1, 2))
    worst_us = np.maximum(left_us, _device_step_us(problem, burdened).max(axis=1))
    worst_us = np.where(fits, worst_us, np.inf)
    best = int(worst_us.argmin())
    if not worst_us[best] < step_us[source] * (1 - _LESS):
        return False
    state.loads[unit[source], tier] -= moved[best]
    state.loads[unit[goal[best]], tier] += moved[best]
    if part[best] == 1.0:
        state.device[shard[best]] = goal[best]
    else:
        _divide(state, int(shard[best]), float(part[best]), int(goal[best]))
    return True


def _mates(problem: PlacementProblem) -> np.ndarray:
    """(devices, most) the devices that share a unit with each, itself among them; padded by it."""
    unit = problem.unit_of_device
    share = (unit[:, None] == unit[None]).any(axis=-1)
    most = int(share.sum(axis=1).max())
    order = np.argsort(~share, axis=1, kind="stable")[:, :most]
    own = np.arange(problem.devices)[:, None]
    return np.where(np.take_along_axis(share, order, axis=1), order, own)


def _divide(state: _State, shard: int, part: float, device: int) -> None:
    """Make a part of the rows of a shard one more shard, the last."""
    for name, value in (
        ("option", state.option[shard]),
        ("rows", state.rows[shard] * part),
        ("columns", 1.0),
        ("device", device),
    ):
        setattr(state, name, np.append(getattr(state, name), value))
    state.rows[shard] *= 1.0 - part


def packing_of(
    problem: PlacementProblem, option: np.ndarray, device: np.ndarray, rows: np.ndarray
) -> Packing:
    """The packing of given shards of rows.

    Args:
        problem: the options.
        option, device, rows: (shards,) of them, as in `Packing`.

    Returns:
        The packing, with its step.
    """
    columns = np.ones(len(option))
    each = shard_loads(problem, option, rows, columns)
    loads = np.zeros((problem.devices, *each.shape[1:]))
    np.add.at(loads, (problem.unit_of_device[device], _tiers(problem)[None]), each)
    return _packing(problem, _State(option, rows, columns, device, loads))


def _packing(problem: PlacementProblem, state: _State) -> Packing:
    """The packing, with one shard for all parts of an option on a device."""
    tier = _tiers(problem)
    step_us = _device_step_us(problem, state.loads[problem.unit_of_device, tier])
    worst = state.loads[problem.unit_of_device[int(step_us.argmax())], tier]
    key = np.stack([state.option, state.device])
    (option, device), inverse = np.unique(key, axis=1, return_inverse=True)
    # An option is split one way: along the other axis its shards are whole.
    by_columns = np.bincount(inverse, state.columns) < np.bincount(inverse) - _ROUNDING
    rows, columns = np.bincount(inverse, state.rows), np.bincount(inverse, state.columns)
    return Packing(
        option=option,
        device=device,
        rows=np.where(by_columns, 1.0, rows),
        columns=np.where(by_columns, columns, 1.0),
        step=slowest(problem, worst[:, 1:-1], worst[:, -1]),
    )
