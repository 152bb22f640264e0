"""The nouns of a prediction: what a run that was replayed or estimated draws, and takes."""

from dataclasses import dataclass

import numpy as np

from jaxperf.energy.clocks._types import ClockWhatIf
from jaxperf.trace import Note


@dataclass(frozen=True, slots=True)
class Accounting:
    """What energy is divided by, and multiplied with. NaN where not known.

    Attributes:
        steps: of the whole training.
        samples_per_step, tokens_per_step: of the global batch.
        pue: energy of the facility by that of its nodes (power usage effectiveness), at least 1.
        carbon_g_per_kwh: of the electricity, in grams of carbon dioxide or its equivalent.
        switches_w: of the switches between nodes, at the wall: their number times the most each
            may draw, as MLPerf has it.
    """

    steps: float = float("nan")
    samples_per_step: float = float("nan")
    tokens_per_step: float = float("nan")
    pue: float = float("nan")
    carbon_g_per_kwh: float = float("nan")
    switches_w: float = float("nan")


@dataclass(frozen=True, slots=True)
class BoundaryEnergy:
    """Energy as measured at one place. NaN where it cannot be known.

    Attributes:
        boundary: `accelerators`; `nodes_dc`, behind the power supplies of the nodes; `nodes_ac`,
            before them; `facility`, with what cooling and distribution take.
        average_w: of the span that is looked at.
        step_j, sample_j, token_j, train_j: of a steady step, a sequence, a token, the training.
    """

    boundary: str
    average_w: float
    step_j: float
    sample_j: float
    token_j: float
    train_j: float


@dataclass(frozen=True, eq=False)
class PredictedSeries:
    """Power over the span that is looked at: mean of each cell of a grid.

    Attributes:
        grid_us: (cells + 1,) edges, from the graph's time zero.
        accelerator_w: (cells,) of one accelerator, the mean over all.
        nodes_dc_w, nodes_ac_w: (cells,) of all nodes and switches.
        zero_ns: the graph's time zero on the clock of the traces; 0 of a graph without traces.
    """

    grid_us: np.ndarray
    accelerator_w: np.ndarray
    nodes_dc_w: np.ndarray
    nodes_ac_w: np.ndarray
    zero_ns: int = 0


@dataclass(frozen=True, slots=True)
class RankPower:
    """What the accelerator of one rank draws.

    Attributes:
        rank: the rank.
        ranks_alike: how many it stands for, itself included.
        average_w: over the span.
        peak_w: highest mean over a window; see `EnergyPrediction`.
    """

    rank: int
    ranks_alike: float
    average_w: float
    peak_w: float


@dataclass(frozen=True, eq=False)
class EnergyPrediction:
    """The energy of a run that was replayed or estimated. NaN where something cannot be known.

    Attributes:
        device: name of the power description.
        gpus: accelerators of the run.
        nodes: that hold them.
        step_us: the steady step.
        span_us: begin and end of what is looked at: the steady steps, else the whole window.
        accelerator_w: average of one accelerator.
        node_dc_w, node_ac_w: average of a node, behind and before its power supplies, with its part
            of the switches.
        peak_window_us: over which peaks are means.
        peak_accelerator_w: highest of any rank; where it lies across two windows in which the
            limit is kept it may be above the limit.
        peak_node_ac_w, lowest_node_ac_w: highest and lowest of a node, the mean over nodes.
        rise_w, fall_w: largest change between neighbouring cells of the series, of all
            accelerators together.
        boundaries: energy by where it is measured.
        by_class_j: of a steady step, all accelerators: by class on top of static power, `static`.
        by_phase_j: the same by what goes on in a rank; see `jaxperf.replay.Breakdown`.
        by_rank: average and peak of each.
        known_work_share: of the time of tasks on accelerators, that of those with known work.
        above_limit_w: by how much the highest window of any rank would be above the limit of the
            accelerator at its nominal clock; 0 where none is. The figures are of the clocks that
            keep the limit in the recorded times; where none does a note says so.
        accounting: what energy was divided by and multiplied with.
        facility_energy_j: of the training, else of a steady step; NaN without a PUE.
        carbon_g: of that, or without a PUE of what the nodes take.
        series: power over the span.
        clocks: answers about other clocks and limits; `None` where nothing was asked.
        notes: what was guessed or set aside.
    """

    device: str
    gpus: int
    nodes: int
    step_us: float
    span_us: tuple[float, float]
    accelerator_w: float
    node_dc_w: float
    node_ac_w: float
    peak_window_us: float
    peak_accelerator_w: float
    peak_node_ac_w: float
    lowest_node_ac_w: float
    rise_w: float
    fall_w: float
    boundaries: tuple[BoundaryEnergy, ...]
    by_class_j: dict[str, float]
    by_phase_j: dict[str, float]
    by_rank: tuple[RankPower, ...]
    known_work_share: float
    above_limit_w: float
    accounting: Accounting
    facility_energy_j: float
    carbon_g: float
    series: PredictedSeries
    notes: tuple[Note, ...]
    clocks: ClockWhatIf | None = None
