"""How long the kernels and messages of a recorded run take at other sizes.

A trace shows each kernel at one size. What another size takes follows from a form with few numbers,
fitted to all kernels of a kind in the trace, with what is typical of the machine as a prior. What
the form leaves of one kernel is kept: it belongs to its fixed part or to the part that grows with
its size, in proportion to how unsure each is.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from jaxperf.config import Hardware, node_and_network, set_hardware
from jaxperf.cost import WorkKind
from jaxperf.graph import TaskClass
from jaxperf.workload._pieces import Piece, multiply

# How far a form is trusted: relative deviation of one kernel, and of its fixed part.
_UNSURE, _UNSURE_FIXED = 0.2, 0.6
# Relative deviation of measured means from a form. How often a streaming kernel goes through its
# operands is guessed, so what is known of the machine counts for more there.
_NOISE, _STREAM_NOISE = 0.02, 0.3
# What a kernel with another number of thread blocks than tiles tells against a size of tile.
_OTHER_GRID = 1.0
_TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64))


@dataclass(frozen=True, slots=True)
class Observed:
    """A kernel or message of the trace, its mean duration, and its thread blocks if known."""

    piece: Piece
    time_us: float
    blocks: float = math.nan


@dataclass(frozen=True, slots=True)
class _Prior:
    """What a coefficient is believed to be before the trace is seen."""

    value: float
    deviation: float


@dataclass(frozen=True, eq=False)
class _Form:
    """A time that is linear in a few features of a piece; the first of them is fixed."""

    features: Callable[[Piece], Sequence[float]]
    coefficients: np.ndarray

    def parts_us(self, piece: Piece) -> tuple[float, float]:
        """The fixed part, and the part that grows with size."""
        terms = np.asarray(self.features(piece)) * self.coefficients
        return float(terms[0]), float(terms[1:].sum())


@dataclass(frozen=True, eq=False)
class _Mixture:
    """Several forms, each as probable as it fits."""

    forms: tuple[_Form, ...]
    weights: np.ndarray

    def parts_us(self, piece: Piece) -> tuple[float, float]:
        """As of a form, the mean over all of them."""
        fixed, grows = self.weights @ np.array([form.parts_us(piece) for form in self.forms])
        return float(fixed), float(grows)


@dataclass(frozen=True, eq=False)
class KernelTimes:
    """Forms fitted to a trace.

    Attributes:
        forms: by kind of work, as fitted.
        changed: the same on the machine that times are asked for.
        hardware: that machine.
    """

    forms: dict[WorkKind, _Form | _Mixture]
    changed: dict[WorkKind, _Form | _Mixture]
    hardware: Hardware

    def with_nodes_of(self, gpus: int) -> "KernelTimes":
        """The same times where a node has another number of accelerators."""
        if gpus == self.hardware.gpus_per_node:
            return self
        hardware = set_hardware(self.hardware, {"gpus_per_node": gpus})
        old = self.forms[WorkKind.COLLECTIVE]
        assert isinstance(old, _Form)
        messages = _Form(_message_features(hardware), old.coefficients)
        return KernelTimes(self.forms, {**self.forms, WorkKind.COLLECTIVE: messages}, hardware)

    def time_us(self, piece: Piece) -> float:
        """What a kernel or message takes by the forms alone, NaN where its kind has none.

        Args:
            piece: the kernel or message.

        Returns:
            Microseconds.
        """
        form = self.changed.get(piece.kind)
        return sum(form.parts_us(piece)) if form else math.nan

    def resized_us(self, measured_us: float, recorded: Piece, changed: Piece) -> float:
        """What a measured kernel takes at another size.

        Args:
            measured_us: its duration in the trace.
            recorded, changed: what it does there, and what it is to do.

        Returns:
            Microseconds; the measured duration where the size is the same.
        """
        form = self.forms.get(recorded.kind)
        if form is None:
            return measured_us
        fixed, grows = form.parts_us(recorded)
        new_fixed, new_grows = self.changed[recorded.kind].parts_us(changed)
        if (fixed, grows) == (new_fixed, new_grows):
            return measured_us
        if grows <= 0:
            return measured_us * (new_fixed + new_grows) / max(fixed, 1e-9)
        rest = measured_us - fixed - grows
        of_fixed, of_grows = (_UNSURE_FIXED * fixed) ** 2, (_UNSURE * grows) ** 2
        rest_grows = rest * of_grows / max(of_fixed + of_grows, 1e-12)
        new_us = new_fixed + rest - rest_grows + (grows + rest_grows) * new_grows / grows
        return max(new_us, measured_us * min(1.0, new_grows / grows))


def sizes(piece: Piece) -> tuple[float, ...]:
    """Everything about a piece that its time depends on.

    Example:
        >>> from jaxperf.workload._pieces import stream
        >>> sizes(stream("norm", TaskClass.NORMALIZATION, 64.0, "bf16"))[1]
        64.0
    """
    numbers = (piece.flops, piece.memory_bytes, piece.batch, piece.m, piece.n, piece.k)
    message = (piece.message_bytes, piece.ranks, piece.stride)
    return tuple(-1.0 if number != number else float(number) for number in (*numbers, *message))


def fit_kernel_times(observed: Iterable[Observed], hardware: Hardware) -> KernelTimes:
    """Fit the forms to what a trace shows.

    Multiplies: `a + waves (b + c k)` with the waves of one size of tile over the multiprocessors,
    the mean over sizes, each as probable as it fits (tiles and waves: NeuSight,
    `neusight/Model/mlp_wave_mm.py`). Attention: `a + flops / rate`, forward and backward apart, `a`
    about that of the smallest multiply. Streams: `a + bytes / rate`.
    Messages: `latency (1 + log2(ranks / 2) / 4) + bytes factor / bandwidth`, the factor that of bus
    bandwidth (nccl-tests, PERFORMANCE.md), by the link that the group spans.

    Args:
        observed: kernels and messages with what they do.
        hardware: the machine.

    Returns:
        The forms.
    """
    every = list(observed)
    of_kind = {kind: [o for o in every if o.piece.kind == kind] for kind in WorkKind}
    multiplies = _fit_multiplies(of_kind[WorkKind.MATMUL], hardware)
    smallest_us = sum(multiplies.parts_us(multiply("smallest", 1, 1, 1, precision="bf16")))
    forms = {
        WorkKind.MATMUL: multiplies,
        WorkKind.ATTENTION: _fit_attention(of_kind[WorkKind.ATTENTION], hardware, smallest_us),
        WorkKind.MEMORY: _fit_streams(of_kind[WorkKind.MEMORY], hardware),
        WorkKind.COLLECTIVE: _fit_messages(of_kind[WorkKind.COLLECTIVE], hardware),
    }
    return KernelTimes(forms, forms, hardware)


def _fit_multiplies(observed: Sequence[Observed], hardware: Hardware) -> _Mixture:
    """A form for each size of tile; those that the times, and thread blocks, tell against fade."""
    peak = _peak_flops_per_us(hardware)
    forms, losses = [], []
    for tile in _TILES:
        wave_flops = 2.0 * tile[0] * tile[1] * hardware.streaming_multiprocessors
        priors = (_Prior(4.0, 4.0), _Prior(1.0, 1.0), _around(wave_flops / (0.75 * peak), 0.2))
        form, loss = _fit(observed, _wave_features(tile, hardware), priors)
        other = [
            o for o in observed if o.blocks == o.blocks and round(o.blocks) != _tiles(o.piece, tile)
        ]
        forms.append(form)
        losses.append(loss + _OTHER_GRID * len(other))
    weights = np.exp(-(np.array(losses) - min(losses)) / 2)
    return _Mixture(tuple(forms), weights / weights.sum())


def _tiles(piece: Piece, tile: tuple[int, int]) -> float:
    return math.ceil(piece.m / tile[0]) * math.ceil(piece.n / tile[1]) * piece.batch


def _wave_features(
    tile: tuple[int, int], hardware: Hardware
) -> Callable[[Piece], tuple[float, float, float]]:
    def features(piece: Piece) -> tuple[float, float, float]:
        waves = math.ceil(_tiles(piece, tile) / hardware.streaming_multiprocessors)
        return 1.0, float(waves), float(waves * piece.k)

    return features


def _fit_attention(observed: Sequence[Observed], hardware: Hardware, smallest_us: float) -> _Form:
    peak = _peak_flops_per_us(hardware)

    def features(piece: Piece) -> tuple[float, float, float]:
        backward = piece.name.endswith("gradient")
        return 1.0, 0.0 if backward else piece.flops, piece.flops if backward else 0.0

    rates = _around(1 / (0.55 * peak), 0.3), _around(1 / (0.45 * peak), 0.3)
    return _fit(observed, features, (_around(smallest_us, 0.3), *rates))[0]


def _fit_streams(observed: Sequence[Observed], hardware: Hardware) -> _Form:
    usual = {TaskClass.NORMALIZATION, TaskClass.ELEMENTWISE}
    seen = [each for each in observed if each.piece.task_class in usual]
    rate = _around(1e6 / (0.8 * hardware.memory_bytes_per_s), 0.15)
    priors = (_Prior(1.5, 0.3), rate)
    return _fit(seen, lambda p: (1.0, p.memory_bytes), priors, noise=_STREAM_NOISE)[0]


def _fit_messages(observed: Sequence[Observed], hardware: Hardware) -> _Form:
    node, network = node_and_network(hardware)
    priors = (
        _Prior(node.latency_us, 2 * node.latency_us),
        _around(1e6 / node.bus_bytes_per_s, 0.05),
        _around(1e6 / network.bus_bytes_per_s, 0.05),
    )
    return _fit(observed, _message_features(hardware), priors)[0]


def _message_features(hardware: Hardware) -> Callable[[Piece], tuple[float, float, float]]:
    def features(piece: Piece) -> tuple[float, float, float]:
        moved = piece.message_bytes * bus_factor(piece.operation, piece.ranks)
        growth = 1.0 + 0.25 * math.log2(max(piece.ranks, 2.0) / 2)
        far = spans_nodes(piece, hardware)
        return growth, 0.0 if far else moved, moved if far else 0.0

    return features


def bus_factor(operation: str, ranks: float) -> float:
    """Bytes that pass each rank's link, by those of the whole buffer (nccl-tests, PERFORMANCE.md).

    Example:
        >>> bus_factor("all_reduce", 4)
        1.5
    """
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if operation in ("all_gather", "reduce_scatter", "all_to_all"):
        return (ranks - 1) / ranks
    return 1.0


def spans_nodes(piece: Piece, hardware: Hardware) -> bool:
    """Whether the members of a message are on several nodes.

    Example:
        >>> from jaxperf.config import Job, load_hardware
        >>> from jaxperf.workload._messages import pipeline_message
        >>> job = Job(layers=2, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128, pipeline_parallel=2, data_parallel=8)
        >>> spans_nodes(pipeline_message(job), load_hardware("h100"))
        True
    """
    return (piece.ranks - 1) * piece.stride >= hardware.gpus_per_node


def _peak_flops_per_us(hardware: Hardware) -> float:
    peaks = hardware.peak_flops_per_s
    return next((peaks[p] for p in ("bf16", "fp16") if p in peaks), max(peaks.values())) / 1e6


def _around(value: float, share: float) -> _Prior:
    return _Prior(value, share * value)


def _fit(
    observed: Sequence[Observed],
    features: Callable[[Piece], Sequence[float]],
    priors: Sequence[_Prior],
    noise: float = _NOISE,
) -> tuple[_Form, float]:
    """The most probable coefficients, none below zero, and what they leave unexplained."""
    rows = [np.asarray(features(o.piece), float) / (noise * o.time_us) for o in observed]
    wanted = [1 / noise for _ in observed]
    for place, prior in enumerate(priors):
        row = np.zeros(len(priors))
        row[place] = 1 / prior.deviation
        rows.append(row)
        wanted.append(prior.value / prior.deviation)
    matrix, right = np.array(rows), np.array(wanted)
    kept = np.ones(len(priors), bool)
    coefficients = np.zeros(len(priors))
    for _ in priors:
        coefficients[:] = 0.0
        coefficients[kept] = np.linalg.lstsq(matrix[:, kept], right, rcond=None)[0]
        if (coefficients >= 0).all():
            break
        kept &= coefficients > 0
    left = matrix @ coefficients - right
    return _Form(features, coefficients), float(left @ left)
