"""All different pieces of a job, in an order that its structure alone decides.

So a graph that was built once keeps its pieces when sizes change, and the time of an iteration has
gradients in them: the work of the changed job's pieces, in the same order, gives new durations.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from jaxperf.config import Job
from jaxperf.workload._kernels import (
    embedding_backward,
    embedding_forward,
    head_backward,
    head_forward,
    layer_backward,
    layer_forward,
    layer_recompute,
    optimizer_pieces,
    zero_gradients,
)
from jaxperf.workload._layout import Layout, rank_parameters, unit_parameters
from jaxperf.workload._messages import (
    gradient_messages,
    parameter_messages,
    pipeline_message,
    tied_embedding_message,
)
from jaxperf.workload._parameters import ParameterCounts
from jaxperf.workload._pieces import Piece


@dataclass(frozen=True, slots=True)
class PieceTable:
    """The pieces of a job, by what they are for.

    Attributes:
        pieces: all of them.
        places: indices into `pieces`, by key: `("forward", kind)`, `("backward", kind)`,
            `("recompute", kind)`, `("sum", kind)` and `("gather", kind)` of a kind of unit;
            `("sum", rank, bucket)` and `("gather", rank, bucket)`; `("begin", rank)` and
            `("end", rank)`; `("stage",)` and `("tied",)`.
    """

    pieces: tuple[Piece, ...]
    places: dict[Hashable, range]

    def of(self, *key: Hashable) -> list[tuple[int, Piece]]:
        """Index and piece of each under a key; none where there is no such key."""
        return [(index, self.pieces[index]) for index in self.places.get(key, ())]


def job_pieces(job: Job, layout: Layout) -> PieceTable:
    """The pieces of a job.

    Args:
        job: the job; its sizes may be arrays or traced.
        layout: of the job, or of one that differs from it in sizes only.

    Returns:
        The pieces, in an order that depends on the layout only.

    Example:
        >>> from jaxperf.workload._layout import layout_of
        >>> job = Job(layers=4, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128)
        >>> job_pieces(job, layout_of(job)).of("begin", 0)[0][1].name
        'zero gradients'
    """
    found: dict[Hashable, tuple[Piece, ...]] = {
        ("forward", "embedding"): embedding_forward(job),
        ("forward", "head"): head_forward(job),
        ("backward", "embedding"): embedding_backward(job),
        ("backward", "head"): head_backward(job),
        ("stage",): (pipeline_message(job),),
        ("tied",): tied_embedding_message(job),
    }
    counts = unit_parameters(job)
    kinds = {unit.kind for chunks in layout.units for units in chunks for unit in units}
    for kind, size in counts.items():
        if kind not in kinds:
            continue
        if kind in ("dense", "experts"):
            experts = kind == "experts"
            found["forward", kind] = layer_forward(job, experts=experts)
            found["backward", kind] = layer_backward(job, experts=experts)
            found["recompute", kind] = layer_recompute(job, experts=experts)
        found["sum", kind] = gradient_messages(job, size)
        found["gather", kind] = parameter_messages(job, size)
    for rank, buckets in enumerate(layout.buckets):
        held = rank_parameters(job, layout, rank)
        found["begin", rank] = (zero_gradients(job, held),)
        found["end", rank] = optimizer_pieces(job, held)
        for index, units in enumerate(buckets):
            size = sum((counts[unit.kind] for unit in units), ParameterCounts())
            found["sum", rank, index] = gradient_messages(job, size)
            found["gather", rank, index] = parameter_messages(job, size)
    pieces: list[Piece] = []
    places: dict[Hashable, range] = {}
    for key, some in found.items():
        places[key] = range(len(pieces), len(pieces) + len(some))
        pieces += some
    return PieceTable(tuple(pieces), places)
