"""The verbs on traces and jobs: each parses, calls the public function of its name, and prints.

What computes is imported inside the verbs, so that `--help` and `--version` answer at once.
"""

import argparse
from pathlib import Path

from jaxperf.cli._arguments import (
    add_classes,
    add_hardware,
    add_overwrite,
    add_paths,
    add_power,
    add_verb,
    factor_argument,
    kernel_classes,
    once,
    setting_argument,
    step_argument,
)
from jaxperf.cli._results import check_outputs, print_result, progress_bar

# Verbs
# ---------------------------------------------------------------------------------------


def _demo(arguments: argparse.Namespace) -> None:
    from jaxperf.demonstration import demo, demo_to_json, print_demo

    with progress_bar(arguments) as progress:
        result = demo(arguments.output, overwrite=arguments.overwrite, progress=progress)
    print_result(arguments, result, demo_to_json, print_demo)


def _inspect(arguments: argparse.Namespace) -> None:
    from jaxperf.inspection import inspect
    from jaxperf.report import inspection_to_json, print_inspection

    with progress_bar(arguments) as progress:
        result = inspect(arguments.paths, classes=kernel_classes(arguments), progress=progress)
    print_result(arguments, result, inspection_to_json, print_inspection)


def _replay(arguments: argparse.Namespace) -> None:
    check_outputs(arguments, arguments.report, arguments.trace_out)
    import jaxperf
    from jaxperf.report import print_replay, replay_to_json, write_report, write_trace

    with progress_bar(arguments) as progress:
        result = jaxperf.replay(
            arguments.paths,
            step=arguments.step,
            hold_out=arguments.hold_out,
            baseline=arguments.baseline,
            classes=kernel_classes(arguments),
            progress=progress,
        )
    files = (write_report, arguments.report), (write_trace, arguments.trace_out)
    print_result(arguments, result, replay_to_json, print_replay, *files)


def _critical_path(arguments: argparse.Namespace) -> None:
    import jaxperf
    from jaxperf.report import critical_path_to_json, print_critical_path

    with progress_bar(arguments) as progress:
        result = jaxperf.critical_path(
            arguments.paths,
            step=arguments.step,
            classes=kernel_classes(arguments),
            progress=progress,
        )
    print_result(arguments, result, critical_path_to_json, print_critical_path)


def _export(arguments: argparse.Namespace) -> None:
    from jaxperf.interchange import export
    from jaxperf.report import export_to_json, print_export

    with progress_bar(arguments) as progress:
        result = export(
            arguments.paths,
            tables=arguments.tables,
            chakra=arguments.chakra,
            classes=kernel_classes(arguments),
            overwrite=arguments.overwrite,
            progress=progress,
        )
    print_result(arguments, result, export_to_json, print_export)


def _whatif(arguments: argparse.Namespace) -> None:
    import jaxperf
    from jaxperf.report import print_whatif, whatif_to_json

    with progress_bar(arguments, "Replaying", "worlds") as progress:
        result = jaxperf.whatif(
            arguments.paths,
            scale=once(arguments.scale, "--scale"),
            change=once(arguments.set, "--set"),
            scenarios=arguments.scenarios or (),
            job=arguments.job,
            hardware=arguments.hardware,
            fit=arguments.fit,
            samples=arguments.samples,
            contention=not arguments.no_contention,
            classes=kernel_classes(arguments),
            progress=progress,
        )
    print_result(arguments, result, whatif_to_json, print_whatif)


def _estimate(arguments: argparse.Namespace) -> None:
    check_outputs(arguments, arguments.report, arguments.trace_out)
    import jaxperf
    from jaxperf.report import estimate_to_json, print_estimate, write_report, write_trace

    result = jaxperf.estimate(
        arguments.job,
        hardware=arguments.hardware,
        change=once(arguments.set, "--set"),
        fit=arguments.fit,
        power=arguments.power,
    )
    files = (write_report, arguments.report), (write_trace, arguments.trace_out)
    print_result(arguments, result, estimate_to_json, print_estimate, *files)


def _compare(arguments: argparse.Namespace) -> None:
    from jaxperf.comparison import compare
    from jaxperf.report import comparison_to_json, print_comparison

    with progress_bar(arguments) as progress:
        result = compare(
            arguments.a,
            arguments.b,
            step=arguments.step,
            classes=kernel_classes(arguments),
            progress=progress,
        )
    print_result(arguments, result, comparison_to_json, print_comparison)


