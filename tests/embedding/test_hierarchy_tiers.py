from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.config import load_server
from jaxperf.embedding.hierarchy import LIMITS, Traffic, machine_of, tier_limits_us, tier_us
from jaxperf.embedding.hierarchy._tiers import drive_writes_per_day, whole_blocks

TIERS = machine_of(load_server("zionex-nand")).tiers
NOTHING = Traffic(*[jnp.zeros(3)] * 6)
DRIVES = np.array([0.0, 0.0, 1.0])


def only(**values):
    traffic = replace(NOTHING, **{name: value * DRIVES for name, value in values.items()})
    limits = tier_limits_us(TIERS, traffic)
    return np.asarray(limits)[2], float(tier_us(limits)[2])


def test_a_servers_tiers_are_its_modules_together():
    assert np.asarray(TIERS.capacity_bytes).tolist() == [8 * 40e9, 24 * 64e9, 8 * 7.68e12]
    assert np.asarray(TIERS.read_iops).tolist() == [np.inf, np.inf, 8 * 900e3]
    assert np.asarray(TIERS.is_block).tolist() == [0, 0, 1]
    assert np.asarray(TIERS.price_usd_per_byte)[1] == 256 / 64e9


def test_each_limit_of_a_tier_by_hand():
    # Eight drives: 52 GB/s reading, 28 GB/s writing, 7.2 and 1.6 million blocks a second,
    # and 8 x 256 blocks under way for 80 us each.
    limits, busy = only(read_bytes=52e6, write_bytes=28e6)
    assert limits[:2] == pytest.approx([1000, 1000])
    assert busy == pytest.approx(2000)
    limits, busy = only(read_blocks=7200.0, write_blocks=1600.0)
    assert limits[LIMITS.index("iops")] == pytest.approx(2000)
    assert limits[LIMITS.index("latency")] == pytest.approx(7200 / 2048 * 80)
    assert busy == pytest.approx(2000)


def test_a_link_carries_both_ways_at_once():
    traffic = replace(
        NOTHING, link_read_bytes=jnp.array([0, 200e6, 0]), link_write_bytes=jnp.array([0, 100e6, 0])
    )
    limits = tier_limits_us(TIERS, traffic)
    assert limits[1, LIMITS.index("link")] == pytest.approx(1000)


def test_a_row_of_512_bytes_is_read_eightfold_from_blocks_of_4096():
    blocks = whole_blocks(np.array([512.0, 5000.0]), np.array([32.0, 256.0, 4096.0]))
    assert blocks.tolist() == [[16, 2, 1], [157, 20, 2]]


def test_drive_writes_a_day_by_hand():
    # 61.44 TB of drives; 61.44 MB in a step of 86.4 ms is a million steps a day.
    written = 61.44e6 * jnp.asarray(DRIVES)
    assert drive_writes_per_day(TIERS, written, jnp.asarray(86.4e3))[2] == pytest.approx(1.0)
