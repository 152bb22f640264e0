"""The embedding verbs as a user meets them: their files, their plans, and what each must not do."""

import json
import subprocess
import sys

import numpy as np
import pytest

from jaxperf.embedding import plan, profile

MODEL = """
name = "model"
batch_size = 8192
dense_parameters = 1e6
dense_flops_per_sample = 6e6
"""
TABLE = """
[[tables]]
name = "{name}"
rows = {rows}
dimension = 128
pooling = {pooling}
zipf_exponent = {exponent}
"""


def call(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "jaxperf", "embedding", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def model_file(folder, *tables):
    path = folder / "model.toml"
    entries = [
        TABLE.format(name=f"t{index}", rows=rows, pooling=pooling, exponent=exponent)
        for index, (rows, pooling, exponent) in enumerate(tables)
    ]
    path.write_text(MODEL + "".join(entries))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("model", ["demo", "dlrm-dcnv2"])
def test_plan_without_a_server_takes_the_default_that_help_names(model):
    result = call("plan", model, "--nodes", 1, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["nodes"] == 1


@pytest.mark.slow
def test_nothing_but_the_object_is_on_standard_output(tmp_path):
    tables = model_file(
        tmp_path, (3_000_000_000, 3, 0.9), (1_000_000_000, 20, 1.05), (50_000_000, 30, 1.1)
    )
    memory = tmp_path / "memory.toml"
    memory.write_text(
        'name = "slow"\nkind = "block"\ncapacity_bytes = 7.68e12\nread_bytes_per_s = 6.5e9\n'
        "write_bytes_per_s = 3.5e9\nlatency_us = 80\nblock_bytes = 4096\nqueue_depth = 256\n"
        "read_iops = 1800\nwrite_iops = 400\ndrive_writes_per_day = 130\nwarranty_years = 5\n"
        "price_usd = 900\nidle_w = 4\nactive_w = 12\n"
    )
    server = tmp_path / "server.toml"
    server.write_text(
        'name = "slow"\nhardware = "a100"\nprice_usd = 150e3\nhost_w = 1500\ngpu_idle_w = 55\n'
        'gpu_active_w = 400\n[[tiers]]\nmemory = "hbm2-a100-40gb"\ncount = 8\n[[tiers]]\n'
        'memory = "ddr4-64gb"\ncount = 24\nlink_bytes_per_s = 200e9\n[[tiers]]\n'
        f'memory = "{memory}"\ncount = 8\n'
    )
    result = call("plan", tables, "--server", server, "--nodes", 1, "--time-limit", 10, "--json")
    assert result.returncode == 0, result.stderr
    json.loads(result.stdout)


def test_an_array_file_is_not_taken_for_ids(tmp_path):
    np.save(tmp_path / "log.npy", np.arange(2000) % 7)
    try:
        log = profile(tmp_path / "log.npy").logs[0]
    except Exception as error:  # refused in one line is right too
        assert "\n" not in str(error)
        return
    assert (log.accesses, log.distinct) == (2000, 7)


def test_random_bytes_are_no_log(tmp_path):
    path = tmp_path / "garbage.bin"
    path.write_bytes(np.random.default_rng(0).bytes(4000))
    result = call("profile", path, "--json")
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert "name the format" in result.stderr


def test_random_bytes_of_a_named_format_are_hashes(tmp_path):
    # 500 hashes of which none comes twice look just so: only who asks can know.
    path = tmp_path / "garbage.bin"
    path.write_bytes(np.random.default_rng(0).bytes(4000))
    log = profile(path, format="int64-be").logs[0]
    assert (log.accesses, log.distinct) == (500, 500)
    assert [note.code for note in log.notes] == ["hashed-ids"]


@pytest.mark.parametrize(("asked", "written"), [("int64-be", ">i4"), ("int32-be", ">i8")])
def test_ids_of_another_width_are_refused(tmp_path, asked, written):
    path = tmp_path / "log.bin"
    ids = np.random.default_rng(0).zipf(1.3, 2000) % 1000
    path.write_bytes(ids.astype(written).tobytes())
    result = call("profile", path, "--format", asked, "--json")
    assert result.returncode == 2, result.stdout[:300]
    (line,) = result.stderr.splitlines()
    assert "wrong width" in line
    assert "text or .npz" in line


def test_a_byte_order_mark_is_no_binary(tmp_path):
    path = tmp_path / "log.txt"
    path.write_bytes(b"\xef\xbb\xbf1\n2\n1\n")
    assert profile(path).logs[0].accesses == 3


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("negative.txt", b"1\n2\n-3\n"),
        ("empty.txt", b""),
        ("floats.txt", b"1.5\n2\n"),
        ("words.txt", b"a\nb\n"),
        ("cut.bin", bytes(range(1, 8)) * 3),
    ],
)
def test_broken_logs_end_in_one_line(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    result = call("profile", path, "--json")
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert "jaxperf: " in result.stderr


def test_a_log_with_other_line_ends_reads_the_same(tmp_path):
    for name, end in (("unix", b"\n"), ("dos", b"\r\n"), ("mac", b"\r")):
        path = tmp_path / f"{name}.txt"
        path.write_bytes(end.join([b"5", b"7", b"5", b""]))
        log = profile(path, sizes=[1, 2]).logs[0]
        assert (log.accesses, log.distinct) == (3, 2)
        assert [point.hits for point in log.curve] == [0, 1]


def test_sizes_are_answered_in_the_order_asked(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text("1\n2\n1\n2\n")
    curve = profile(path, sizes=[2, 1, 1, 99]).logs[0].curve
    assert [(point.rows, point.hits) for point in curve] == [
        (2, 2),
        (1, 0),
        (1, 0),
        (99, 2),
    ]


@pytest.mark.slow
def test_a_small_model_lies_in_the_first_memory(tmp_path):
    tables = model_file(tmp_path, (1_000_000, 4, 0.9))
    result = plan(tables, server="zionex-nand", nodes=1, time_limit_s=5)
    first, *others = result.tiers
    assert first.bytes == pytest.approx(1_000_000 * 128 * 4)
    assert all(tier.bytes == 0 for tier in others)