def _calibrate(arguments: argparse.Namespace) -> None:
    check_outputs(arguments, arguments.output)
    import jaxperf
    from jaxperf.report import calibration_to_json, print_calibration, write_fit

    with progress_bar(arguments, "Fitting", "iterations") as progress:
        result = jaxperf.calibrate(
            arguments.paths,
            leaves=arguments.leaf,
            hardware=arguments.hardware,
            hold_out=arguments.hold_out,
            classes=kernel_classes(arguments),
            progress=progress,
        )
    write = lambda result, path, overwrite: write_fit(result.fit, path, overwrite=overwrite)
    file = write, arguments.output
    print_result(arguments, result, calibration_to_json, print_calibration, file)


# Their arguments
# ---------------------------------------------------------------------------------------


def add_run_verbs(verbs) -> None:
    """The verbs on traces, and on jobs that have none."""
    demo = add_verb(verbs, "demo", _demo, "replay a trace that jaxperf makes itself")
    demo.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="where to write (default: jaxperf-demo here, with a number behind it if it exists)",
    )
    add_overwrite(demo, "write over an earlier demo in FOLDER")

    inspect = add_verb(verbs, "inspect", _inspect, "say what is in traces")
    add_paths(inspect)

    replay = add_verb(verbs, "replay", _replay, "replay traces and compare with the measured run")
    add_paths(replay)
    replay.add_argument(
        "--step",
        type=step_argument,
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
    add_overwrite(replay, "write over existing files")

    critical = add_verb(verbs, "critical-path", _critical_path, "say what bounds the step")
    add_paths(critical)
    critical.add_argument(
        "--step",
        type=step_argument,
        metavar="NAME|INDEX",
        help="look at one step: its name, or its place (0 the first, -1 the last)",
    )

    _add_whatif(verbs)

    compare = add_verb(verbs, "compare", _compare, "say what changed between two runs")
    for name in ("a", "b"):
        compare.add_argument(
            name,
            type=Path,
            metavar=name.upper(),
            help="a trace file, or a folder with the traces of one run",
        )
    compare.add_argument(
        "--step",
        type=step_argument,
        metavar="NAME|INDEX",
        help="compare one step only: its name, or its place",
    )
    add_classes(compare)

    _add_calibrate(verbs)
    _add_estimate(verbs)

    export = add_verb(verbs, "export", _export, "write a run for other tools")
    add_paths(export)
    export.add_argument(
        "--tables", type=Path, metavar="FOLDER", help="tasks, dependencies and steps, as Parquet"
    )
    export.add_argument(
        "--chakra", type=Path, metavar="FOLDER", help="an MLCommons Chakra trace of each rank"
    )
    add_overwrite(export, "write over existing files")


def _add_whatif(verbs) -> None:
    whatif = add_verb(verbs, "whatif", _whatif, "say what the step would take under changes")
    add_paths(whatif)
    whatif.add_argument(
        "--scale",
        type=factor_argument,
        action="append",
        default=[],
        metavar="SELECTOR=FACTOR",
        help="multiply durations: of a class (gemm, communication, compute, host, ...) or of "
        "name:REGEX, also behind rank:N/; may be repeated",
    )
    whatif.add_argument(
        "--set",
        type=setting_argument,
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
    add_hardware(whatif)
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
    calibrate = add_verb(verbs, "calibrate", _calibrate, "fit the cost model to traces")
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
    add_hardware(calibrate)
    calibrate.add_argument(
        "--hold-out",
        choices=["step", "shape", "trace"],
        default="shape",
        help="judge the fit on the last step of each run, on a quarter of the shapes (default), or "
        "on the last run",
    )
    add_classes(calibrate)
    calibrate.add_argument("--output", type=Path, metavar="FIT.toml", help="write the fit")
    add_overwrite(calibrate, "write over an existing file")


def _add_estimate(verbs) -> None:
    estimate = add_verb(verbs, "estimate", _estimate, "say what a job would take that never ran")
    estimate.add_argument(
        "job", metavar="JOB.toml", help="the job: a file, or a name such as llama3-70b"
    )
    estimate.add_argument(
        "--hardware", metavar="HW.toml", help="the machine: a file, or a name (default: h100)"
    )
    estimate.add_argument(
        "--set",
        type=setting_argument,
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
    add_power(estimate, "told by the machine")
    estimate.add_argument(
        "--report", type=Path, metavar="FILE.html", help="write a page to look at the result"
    )
    estimate.add_argument(
        "--trace-out",
        type=Path,
        metavar="FILE.json.gz",
        help="write the timeline of a rank of each stage for ui.perfetto.dev or chrome://tracing",
    )
    add_overwrite(estimate, "write over existing files")
