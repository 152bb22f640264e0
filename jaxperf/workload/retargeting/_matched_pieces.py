"""Which kernel of a job each recorded kernel of a part is."""

import math
from collections.abc import Sequence

from jaxperf.cost import WorkKind
from jaxperf.errors import ConfigError
from jaxperf.graph import TaskClass
from jaxperf.workload._pieces import Piece
from jaxperf.workload.retargeting._items import DeviceItem, Item

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
    _check_attention([works[k] for k in anchors], [pieces[k] for k in posts], where)
    chosen = _aligned([works[k] for k in anchors], [pieces[k] for k in posts])
    names: list[str | None] = [None] * len(works)
    place = [-1] * len(works)
    for k, post in zip(anchors, chosen, strict=True):
        if post is not None:
            names[k], place[k] = pieces[posts[post]].name, posts[post]
    for post in posts:
        _check_shapes([works[k] for k in anchors if place[k] == post], pieces[post], where)
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


def _check_attention(works: list[DeviceItem], pieces: list[Piece], where: str) -> None:
    """Refuse attentions of other number, or of other heads or length, than the job's."""
    found = [work for work in works if work.task_class == TaskClass.ATTENTION]
    wanted = [piece for piece in pieces if piece.kind == WorkKind.ATTENTION]
    # One attention may be several kernels; several layers are several attentions of one kernel.
    again = [work for work in found if work.name == found[0].name]
    if wanted and len(again) > len(wanted) and len(again) == len(found):
        raise ConfigError(
            "the job's layers are not those of the trace",
            where=f"{where}: layers",
            got=f"{len(again)} attentions in what one layer would be",
            expected=f"{len(wanted)}",
            remedy="describe the job that was recorded",
        )
    for work, piece in zip(found, wanted, strict=False):
        if work.shape is None or any(size != round(size) for size in work.shape):
            continue
        own = sorted(float(size) for size in (piece.batch, piece.m, piece.k))
        if list(work.shape) != own:
            raise ConfigError(
                "the job does not have the trace's shapes",
                where=f"{where}, {work.name[:40]}",
                got=f"batch and heads, length, size of a head {_text(work.shape)} in some order",
                expected=_text(own),
                remedy="describe the job that was recorded",
            )


def _check_shapes(works: list[DeviceItem], piece: Piece, where: str) -> None:
    """Refuse multiplies that are not, all together, the one of the job.

    Queries, keys and values may be three: they share two sizes, and the third adds up.
    """
    if piece.kind != WorkKind.MATMUL or any(work.shape is None for work in works):
        return
    if not works:
        raise ConfigError(
            "the job does not have the trace's shapes",
            where=where,
            got="no multiply of that shape",
            expected=f"{_text((piece.m, piece.n, piece.k))} for '{piece.name}'",
            remedy="describe the job that was recorded",
        )
    if len(works) == 1:
        fits = _common_sizes(works[0], piece) == 3
    else:
        rest = [_rest(work, piece) for work in works]
        whole = sum(size for size in rest if size is not None)
        fits = None not in rest and whole in (piece.m, piece.n, piece.k)
    if not fits:
        raise ConfigError(
            "the job does not have the trace's shapes",
            where=f"{where}, {works[0].name[:40]}",
            got=", ".join(_text(work.shape) for work in works[:3] if work.shape is not None),
            expected=f"{_text((piece.m, piece.n, piece.k))} for '{piece.name}'",
            remedy="describe the job that was recorded",
        )


def _rest(work: DeviceItem, piece: Piece) -> float | None:
    """The size of a multiply that is only a part of the piece's; `None` where two are not equal."""
    assert work.shape is not None
    left, own = [float(size) for size in (piece.m, piece.n, piece.k)], list(work.shape)
    for size in work.shape:
        if size in left and len(left) > 1:
            left.remove(size)
            own.remove(size)
    return own[0] if len(own) == 1 else None


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
