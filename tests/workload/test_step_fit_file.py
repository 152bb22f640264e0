"""Fits to measured steps as files: what comes with the package, and what is refused."""

import numpy as np
import pytest

from jaxperf import estimate
from jaxperf.config import load_hardware
from jaxperf.errors import ConfigError
from jaxperf.workload import (
    built_in_step_factors,
    default_step_parameters,
    load_step_factors,
    step_factors_of,
    step_fit_of,
)


@pytest.mark.parametrize("name", built_in_step_factors())
def test_every_fit_of_the_package_names_its_source_and_numbers_of_the_model(name):
    factors = load_step_factors(name)
    assert factors.steps >= 20 and factors.source
    assert all(np.isfinite(factor) and factor > 0 for factor in factors.factors.values())
    fit = step_fit_of(factors)
    assert fit.factors == factors.factors


def test_a_factor_multiplies_the_default_and_of_a_share_its_odds(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'hardware = ["x"]\nsource = "mine"\nsteps = 1\nspread = 0.1\n'
        '[factors]\n"step.step_us" = 2.0\n"step.overlap_share" = 3.0\n'
    )
    found, usual = step_fit_of(load_step_factors(path)).parameters, default_step_parameters()
    assert found.step_us == pytest.approx(2 * np.asarray(usual.step_us))
    share = np.asarray(usual.overlap_share)
    odds = 3 * share / (1 - share)
    assert found.overlap_share == pytest.approx(odds / (1 + odds))


def test_a_machine_of_the_package_has_its_fit_and_another_has_none():
    h100 = load_hardware("h100")
    assert step_factors_of(h100) == load_step_factors("h100")
    assert step_factors_of(load_hardware("v100")) is None


def test_an_estimate_says_which_fit_it_takes():
    codes = [note.code for note in estimate("llama3-8b", hardware="h100").notes]
    assert "step-fit-assumed" in codes
    named = estimate("llama3-8b", hardware="h100", fit="h100-fsdp")
    assert "step-fit-assumed" not in [note.code for note in named.notes]


@pytest.mark.parametrize("factor", ["0.0", "-1.0", "nan", "inf"])
def test_what_is_no_factor_is_refused(tmp_path, factor):
    path = tmp_path / "mine.toml"
    path.write_text(
        'hardware = ["x"]\nsource = "mine"\nsteps = 1\nspread = 0.1\n'
        f'[factors]\n"step.step_us" = {factor}\n'
    )
    with pytest.raises(ConfigError, match="not a factor.*above 0"):
        load_step_factors(path)


def test_a_fit_that_does_not_exist_names_those_that_do():
    with pytest.raises(ConfigError, match=r"no such fit.*h100"):
        load_step_factors("h1000")


def test_a_number_that_the_model_does_not_have_is_refused(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'hardware = ["x"]\nsource = "mine"\nsteps = 1\nspread = 0.1\n'
        '[factors]\n"step.stop_us" = 2.0\n'
    )
    with pytest.raises(ConfigError, match=r"no such number.*step\.step_us"):
        step_fit_of(load_step_factors(path))
