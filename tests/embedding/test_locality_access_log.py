import gzip
import lzma

import numpy as np
import pytest

from jaxperf.embedding.locality import access_log, read_access_logs
from jaxperf.errors import ConfigError, LogError

IDS = np.random.default_rng(0).integers(0, 30_000, 2_000)


def write(folder, content, name="log"):
    path = folder / name
    path.write_bytes(content)
    return path


def binary(kind: str, ids: np.typing.ArrayLike = IDS) -> bytes:
    return np.asarray(ids).astype(kind).tobytes()


FORMATS = {
    "int32-be": binary(">i4"),
    "int32-le": binary("<i4"),
    "int64-be": binary(">i8"),
    "int64-le": binary("<i8"),
    "text": "\n".join(map(str, IDS)).encode(),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("asked", ["auto", "named"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_a_format_is_told_by_content(tmp_path, name, asked, pack):
    path = write(tmp_path, pack(FORMATS[name]))
    (log,) = read_access_logs(path, format=name if asked == "named" else "auto")
    assert log.format == name
    assert (log.ids == IDS).all()
    codes = [note.code for note in log.notes]
    assert codes == (["log-format-guessed"] if name != "text" and asked == "auto" else [])


@pytest.mark.parametrize("name", ["int32-be", "int32-le", "int64-be", "int64-le"])
def test_the_other_byte_order_is_refused(tmp_path, name):
    other = name[:-2] + {"be": "le", "le": "be"}[name[-2:]]
    with pytest.raises(LogError, match="wrong byte order; got first id .* expected"):
        read_access_logs(write(tmp_path, FORMATS[name]), format=other)


@pytest.mark.parametrize("ids", [[5, 1, 5, 2], list(range(300)), [7]])
def test_short_logs_of_long_ids_are_told_too(tmp_path, ids):
    for kind, name in ((">i8", "int64-be"), ("<i8", "int64-le")):
        (log,) = read_access_logs(write(tmp_path, binary(kind, ids)))
        assert (log.format, log.ids.tolist()) == (name, ids)


def test_ids_of_very_large_tables_are_told_by_how_evenly_bytes_are_used(tmp_path):
    ids = np.random.default_rng(1).integers(0, 60_000_000, 4_000)
    for name, kind in (("int32-be", ">i4"), ("int32-le", "<i4")):
        (log,) = read_access_logs(write(tmp_path, binary(kind, ids)))
        assert log.format == name


def test_hashed_ids_may_be_negative_and_are_noted(tmp_path):
    ids = np.random.default_rng(2).integers(-(2**63), 2**63 - 1, 500)[
        np.random.default_rng(3).integers(0, 500, 3_000)
    ]
    (log,) = read_access_logs(write(tmp_path, binary(">i8", ids)))
    assert log.format == "int64-be"
    assert (log.ids == ids).all()
    assert [note.code for note in log.notes] == ["log-format-guessed", "hashed-ids"]


def test_a_width_that_the_content_contradicts_is_noted(tmp_path):
    (log,) = read_access_logs(write(tmp_path, FORMATS["int64-be"]), format="int32-be")
    assert [note.code for note in log.notes] == ["log-format-doubtful"]


def test_several_ids_a_line_are_bags(tmp_path):
    (log,) = read_access_logs(write(tmp_path, b"3, 1\n\n7\n1 1 2\n\n", "clicks.csv"))
    assert log.table == "clicks"
    assert log.ids.tolist() == [3, 1, 7, 1, 1, 2]
    assert log.offsets is not None
    assert log.offsets.tolist() == [0, 2, 2, 3, 6]
    assert (log.bags, log.distinct) == (4, 4)


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_tables_of_an_npz_have_their_own_bags(tmp_path):
    path = npz(
        tmp_path / "day.npz",
        users_indices=np.array([5, 9, 5]),
        users_offsets=np.array([0, 1, 3]),
        users_rows=np.array(10),
        items=np.array([1, 1], np.int32),
        items_lengths=np.array([2, 0]),
    )
    users, items = read_access_logs(path)
    assert (users.table, users.rows, users.ids.tolist()) == ("users", 10, [5, 9, 5])
    assert (items.table, items.rows) == ("items", None)
    assert items.offsets is not None
    assert items.offsets.tolist() == [0, 2, 2]


def test_lengths_of_tables_by_bags_divide_one_array(tmp_path):
    path = npz(
        tmp_path / "batch.npz",
        indices=np.array([4, 4, 8, 0, 1]),
        offsets=np.array([0, 2, 3, 4, 5]),
        lengths=np.array([[2, 1], [1, 1]]),
    )
    first, second = read_access_logs(path)
    assert (first.table, second.table) == ("batch_0", "batch_1")
    assert (first.ids.tolist(), second.ids.tolist()) == ([4, 4, 8], [0, 1])
    assert second.offsets is not None
    assert second.offsets.tolist() == [0, 1, 2]


BROKEN = {
    "empty": (b"", "auto", "empty file"),
    "no ids": (b"\n \n", "auto", "empty table"),
    "negative": (b"3\n4\n-1\n", "auto", "log, line 3: negative id; got -1"),
    "negative in a bag": (b"3 4\n\n5 -2\n", "auto", "line 3: negative id; got -2"),
    "word": (b"3\nfour\n", "auto", "line 2: not an id; got 'four'"),
    "fraction": (b"3\n4.5\n", "text", "line 2: not an id"),
    "too large": (b"1\n99999999999999999999\n", "auto", "line 2: not an id"),
    "long word": (b"1\n" + b"9" * 100_000, "auto", "line 2: not an id"),
    "not ASCII": (("1\n" * 50 + "é\n" + "2\n" * 50).encode(), "auto", "line 51: not an id"),
    "negative long": (binary("<i8", [1, 2, -3, 4]), "int64-le", "byte 16: negative id; got -3"),
    "negative short": (binary(">i4", [*IDS, -1]), "auto", "byte 8000: negative id; got -1"),
    "cut off": (binary("<i8")[:-3], "int64-le", "byte 15992: cut off within an id"),
    "cut off unnamed": (binary("<i8")[:-4], "auto", "byte 15992: cut off within an id"),
    "cut gzip": (gzip.compress(FORMATS["text"])[:-20], "auto", "damaged compression"),
    "cut xz": (lzma.compress(FORMATS["text"])[:-20], "auto", "damaged compression"),
    "no npz": (b"PK\x03\x04rubbish", "auto", "no .npz, or a damaged one"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_log_is_refused_in_one_line_that_says_where(tmp_path, case):
    content, format, message = BROKEN[case]
    with pytest.raises(LogError) as caught:
        read_access_logs(write(tmp_path, content), format=format)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


BROKEN_NPZ = {
    "lengths": (
        {"ids": [1, 2, 3], "lengths": [2, 2]},
        "mixed lengths: bags, offsets and ids do not agree; got lengths of 4 ids",
    ),
    "offsets": ({"ids": [1, 2, 3], "offsets": [0, 2]}, "lengths of bags and ids do not agree"),
    "falling": ({"ids": [1, 2, 3], "offsets": [0, 2, 1, 3]}, "bag 1: bag of negative length"),
    "negative length": ({"ids": [1], "lengths": [2, -1]}, "bag of negative length"),
    "bags": (
        {"a": [1], "a_lengths": [1], "b": [1, 2], "b_lengths": [1, 1]},
        "tables differ in their bags; got 1 and 2",
    ),
    "range": ({"ids": [1, 7], "rows": 7}, "access 1: id out of range; got 7; expected below 7"),
    "empty": ({"a_ids": [1], "b_ids": np.zeros(0, int)}, "b: empty table"),
    "floats": ({"ids": [1.5, 2.0]}, "no ids; got float64"),
    "alone": ({"lengths": [1, 2]}, "lengths without ids"),
    "objects": ({"ids": np.array([None, 1])}, "no .npz, or a damaged one"),
}


@pytest.mark.parametrize("case", BROKEN_NPZ)
def test_arrays_that_do_not_agree_are_refused(tmp_path, case):
    arrays, message = BROKEN_NPZ[case]
    with pytest.raises(LogError) as caught:
        read_access_logs(npz(tmp_path / "t.npz", **arrays))
    assert message in str(caught.value)


def test_ids_beyond_the_rows_given_are_refused(tmp_path):
    with pytest.raises(LogError, match=r"line 2: id out of range; got 12; expected below 10"):
        read_access_logs(write(tmp_path, b"3\n12\n"), rows=10)


def test_a_missing_file_and_an_unknown_format_are_refused(tmp_path):
    with pytest.raises(LogError, match="cannot be read"):
        read_access_logs(tmp_path / "none.txt")
    with pytest.raises(ConfigError, match="unknown format .* int64-le"):
        read_access_logs(write(tmp_path, b"1\n"), format="parquet")


def test_the_rows_of_a_log_are_ranks_of_its_ids():
    log = access_log(np.array([70, -0, 70, 9], np.int32), table="t")
    assert log.row.tolist() == [2, 0, 2, 1]
    assert (log.accesses, log.distinct, log.bags) == (4, 3, None)
