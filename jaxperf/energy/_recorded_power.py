"""What the recorded devices draw, where the user may not have said it."""

import os
from collections.abc import Iterable

from jaxperf.config import PowerDescription, built_in_power, load_power, power_of_device
from jaxperf.errors import ConfigError
from jaxperf.trace import Note

Source = str | os.PathLike[str]


def recorded_power(
    device_names: Iterable[str | None], power: PowerDescription | Source | None = None
) -> tuple[PowerDescription, tuple[Note, ...]]:
    """The power description of the devices that a run was recorded on.

    Args:
        device_names: as its traces name them.
        power: what the user says they draw, as `load_power` takes it, which settles it.

    Returns:
        The description, and a note `power-assumed` where the user says nothing.

    Raises:
        ConfigError: the user says nothing, and the package does not know a device, or they differ.

    Example:
        >>> power, notes = recorded_power(["NVIDIA H100 80GB HBM3"])
        >>> power.power_limit_w, [note.code for note in notes]
        (700.0, ['power-assumed'])
    """
    if isinstance(power, PowerDescription):
        return power, ()
    if power is not None:
        return load_power(power), ()
    names = sorted({name or "no name" for name in device_names})
    found = [power_of_device(name) for name in names]
    # Several names may be of one device.
    known = {each.name: each for each in found if each is not None}
    if None in found or len(known) != 1:
        raise ConfigError(
            "the recorded devices do not draw the same"
            if len(known) > 1
            else "what the recorded device draws is not known",
            where="power",
            got=", ".join(names),
            expected=f"one of {', '.join(built_in_power())}",
            remedy="describe it in a TOML file, and name that with --power",
        )
    (one,) = known.values()
    text = f"power is by the package's description of {one.name}, not calibrated to this run"
    return one, (Note("power-assumed", text),)
