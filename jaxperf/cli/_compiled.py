"""What JAX compiled for one command is kept for the next."""

import os
import sys
import warnings
from pathlib import Path

_SETTINGS = {
    # Most of what is compiled here takes less than the second from which JAX keeps it by itself.
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
_FOLDER = "JAX_COMPILATION_CACHE_DIR"


def keep_compiled() -> None:
    """Let JAX keep what it compiles in the user's folder of caches, where nothing says otherwise.

    To be called before JAX is imported. What JAX cannot read or write there it compiles again.
    """
    if "jax" in sys.modules:
        return
    if _FOLDER not in os.environ:
        try:
            home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        except RuntimeError:  # a user without a home
            return
        os.environ[_FOLDER] = str(Path(home) / "jaxperf")
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
