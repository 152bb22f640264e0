"""Embedding memory against oracles, measurements and its own goals, for its validation page.

    python benchmarks/embedding.py SHARED [--only NAME ...] [--write docs/embedding-validation.md]

SHARED is the folder with `dlrm/`. Each section is a module `_embedding_NAME` beside this one, whose
`table` gives it; `--write` puts it between the marks `embedding_NAME` of the file.
"""

import sys

from _page import make_page

SECTIONS = (
    "exact",
    "samples",
    "models",
    "speed",
    "planner",
    "lookups",
    "placement",
    "nodes",
    "gradients",
    "designs",
    "broken",
)


if __name__ == "__main__":
    sys.exit(make_page(__doc__, "embedding", SECTIONS))
