"""A job as what starts it: arguments for Megatron-LM, a file for torchtitan, and a command."""

from jaxperf.workload.launch._megatron import (
    launch_command as launch_command,
    megatron_arguments as megatron_arguments,
)
from jaxperf.workload.launch._torchtitan import torchtitan_config as torchtitan_config
