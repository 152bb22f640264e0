"""MLCommons Chakra execution traces, written and read."""

from jaxperf.interchange.chakra._read import read_chakra as read_chakra
from jaxperf.interchange.chakra._write import write_chakra as write_chakra
