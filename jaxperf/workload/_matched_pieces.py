"""Which kernel of a job each recorded kernel of a part is."""

import math
from collections.abc import Sequence

from jaxperf.cost import WorkKind
from jaxperf.errors import ConfigError
from jaxperf.graph import TaskClass
from jaxperf.workload._items import DeviceItem, Item
from jaxperf.workload._pieces import Piece

_ANCHORS = {
    TaskClass.GEMM: WorkKind.MATMUL,
    TaskClass.MOE: WorkKind.MATMUL,
    TaskClass.ATTENTION: WorkKind.ATTENTION,
}
# What it costs to take a kernel for a piece whose shape it does not have, or is not known to have;
# to take two for one; and to leave a piece out.
_OTHER_SHAPE, _NO_SHAPE, _SHARED, _SKIPPED = 3.0, 1.0, 0.5, 0.5
Names = tuple[str | None, ...]


def match_pieces(items: Sequence[Item], pieces: Sequence[Piece], where: str) -> list[Names]:
    """Name the kernels of a part by the pieces of the job.

    Multiplies and attentions are matched in their order, by shape where the trace tells it; the
    kernels between them are matched to the pieces between those, by class, then by order. Several
    kernels may be one piece.

    Args:
        items: of the part.
        pieces: of the same part of the job.
        where: what to call the part.

    Returns:
        For each item the name of the piece of each of its works; `None` where the job has nothing
        like it.

    Raises:
        ConfigError: a multiply has a shape that the job does not have there.
    """
    works = [work for item in items for work in item.work if work.computes]
    wanted = [piece for piece in pieces if piece.kind != WorkKind.COLLECTIVE]
    named = _named(works, wanted, where)
    found = iter(named)
    return [tuple(next(found) if work.computes else None for work in item.work) for item in items]


def _named(works: list[DeviceItem], pieces: list[Piece], where: str) -> list[str | None]:
    anchors = [k for k, work in enumerate(works) if work.task_class in _ANCHORS]
    posts = [k for k, piece in enumerate(pieces) if piece.kind in _ANCHORS.values()]
    chosen = _aligned([works[k] for k in anchors], [pieces[k] for k in posts])
    names: list[str | None] = [None] * len(works)
    place = [-1] * len(works)
    for k, post in zip(anchors, chosen, strict=True):
        if post is None:
            continue
        piece = pieces[posts[post]]
        _check_shape(works[k], piece, where)
        names[k], place[k] = piece.name, posts[post]
    for k, work in enumerate(works):
        if names[k] is None and work.task_class not in _ANCHORS:
            before = max((place[i] for i in range(k)), default=-1)
            after = next((place[i] for i in range(k + 1, len(works)) if place[i] >= 0), len(pieces))
            names[k] = _between(works, k, pieces, before, after)
    return names


def _aligned(works: list[DeviceItem], pieces: list[Piece]) -> list[int | None]:
    """The piece of each work, never an earlier one than that of the work before."""
    if not works or not pieces:
        return [None] * len(works)
    best = [[math.inf] * len(pieces) for _ in works]
    back = [[0] * len(pieces) for _ in works]
    for i, work in enumerate(works):
        for j, piece in enumerate(pieces):
            own = _cost(work, piece)
            if i == 0:
                best[i][j] = own + _SKIPPED * j
                continue
            for before in range(j + 1):
                step = _SHARED if before == j else _SKIPPED * (j - before - 1)
                if best[i - 1][before] + step + own < best[i][j]:
                    best[i][j], back[i][j] = best[i - 1][before] + step + own, before
    ends = [cost + _SKIPPED * (len(pieces) - 1 - j) for j, cost in enumerate(best[-1])]
    at = ends.index(min(ends))
    if math.isinf(ends[at]):
        return [None] * len(works)
    found: list[int | None] = []
    for i in range(len(works) - 1, -1, -1):
        found.append(at)
        at = back[i][at]
    return found[::-1]


def _cost(work: DeviceItem, piece: Piece) -> float:
    if _ANCHORS[work.task_class] != piece.kind:
        return math.inf
    if work.shape is None or piece.kind != WorkKind.MATMUL:
        return _NO_SHAPE
    return 0.0 if _common_sizes(work, piece) == 3 else _OTHER_SHAPE


def _common_sizes(work: DeviceItem, piece: Piece) -> int:
    assert work.shape is not None
    left = [float(size) for size in (piece.m, piece.n, piece.k)]
    for size in work.shape:
        if size in left:
            left.remove(size)
    return 3 - len(left)


def _check_shape(work: DeviceItem, piece: Piece, where: str) -> None:
    # A multiply may be a part of the job's: queries, keys and values may be three.
    if work.shape is None or piece.kind != WorkKind.MATMUL or _common_sizes(work, piece) >= 2:
        return
    raise ConfigError(
        "the job does not have the trace's shapes",
        where=f"{where}, {work.name[:40]}",
        got=_text(work.shape),
        expected=f"{_text((piece.m, piece.n, piece.k))} for '{piece.name}'",
        remedy="describe the job that was recorded",
    )


def _text(shape: Sequence[float]) -> str:
    return " x ".join(f"{size:g}" for size in shape)


def _between(
    works: list[DeviceItem], k: int, pieces: list[Piece], before: int, after: int
) -> str | None:
    """The streaming piece that a kernel between two multiplies is."""
    streams = [j for j, piece in enumerate(pieces) if piece.kind == WorkKind.MEMORY]
    near = [j for j in streams if before < j < after] or streams
    if not near:
        return None
    kind = works[k].task_class
    same = [j for j in near if pieces[j].task_class == kind] or near
    nth = 0
    for work in reversed(works[:k]):
        if work.task_class in _ANCHORS:
            break
        nth += work.task_class == kind
    return pieces[same[min(nth, len(same) - 1)]].name
