"""Names of a package that are imported when they are first used (PEP 562)."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package some of whose names need what loads slowly.

    Args:
        package: its `__name__`.
        modules: where each such name is found.

    Returns:
        Both functions.

    Example:
        >>> get, _ = lazy_names("example", {"sqrt": "math"})
        >>> get("sqrt")(4.0)
        2.0
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get, names
