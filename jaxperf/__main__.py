"""`python -m jaxperf` is the command line."""

import sys

from jaxperf.cli import main

sys.exit(main())
