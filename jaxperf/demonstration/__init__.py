"""A tour on inputs that jaxperf makes itself, beside the truth that only their maker knows."""

from jaxperf.demonstration._demo import Demo as Demo, demo as demo, demo_to_json as demo_to_json
from jaxperf.demonstration._print import print_demo as print_demo
