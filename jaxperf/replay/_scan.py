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
    # A processor adds one after another as fast as it reads; elsewhere a loop costs per turn.
    return lax.platform_dependent(weight, continues, cpu=_sums_in_turn, default=_sums_by_halves)


def add_chain_sums(into: Array, index: Array, weight: Array, continues: Array) -> Array:
    """Add the sums from the ends of chains at an index: the gradient of `chain_sums(into[index])`.

    Args:
        into: (size, ...) float.
        index: (positions,) int, where in `into` each sum goes.
        weight: (positions, ...) float.
        continues: (positions,) bool, as of `chain_sums`.

    Returns:
        (size, ...) `into` with the sums added.

    Example:
        >>> weight, continues = jnp.array([1.0, 2.0, 3.0]), jnp.array([False, True, False])
        >>> add_chain_sums(jnp.zeros(2), jnp.array([0, 0, 1]), weight, continues).tolist()
        [5.0, 3.0]
    """
    return lax.platform_dependent(
        into, index, weight, continues, cpu=_add_sums_in_turn, default=_add_sums_by_halves
    )


def _sums_in_turn(weight: Array, continues: Array) -> Array:
    def step(i, carry):
        total, sums = carry
        total = jnp.where(_row(continues, i), total, jnp.zeros_like(total)) + _row(weight, i)
        return total, lax.dynamic_update_index_in_dim(sums, total, i, 0)

    start = jnp.zeros(weight.shape[1:], weight.dtype), jnp.zeros_like(weight)
    return lax.fori_loop(0, len(weight), step, start, unroll=_unroll(weight))[1]


def _add_sums_in_turn(into: Array, index: Array, weight: Array, continues: Array) -> Array:
    last = len(weight) - 1

    def step(i, carry):
        (total, into), i = carry, last - i
        # Beyond the last position the index is clamped, and the total still 0.
        goes_on = _row(continues, i + 1)
        total = jnp.where(goes_on, total, jnp.zeros_like(total)) + _row(weight, i)
        target = _row(index, i)
        return total, lax.dynamic_update_index_in_dim(into, _row(into, target) + total, target, 0)

    start = jnp.zeros(weight.shape[1:], weight.dtype), into
    return lax.fori_loop(0, len(weight), step, start, unroll=_unroll(weight))[1]


def _sums_by_halves(weight: Array, continues: Array, *, from_end: bool = False) -> Array:
    goes_on = jnp.append(continues[1:], False) if from_end else continues
    keep = goes_on.astype(weight.dtype).reshape(-1, *(1,) * (weight.ndim - 1))

    def combine(before, after):
        return before[0] * after[1] + after[0], before[1] * after[1]

    return lax.associative_scan(combine, (weight, keep), reverse=from_end)[0]


def _add_sums_by_halves(into: Array, index: Array, weight: Array, continues: Array) -> Array:
    return into.at[index].add(_sums_by_halves(weight, continues, from_end=True))


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

    _, steps, *batch = weight.shape
    source_row, weight = source_row.reshape(-1), weight.reshape(2 * steps, *batch)

    def step(k, rows):
        left, right = (
            _row(rows, _row(source_row, side)) + _row(weight, side) for side in (k, steps + k)
        )
        return lax.dynamic_update_index_in_dim(rows, maximum(left, right, temperature), k + 1, 0)

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
    adjoint = _push_back(cotangent, source_row, share)
    weight_bar = jnp.stack([adjoint[1:] * share, adjoint[1:] * (1 - share)])
    if temperature is None:
        return weight_bar, None, None
    return weight_bar, None, jnp.sum(adjoint[1:] * (entr(share) + entr(1 - share)))


join_rows.defvjp(_join_rows_forward, _join_rows_backward)


def _push_back(cotangent: Array, source_row: Array, share: Array) -> Array:
    """(steps + 1, ...) what each row's time is worth, from the last step to the first.

    Each step has two turns, one per side, so that a turn updates one row. The left side gets the
    share, the right side the rest.
    """
    steps, turns, source_row = len(share), source_row.size, source_row.reshape(-1)

    def turn(i, adjoint):
        k, is_right = (turns - 1 - i) // 2, (turns - 1 - i) % 2
        row, left = _row(source_row, is_right * steps + k), _row(share, k)
        part = jnp.where(is_right == 0, left, 1 - left)
        value = _row(adjoint, row) + _row(adjoint, k + 1) * part
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
