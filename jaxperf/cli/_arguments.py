"""Arguments that several verbs take, and how their text becomes values."""

import argparse
from pathlib import Path
from typing import Any

from jaxperf.errors import ConfigError


def add_verb(verbs, name: str, call, summary: str) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    parser.set_defaults(verb=call)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")
    return parser


def add_paths(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="a trace file, or a folder with the traces of one run",
    )
    add_classes(parser)


def add_classes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--classes",
        type=Path,
        metavar="FILE.toml",
        help="classes of kernels of your own, before those that jaxperf knows",
    )


def kernel_classes(arguments: argparse.Namespace):
    from jaxperf.graph import KERNEL_CLASSES

    return arguments.classes or KERNEL_CLASSES


def add_hardware(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hardware",
        metavar="HW.toml",
        help="the recorded machine: a file, or a name such as h100 (default: told by its device)",
    )


def add_power(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--power",
        metavar="POWER.toml",
        help="what accelerators and nodes draw: a file, or a name such as h100 "
        f"(default: {default})",
    )


def add_overwrite(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--overwrite", action="store_true", help=text)


def step_argument(text: str) -> str | int:
    try:
        return int(text)
    except ValueError:
        return text


def once(pairs: list[tuple[str, Any]], option: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, _ in pairs if [name for name, _ in pairs].count(key) > 1)
        raise ConfigError("given twice", where=f"{option} {twice}", expected="once")
    return found


def factor_argument(text: str) -> tuple[str, float]:
    # A regular expression may hold an equals sign; the factor behind the last one does not.
    selector, _, factor = text.rpartition("=")
    try:
        return selector, float(factor)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected SELECTOR=FACTOR such as gemm=0.5"
        ) from None


def setting_argument(text: str) -> tuple[str, float | str]:
    key, equals, value = text.partition("=")
    if not key or not equals or not value:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected KEY=VALUE such as memory_bytes_per_s=4.8e12"
        )
    try:
        return key, float(value)
    except ValueError:
        return key, value


def clock_argument(text: str) -> tuple[str, float]:
    selector, _, clock_hz = text.rpartition("=")
    try:
        return selector, float(clock_hz)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected SELECTOR=HZ such as all=1.2e9"
        ) from None


def sizes_argument(text: str) -> list[int]:
    try:
        return [int(size) for size in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected sizes in rows such as 1000,10000"
        ) from None
