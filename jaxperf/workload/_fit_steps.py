"""Parameters of the closed form fitted to measured steps, and what they say of held-out ones.

Each fitted number is its default times `exp(x)`; of shares between 0 and 1, `overlap_share` and
`overlap_slowdown`, the odds are multiplied. Before the data `x` is normal around 0. The logarithm
of a measured step is that of the computed one plus an error of unknown spread with heavy tails. The
most probable `x` is found by damped Gauss-Newton steps (Levenberg, Marquardt) with the rows
reweighted by their errors (pseudo-Huber), in turns with the spread. This starts small: a large one
leaves `x` to what is known before the data, and the errors then confirm it.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxperf.config import Hardware, Job
from jaxperf.cost import CostModel, default_model, path_text
from jaxperf.errors import ConfigError
from jaxperf.replay import double_precision
from jaxperf.workload._closed_form import table_steps
from jaxperf.workload._step_parameters import StepParameters, default_step_parameters
from jaxperf.workload._step_table import StepTable, step_table

STEP_PRIORS: Mapping[str, float] = {
    "matmul.compute_overhead": 1.0,
    "matmul.throttle": 0.7,
    "attention.compute_overhead": 1.0,
    "memory.overhead": 1.0,
    "device.node_bus_bytes_per_s": 0.3,
    "device.node_latency_us": 0.5,
    "device.network_bus_bytes_per_s": 0.5,
    "device.network_latency_us": 0.5,
    "step.kernel_gap_us": 1.0,
    "step.launch_us": 0.7,
    "step.collective_launch_us": 0.7,
    "step.micro_batch_us": 1.0,
    "step.step_us": 1.5,
    "step.message_us": 1.5,
    "step.overlap_slowdown": 1.0,
    "step.overlap_share": 1.0,
    "step.straggler_share": 1.0,
}
"""What is fitted by default, and the standard deviation of its logarithm before the data."""

_SHARES = ("step.overlap_share", "step.overlap_slowdown")
"""Between 0 and 1: their odds are fitted."""

_FIRST_SPREAD = 0.03
_LEAST_SPREAD = 0.01
_HUBER = 1.5
_ROUNDS = 4
_ITERATIONS = 30
_SETTLED = 1e-3


@dataclass(frozen=True)
class MeasuredStep:
    """A step that was measured.

    Attributes:
        job: what ran.
        hardware: on what.
        step_us: how long it took.
        label: what to call it.
    """

    job: Job
    hardware: Hardware
    step_us: float
    label: str = ""


@dataclass(frozen=True, eq=False)
class StepFit:
    """What measured steps say of a machine, a framework and a cluster.

    Attributes:
        factors: by path, such as `matmul.compute_overhead`: what the default is multiplied by. A
            path that starts with `step.` is a field of `StepParameters`.
        parameters: the fitted ones.
        covariance: (factors, factors) of the logarithms of the factors.
        spread: of the logarithm of a measured step about the computed one.
    """

    factors: dict[str, float]
    parameters: StepParameters
    covariance: np.ndarray
    spread: float


def fit_step_times(
    measured: Sequence[MeasuredStep],
    *,
    priors: Mapping[str, float] = STEP_PRIORS,
    model_of: Callable[[Hardware], CostModel] = default_model,
) -> StepFit:
    """Fit the closed form to measured steps.

    Args:
        measured: rows, of one cluster and framework. A few are enough: what they do not tell stays
            at its default.
        priors: by path, see `StepFit`, how far each number may be from its default.
        model_of: the cost model of a machine before the fit.

    Returns:
        The fit.

    Raises:
        ConfigError: there are no rows, one is not positive, or a path is unknown.

    Example:
        >>> from jaxperf.config import load_hardware
        >>> job = Job(layers=2, hidden_size=512, attention_heads=8, vocabulary_size=1000,
        ...           sequence_length=512)
        >>> fit = fit_step_times([MeasuredStep(job, load_hardware("a100"), 20e3)],
        ...                      priors={"step.step_us": 2.0})
        >>> bool(10e3 < fit.parameters.step_us < 20e3)
        True
    """
    problem = _Problem(measured, priors, model_of)
    return problem.fit(np.ones(len(measured)))


def fitted_step_model(
    fit: StepFit,
    hardware: Hardware,
    *,
    model_of: Callable[[Hardware], CostModel] = default_model,
) -> CostModel:
    """The cost model of a machine with the numbers of a fit.

    Args:
        fit: the fit.
        hardware: the machine.
        model_of: as of `fit_step_times`.

    Returns:
        The model.
    """
    logs = {path: np.log(factor) for path, factor in fit.factors.items()}
    with double_precision():
        return changed_numbers(model_of(hardware), default_step_parameters(), logs)[0]


def computed_steps_us(
    measured: Sequence[MeasuredStep],
    fit: StepFit | None = None,
    *,
    model_of: Callable[[Hardware], CostModel] = default_model,
) -> np.ndarray:
    """Each measured step as the closed form has it.

    Args:
        measured: rows, their jobs and machines.
        fit: whose numbers to take; the defaults where there is none.
        model_of: as of `fit_step_times`.

    Returns:
        (rows,) microseconds.
    """
    known = {} if fit is None else fit.factors
    problem = _Problem(measured, dict.fromkeys(known, 1.0), model_of)
    return problem.steps_us(np.log(list(known.values())))


def held_out_steps_us(
    measured: Sequence[MeasuredStep],
    groups: Sequence[int] | np.ndarray,
    *,
    priors: Mapping[str, float] = STEP_PRIORS,
    model_of: Callable[[Hardware], CostModel] = default_model,
) -> np.ndarray:
    """Each measured step as computed by a fit to the other groups.

    Args:
        measured: rows.
        groups: (rows,) the group of each, such as its fold or its model.
        priors: as of `fit_step_times`.
        model_of: as of `fit_step_times`.

    Returns:
        (rows,) microseconds.

    Raises:
        ConfigError: as `fit_step_times`; or there is only one group.
    """
    groups = np.asarray(groups)
    if len(np.unique(groups)) < 2:
        raise ConfigError(
            "nothing to hold out", where="groups", got="one group", expected="two or more"
        )
    problem = _Problem(measured, priors, model_of)
    found = np.zeros(len(measured))
    for group in np.unique(groups):
        mine = groups == group
        fit = problem.fit((~mine).astype(float))
        logs = np.log([fit.factors[path] for path in problem.paths])
        found[mine] = problem.steps_us(logs)[mine]
    return found


class _Problem:
    """The rows on their machines, compiled once; rows are left out by their weight."""

    def __init__(self, measured, priors, model_of):
        _check(measured)
        self.paths = tuple(priors)
        self.prior = np.array(list(priors.values()))
        self.log_measured = np.log([each.step_us for each in measured])
        machines: dict[str, tuple[Hardware, list[int]]] = {}
        for row, each in enumerate(measured):
            machines.setdefault(repr(each.hardware), (each.hardware, []))[1].append(row)
        self.order = np.argsort(np.concatenate([rows for _, rows in machines.values()]))
        with double_precision():
            self.groups: list[tuple[CostModel, StepTable]] = [
                (model_of(hardware), step_table([measured[row].job for row in rows]))
                for hardware, rows in machines.values()
            ]
            changed_numbers(
                self.groups[0][0], default_step_parameters(), dict.fromkeys(self.paths, 0.0)
            )
            self.residuals = jax.jit(self._residuals)
            self.jacobian = jax.jit(jax.jacfwd(self._residuals))

    def fit(self, weight: np.ndarray) -> StepFit:
        x, spread = np.zeros(len(self.paths)), _FIRST_SPREAD
        with double_precision():
            for _ in range(_ROUNDS):
                x = self._most_probable(x, weight, spread)
                errors = np.abs(np.asarray(self.residuals(x)))[weight > 0]
                spread = max(1.4826 * float(np.median(errors)), _LEAST_SPREAD)
            curvature, _ = self._normal_equations(x, weight, spread)
            logs = dict(zip(self.paths, x, strict=True))
            _, parameters = changed_numbers(self.groups[0][0], default_step_parameters(), logs)
        return StepFit(
            {path: float(np.exp(log)) for path, log in logs.items()},
            jax.tree.map(np.asarray, parameters),
            np.linalg.inv(curvature),
            spread,
        )

    def steps_us(self, x: np.ndarray) -> np.ndarray:
        with double_precision():
            return np.exp(np.asarray(self.residuals(x)) + self.log_measured)

    def _residuals(self, x: Array) -> Array:
        logs = {path: x[index] for index, path in enumerate(self.paths)}
        found = []
        for model, table in self.groups:
            model, parameters = changed_numbers(model, default_step_parameters(), logs)
            found.append(table_steps(table, model, parameters).step_us)
        return jnp.log(jnp.concatenate(found)[self.order]) - self.log_measured

    def _most_probable(self, x: np.ndarray, weight: np.ndarray, spread: float) -> np.ndarray:
        damping, value = 1e-2, self._loss(x, weight, spread)
        for _ in range(_ITERATIONS):
            curvature, gradient = self._normal_equations(x, weight, spread)
            before = value
            while damping < 1e8:
                damped = curvature + damping * np.diag(np.diag(curvature))
                candidate = x - np.linalg.solve(damped, gradient)
                value = self._loss(candidate, weight, spread)
                if value < before:
                    x, damping = candidate, damping / 5
                    break
                damping *= 5
            if not before - value > _SETTLED:
                break
        return x

    def _loss(self, x: np.ndarray, weight: np.ndarray, spread: float) -> float:
        scaled = np.asarray(self.residuals(x)) / (spread * _HUBER)
        data = weight @ (_HUBER**2 * (np.sqrt(1 + scaled**2) - 1))
        return float(data + np.sum((x / self.prior) ** 2) / 2)

    def _normal_equations(self, x, weight, spread) -> tuple[np.ndarray, np.ndarray]:
        errors, slopes = np.asarray(self.residuals(x)), np.asarray(self.jacobian(x))
        trusted = weight / np.sqrt(1 + (errors / (spread * _HUBER)) ** 2) / spread**2
        curvature = (slopes * trusted[:, None]).T @ slopes + np.diag(1 / self.prior**2)
        return curvature, slopes.T @ (trusted * errors) + x / self.prior**2


def changed_numbers(
    model: CostModel, parameters: StepParameters, logs: Mapping[str, Array | float]
) -> tuple[CostModel, StepParameters]:
    """A model and parameters with some of their numbers multiplied, all elements of one alike.

    Args:
        model, parameters: as they are.
        logs: by path, see `StepFit`, the logarithm of the factor; of a share that of its odds.

    Returns:
        Both, changed.

    Raises:
        ConfigError: there is no such path.
    """
    leaves, tree = jax.tree_util.tree_flatten_with_path({"model": model, "step": parameters})
    names = [path_text(path).removeprefix("model.") for path, _ in leaves]
    for path in logs:
        if path not in names:
            near = difflib.get_close_matches(path, names, n=3, cutoff=0.3) or names[:3]
            expected = f"one of {', '.join(near)}"
            raise ConfigError("no such number", where="priors", got=path, expected=expected)

    def changed(name: str, value):
        if name not in logs:
            return value
        factor = jnp.exp(logs[name])
        if name in _SHARES:
            return value * factor / (1 - value + value * factor)
        return value * factor

    values = [changed(name, value) for name, (_, value) in zip(names, leaves, strict=True)]
    found = jax.tree.unflatten(tree, values)
    return found["model"], found["step"]


def _check(measured: Sequence[MeasuredStep]) -> None:
    if not measured:
        raise ConfigError("no measured steps", where="measured", expected="one or more")
    for row, each in enumerate(measured):
        if not (np.isfinite(each.step_us) and each.step_us > 0):
            raise ConfigError(
                "no time of a step",
                where=f"measured row {row} {each.label}".rstrip(),
                got=str(each.step_us),
                expected="microseconds above 0",
            )


assert {path[5:] for path in STEP_PRIORS if path[:5] == "step."} == {
    field.name for field in fields(StepParameters)
}
