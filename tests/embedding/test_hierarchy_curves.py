import csv
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import poisson

from jaxperf.config import load_tables
from jaxperf.embedding.hierarchy import (
    csv_curve,
    curve_of_log,
    distinct_rows,
    hit_ratio,
    log_curve,
    model_arrays,
    pinned_ratio,
    popularity_curve,
    set_associative_ratio,
    shared_cache_rows,
    stack_curves,
    zipf_curve,
)
from jaxperf.embedding.hierarchy._logs import held_out_ratio
from jaxperf.embedding.locality import access_log, popularity_of_bins, read_access_logs
from jaxperf.errors import ConfigError, LogError

ZIPF = zipf_curve(100_000, 0.8)
UNIFORM = zipf_curve(5_000, 0.0)
SHARED, SETS = jax.jit(shared_cache_rows), jax.jit(set_associative_ratio, static_argnums=2)
HITS, DISTINCT, PINNED = jax.jit(hit_ratio), jax.jit(distinct_rows), jax.jit(pinned_ratio)


def at(function, curve, *values):
    return float(function(curve, *(np.array([float(value)]) for value in values))[0])


def test_hits_of_a_power_law_are_those_that_were_simulated(shared):
    with open(shared / "dlrm" / "oracles" / "che_zipf_irm.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 16
    for row in rows:
        curve = zipf_curve(int(row["num_rows"]), float(row["zipf_alpha"]))
        size = float(row["cache_rows"])
        simulated = float(row["lru_hit_ratio_simulated"])
        assert at(HITS, curve, size) == pytest.approx(simulated, abs=1e-3)
        hottest = float(row["static_topC_hit_ratio"])
        assert at(PINNED, curve, size) == pytest.approx(hottest, abs=1e-7)


@pytest.fixture(scope="module")
def medium(shared):
    folder = shared / "dlrm" / "traces"
    log = read_access_logs(folder / "meta_emb_reuse_medium_table_500K.txt.gz")[0]
    return curve_of_log(log, 500_000)


def test_a_log_gives_the_hits_that_libcachesim_counts(medium):
    assert at(HITS, medium, 1025) == pytest.approx(241_292 / 429_951, abs=1e-3)


def test_a_log_gives_the_distinct_rows_of_a_batch(medium, shared):
    with open(shared / "dlrm" / "oracles" / "footprint_exact.csv", encoding="utf-8") as file:
        rows = [
            row for row in csv.DictReader(file) if row["trace"].startswith("meta_emb_reuse_med")
        ]
    for row in rows[::20]:
        exact = float(row["mean_distinct_rows"])
        found = at(DISTINCT, medium, row["window_lookups"])
        assert found == pytest.approx(exact, rel=1e-3)


WEB07 = "cache2k_web07.trace.xz"


def test_rows_that_stay_hit_what_they_were_not_chosen_by(shared):
    """All rows of one half have of the other the accesses to rows that both have."""
    (log,) = read_access_logs(shared / "dlrm" / "traces" / WEB07)
    first, second = log.row[: log.accesses // 2], log.row[log.accesses // 2 :]
    rows = 1e12  # so that rows of neither half say nothing
    shown = np.array([len(np.unique(first)), len(np.unique(second))])
    known = np.isin(second, first).mean(), np.isin(first, second).mean()
    assert known == pytest.approx((0.760, 0.642), abs=1e-3)
    fewer, more = np.sort(shown)
    assert held_out_ratio(log.row, rows, np.array([more]))[0] == pytest.approx(np.mean(known))
    assert held_out_ratio(log.row, rows, np.array([fewer]))[0] <= np.mean(known)
    curve = curve_of_log(log, rows)
    assert at(PINNED, curve, more) == pytest.approx(np.mean(known), abs=2e-3)


@settings(max_examples=20)
@given(st.lists(st.integers(0, 6), min_size=2, max_size=16), st.integers(1, 9))
def test_held_out_hits_are_the_mean_of_all_choices_among_rows_used_alike(ids, size):
    row, rows = np.unique(ids, return_inverse=True)[1], 9
    halves = np.array_split(row, 2)
    rng, found = np.random.default_rng(0), []
    for chosen_by, counted in (halves, halves[::-1]):
        uses = np.bincount(chosen_by, minlength=rows)
        for _ in range(400):
            order = np.lexsort((rng.permutation(rows), -uses))
            found.append(np.isin(counted, order[:size]).mean())
    assert held_out_ratio(row, rows, np.array([size]))[0] == pytest.approx(
        np.mean(found), abs=5 * 0.5 / np.sqrt(800)
    )


def test_of_rows_that_come_once_a_cache_of_a_part_has_that_part():
    curve = curve_of_log(access_log(np.arange(1_000)), 100_000)
    for function in (HITS, PINNED):
        for part in (0.1, 0.5, 0.9):
            assert at(function, curve, part * 100_000) == pytest.approx(part, abs=0.011)


def test_hashed_ids_are_numbered_and_others_are_rows_of_the_table(tmp_path):
    hashes = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 50)
    hashes[:2].repeat(300).astype(">i8").tofile(tmp_path / "few.bin")
    picked = hashes[np.random.default_rng(1).zipf(1.3, 3_000) % 50]
    picked.astype(">i8").tofile(tmp_path / "hashes.bin")
    curve = log_curve(str(tmp_path / "hashes.bin"), 1_000)
    most = np.unique(picked, return_counts=True)[1].max() / 3_000
    assert at(PINNED, curve, 1) == pytest.approx(most, abs=1e-9)
    with pytest.raises(LogError, match="more hashed ids than rows.*at most 10"):
        log_curve(str(tmp_path / "hashes.bin"), 10)
    (tmp_path / "ids.txt").write_text("3\n12\n")
    with pytest.raises(LogError, match=r"access 1: id out of range; got 12; expected below 10"):
        log_curve(str(tmp_path / "ids.txt"), 10)


def test_a_log_that_changed_is_read_again(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text("1\n1\n1\n1\n")
    assert at(HITS, log_curve(str(path), 8), 1) == pytest.approx(0.75)
    path.write_text("1\n2\n1\n2\n1\n")
    assert at(HITS, log_curve(str(path), 8), 1) == pytest.approx(0.0)


def test_sets_of_32_rows_lose_what_a_simulation_of_them_loses(medium):
    found = float(SETS(medium, np.array([1024.0]), 32)[0])
    assert found == pytest.approx(239_027 / 429_951, abs=1.5e-3)


def test_the_quadrature_over_sets_is_smiths_sum_over_stack_distances():
    size, ways = 2000, 8
    found = float(SETS(ZIPF, np.array([float(size)]), ways)[0])
    distance = np.arange(0, 8 * size)
    many = jax.jit(jax.vmap(lambda rows: hit_ratio(ZIPF, rows[None])[0]))
    share = np.diff(np.asarray(many(np.append(distance, 8.0 * size))))
    assert found == pytest.approx(share @ poisson.cdf(ways - 1, distance * ways / size), abs=1e-4)


def test_a_batch_over_a_uniform_table_meets_the_rows_that_chance_gives():
    for lookups in (10, 3_000, 20_000):
        exact = 5_000 * (1 - (1 - 1 / 5_000) ** lookups)
        assert at(DISTINCT, UNIFORM, lookups) == pytest.approx(exact, rel=1e-4)


def test_bins_may_come_in_any_order():
    hot_last = popularity_curve(popularity_of_bins([900, 100], [1, 3]), 1000)
    assert at(PINNED, hot_last, 100) == pytest.approx(0.75, abs=5e-3)


def test_a_table_of_one_row_always_hits():
    one = zipf_curve(1, 1.0)
    assert at(HITS, one, 1) == pytest.approx(1.0)
    assert at(DISTINCT, one, 1000) == pytest.approx(1.0)


@settings(max_examples=20)
@given(
    rows=st.integers(1, 1_000_000),
    exponent=st.floats(0, 2),
    sizes=st.lists(st.floats(0, 1), min_size=2, max_size=6),
)
def test_more_rows_never_hit_less_and_more_accesses_never_meet_fewer(rows, exponent, sizes):
    curve = zipf_curve(rows, exponent)
    places = np.sort(sizes) * rows
    ratios = [at(HITS, curve, place) for place in places]
    met = [at(DISTINCT, curve, 20 * place) for place in places]
    assert all(0 <= ratio <= 1 + 1e-9 for ratio in ratios)
    assert np.all(np.diff(ratios) >= -1e-9)
    assert np.all(np.diff(met) >= -1e-9 * rows)
    assert all(
        m <= min(20 * place, rows) * (1 + 1e-3) for m, place in zip(met, places, strict=True)
    )


def test_a_measured_curve_comes_back(tmp_path):
    path = tmp_path / "curve.csv"
    path.write_text("rows,hit_ratio\n100,0.2\n1000,0.5\n10000,0.9\n")
    curve = csv_curve(path, 100_000)
    assert at(HITS, curve, 1000) == pytest.approx(0.5, abs=5e-3)
    assert at(HITS, curve, 100_000) == pytest.approx(1.0)
    assert at(DISTINCT, curve, 100_000) < 100_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("size,hits\n1,0.5\n", ":1"),
        ("rows,hit_ratio\n10,0.5\n5,0.6\n", ":3"),
        ("rows,hit_ratio\n10,0.5\n20,0.4\n", ":3"),
        ("rows,hit_ratio\n10,0.5\n20,x\n", ":3"),
        ("rows,hit_ratio\n10,0.5\n", "curve.csv"),
        ("", ":1"),
    ],
)
def test_a_file_that_is_no_curve_is_refused_with_its_line(tmp_path, text, place):
    path = tmp_path / "curve.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=place):
        csv_curve(path, 1000)


