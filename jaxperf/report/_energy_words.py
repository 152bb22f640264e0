"""Energies, powers and other numbers for people."""

import math

from jaxperf.report._words import UNKNOWN

_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def joules_text(energy_j: float) -> str:
    """An energy with four significant digits and the unit that suits it.

    Args:
        energy_j: in J; NaN where it is not known.

    Returns:
        Such as `11.77 MJ`.

    Example:
        >>> joules_text(11_769_960.0), joules_text(0.0702), joules_text(float("nan"))
        ('11.77 MJ', '70.20 mJ', '–')
    """
    return _with_prefix(energy_j, "J")


def watts_text(power_w: float) -> str:
    """A power with four significant digits and the unit that suits it.

    Example:
        >>> watts_text(6952.3)
        '6.952 kW'
    """
    return _with_prefix(power_w, "W")


def number_text(value: float) -> str:
    """A number with six significant digits; a dash where it is not known.

    Example:
        >>> number_text(1676757080.12), number_text(0.00237), number_text(float("nan"))
        ('1,676,760,000', '0.00237', '–')
    """
    if not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    digits = 5 - math.floor(math.log10(abs(value)))
    text = f"{round(value, digits):,.{max(digits, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _with_prefix(value: float, unit: str) -> str:
    if not math.isfinite(value):
        return UNKNOWN
    # What rounds up to a thousand is one of the next larger unit.
    fits = ((scale, prefix) for scale, prefix in _PREFIXES if abs(value) >= 0.99995 * scale)
    scale, prefix = next(fits, (1.0, "") if value == 0 else _PREFIXES[-1])
    return f"{_four_digits(value / scale)} {prefix}{unit}"


def _four_digits(number: float) -> str:
    size = abs(number)
    digits = 3 if size < 9.9995 else 2 if size < 99.995 else 1
    return f"{number:.{digits}f}"
