"""From the work of runs to a calibration: what to fit, what to hold out, and what to report."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatch

import jax
import jax.numpy as jnp
import numpy as np

from jaxperf.calibrate._optimise import PRIOR, Observed, Posterior, fit_factors, with_factors
from jaxperf.calibrate._runs import RunWork, replayed_step, run_work
from jaxperf.calibrate._types import Calibration, ClassError, FittedNumber
from jaxperf.config import Hardware, hardware_numbers, one_of
from jaxperf.cost import (
    CostModel,
    Fit,
    Work,
    WorkKind,
    cost_us,
    default_model,
    element_names,
    model_leaves,
    select_work,
    work_quantities,
)
from jaxperf.errors import ConfigError
from jaxperf.graph import ExecutionGraph, TaskClass
from jaxperf.replay import TimeComparison, double_precision
from jaxperf.trace import Note, Run

_HELD_OUT_SHAPES = 0.25
_Z = 1.645
"""Standard normal: 90 % lie within so many standard deviations."""
_TOLD = 0.7
"""A number is told by the data where its uncertainty is below this share of the one before them."""

# What is believed more firmly than `PRIOR`: the defaults of collectives are alike on four devices,
# and bandwidths of small messages say little of large ones.
_PRIORS = {"collective": 0.25, "collective.bus_share": 0.15, "collective.sharpness": 0.15}

_FIELD = {
    WorkKind.MATMUL: "matmul",
    WorkKind.ATTENTION: "attention",
    WorkKind.MEMORY: "memory",
    WorkKind.COLLECTIVE: "collective",
}
# Numbers of the machine that are counts, or say whether it has something at all.
_NOT_CONTINUOUS = ("device.gpus_per_node", "device.node_sums_in_switch")


@dataclass(frozen=True, eq=False)
class _Part:
    """One run with what of it is fitted (`weight`) and what is held out."""

    run: RunWork
    observed: Observed
    held_out: np.ndarray
    held_out_us: np.ndarray
    step: Callable | None
    measured_us: float


def fit_runs(
    runs: Sequence[Run],
    graphs: Sequence[ExecutionGraph],
    machines: Sequence[Hardware],
    leaves: Sequence[str],
    hold_out: str,
    progress: Callable[[int, int], None] | None,
) -> Calibration:
    """Fit the cost model to runs.

    Args:
        runs: their traces.
        graphs: the execution graph of each.
        machines: the machine of each.
        leaves, hold_out, progress: see `calibrate`.

    Returns:
        The calibration.

    Raises:
        ConfigError: a pattern matches nothing, there is nothing to fit to, or nothing to hold out.
    """
    parts = [
        _part(run_work(run, graph, machine, hold_out_step=hold_out == "step"), hold_out, last)
        for run, graph, machine, last in zip(
            runs, graphs, machines, [*[False] * (len(runs) - 1), hold_out == "trace"], strict=True
        )
    ]
    observed = [part.observed for part in parts]
    if not any(part.held_out.any() for part in parts):
        raise ConfigError(
            "nothing to hold out",
            where="hold_out",
            got=f"{hold_out}, and {sum(len(part.run.work) for part in parts)} pieces of work",
            expected="more shapes, or two steps or more for --hold-out step",
        )
    if not sum(part.observed.weight.sum() for part in parts):
        raise ConfigError(
            "nothing to fit to",
            where="traces",
            got="no kernel whose work is known",
            expected="operators with input shapes",
            remedy="record with record_shapes=True",
        )
    chosen = _chosen(parts, leaves)
    prior = np.array([_prior(name) for name in _elements(chosen)])
    posterior = fit_factors(observed, chosen, prior, progress=progress)
    return _calibration(parts, chosen, posterior, prior)


def _part(run: RunWork, hold_out: str, last: bool) -> _Part:
    known = ~np.isnan(run.time_us)
    held, held_us = np.zeros(len(known), bool), run.time_us
    if last:
        held = known
    elif hold_out == "shape":
        held = known & (_hash(run.work) < _HELD_OUT_SHAPES)
    elif hold_out == "step":
        held, held_us = ~np.isnan(run.held_out_us), run.held_out_us
    fitted = known & (not last) & ((hold_out == "step") | ~held)
    # What is held out has no part in the step that is fitted: held-out work takes its measured
    # time there, and a held-out step does not count.
    seen = None if last else replayed_step(run, fitted, hold_out_step=hold_out == "step")

    def log_error(time_us):
        assert seen is not None
        step_us, measured_us = seen
        return jnp.log(step_us(time_us) / measured_us)

    whole = replayed_step(run)
    step, measured_us = whole if whole else (None, np.nan)
    observed = Observed(
        model=default_model(run.hardware),
        work=run.work,
        time_us=np.where(known, run.time_us, 1.0),
        weight=fitted.astype(np.float64),
        step=log_error if seen else None,
    )
    return _Part(run, observed, held, held_us, step, measured_us)


def _hash(work: Work) -> np.ndarray:
    """(w,) float64 from 0 to 1, the same for the same work in every run."""
    columns = [getattr(work, field.name).astype(np.float64) for field in fields(Work)]
    rows = np.nan_to_num(np.stack(columns, 1), nan=-1.0)
    return np.array([zlib.crc32(row.tobytes()) for row in rows]) / 2.0**32


def _chosen(parts: list[_Part], patterns: Sequence[str]) -> CostModel:
    """A model with bool leaves: which numbers to fit."""
    model = parts[0].observed.model
    names = {path: element_names(path, leaf) for path, leaf in model_leaves(model).items()}
    known = [
        name for path, of_leaf in names.items() if path not in _NOT_CONTINUOUS for name in of_leaf
    ]
    wanted: set[str] = set() if patterns else _used(parts, known)
    for pattern in patterns:
        found = {name for name in known if _matches(name, pattern)}
        if not found:
            raise ConfigError(
                "matches no number of the cost model",
                where="leaves",
                got=repr(pattern),
                expected=one_of(pattern, known),
            )
        wanted |= found
    leaves, tree = jax.tree.flatten(model)
    flags = [
        np.array([name in wanted for name in of_leaf]).reshape(np.shape(leaf))
        for of_leaf, leaf in zip(names.values(), leaves, strict=True)
    ]
    return jax.tree.unflatten(tree, flags)


def _matches(name: str, pattern: str) -> bool:
    # The brackets of a name are no brackets of a pattern.
    return name == pattern or fnmatch(name.partition("[")[0], pattern)


def _used(parts: list[_Part], known: list[str]) -> set[str]:
    """Numbers of the models that there is work for; of streams, of the classes that there are."""
    used = [
        (part.run.work.kind, part.run.work.task_class, part.observed.weight > 0) for part in parts
    ]
    kinds = {WorkKind(k) for kind, _, fitted in used for k in np.unique(kind[fitted]).tolist()}
    streams = {
        TaskClass(c).name.lower()
        for kind, task_class, fitted in used
        for c in np.unique(task_class[fitted & (kind == WorkKind.MEMORY)]).tolist()
    }
    fields = {_FIELD[kind] for kind in kinds}
    return {
        name
        for name in known
        if (field := name.partition(".")[0]) in fields
        and (field != "memory" or name.rpartition("[")[2].rstrip("]") in streams)
    }


def _prior(name: str) -> float:
    path = name.partition("[")[0]
    return _PRIORS.get(path, _PRIORS.get(path.partition(".")[0], PRIOR))


def _calibration(
    parts: list[_Part], chosen: CostModel, posterior: Posterior, prior: np.ndarray
) -> Calibration:
    factors = np.ones_like(posterior.factor), posterior.factor
    before_us, after_us = _modelled_us(parts, chosen, factors)
    steps_before, steps = _steps(parts, before_us), _steps(parts, after_us)
    return Calibration(
        fit=_fit(parts, chosen, posterior),
        loss_before=posterior.loss_before,
        loss_after=posterior.loss_after,
        spread=posterior.spread,
        classes=_class_errors(parts, before_us, after_us),
        steps=steps,
        steps_before=steps_before,
        numbers=_numbers(parts, chosen, posterior, prior),
        notes=(
            *(note for part in parts for note in (*part.run.graph.notes, *part.run.notes)),
            *_untold_steps(steps_before, steps),
        ),
    )


def _modelled_us(
    parts: list[_Part], chosen: CostModel, factors: Sequence[np.ndarray]
) -> list[list[np.ndarray]]:
    """Times of the works of each run, for each set of factors."""

    @jax.jit
    def every(factor):
        return [
            cost_us(with_factors(part.observed.model, chosen, factor), part.run.work)
            for part in parts
        ]

    with double_precision():
        return [[np.asarray(us) for us in every(jnp.asarray(factor))] for factor in factors]


def _steps(parts: list[_Part], times_us: list[np.ndarray]) -> tuple[TimeComparison, ...]:
    with double_precision():
        return tuple(
            TimeComparison(f"run {index}", part.measured_us, float(part.step(jnp.asarray(time_us))))
            for index, (part, time_us) in enumerate(zip(parts, times_us, strict=True))
            if part.step is not None
        )


def _untold_steps(
    steps_before: tuple[TimeComparison, ...], steps: tuple[TimeComparison, ...]
) -> list[Note]:
    """Runs whose step is the same whatever their kernels take, so that its error tells nothing."""
    pairs = zip(steps_before, steps, strict=True)
    same = [before.name for before, after in pairs if before.replayed_us == after.replayed_us]
    text = "the replayed step does not depend on the modelled work: its error tells nothing"
    return [Note("step-not-modelled", text, name) for name in same]


def _class_errors(parts, before_us, after_us) -> tuple[ClassError, ...]:
    task_class = np.concatenate([part.run.work.task_class for part in parts])
    used = np.concatenate([part.observed.weight for part in parts]) > 0
    held = np.concatenate([part.held_out for part in parts])
    measured = np.concatenate([part.run.time_us for part in parts])
    test = np.concatenate([part.held_out_us for part in parts])
    before, after = np.concatenate(before_us), np.concatenate(after_us)

    def error(which, modelled, truth):
        if not which.any():
            return float("nan")
        return float(100.0 * np.mean(np.abs(modelled[which] / truth[which] - 1.0)))

    found = []
    for kind in np.unique(task_class[used | held]).tolist():
        mine, tested = used & (task_class == kind), held & (task_class == kind)
        found.append(
            ClassError(
                task_class=TaskClass(kind).name.lower(),
                works=int(mine.sum()),
                before_percent=error(mine, before, measured),
                after_percent=error(mine, after, measured),
                held_out=int(tested.sum()),
                held_out_before_percent=error(tested, before, test),
                held_out_after_percent=error(tested, after, test),
            )
        )
    return tuple(found)


def _numbers(
    parts: list[_Part], chosen: CostModel, posterior: Posterior, prior: np.ndarray
) -> tuple[FittedNumber, ...]:
    spread = np.sqrt(np.diag(posterior.covariance))
    before = _flat(parts[0].observed.model, chosen)
    after = np.array(before) * posterior.factor
    return tuple(
        FittedNumber(
            leaf,
            before[k],
            float(after[k]),
            (float(after[k] * np.exp(-_Z * spread[k])), float(after[k] * np.exp(_Z * spread[k]))),
            told=bool(spread[k] < _TOLD * prior[k]),
        )
        for k, leaf in enumerate(_elements(chosen))
    )


def _elements(chosen: CostModel) -> list[str]:
    """Name of each chosen number."""
    return [
        name
        for path, which in model_leaves(chosen).items()
        for name, taken in zip(element_names(path, which), which.reshape(-1), strict=True)
        if taken
    ]


def _flat(model: CostModel, chosen: CostModel) -> list[float]:
    values = zip(jax.tree.leaves(model), jax.tree.leaves(chosen), strict=True)
    return [float(x) for leaf, which in values for x in np.asarray(leaf)[which].reshape(-1)]


def _fit(parts: list[_Part], chosen: CostModel, posterior: Posterior) -> Fit:
    numbers = {}
    model = parts[0].observed.model
    with double_precision():
        fitted = model_leaves(with_factors(model, chosen, jnp.asarray(posterior.factor)))
    for (path, which), nominal in zip(
        model_leaves(chosen).items(), model_leaves(model).values(), strict=True
    ):
        if which.any():
            # Of the machine only the share of what its file says: it then fits other machines.
            value = fitted[path] / nominal if path.startswith("device.") else fitted[path]
            numbers[path] = tuple(value.reshape(-1).tolist())
    machines = [part.run.hardware for part in parts if part.observed.weight.any()]
    return Fit(
        hardware=tuple(sorted({machine.name for machine in machines})),
        numbers=numbers,
        leaves=tuple(_elements(chosen)),
        covariance=tuple(tuple(row) for row in posterior.covariance.tolist()),
        hardware_range=_hardware_range(machines),
        work_range=_work_range(parts),
    )


def _hardware_range(machines: Sequence[Hardware]) -> dict[str, tuple[float, float]]:
    seen: dict[str, list[float]] = {}
    for machine in machines:
        for key, value in hardware_numbers(machine).items():
            seen.setdefault(key, []).append(value)
    return {key: (min(values), max(values)) for key, values in seen.items()}


def _work_range(parts: list[_Part]) -> dict[str, tuple[float, float]]:
    seen: dict[str, list[np.ndarray]] = {}
    for part in parts:
        fitted = select_work(part.run.work, part.observed.weight > 0)
        for name, _, values in work_quantities(fitted):
            seen.setdefault(name, []).append(values)
    joined = {name: np.concatenate(values) for name, values in seen.items()}
    return {name: (float(v.min()), float(v.max())) for name, v in joined.items() if len(v)}
