"""Energy against public logs and measurements, for docs/energy-validation.md.

    python benchmarks/energy.py SHARED [--only NAME ...] [--write docs/energy-validation.md]

SHARED is the folder with `power/`. Each section is a module `_energy_NAME` beside this one, whose
`table` gives it; `--write` puts it between the marks `energy_NAME` of the file.
"""

import sys

from _page import make_page

SECTIONS = ("logs", "figures", "nodes", "defaults", "kernels", "caps", "fit", "limits", "clocks")


if __name__ == "__main__":
    sys.exit(make_page(__doc__, "energy", SECTIONS))
