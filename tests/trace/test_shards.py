"""Traces of a run read shard by shard: the same run, and what is missing is named."""

from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from jaxperf.errors import TraceError
from jaxperf.trace import read_run
from jaxperf.trace._shards import merge_shards, read_shard


def assert_same(found, expected):
    """Equal in every field, columns to the bit."""
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        assert found.tobytes() == expected.tobytes()
    elif is_dataclass(expected):
        for field in fields(expected):
            assert_same(getattr(found, field.name), getattr(expected, field.name))
    elif isinstance(expected, tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert found == expected


@pytest.fixture
def run_folder(traces, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for file in traces.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "readme.txt").write_text("no trace")
    return folder


@pytest.mark.parametrize("count", [1, 2, 5])
def test_shards_together_are_the_run(run_folder, tmp_path, count):
    for index in reversed(range(count)):
        read_shard(run_folder, tmp_path / "columns", index, count)
    assert_same(merge_shards(tmp_path / "columns"), read_run(run_folder))


def test_a_run_of_the_oracle_comes_back_to_the_bit(shared, tmp_path):
    folder = shared / "oracle" / "gpt_sync_every_micro"
    read_shard(folder, tmp_path, 0, 1)
    assert_same(merge_shards(tmp_path), read_run(folder))


def test_missing_shards_are_named(run_folder, tmp_path):
    read_shard(run_folder, tmp_path / "columns", 1, 3)
    with pytest.raises(TraceError, match="got 1 of .*expected also those of shard 0/3, 2/3"):
        merge_shards(tmp_path / "columns")


def test_what_was_read_is_not_read_again(run_folder, tmp_path):
    first = read_shard(run_folder, tmp_path / "columns", 0, 1)
    assert first == len(list(run_folder.iterdir()))
    assert read_shard(run_folder, tmp_path / "columns", 0, 1) == 0


def test_columns_of_a_file_that_has_changed_are_not_taken_for_its_own(run_folder, tmp_path):
    read_shard(run_folder, tmp_path / "columns", 0, 1)
    (run_folder / "readme.txt").write_text("another length")
    with pytest.raises(TraceError, match="columns of another file; name a new folder"):
        read_shard(run_folder, tmp_path / "columns", 0, 1)


def test_a_damaged_file_is_named(run_folder, tmp_path):
    read_shard(run_folder, tmp_path / "columns", 0, 1)
    file = max((tmp_path / "columns").iterdir(), key=lambda path: path.stat().st_size)
    whole = file.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for damaged in (whole[:middle], flipped, b""):
        file.write_bytes(damaged)
        with pytest.raises(TraceError, match=rf"{file.name}: is damaged"):
            merge_shards(tmp_path / "columns")


def test_columns_of_two_runs_are_not_joined(run_folder, tmp_path):
    read_shard(run_folder, tmp_path / "columns", 0, 2)
    read_shard(run_folder, tmp_path / "columns", 0, 3)
    with pytest.raises(TraceError, match="several runs"):
        merge_shards(tmp_path / "columns")


@pytest.mark.parametrize(("index", "count"), [(2, 2), (-1, 2), (0, 0)])
def test_what_is_no_shard_is_refused(run_folder, tmp_path, index, count):
    with pytest.raises(TraceError, match="not a shard"):
        read_shard(run_folder, tmp_path / "columns", index, count)


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(TraceError, match="holds no columns"):
        merge_shards(tmp_path)
