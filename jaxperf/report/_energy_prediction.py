"""What `jaxperf energy predict` prints, and the file of its power series."""

import math
import os
from dataclasses import asdict

import numpy as np
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from jaxperf._files import new_file
from jaxperf.energy import BoundaryEnergy, EnergyPrediction, PredictedSeries
from jaxperf.report._clock_whatif import clock_answers, clock_sections, clock_whatif_to_json
from jaxperf.report._energy_words import joules_text, watts_text
from jaxperf.report._json import notes_to_json, rounded_us, significant
from jaxperf.report._terminal import notes_table, plain_table, print_sections, with_rest
from jaxperf.report._words import class_word, share_text, time_text

_BOUNDARY_WORDS = {
    "accelerators": "accelerators",
    "nodes_dc": "nodes, DC",
    "nodes_ac": "nodes, AC",
    "facility": "facility",
}
_PHASE_WORDS = {"exposed_communication": "exposed communication", "memory": "copies and sets"}
_MOST_RANKS = 16  # the JSON has them all


def prediction_to_json(result: EnergyPrediction) -> dict:
    """A prediction as plain values, ready for `json.dumps`.

    Args:
        result: of `jaxperf.energy.predict`.

    Returns:
        Times in us, powers in W, energies in J, carbon in g. What cannot be known is `None`. The
        series is in watts; its grid is told by begin, end and length of a cell.
    """
    return {
        "gpus": result.gpus,
        "step_us": rounded_us(result.step_us),
        "span_us": [rounded_us(time) for time in result.span_us],
        **energy_to_json(result),
        "by_rank": [
            {
                "rank": each.rank,
                "ranks_alike": each.ranks_alike,
                "average_power_w": significant(each.average_w),
                "peak_power_w": significant(each.peak_w),
            }
            for each in result.by_rank
        ],
        "accounting": {name: significant(v) for name, v in asdict(result.accounting).items()},
        "facility_energy_j": significant(result.facility_energy_j),
        "carbon_g": significant(result.carbon_g),
        "series": _series(result.series),
        "clocks": result.clocks and clock_whatif_to_json(result.clocks),
        "notes": notes_to_json(result.notes),
    }


def energy_to_json(result: EnergyPrediction) -> dict:
    """Power and energy of a step as plain values: what an estimate has of them too.

    Args:
        result: of `jaxperf.energy.predict`, or of an estimate.

    Returns:
        Powers in W, energies in J. What cannot be known is `None`.
    """
    return {
        "device": result.device,
        "nodes": result.nodes,
        "average_power_w": {
            "accelerator": significant(result.accelerator_w),
            "node_dc": significant(result.node_dc_w),
            "node_ac": significant(result.node_ac_w),
        },
        "peak_power_w": {
            "window_us": rounded_us(result.peak_window_us),
            "accelerator": significant(result.peak_accelerator_w),
            "node_ac": significant(result.peak_node_ac_w),
            "node_ac_lowest": significant(result.lowest_node_ac_w),
            "rise": significant(result.rise_w),
            "fall": significant(result.fall_w),
        },
        "boundaries": [_boundary(boundary) for boundary in result.boundaries],
        "by_class_j": _sorted_j(result.by_class_j),
        "by_phase_j": {name: significant(value) for name, value in result.by_phase_j.items()},
        "known_work_share": significant(result.known_work_share),
        "above_limit_w": significant(result.above_limit_w),
    }


def _boundary(boundary: BoundaryEnergy) -> dict:
    return {
        "boundary": boundary.boundary,
        "average_power_w": significant(boundary.average_w),
        "energy_per_step_j": significant(boundary.step_j),
        "energy_per_sample_j": significant(boundary.sample_j),
        "energy_per_token_j": significant(boundary.token_j),
        "energy_to_train_j": significant(boundary.train_j),
    }


def _series(series: PredictedSeries) -> dict:
    return {
        "begin_us": rounded_us(series.grid_us[0]),
        "end_us": rounded_us(series.grid_us[-1]),
        "cell_us": rounded_us(series.grid_us[1] - series.grid_us[0]),
        "accelerator_w": [round(watts, 3) for watts in series.accelerator_w.tolist()],
        "nodes_dc_w": [round(watts, 3) for watts in series.nodes_dc_w.tolist()],
        "nodes_ac_w": [round(watts, 3) for watts in series.nodes_ac_w.tolist()],
    }


def _sorted_j(energies_j: dict[str, float]) -> dict[str, float | None]:
    rows = sorted(energies_j.items(), key=lambda row: (-row[1], row[0]))
    return {name: significant(energy) for name, energy in rows if energy != 0}


