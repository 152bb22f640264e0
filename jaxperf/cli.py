"""The command line: each verb parses, calls the public function of its name, and prints.

What computes is imported inside the verbs, so that `--help` and `--version` answer at once.
"""

import argparse
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jaxperf.errors import ConfigError, JaxperfError, OutputError

DONE = 0
BUG = 1
USER_CAN_MEND = 2
# As a shell reports a program that was ended by the signal: 128 and its number.
INTERRUPTED = 130
PIPE_CLOSED = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the arguments without the program's name; those of the process by default.

    Returns:
        The exit code: 0 done, 2 the user can mend it, 1 a bug of jaxperf.

    Example:
        >>> main(["inspect", "--json"])
        2
    """
    try:
        arguments = _parser().parse_args(argv)
        arguments.verb(arguments)
        sys.stdout.flush()
        return DONE
    except SystemExit as stop:  # argparse, after --help, --version, or a mistake
        return int(stop.code or DONE)
    except JaxperfError as error:
        return _complain(str(error))
    except MemoryError:
        return _complain("not enough memory; use a machine with more, or fewer ranks at a time")
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # What is still buffered would raise once more when Python flushes it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception:
        traceback.print_exc()
        print("jaxperf: this is a bug; please report it with the lines above", file=sys.stderr)
        return BUG


def _complain(message: str) -> int:
    # A file name or a text quoted from a file may hold a line feed; the message is one line.
    print("jaxperf: " + " ".join(message.split()), file=sys.stderr)
    return USER_CAN_MEND


# ---------------------------------------------------------------------------------------
# Verbs


def _demo(arguments: argparse.Namespace) -> None:
    from jaxperf.demonstration import demo, demo_to_json, print_demo

    with _progress(arguments) as progress:
        result = demo(arguments.output, overwrite=arguments.overwrite, progress=progress)
    _print(arguments, result, demo_to_json, print_demo)


def _inspect(arguments: argparse.Namespace) -> None:
    from jaxperf.inspection import inspect
    from jaxperf.report import inspection_to_json, print_inspection

    with _progress(arguments) as progress:
        result = inspect(arguments.paths, classes=_classes(arguments), progress=progress)
    _print(arguments, result, inspection_to_json, print_inspection)


def _replay(arguments: argparse.Namespace) -> None:
    _check_outputs(arguments, arguments.report, arguments.trace_out)
    import jaxperf
    from jaxperf.report import print_replay, replay_to_json, write_report, write_trace

    with _progress(arguments) as progress:
        result = jaxperf.replay(
            arguments.paths,
            step=arguments.step,
            hold_out=arguments.hold_out,
            baseline=arguments.baseline,
            classes=_classes(arguments),
            progress=progress,
        )
    _print(arguments, result, replay_to_json, print_replay)
    for write, path in ((write_report, arguments.report), (write_trace, arguments.trace_out)):
        if path:
            write(result, path, overwrite=arguments.overwrite)
            _say_written(arguments, path)


def _critical_path(arguments: argparse.Namespace) -> None:
    import jaxperf
    from jaxperf.report import critical_path_to_json, print_critical_path

    with _progress(arguments) as progress:
        result = jaxperf.critical_path(
            arguments.paths, step=arguments.step, classes=_classes(arguments), progress=progress
        )
    _print(arguments, result, critical_path_to_json, print_critical_path)


def _whatif(arguments: argparse.Namespace) -> None:
    import jaxperf
    from jaxperf.report import print_whatif, whatif_to_json

    with _progress(arguments, "Replaying", "worlds") as progress:
        result = jaxperf.whatif(
            arguments.paths,
            scale=_once(arguments.scale, "--scale"),
            change=_once(arguments.set, "--set"),
            scenarios=arguments.scenarios or (),
            job=arguments.job,
            hardware=arguments.hardware,
            fit=arguments.fit,
            samples=arguments.samples,
            contention=not arguments.no_contention,
            classes=_classes(arguments),
            progress=progress,
        )
    _print(arguments, result, whatif_to_json, print_whatif)


def _estimate(arguments: argparse.Namespace) -> None:
    _check_outputs(arguments, arguments.report, arguments.trace_out)
    import jaxperf
    from jaxperf.report import estimate_to_json, print_estimate, write_report, write_trace

    result = jaxperf.estimate(
        arguments.job,
        hardware=arguments.hardware,
        change=_once(arguments.set, "--set"),
        fit=arguments.fit,
    )
    _print(arguments, result, estimate_to_json, print_estimate)
    for write, path in ((write_report, arguments.report), (write_trace, arguments.trace_out)):
        if path:
            write(result, path, overwrite=arguments.overwrite)
            _say_written(arguments, path)


def _compare(arguments: argparse.Namespace) -> None:
    from jaxperf.comparison import compare
    from jaxperf.report import comparison_to_json, print_comparison

    with _progress(arguments) as progress:
        result = compare(
            arguments.a,
            arguments.b,
            step=arguments.step,
            classes=_classes(arguments),
            progress=progress,
        )
    _print(arguments, result, comparison_to_json, print_comparison)


def _calibrate(arguments: argparse.Namespace) -> None:
    _check_outputs(arguments, arguments.output)
    import jaxperf
    from jaxperf.report import calibration_to_json, print_calibration, write_fit

    with _progress(arguments, "Fitting", "iterations") as progress:
        result = jaxperf.calibrate(
            arguments.paths,
            leaves=arguments.leaf,
            hardware=arguments.hardware,
            hold_out=arguments.hold_out,
            classes=_classes(arguments),
            progress=progress,
        )
    _print(arguments, result, calibration_to_json, print_calibration)
    if arguments.output:
        write_fit(result.fit, arguments.output, overwrite=arguments.overwrite)
        _say_written(arguments, arguments.output)


def _print(arguments: argparse.Namespace, result, to_json, print_tables) -> None:
    if arguments.json:
        # A NaN is no JSON: what cannot be known is null by now.
        print(json.dumps(to_json(result), indent=2, allow_nan=False))
    else:
        from rich.console import Console

        print_tables(result, Console())


def _say_written(arguments: argparse.Namespace, path: Path) -> None:
    if not arguments.quiet:
        print(f"Wrote {path}", file=sys.stderr)


def _check_outputs(arguments: argparse.Namespace, *outputs: Path | None) -> None:
    """Refuse before the work what could not be written after it."""
    from jaxperf.report import check_new_file

    taken = {path.resolve(): "is also an input" for path in getattr(arguments, "paths", [])}
    for path in filter(None, outputs):
        if path.resolve() in taken:
            raise OutputError(taken[path.resolve()], where=str(path), remedy="name another file")
        taken[path.resolve()] = "is named for two results"
        check_new_file(path, arguments.overwrite)


@contextlib.contextmanager
def _progress(
    arguments: argparse.Namespace, doing: str = "Reading", what: str = "files"
) -> Iterator:
    """A bar on a terminal; yields what to call with what is done so far and all there is."""
    if arguments.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn(doing), BarColumn(), MofNCompleteColumn(), TextColumn(what)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


# ---------------------------------------------------------------------------------------
# Arguments


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(USER_CAN_MEND, f"{self.prog}: {message}; see {self.prog} --help\n")


class _Version(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):
        from importlib.metadata import version

        print(f"jaxperf {version('jaxperf')}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="jaxperf",
        description="Replay training runs from their traces, and see where the time goes.",
        epilog="Exit codes: 0 done; 2 you can mend it, one line says how; 1 a bug of jaxperf.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    demo = _add_verb(verbs, "demo", _demo, "replay a trace that jaxperf makes itself")
    demo.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="where to write (default: jaxperf-demo here, with a number behind it if it exists)",
    )
    _add_overwrite(demo, "write over an earlier demo in FOLDER")

    inspect = _add_verb(verbs, "inspect", _inspect, "say what is in traces")
    _add_paths(inspect)

    replay = _add_verb(verbs, "replay", _replay, "replay traces and compare with the measured run")
    _add_paths(replay)
    replay.add_argument(
        "--step",
        type=_step,
        metavar="NAME|INDEX",
        help="replay one step: its name, or its place (0 the first, -1 the last)",
    )
    replay.add_argument(
        "--hold-out",
        action="store_true",
        help="also replay each step with durations taken from the other steps",
    )
    replay.add_argument(
        "--baseline",
        choices=["dpro"],
        help="leave out the dependencies between streams, as earlier replayers did",
    )
    replay.add_argument(
        "--report", type=Path, metavar="FILE.html", help="write a page to look at the result"
    )
    replay.add_argument(
        "--trace-out",
        type=Path,
        metavar="FILE.json.gz",
        help="write the replayed timeline for ui.perfetto.dev or chrome://tracing",
    )
    _add_overwrite(replay, "write over existing files")

    critical = _add_verb(verbs, "critical-path", _critical_path, "say what bounds the step")
    _add_paths(critical)
    critical.add_argument(
        "--step",
        type=_step,
        metavar="NAME|INDEX",
        help="look at one step: its name, or its place (0 the first, -1 the last)",
    )

    _add_whatif(verbs)

    compare = _add_verb(verbs, "compare", _compare, "say what changed between two runs")
    for name in ("a", "b"):
        compare.add_argument(
            name,
            type=Path,
            metavar=name.upper(),
            help="a trace file, or a folder with the traces of one run",
        )
    compare.add_argument(
        "--step",
        type=_step,
        metavar="NAME|INDEX",
        help="compare one step only: its name, or its place",
    )
    _add_classes(compare)

    _add_calibrate(verbs)
    _add_estimate(verbs)
    return parser


def _add_whatif(verbs) -> None:
    whatif = _add_verb(verbs, "whatif", _whatif, "say what the step would take under changes")
    _add_paths(whatif)
    whatif.add_argument(
        "--scale",
        type=_factor,
        action="append",
        default=[],
        metavar="SELECTOR=FACTOR",
        help="multiply durations: of a class (gemm, communication, compute, host, ...) or of "
        "name:REGEX, also behind rank:N/; may be repeated",
    )
    whatif.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a number of the machine, such as memory_bytes_per_s=4.8e12 or "
        "links.nvlink.bus_bytes_per_s=900e9; hardware=NAME is another machine; or, with --job, a "
        "field of the job, such as data_parallel=8; may be repeated",
    )
    whatif.add_argument(
        "--job",
        metavar="JOB.toml",
        help="the recorded job: a file, or a name such as llama3-8b; --set may then change it",
    )
    whatif.add_argument(
        "--scenarios", type=Path, metavar="FILE.toml", help="more scenarios, answered as one batch"
    )
    _add_hardware(whatif)
    whatif.add_argument("--fit", type=Path, metavar="FIT.toml", help="what calibrate has written")
    whatif.add_argument(
        "--samples",
        type=int,
        default=0,
        metavar="N",
        help="draw durations and fitted parameters N times, and give intervals",
    )
    whatif.add_argument(
        "--no-contention",
        action="store_true",
        help="let kernels run as fast beside communication as alone",
    )


def _add_calibrate(verbs) -> None:
    calibrate = _add_verb(verbs, "calibrate", _calibrate, "fit the cost model to traces")
    calibrate.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="a trace file, or a folder with the traces of one run; each is a run of its own",
    )
    calibrate.add_argument(
        "--leaf",
        action="append",
        default=[],
        metavar="PATTERN",
        help="fit these numbers only, such as 'matmul.*'; may be repeated",
    )
    _add_hardware(calibrate)
    calibrate.add_argument(
        "--hold-out",
        choices=["step", "shape", "trace"],
        default="shape",
        help="judge the fit on the last step of each run, on a quarter of the shapes (default), or "
        "on the last run",
    )
    _add_classes(calibrate)
    calibrate.add_argument("--output", type=Path, metavar="FIT.toml", help="write the fit")
    _add_overwrite(calibrate, "write over an existing file")


def _add_estimate(verbs) -> None:
    estimate = _add_verb(verbs, "estimate", _estimate, "say what a job would take that never ran")
    estimate.add_argument(
        "job", metavar="JOB.toml", help="the job: a file, or a name such as llama3-70b"
    )
    estimate.add_argument(
        "--hardware", metavar="HW.toml", help="the machine: a file, or a name (default: h100)"
    )
    estimate.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a field of the job or a number of the machine, such as micro_batches=64 or "
        "memory_bytes_per_s=4.8e12; hardware=NAME is another machine; may be repeated",
    )
    estimate.add_argument(
        "--fit",
        type=Path,
        metavar="FIT.toml",
        help="what calibrate has written, or a fit to measured steps: a file, or a name such as "
        "h100-fsdp",
    )
    estimate.add_argument(
        "--report", type=Path, metavar="FILE.html", help="write a page to look at the result"
    )
    estimate.add_argument(
        "--trace-out",
        type=Path,
        metavar="FILE.json.gz",
        help="write the timeline of a rank of each stage for ui.perfetto.dev or chrome://tracing",
    )
    _add_overwrite(estimate, "write over existing files")


def _add_hardware(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hardware",
        metavar="HW.toml",
        help="the recorded machine: a file, or a name such as h100 (default: told by its device)",
    )


def _add_verb(verbs, name: str, call, summary: str) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    parser.set_defaults(verb=call)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")
    return parser


def _add_paths(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="a trace file, or a folder with the traces of one run",
    )
    _add_classes(parser)


def _add_classes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--classes",
        type=Path,
        metavar="FILE.toml",
        help="classes of kernels of your own, before those that jaxperf knows",
    )


def _classes(arguments: argparse.Namespace):
    from jaxperf.graph import KERNEL_CLASSES

    return arguments.classes or KERNEL_CLASSES


def _add_overwrite(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--overwrite", action="store_true", help=text)


def _step(text: str) -> str | int:
    try:
        return int(text)
    except ValueError:
        return text


def _once(pairs: list[tuple[str, Any]], option: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, _ in pairs if [name for name, _ in pairs].count(key) > 1)
        raise ConfigError("given twice", where=f"{option} {twice}", expected="once")
    return found


def _factor(text: str) -> tuple[str, float]:
    # A regular expression may hold an equals sign; the factor behind the last one does not.
    selector, _, factor = text.rpartition("=")
    try:
        return selector, float(factor)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected SELECTOR=FACTOR such as gemm=0.5"
        ) from None


def _setting(text: str) -> tuple[str, float | str]:
    key, equals, value = text.partition("=")
    if not key or not equals or not value:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected KEY=VALUE such as memory_bytes_per_s=4.8e12"
        )
    try:
        return key, float(value)
    except ValueError:
        return key, value