def test_tables_alike_share_a_cache_by_halves_and_fill_it():
    curves = stack_curves([UNIFORM, UNIFORM])
    rows = SHARED(curves, np.array([3.0, 3.0]), np.array([8.0, 8.0]), 16_000.0)
    np.testing.assert_allclose(rows, [1000.0, 1000.0], rtol=1e-9)


def test_a_cache_with_room_for_all_holds_all():
    curves = stack_curves([UNIFORM, UNIFORM])
    rows = SHARED(curves, np.array([3.0, 0.0]), np.array([8.0, 8.0]), 1e9)
    np.testing.assert_allclose(rows, [5000.0, 0.0], rtol=1e-6)


def test_the_gradient_of_a_shared_cache_is_that_of_finite_differences():
    curves = stack_curves([ZIPF, UNIFORM])

    def first(values):
        return shared_cache_rows(curves, values[:2], values[2:4], values[4])[0]

    values = np.array([2.0, 1.0, 256.0, 512.0, 1e6])
    steps = np.diag(values * 1e-5)
    many = jax.jit(jax.vmap(first))(np.concatenate([values + steps, values - steps]))
    by_difference = (many[:5] - many[5:]) / (2e-5 * values)
    np.testing.assert_allclose(jax.jit(jax.grad(first))(values), by_difference, rtol=1e-4)


