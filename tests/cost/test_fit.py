"""A fit: what its file may say, what it makes of a model, and how its draws are spread."""

import numpy as np
import pytest

from jaxperf.config import load_hardware
from jaxperf.cost import (
    PRECISIONS,
    Fit,
    default_model,
    draw_models,
    fitted_model,
    load_fit,
    model_leaves,
)
from jaxperf.errors import ConfigError, OutputError
from jaxperf.report import write_fit

H100 = load_hardware("h100")
BF16 = PRECISIONS.index("bf16")
SHARES = tuple(0.8 if name == "bf16" else 1.0 for name in PRECISIONS)

FIT = Fit(
    hardware=("NVIDIA H100 80GB HBM3",),
    numbers={"device.memory_bytes_per_s": (0.9,), "device.peak_flops_per_s": SHARES},
    leaves=("device.memory_bytes_per_s", "device.peak_flops_per_s[bf16]"),
    covariance=((0.04, 0.012), (0.012, 0.01)),
    hardware_range={"memory_bytes_per_s": (2e12, 3.35e12)},
    work_range={"matmul.flops": (1e6, 1e12)},
)

TEXT = """
hardware = ["a"]
leaves = ["device.memory_bytes_per_s", "device.l2_bytes"]
covariance = [[0.01, 0.002], [0.002, 0.03]]
[numbers]
"device.memory_bytes_per_s" = [0.9]
"device.l2_bytes" = [1.1]
"""


def fit_file(folder, old="", new=""):
    assert old in TEXT
    path = folder / "fit.toml"
    path.write_text(TEXT.replace(old, new, 1))
    return path


# The file
# ---------------------------------------------------------------------------------------


def test_a_fit_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "fit.toml"
    write_fit(FIT, path)
    assert load_fit(path) == FIT
    with pytest.raises(OutputError, match="overwrite"):
        write_fit(FIT, path)


def test_a_fit_without_leaves_needs_no_covariance(tmp_path):
    path = tmp_path / "fit.toml"
    write_fit(Fit(hardware=("a",), numbers={"device.l2_bytes": (1.0,)}), path)
    assert load_fit(path).covariance == ()


@pytest.mark.parametrize("number", ["nan", "inf", "0.0", "-0.9"])
def test_numbers_that_are_no_quantities_are_refused_with_their_name(tmp_path, number):
    path = fit_file(tmp_path, "[0.9]", f"[{number}]")
    message = "numbers device.memory_bytes_per_s: not quantities; got.*above 0"
    with pytest.raises(ConfigError, match=message):
        load_fit(path)


@pytest.mark.parametrize(
    "covariance, message",
    [
        ("[[0.01, 0.002]]", "covariance: wrong shape; expected 2 rows"),
        ("[[0.01], [0.03]]", "covariance: wrong shape; expected 2 rows"),
        ("[[0.01, 0.002], [0.002, 0.03], [0.0, 0.0]]", "wrong shape"),
        ("[]", "wrong shape"),
        ("[[0.01, 0.002], [0.001, 0.03]]", "covariance: no covariance"),
        ("[[-0.01, 0.0], [0.0, 0.03]]", "no covariance"),
        # Each variance is above 0, but the correlation is 2.
        ("[[0.01, 0.02], [0.02, 0.01]]", "no covariance"),
        ("[[nan, 0.0], [0.0, 0.03]]", "no covariance"),
        ("[[inf, 0.0], [0.0, 0.03]]", "no covariance"),
    ],
)
def test_what_is_no_covariance_of_the_leaves_is_refused(tmp_path, covariance, message):
    path = fit_file(tmp_path, "[[0.01, 0.002], [0.002, 0.03]]", covariance)
    with pytest.raises(ConfigError, match=message):
        load_fit(path)


def test_an_exact_number_is_a_covariance_too(tmp_path):
    path = fit_file(tmp_path, "[[0.01, 0.002], [0.002, 0.03]]", "[[0.0, 0.0], [0.0, 0.0]]")
    assert load_fit(path).covariance == ((0.0, 0.0), (0.0, 0.0))


