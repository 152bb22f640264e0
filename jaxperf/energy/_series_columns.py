"""Which column of a table is the time, the power or counter of energy, and the host."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jaxperf.energy._series_cells import (
    ENERGY_UNITS_J,
    POWER_UNITS_W,
    TIME_UNITS_NS,
    unit_factor,
)
from jaxperf.errors import LogError

_TIMES = ("timestamp", "time", "datetime", "date", "epoch", "unix_time", "t")
_BEGINS = ("begin", "start")
_ENDS = ("end", "stop")
_POWERS_OF_ACCELERATORS = ("power.draw", "power.draw.instant", "power.draw.average")
_ENERGY_OF_ACCELERATOR = "total_energy_consumption"
"""As nvidia-smi and NVML name what one accelerator draws."""

_POWERS = (
    *_POWERS_OF_ACCELERATORS,
    *("power_draw", "power_usage", "power", "power_reading", "node_power", "system_power"),
    *("total_power", "wall_power", "average_power", "instantaneous_power"),
    "nodes_ac",
)
_ENERGIES = (_ENERGY_OF_ACCELERATOR, "total_energy", "energy", "energy_counter")
_HOSTS = ("host", "hostname", "node", "server", "machine")
_GPUS = ("index", "gpu", "gpu_index", "gpu_id", "device", "uuid", "gpu_uuid", "pci.bus_id")

_PART = re.compile(
    "(power_?)?(sensor|supply|psu|channel|rail|outlet|meter|feed|domain|component|package|socket)"
    "[ _]?(name|id|label|index|number)?"
)
"""Of what a row is, where one host has several rows at a time."""

_DRAWN = re.compile("power|watt")
_NOT_DRAWN = re.compile("limit|cap|max|min|default|enforced|requested|state|factor|mode|management")
"""Of what a device reports beside what it draws."""

_HEADER_CELL = re.compile(r"\s*(?P<name>[^\[(]*?)\s*(?:[\[(]\s*(?P<unit>[^\])]*?)\s*[\])])?\s*")


@dataclass(frozen=True, slots=True)
class Columns:
    """Where the columns of a table are.

    Attributes:
        time, value: their positions.
        host, gpu: positions, `None` where there is none.
        begin: of when a power begins that is the mean until `time`; `None` where it is of a moment.
        parts: positions of columns that name a part of a host, such as a sensor or a supply.
        time_unit_ns: of numbers for times, `None` where the header does not tell.
        value_unit: factor to watts or joules of a value without a unit of its own; `None` where the
            header does not tell.
        counter: values are energy so far, and not power.
        header: the first line names them.
        name: of the value; empty without a header.
        of_accelerator: that name is one of accelerators alone.
        left_out: names of other columns of power or energy.
    """

    time: int
    value: int
    host: int | None
    gpu: int | None
    time_unit_ns: int | None
    value_unit: float | None
    counter: bool
    header: bool
    name: str = ""
    of_accelerator: bool = False
    left_out: tuple[str, ...] = ()
    begin: int | None = None
    parts: tuple[int, ...] = ()

    @property
    def units(self) -> Mapping[str, float]:
        """Of the values: of energy or of power."""
        return ENERGY_UNITS_J if self.counter else POWER_UNITS_W

    @property
    def width(self) -> int:
        """Columns that a row must have."""
        return 1 + max(self.time, self.value, self.host or 0, self.gpu or 0, self.begin or 0)


def columns_of(first: Sequence[str], where: str, wanted: str | None = None) -> Columns:
    """The columns of a table by its first line, a header or a reading.

    Args:
        first: its cells.
        where: the line, for messages.
        wanted: name of the power that is taken where there is such a column.

    Raises:
        LogError: no time or power is among the names, a unit is unknown, or the columns of a table
            without header could be either of two.

    Example:
        >>> found = columns_of(["time", "power.draw [W]", "wall_power"], "power.csv, line 1")
        >>> found.value, found.of_accelerator, found.left_out
        (1, True, ('wall_power',))
    """
    if not any(cell[:1].isalpha() for cell in first[:2]):
        return _without_header(first, where)
    cells = [_header_cell(cell) for cell in first]
    time = _position(cells, _TIMES, TIME_UNITS_NS)
    begin = _position(cells, _BEGINS, TIME_UNITS_NS) if time is None else None
    if begin is not None:
        time = _position(cells, _ENDS, TIME_UNITS_NS)
    powers = _POWERS if wanted is None else (wanted, *_POWERS)
    power = _position(cells, powers, POWER_UNITS_W)
    energy = _position(cells, _ENERGIES, ENERGY_UNITS_J)
    # An energy of a stretch of time is not one so far.
    value = energy if power is None and begin is None else power
    if time is None or value is None:
        raise LogError(
            f"no column of {'time' if time is None else 'power'}",
            where=where,
            got=", ".join(first)[:100],
            expected="a header such as timestamp,index,power.draw [W]",
        )
    counter = power is None
    units = ENERGY_UNITS_J if counter else POWER_UNITS_W
    time_unit = _unit(cells[time], TIME_UNITS_NS, where)
    return Columns(
        time,
        value,
        _position(cells, _HOSTS, {}),
        _position(cells, _GPUS, {}),
        None if time_unit is None else int(time_unit),
        _unit(cells[value], units, where),
        counter,
        header=True,
        name=first[value],
        of_accelerator=_base(cells[value][0].lower(), units)
        in (*_POWERS_OF_ACCELERATORS, _ENERGY_OF_ACCELERATOR),
        left_out=tuple(
            name
            for index, name in enumerate(first)
            if index not in (time, value) and _is_energy(cells[index])
        ),
        begin=begin,
        parts=tuple(
            index for index, (name, _) in enumerate(cells) if _PART.fullmatch(name.lower())
        ),
    )


def wrong_unit(unit: str, units: Mapping[str, float], where: str) -> LogError:
    """The error of a unit that is not one of power, or of energy.

    Example:
        >>> str(wrong_unit("V", POWER_UNITS_W, "power.csv, line 2"))
        "power.csv, line 2: not a unit of power; got 'V'; expected W, kW or mW"
    """
    return LogError(
        "not a unit of power" if units is POWER_UNITS_W else "not a unit of energy",
        where=where,
        got=repr(unit),
        expected="W, kW or mW" if units is POWER_UNITS_W else "J, mJ, uJ, Wh or kWh",
    )


def _without_header(first: Sequence[str], where: str) -> Columns:
    value, host, gpu = 1, None, None
    if len(first) == 3:
        if re.search(r"[A-Za-z]", first[1]) or not re.match(r"[\d.+-]+( *[A-Za-z]+)?$", first[2]):
            host = 2
        elif re.search(r"[A-Za-z]", first[2]):
            value, gpu = 2, 1
    if len(first) not in (2, 3) or (len(first) == 3 and host is None and gpu is None):
        raise LogError(
            "columns that cannot be told without a header",
            where=where,
            got=", ".join(first)[:100],
            expected="time,power or time,power,host",
            remedy="put a line such as timestamp,index,power.draw [W] before it",
        )
    return Columns(0, value, host, gpu, None, None, counter=False, header=False)


def _header_cell(cell: str) -> tuple[str, str | None]:
    """Name and unit of a cell such as `power.draw [W]` or `power_mw`."""
    match = _HEADER_CELL.fullmatch(cell)
    if match is None or match["unit"] is None:
        return cell.strip(), None
    return match["name"], match["unit"]


def _position(
    cells: Sequence[tuple[str, str | None]], names: Sequence[str], units: Mapping[str, float]
) -> int | None:
    """The first of `names` among the cells, alone or with a unit behind it; or a unit alone."""
    lowered = [name.lower() for name, _ in cells]
    for name in names:
        for index, cell in enumerate(lowered):
            if name in (cell, _base(cell, units)):
                return index
    return next((index for index, cell in enumerate(lowered) if cell in units), None)


def _base(name: str, units: Mapping[str, float]) -> str:
    """A name without the unit behind it: `power` of `power_mw`."""
    base, _, unit = name.rpartition("_")
    return base if unit in units else name


def _is_energy(cell: tuple[str, str | None]) -> bool:
    """Whether a column is of what is drawn, by its name or by its unit."""
    name, unit = cell[0].lower(), cell[1] or ""
    if _NOT_DRAWN.search(name):
        return False
    return bool(_DRAWN.search(name)) or any(
        _base(name, units) in names
        or _base(name, units) != name
        or unit_factor(unit or name, units) is not None
        for names, units in ((_POWERS, POWER_UNITS_W), (_ENERGIES, ENERGY_UNITS_J))
    )


def _unit(cell: tuple[str, str | None], units: Mapping[str, float], where: str) -> float | None:
    name, unit = cell
    if unit is None:
        return unit_factor(name.rpartition("_")[2], units)
    factor = unit_factor(unit, units)
    if factor is None:
        raise wrong_unit(unit, units, where)
    return factor