def print_prediction(result: EnergyPrediction, console: Console) -> None:
    """Print a prediction as tables that fit 80 columns.

    Args:
        result: of `jaxperf.energy.predict`.
        console: where to print.
    """
    sections = [
        *clock_sections(result.clocks),
        ("Energy", energy_table(result)),
        ("By class, accelerators", _shares(result.by_class_j, class_word)),
        ("By phase, accelerators", _shares(result.by_phase_j, lambda x: _PHASE_WORDS.get(x, x))),
        ("Ranks", _ranks(result)),
        ("Notes", notes_table(result.notes)),
    ]
    answer = _answer(result)
    if result.clocks is not None:
        answer.append("\n").append_text(clock_answers(result.clocks))
    print_sections(answer, sections, console)


def write_power_series(
    result: EnergyPrediction, path: str | os.PathLike[str], overwrite: bool = False
) -> None:
    """Write the power series as comma-separated values: a line for each cell.

    Its times are those of the traces, so that it fits them as a measured log would.

    Args:
        result: of `jaxperf.energy.predict`.
        path: the file.
        overwrite: replace a file that is there.

    Raises:
        OutputError: the file exists, its folder does not, or it cannot be written.
    """
    series = result.series
    # Whole nanoseconds: since the epoch they have more digits than a float64 holds.
    edges_ns = (series.zero_ns + np.rint(series.grid_us * 1e3).astype(np.int64)).tolist()
    node_w = series.nodes_ac_w / result.nodes
    powers_w = np.stack(
        [series.accelerator_w, node_w, series.nodes_dc_w, series.nodes_ac_w], axis=1
    )
    with new_file(path, overwrite) as file:
        file.write(b"begin_ns,end_ns,accelerator_w,node_ac_w,nodes_dc_w,nodes_ac_w\n")
        for begin_ns, end_ns, row_w in zip(
            edges_ns[:-1], edges_ns[1:], powers_w.tolist(), strict=True
        ):
            watts = ",".join(f"{value:.12g}" for value in row_w)
            file.write(f"{begin_ns},{end_ns},{watts}\n".encode())


# Tables
# ---------------------------------------------------------------------------------------


def _answer(result: EnergyPrediction) -> Text:
    text = Text(f"{result.gpus:,} {result.device}: ")
    text.append(watts_text(result.accelerator_w), style="bold")
    text.append(f" each, {joules_text(result.boundaries[0].step_j)} a step of ")
    text.append(time_text(result.step_us))
    text.append("\nA node draws ")
    text.append(watts_text(result.node_dc_w), style="bold")
    text.append(" DC, ")
    text.append(watts_text(result.node_ac_w), style="bold")
    text.append(f" AC; {result.nodes:,} in all")
    window = time_text(result.peak_window_us)
    text.append(
        f"\nHighest over {window}: {watts_text(result.peak_accelerator_w)} an accelerator,"
        f" {watts_text(result.peak_node_ac_w)} a node"
    )
    text.append(
        f"\nWork is known of {share_text(100.0 * result.known_work_share)} of the accelerators'"
        " busy time",
        style="dim",
    )
    if math.isfinite(result.carbon_g):
        whole = "the training" if math.isfinite(result.accounting.steps) else "a step"
        text.append(f"\nCarbon of {whole}: {result.carbon_g:,.4g} g")
    return text


def energy_table(result: EnergyPrediction) -> Table:
    """Power, and energy of a step and its parts, by where it is measured.

    Args:
        result: of `jaxperf.energy.predict`, or of an estimate.

    Returns:
        The table.
    """
    table = plain_table("", "power", "step", "sample", "token", "training")
    for each in result.boundaries:
        if math.isfinite(each.average_w):
            energies = (each.step_j, each.sample_j, each.token_j, each.train_j)
            words = _BOUNDARY_WORDS[each.boundary]
            table.add_row(words, watts_text(each.average_w), *map(joules_text, energies))
    return table


def _shares(energies_j: dict[str, float], word) -> Table:
    table = plain_table("", "a step", "share")
    total_j = sum(energies_j.values())
    for name, energy_j in sorted(energies_j.items(), key=lambda row: -row[1]):
        if energy_j > 0:
            table.add_row(word(name), joules_text(energy_j), share_text(100 * energy_j / total_j))
    return table


def _ranks(result: EnergyPrediction) -> Group:
    table = plain_table("rank", "stands for", "average", "highest")
    for each in result.by_rank[:_MOST_RANKS]:
        averages = watts_text(each.average_w), watts_text(each.peak_w)
        table.add_row(str(each.rank), f"{each.ranks_alike:g}", *averages)
    return with_rest(table, len(result.by_rank) - _MOST_RANKS)
