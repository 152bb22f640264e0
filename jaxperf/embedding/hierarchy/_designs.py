"""Many designs at once, and what each number of a design does."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxperf.embedding.hierarchy._model import Design, HierarchyRules, ModelArrays
from jaxperf.embedding.hierarchy._step import Outcome, evaluate
from jaxperf.errors import ConfigError
from jaxperf.replay import double_precision

_AT_ONCE = 256
_FEWEST = 64
_QUANTITIES = (
    "step_us",
    "samples_per_s",
    "prefetch_us",
    "exposed_us",
    "endurance_us",
    "cost_usd",
    "memory_usd",
    "power_w",
    "energy_j_per_sample",
)


def evaluate_designs(
    model: ModelArrays, designs: Design, rules: HierarchyRules | None = None
) -> Outcome:
    """What comes of each of many designs, in one compiled run whose memory is bounded.

    Args:
        model: the tables and the dense part.
        designs: every leaf with a leading axis of designs; `repeat_design` makes one.
        rules: how the hierarchy is run.

    Returns:
        Every leaf a numpy array with that axis, float64.

    Raises:
        ConfigError: the leading axes differ.
    """
    counts = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(designs)}
    if len(counts) != 1 or counts == {()}:
        raise ConfigError(
            "not one number of designs",
            where="designs",
            got=", ".join(str(count) for count in sorted(counts)),
            expected="one leading axis on every leaf",
        )
    count = counts.pop()[0]
    # Few shapes are compiled: 64, 128, 256 and multiples of those.
    step = min(1 << max(count - 1, _FEWEST - 1).bit_length(), _AT_ONCE)
    index = np.minimum(np.arange(-(-count // step) * step), count - 1)
    designs = jax.tree.map(lambda leaf: np.asarray(leaf, float)[index], designs)
    with double_precision():
        outcomes = _evaluate_all(model, designs, HierarchyRules() if rules is None else rules)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:count], outcomes)


def repeat_design(design: Design, count: int) -> Design:
    """One design many times, to replace what differs.

    Args:
        design: one.
        count: how often.

    Returns:
        Every leaf with a leading axis, float64.

    Example:
        >>> from dataclasses import replace
        >>> designs = repeat_design(example_design(), 3)
        >>> replace(designs, nodes=np.array([1.0, 2.0, 4.0])).home_share.shape
        (3, 2, 2)
    """
    return jax.tree.map(
        lambda leaf: np.broadcast_to(np.asarray(leaf, float), (count, *np.shape(leaf))), design
    )


def design_gradient(
    model: ModelArrays, design: Design, quantity: str, rules: HierarchyRules | None = None
) -> Design:
    """How much one quantity of the outcome changes for each number of a design.

    Where a maximum changes its branch the derivative is that of one of them; counts of blocks and
    of nodes in a collective have none.

    Args:
        model: the tables and the dense part.
        design: one.
        quantity: `step_us`, `samples_per_s`, `prefetch_us`, `exposed_us`, `endurance_us`,
            `cost_usd`, `memory_usd`, `power_w` or `energy_j_per_sample`, as of `Outcome`.
        rules: how the hierarchy is run.

    Returns:
        A derivative in the place of each number.

    Raises:
        ConfigError: there is no such quantity.
    """
    if quantity not in _QUANTITIES:
        raise ConfigError(
            "no such quantity",
            where="quantity",
            got=quantity,
            expected=f"one of {', '.join(_QUANTITIES)}",
        )
    which = np.array([float(name == quantity) for name in _QUANTITIES])
    with double_precision():
        return _gradient(model, design, HierarchyRules() if rules is None else rules, which)


def example_design() -> Design:
    """Two tables on HBM and DRAM of one server: the second in DRAM, a tenth of it cached."""
    from jaxperf.config import load_server
    from jaxperf.embedding.hierarchy._tiers import machine_of

    return Design(
        machine=machine_of(load_server("zionex")),
        nodes=np.float64(1),
        batch_size=np.float64(4096),
        home_share=np.array([[1.0, 0.0], [0.0, 1.0]]),
        cached_rows=np.array([[0.0, 0.0], [1e6, 0.0]]),
        by_popularity=np.zeros(2),
        admits=np.ones(2),
    )


@jax.jit
def _evaluate_all(model: ModelArrays, designs: Design, rules: HierarchyRules) -> Outcome:
    return jax.lax.map(lambda each: evaluate(model, each, rules), designs, batch_size=_AT_ONCE)


@jax.jit
def _gradient(model: ModelArrays, design: Design, rules: HierarchyRules, which) -> Design:
    # Weights and not a name: all quantities share one compilation.
    def weighed(each: Design) -> jax.Array:
        outcome = evaluate(model, each, rules)
        return which @ jnp.stack([getattr(outcome, name) for name in _QUANTITIES])

    return jax.grad(weighed)(design)
