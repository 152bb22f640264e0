"""Scenarios: changed worlds to ask about."""

from pathlib import Path

import msgspec

from jaxperf.config._toml import Source, load_toml


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One changed world.

    Attributes:
        name: what to call it in the result.
        scale: factor of the durations of what a selector selects.
        set: value of a field of the hardware, by its key; `hardware` names another machine.
    """

    name: str = ""
    scale: dict[str, float] = {}
    set: dict[str, float | str] = {}


class _Scenarios(msgspec.Struct, frozen=True):
    scenario: list[Scenario]


def load_scenarios(path: Source) -> tuple[Scenario, ...]:
    """Read a file of scenarios: tables `[[scenario]]` with `name`, `scale` and `set`.

    Args:
        path: the TOML file.

    Returns:
        The scenarios; those without a name are called by their place.

    Raises:
        ConfigError: the file cannot be read, or something in it is unknown or not valid.
    """
    found = load_toml(Path(path), _Scenarios).scenario
    return tuple(
        scenario if scenario.name else msgspec.structs.replace(scenario, name=f"scenario {place}")
        for place, scenario in enumerate(found)
    )
