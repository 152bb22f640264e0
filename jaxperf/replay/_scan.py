"""The two recursions of a replay, with their gradients: sums along chains, and the joins.

Both run over the first axis and take any further axes along: scenarios lie on the last one, so that
one step reads and writes whole rows. A loop that carries the array it fills, with one read or one
update of it at a time, runs in place on every backend; a second update in a step would have XLA
copy the array, and make the loop quadratic.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import entr

# Steps that one turn of the compiled loop holds, where a step handles one number; measured.
_UNROLL = 4


@jax.custom_vjp
def chain_sums(weight: Array, continues: Array) -> Array:
    """Sums of weights along chains, each from its own start, so that rounding stays within it.

    Args:
        weight: (positions, ...) float.
        continues: (positions,) bool, whether the sum goes on from the position before.

    Returns:
        (positions, ...) inclusive sums.

    Example:
        >>> chain_sums(jnp.array([1.0, 2.0, 3.0]), jnp.array([False, True, False])).tolist()
        [1.0, 3.0, 3.0]
    """
    keep = continues.astype(weight.dtype).reshape(-1, *(1,) * (weight.ndim - 1))
    # A processor adds one after another as fast as it reads; elsewhere a loop costs per turn.
    return lax.platform_dependent(weight, keep, cpu=_sums_in_turn, default=_sums_by_halves)


def _sums_in_turn(weight: Array, keep: Array) -> Array:
    def step(i, carry):
        total, sums = carry
        total = total * _row(keep, i) + _row(weight, i)
        return total, lax.dynamic_update_index_in_dim(sums, total, i, 0)

    start = jnp.zeros(weight.shape[1:], weight.dtype), jnp.zeros_like(weight)
    return lax.fori_loop(0, len(weight), step, start, unroll=_unroll(weight))[1]


def _sums_by_halves(weight: Array, keep: Array) -> Array:
    def combine(before, after):
        return before[0] * after[1] + after[0], before[1] * after[1]

    return lax.associative_scan(combine, (weight, keep))[0]


def _chain_sums_forward(weight, continues):
    return chain_sums(weight, continues), continues


def _chain_sums_backward(continues, cotangent):
    into_next = jnp.append(continues[1:], False)
    return chain_sums(cotangent[::-1], into_next[::-1])[::-1], None


chain_sums.defvjp(_chain_sums_forward, _chain_sums_backward)


@jax.custom_vjp
def join_rows(weight: Array, source_row: Array, temperature: Array | None) -> Array:
    """The joins of a program, one after another: `row[k + 1] = max(row[source] + weight)`.

    On a tie the gradient goes to the left side. With a temperature the maximum is smoothed,
    `T log(exp(a / T) + exp(b / T))`, and both sides have a share of the gradient.

    Args:
        weight: (2, steps, ...) float, in the unit of the temperature; the right may be -inf.
        source_row: (2, steps) int, rows computed before.
        temperature: () float above 0; `None` for the maximum itself.

    Returns:
        (steps + 1, ...) rows; row 0 is zero.

    Example:
        >>> weight, source = jnp.array([[2.0, 1.0], [3.0, 4.0]]), jnp.array([[0, 0], [0, 1]])
        >>> join_rows(weight, source, None).tolist()
        [0.0, 3.0, 7.0]
    """
    (left, right), (left_row, right_row) = weight, source_row

    def step(k, rows):
        a = _row(rows, _row(left_row, k)) + _row(left, k)
        b = _row(rows, _row(right_row, k)) + _row(right, k)
        return lax.dynamic_update_index_in_dim(rows, maximum(a, b, temperature), k + 1, 0)

    steps, *batch = left.shape
    rows = jnp.zeros((steps + 1, *batch), weight.dtype)
    return lax.fori_loop(0, steps, step, rows, unroll=_unroll(rows))


def _join_rows_forward(weight, source_row, temperature):
    rows = join_rows(weight, source_row, temperature)
    return rows, (rows, weight, source_row, temperature)


def _join_rows_backward(saved, cotangent):
    rows, weight, source_row, temperature = saved
    left, right = rows[source_row] + weight
    if temperature is None:
        share = (left >= right).astype(rows.dtype)
    else:
        share = jax.nn.sigmoid((left - right) / temperature)
    shares = jnp.stack([share, 1 - share], 1)
    adjoint = _push_back(cotangent, source_row.T, shares)
    weight_bar = adjoint[None, 1:] * jnp.moveaxis(shares, 1, 0)
    if temperature is None:
        return weight_bar, None, None
    return weight_bar, None, jnp.sum(adjoint[1:] * (entr(share) + entr(1 - share)))


join_rows.defvjp(_join_rows_forward, _join_rows_backward)


def _push_back(cotangent: Array, source_row: Array, shares: Array) -> Array:
    """(steps + 1, ...) what each row's time is worth, from the last step to the first.

    Each step has two turns, one per side, so that a turn updates one row.
    """
    turns = source_row.size
    source_row, shares = source_row.reshape(-1), shares.reshape(turns, *shares.shape[2:])

    def turn(i, adjoint):
        i = turns - 1 - i
        row = _row(source_row, i)
        value = _row(adjoint, row) + _row(adjoint, i // 2 + 1) * _row(shares, i)
        return lax.dynamic_update_index_in_dim(adjoint, value, row, 0)

    return lax.fori_loop(0, turns, turn, cotangent, unroll=_unroll(cotangent))


def maximum(a: Array, b: Array, temperature: Array | None) -> Array:
    """The maximum, smoothed where there is a temperature; `b` may be -inf."""
    if temperature is None:
        return jnp.maximum(a, b)
    return jnp.maximum(a, b) + temperature * jnp.log1p(jnp.exp(-jnp.abs(a - b) / temperature))


def _row(array: Array, index: Array) -> Array:
    return lax.dynamic_index_in_dim(array, index, keepdims=False)


def _unroll(array: Array) -> int:
    return _UNROLL if array.ndim == 1 else 1
