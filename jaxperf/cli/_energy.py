"""The verbs on energy: logs scored, runs predicted, power fitted, published results compared."""

import argparse
from pathlib import Path

from jaxperf.cli._arguments import (
    add_hardware,
    add_overwrite,
    add_paths,
    add_verb,
    kernel_classes,
    once,
    step_argument,
    watts_argument,
)
from jaxperf.cli._results import check_outputs, print_result, progress_bar, say_written


def _score(arguments: argparse.Namespace) -> None:
    from jaxperf.energy import score
    from jaxperf.report import print_score, score_to_json

    result = score(arguments.logs, window=arguments.window, zone=arguments.zone)
    print_result(arguments, result, score_to_json, print_score)


def _trends(arguments: argparse.Namespace) -> None:
    check_outputs(arguments, arguments.plot)
    from jaxperf.energy import trends
    from jaxperf.report import print_trends, trends_to_json, write_trends

    result = trends(arguments.table)
    print_result(arguments, result, trends_to_json, print_trends)
    if arguments.plot:
        write_trends(result, arguments.plot, overwrite=arguments.overwrite)
        say_written(arguments, arguments.plot)