def test_tables_take_their_log_before_their_curve_before_their_exponent(tmp_path):
    (tmp_path / "log.txt").write_text("0\n1\n0\n2\n0\n1\n")
    (tmp_path / "curve.csv").write_text("rows,hit_ratio\n1,0.1\n2,0.25\n8,1\n")
    table = "[[tables]]\nrows = 8\ndimension = 4\nzipf_exponent = 1.0\n"
    (tmp_path / "model.toml").write_text(
        'name = "m"\nbatch_size = 8\n'
        f'{table}name = "a"\naccesses = "log.txt"\ncurve = "curve.csv"\n'
        f'{table}name = "b"\ncurve = "curve.csv"\n'
        f'{table}name = "c"\n'
    )
    curves = model_arrays(load_tables(tmp_path / "model.toml")).curves
    # Of the log two of six accesses hit with two rows; the third is H(8) = 2.7179 of Zipf's law.
    found = np.asarray(HITS(curves, np.full(3, 2.0)))
    assert found[:2] == pytest.approx([1 / 3, 0.25])
    assert np.asarray(PINNED(curves, np.ones(3)))[2] == pytest.approx(1 / 2.7179, abs=1e-4)


def test_a_log_of_several_tables_needs_the_name_of_one(tmp_path):
    path = tmp_path / "logs.npz"
    tables: dict[str, Any] = {"a.indices": np.array([0, 1, 0]), "b.indices": np.array([2, 2, 3])}
    np.savez(path, **tables)
    assert at(HITS, log_curve(str(path), 8, "b"), 1) == pytest.approx(1 / 3)
    with pytest.raises(ConfigError, match="several tables"):
        log_curve(str(path), 8, "c")
