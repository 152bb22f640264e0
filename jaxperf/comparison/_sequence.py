"""Two sequences side by side: which element of one is which of the other, in order.

Elements have several traits, such as name and operator. The alignment is the one with the most
traits in common, which is found exactly where it is small. Longer sequences are cut first, where
the same few elements occur once in each (a patience difference), else in halves.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

# Exact up to so many pairs; a table of them fits the cache.
_CELLS = 1 << 20
# Lengths of what must occur once to be cut at.
_WIDTHS = (1, 4, 16)
# Cuts that leave more than this in one piece would come slowly to an end.
_LARGEST_PIECE = 0.75

_Block = tuple[int, int, int, int]


def align(
    token_a: np.ndarray,
    token_b: np.ndarray,
    traits_a: np.ndarray,
    traits_b: np.ndarray,
    weights: Sequence[int],
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of elements that have a trait in common, both sides increasing.

    Args:
        token_a, token_b: (n,), (m,) int, equal where all traits are.
        traits_a, traits_b: (traits, n), (traits, m) int; -1 is like nothing.
        weights: what a common trait counts, each.

    Returns:
        (pairs,) int64 places in the first and in the second sequence.

    Example:
        >>> a, b = np.array([[1, 2, 3]]), np.array([[1, 9, 3]])
        >>> [side.tolist() for side in align(a[0], b[0], a, b, [1])]
        [[0, 2], [0, 2]]
    """
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    blocks: list[_Block] = [(0, len(token_a), 0, len(token_b))]
    while blocks:
        begin_a, end_a, begin_b, end_b = blocks.pop()
        same = _common(token_a[begin_a:end_a], token_b[begin_b:end_b])
        pairs.append((begin_a + np.arange(same), begin_b + np.arange(same)))
        begin_a, begin_b = begin_a + same, begin_b + same
        same = _common(token_a[begin_a:end_a][::-1], token_b[begin_b:end_b][::-1])
        end_a, end_b = end_a - same, end_b - same
        pairs.append((end_a + np.arange(same), end_b + np.arange(same)))
        size_a, size_b = end_a - begin_a, end_b - begin_b
        if size_a * size_b > _CELLS and min(size_a, size_b) > 1:
            blocks += _cut(token_a, token_b, (begin_a, end_a, begin_b, end_b))
        elif size_a and size_b:
            inside_a, inside_b = _exact(
                traits_a[:, begin_a:end_a], traits_b[:, begin_b:end_b], weights
            )
            pairs.append((begin_a + inside_a, begin_b + inside_b))
    side_a, side_b = (np.concatenate(side) for side in zip(*pairs, strict=True))
    order = np.argsort(side_a, kind="stable")
    return side_a[order], side_b[order]


def _common(a: np.ndarray, b: np.ndarray) -> int:
    """Length of what two sequences begin with alike."""
    size = min(len(a), len(b))
    different = np.flatnonzero(a[:size] != b[:size])
    return int(different[0]) if len(different) else size


def _cut(token_a: np.ndarray, token_b: np.ndarray, block: _Block) -> list[_Block]:
    """Smaller blocks: between what occurs once on each side, or the halves."""
    begin_a, end_a, begin_b, end_b = block
    a, b = token_a[begin_a:end_a], token_b[begin_b:end_b]
    for width in _WIDTHS:
        anchors_a, anchors_b = _anchors(_windows(a, width), _windows(b, width))
        edges_a, edges_b = ([0, *x, len(y)] for x, y in ((anchors_a, a), (anchors_b, b)))
        pieces = np.diff(edges_a) * np.diff(edges_b)
        if len(anchors_a) and pieces.max() <= _LARGEST_PIECE * len(a) * len(b):
            break
    else:
        edges_a, edges_b = [0, len(a) // 2, len(a)], [0, len(b) // 2, len(b)]
    return [
        (begin_a + edges_a[k], begin_a + edges_a[k + 1], begin_b + edges_b[k], begin_b + next_b)
        for k, next_b in enumerate(edges_b[1:])
    ]


def _windows(token: np.ndarray, width: int) -> np.ndarray:
    """A number for each few neighbours; different neighbours rarely have the same."""
    count = max(len(token) - width + 1, 0)
    mixed = np.zeros(count, np.uint64)
    for k in range(width):
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed += token[k : k + count].astype(np.uint64) + np.uint64(1)
    return mixed


def _anchors(a: np.ndarray, b: np.ndarray) -> tuple[list[int], list[int]]:
    """Places of what occurs once in each, as many as are in the same order in both."""
    once = []
    for side in (a, b):
        value, first, count = np.unique(side, return_index=True, return_counts=True)
        once.append((value[count == 1], first[count == 1]))
    _, in_a, in_b = np.intersect1d(once[0][0], once[1][0], True, return_indices=True)
    place_a, place_b = once[0][1][in_a], once[1][1][in_b]
    order = np.argsort(place_a)
    chosen = _longest_increasing(place_b[order].tolist())
    return place_a[order][chosen].tolist(), place_b[order][chosen].tolist()


def _longest_increasing(values: list[int]) -> list[int]:
    """Indices of a longest increasing part."""
    ends: list[int] = []
    last: list[int] = []
    before = []
    for index, value in enumerate(values):
        k = bisect_left(ends, value)
        before.append(last[k - 1] if k else -1)
        if k == len(ends):
            ends.append(value)
            last.append(index)
        else:
            ends[k], last[k] = value, index
    chosen = []
    at = last[-1] if last else -1
    while at >= 0:
        chosen.append(at)
        at = before[at]
    return chosen[::-1]


def _exact(a: np.ndarray, b: np.ndarray, weights: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The best alignment; of several the one that pairs the earlier elements."""
    score = np.zeros((a.shape[1], b.shape[1]), np.int32)
    for trait_a, trait_b, weight in zip(a, b, weights, strict=True):
        score += weight * ((trait_a[:, np.newaxis] == trait_b) & (trait_b >= 0))
    best = np.zeros((score.shape[0] + 1, score.shape[1] + 1), np.int32)
    for i, row in enumerate(score):
        # What is not paired costs nothing, so that a row is a running maximum.
        paired = np.maximum(best[i, 1:], best[i, :-1] + row)
        np.maximum.accumulate(paired, out=best[i + 1, 1:])
    i, j = score.shape
    pairs = []
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    found = np.array(pairs[::-1], np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]