# The model
# ---------------------------------------------------------------------------------------


def test_a_fit_moves_the_device_by_shares_and_leaves_the_rest():
    before, after = model_leaves(default_model(H100)), model_leaves(fitted_model(FIT, H100))
    assert after["device.memory_bytes_per_s"] == pytest.approx(0.9 * 3.35e12)
    ratio = after["device.peak_flops_per_s"] / before["device.peak_flops_per_s"]
    assert ratio == pytest.approx(SHARES)
    same = before.keys() - FIT.numbers.keys()
    assert all(np.array_equal(before[path], after[path]) for path in same)


def test_numbers_beside_the_device_stand_as_they_are():
    path = next(p for p, leaf in model_leaves(default_model(H100)).items() if p.startswith("mat"))
    model = fitted_model(Fit(hardware=("a",), numbers={path: (0.123,)}), H100)
    assert model_leaves(model)[path] == pytest.approx(0.123)


@pytest.mark.parametrize(
    "numbers, message",
    [
        ({"device.memory_bandwidth": (1.0,)}, "device.memory_bandwidth: no such number"),
        ({"device.memory_bytes_per_s": (1.0, 1.0)}, "wrong length; got 2; expected 1"),
        ({"device.peak_flops_per_s": (1.0,)}, "wrong length; got 1; expected 8"),
    ],
)
def test_numbers_that_the_model_has_not_are_refused(numbers, message):
    fit = Fit(hardware=("a",), numbers=numbers)
    with pytest.raises(ConfigError, match=message):
        fitted_model(fit, H100)
    with pytest.raises(ConfigError, match=message):
        draw_models(fit, H100, 3, 0)


# Draws
# ---------------------------------------------------------------------------------------


def test_draws_have_the_mean_spread_and_correlation_of_the_fit():
    draws = 4000
    model, fitted = draw_models(FIT, H100, draws, 1), fitted_model(FIT, H100)
    memory = np.log(model.device.memory_bytes_per_s / fitted.device.memory_bytes_per_s)
    peaks = np.log(model.device.peak_flops_per_s / fitted.device.peak_flops_per_s)
    # The standard error of a mean of n draws is s / sqrt(n), of their spread s / sqrt(2 n).
    assert memory.mean() == pytest.approx(0.0, abs=5 * 0.2 / draws**0.5)
    assert memory.std() == pytest.approx(0.2, rel=5 / (2 * draws) ** 0.5)
    assert peaks[:, BF16].mean() == pytest.approx(0.0, abs=5 * 0.1 / draws**0.5)
    assert peaks[:, BF16].std() == pytest.approx(0.1, rel=5 / (2 * draws) ** 0.5)
    assert np.corrcoef(memory, peaks[:, BF16])[0, 1] == pytest.approx(0.6, abs=0.06)
    assert np.abs(np.delete(peaks, BF16, 1)).max() < 1e-12


def test_every_leaf_of_drawn_models_is_drawn_as_often():
    model = draw_models(FIT, H100, 3, 1)
    drawn, single = model_leaves(model), model_leaves(default_model(H100))
    assert {path: leaf.shape for path, leaf in drawn.items()} == {
        path: (3, *leaf.shape) for path, leaf in single.items()
    }
    same = single.keys() - FIT.numbers.keys()
    assert all((drawn[path] == single[path]).all() for path in same)


def test_the_same_seed_draws_the_same():
    first, again, other = (
        np.asarray(draw_models(FIT, H100, 5, seed).device.memory_bytes_per_s) for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.isclose(first, other).any()


def test_a_leaf_that_has_no_number_cannot_be_drawn():
    fit = Fit(hardware=("a",), numbers={}, leaves=("device.l2_bytes",), covariance=((0.01,),))
    with pytest.raises(ConfigError, match="device.l2_bytes: no such number"):
        draw_models(fit, H100, 2, 0)
