"""The verbs on energy: logs scored, runs predicted, power fitted, published results compared."""

import argparse
from pathlib import Path

from jaxperf.cli._arguments import (
    add_hardware,
    add_overwrite,
    add_paths,
    add_power,
    add_verb,
    clock_argument,
    kernel_classes,
    once,
    step_argument,
)
from jaxperf.cli._results import check_outputs, print_result, progress_bar
from jaxperf.errors import OutputError


def _score(arguments: argparse.Namespace) -> None:
    from jaxperf.energy import score
    from jaxperf.report import print_score, score_to_json

    result = score(arguments.logs, window=arguments.window, zone=arguments.zone)
    print_result(arguments, result, score_to_json, print_score)


def _predict(arguments: argparse.Namespace) -> None:
    check_outputs(arguments, arguments.series_out)
    from jaxperf.energy import predict
    from jaxperf.report import prediction_to_json, print_prediction, write_power_series

    with progress_bar(arguments) as progress:
        result = predict(
            arguments.paths,
            power=arguments.power,
            hardware=arguments.hardware,
            step=arguments.step,
            clock_hz=once(arguments.clock, "--clock"),
            power_limit_w=arguments.power_limit,
            frontier=arguments.frontier,
            grid_us=arguments.grid_us,
            job=arguments.job,
            steps=arguments.steps,
            samples_per_step=arguments.samples_per_step,
            tokens_per_step=arguments.tokens_per_step,
            pue=arguments.pue,
            carbon_g_per_kwh=arguments.carbon_g_per_kwh,
            switches_w=arguments.switches_w,
            classes=kernel_classes(arguments),
            progress=progress,
        )
    file = write_power_series, arguments.series_out
    print_result(arguments, result, prediction_to_json, print_prediction, file)


def _calibrate(arguments: argparse.Namespace) -> None:
    check_outputs(arguments, arguments.output)
    from jaxperf.energy import calibrate
    from jaxperf.report import power_fit_to_json, print_power_fit, write_power

    with progress_bar(arguments, "Fitting", "rounds") as progress:
        result = calibrate(
            arguments.paths,
            arguments.readings,
            power=arguments.power,
            hardware=arguments.hardware,
            per=arguments.per,
            zone=arguments.zone,
            classes=kernel_classes(arguments),
            progress=progress,
        )
    file = write_power, arguments.output
    print_result(arguments, result, power_fit_to_json, print_power_fit, file)


def _trends(arguments: argparse.Namespace) -> None:
    check_outputs(arguments, arguments.plot)
    if arguments.plot and arguments.plot.suffix.lower() != ".svg":
        raise OutputError("not a drawing", where=str(arguments.plot), expected="a name in .svg")
    from jaxperf.energy import trends
    from jaxperf.report import print_trends, trends_to_json, write_trends

    result = trends(arguments.table)
    print_result(arguments, result, trends_to_json, print_trends, (write_trends, arguments.plot))


# Their arguments
# ---------------------------------------------------------------------------------------


def add_energy_verbs(verbs) -> None:
    """`energy`, and the verbs below it."""
    summary = "score power logs, and say what power a run draws"
    energy = verbs.add_parser(
        "energy", help=summary, description=f"{summary[0].upper()}{summary[1:]}."
    )
    below = energy.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_score(below)
    _add_predict(below)
    _add_calibrate(below)

    trends = add_verb(below, "trends", _trends, "say how published efficiency grew over rounds")
    trends.add_argument("table", type=Path, metavar="TABLE", help="a CSV file of published results")
    trends.add_argument("--plot", type=Path, metavar="FILE.svg", help="write a drawing")
    add_overwrite(trends, "write over an existing file")


def _add_score(verbs) -> None:
    score = add_verb(verbs, "score", _score, "score a power log by the rules of its benchmark")
    score.add_argument(
        "logs",
        type=Path,
        metavar="LOGDIR",
        help="a session or submission of MLPerf (a folder, or a tar archive), or a file of time "
        "and watts",
    )
    score.add_argument(
        "--window",
        type=Path,
        metavar="FILE.json",
        help="of plain readings, what counts: a file with start and stop",
    )
    _add_zone(score)


def _add_predict(verbs) -> None:
    predict = add_verb(verbs, "predict", _predict, "say what power a traced run draws")
    add_paths(predict)
    add_power(predict, "told by the recorded device")
    add_hardware(predict)
    predict.add_argument(
        "--step",
        type=step_argument,
        metavar="NAME|INDEX",
        help="look at one step: its name, or its place (0 the first, -1 the last)",
    )
    predict.add_argument(
        "--clock",
        type=clock_argument,
        action="append",
        default=[],
        metavar="SELECTOR=HZ",
        help="what if kernels ran at another clock: of all, a class, or one behind rank:N/, such "
        "as all=1.6e9, rank:2/gemm=1.2e9; may be repeated, the last that selects a kernel decides",
    )
    predict.add_argument(
        "--power-limit",
        type=float,
        metavar="W",
        help="what if each accelerator kept this limit",
    )
    predict.add_argument(
        "--frontier",
        type=int,
        default=0,
        metavar="N",
        help="least energy for the shortest step and for longer ones, N points",
    )
    predict.add_argument(
        "--job", metavar="JOB.toml", help="the recorded job: says samples and tokens of a step"
    )
    for option, metavar, text in (
        ("--samples-per-step", "N", "samples of the global batch"),
        ("--tokens-per-step", "N", "tokens of the global batch"),
        ("--steps", "N", "steps of the whole training, for the energy to train"),
        ("--switches-w", "W", "of the switches between nodes, at the wall"),
        ("--pue", "FACTOR", "energy of the facility by that of its nodes"),
        ("--carbon-g-per-kwh", "G", "of the electricity"),
        ("--grid-us", "US", "length of a cell of the power series"),
    ):
        predict.add_argument(option, type=float, metavar=metavar, help=text)
    predict.add_argument(
        "--series-out", type=Path, metavar="FILE.csv", help="write the power series"
    )
    add_overwrite(predict, "write over an existing file")


def _add_calibrate(verbs) -> None:
    calibrate = add_verb(verbs, "calibrate", _calibrate, "fit the power model to a measured log")
    add_paths(calibrate)
    calibrate.add_argument(
        "--readings",
        required=True,
        type=Path,
        metavar="LOG",
        help="power measured while the traces were recorded: a file of time and watts, or a "
        "node_*.txt of MLPerf Training",
    )
    calibrate.add_argument(
        "--per",
        choices=["gpu", "node"],
        default="gpu",
        help="whether the readings are of one accelerator (default) or of a node",
    )
    add_power(calibrate, "told by the recorded device")
    add_hardware(calibrate)
    _add_zone(calibrate)
    calibrate.add_argument("--output", type=Path, metavar="POWER.toml", help="write the fit")
    add_overwrite(calibrate, "write over an existing file")


def _add_zone(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--zone",
        metavar="NAME",
        help="of times in plain readings that name no zone, such as Europe/Berlin",
    )
