"""The verb that searches: it parses, calls the public function, and prints."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from jaxperf._files import new_file
from jaxperf.cli._arguments import add_overwrite, add_power, add_verb, once, setting_argument
from jaxperf.cli._results import check_outputs, print_result, progress_bar
from jaxperf.errors import ConfigError

if TYPE_CHECKING:
    from jaxperf.search import SearchResult


def _search(arguments: argparse.Namespace) -> None:
    check_outputs(arguments, arguments.megatron, arguments.torchtitan, arguments.plot)
    if arguments.plot and len(arguments.objective) == 1:
        raise ConfigError("one objective has no front", where="--plot", expected="two or three")
    from jaxperf.report import print_search, search_to_json, write_front
    from jaxperf.search import search

    limits = once(arguments.limit, "--limit")
    for name, value in limits.items():
        if isinstance(value, str):
            raise ConfigError(
                "not a number", where=f"--limit {name}", got=value, expected="such as 70e9"
            )
    with progress_bar(arguments, "Searching", "points") as progress:
        result = search(
            arguments.job,
            space=arguments.space,
            hardware=arguments.hardware,
            gpus=arguments.gpus,
            global_batch_size=arguments.global_batch,
            objectives=arguments.objective,
            limits=limits,
            method=arguments.method,
            fit=arguments.fit,
            power=arguments.power,
            trace=arguments.trace,
            samples=arguments.samples,
            seed=arguments.seed,
            folder=arguments.keep,
            shard=arguments.shard,
            processes=arguments.processes,
            progress=progress,
        )
    files = [(write_front, arguments.plot)]
    if result.choice is not None:
        files += [(_write_launch, arguments.megatron), (_write_torchtitan, arguments.torchtitan)]
    print_result(arguments, result, search_to_json, print_search, *files)


def _write_launch(result: "SearchResult", path: Path, overwrite: bool) -> None:
    from jaxperf.workload import launch_command

    best = result.choice
    assert best is not None
    command = launch_command(best.job, best.hardware.gpus_per_node)
    with new_file(path, overwrite) as file:
        file.write(f"#!/bin/sh\n{command}\n".encode())
        readable = os.stat(file.name).st_mode & 0o444
        os.chmod(file.name, os.stat(file.name).st_mode | readable >> 2)  # who reads it may run it


def _write_torchtitan(result: "SearchResult", path: Path, overwrite: bool) -> None:
    from jaxperf.workload import torchtitan_config

    assert result.choice is not None
    _write_text(torchtitan_config(result.choice.job), path, overwrite)


def _write_text(text: str, path: Path, overwrite: bool) -> None:
    with new_file(path, overwrite) as file:
        file.write(text.encode())


def add_search_verb(verbs) -> None:
    search = add_verb(verbs, "search", _search, "find the best configuration of a job")
    search.add_argument(
        "job", metavar="JOB.toml", help="the model: a file, or a name such as gpt3-175b"
    )
    search.add_argument(
        "--space",
        metavar="SPACE.toml",
        help="the configurations (default: what is usually tried on so many GPUs)",
    )
    search.add_argument(
        "--hardware", metavar="HW.toml", help="the machine: a file, or a name (default: h100)"
    )
    search.add_argument("--gpus", type=int, metavar="N", help="of every configuration")
    search.add_argument(
        "--global-batch", type=int, metavar="N", help="sequences of a step in every configuration"
    )
    search.add_argument(
        "--objective",
        action="append",
        default=[],
        metavar="NAME",
        help="what the best one is best in: step_us (the default), tokens_per_s_per_gpu, "
        "memory_bytes, energy_j_per_token, power_w_per_gpu or usd_per_million_tokens; two or three "
        "of them ask for their front",
    )
    search.add_argument(
        "--limit",
        type=setting_argument,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="the worst of one of these that is allowed, such as memory_bytes=70e9; may be "
        "repeated",
    )
    search.add_argument(
        "--method",
        choices=("bound", "exhaustive", "gradient"),
        default="bound",
        help="prove the best by bounds (the default), measure every point, or descend",
    )
    search.add_argument(
        "--fit",
        type=Path,
        metavar="FIT.toml",
        help="what calibrate has written, or a fit to measured steps",
    )
    add_power(search, "told by the machine")
    search.add_argument(
        "--trace",
        nargs="+",
        type=Path,
        default=[],
        metavar="PATH",
        help="traces of a run of this very job, from which the best are answered too",
    )
    search.add_argument(
        "--samples",
        type=int,
        default=0,
        metavar="N",
        help="say how sure the order of the best is, by N draws of the model's numbers",
    )
    search.add_argument("--seed", type=int, default=0, metavar="N", help="of starts and draws")
    search.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="keep there what is settled: a search that was stopped goes on from it",
    )
    search.add_argument(
        "--shard",
        metavar="I/N",
        help="settle the I-th of N parts (from 0) in the same folder; then search without --shard",
    )
    search.add_argument(
        "--processes", type=int, default=1, metavar="N", help="on this machine (default: 1)"
    )
    search.add_argument(
        "--plot", type=Path, metavar="FILE.svg", help="draw the front of two or three objectives"
    )
    search.add_argument(
        "--megatron", type=Path, metavar="FILE.sh", help="write the launch of the best one"
    )
    search.add_argument(
        "--torchtitan", type=Path, metavar="FILE.toml", help="write the best one for torchtitan"
    )
    add_overwrite(search, "write over existing files")
