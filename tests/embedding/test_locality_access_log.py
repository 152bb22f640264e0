import gzip
import lzma

import numpy as np
import pytest

from jaxperf.embedding.locality import access_log, read_access_logs
from jaxperf.embedding.locality._log_content import unpacked
from jaxperf.errors import ConfigError, LogError

IDS = np.random.default_rng(0).integers(0, 30_000, 2_000)


def write(folder, content, name="log"):
    path = folder / name
    path.write_bytes(content)
    return path


def binary(kind: str, ids: np.typing.ArrayLike = IDS) -> bytes:
    return np.asarray(ids).astype(kind).tobytes()


KINDS = {"int32-be": ">i4", "int32-le": "<i4", "int64-be": ">i8", "int64-le": "<i8"}
FORMATS = {
    **{name: binary(kind) for name, kind in KINDS.items()},
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


@pytest.mark.parametrize("name", KINDS)
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


HOT = np.random.default_rng(4).zipf(1.3, 4_000) % 500
HASHES = np.random.default_rng(5).integers(0, 2**63 - 1, 500)
TOLD_IDS = {
    "rows": IDS,
    "few hot rows": HOT,
    "rows in order": np.arange(5_000),
    "rows in a loop": np.arange(5_000) % 100,
    "one row": np.full(200, 7),
    "mostly row 0": np.where(HOT > 3, 0, HOT),
    "rows of a large table": np.random.default_rng(6).integers(0, 1_900_000_000, 4_000),
}


@pytest.mark.parametrize("case", TOLD_IDS)
@pytest.mark.parametrize("written", KINDS)
def test_ids_of_rows_are_read_in_their_own_format_alone(tmp_path, case, written):
    path = write(tmp_path, binary(KINDS[written], TOLD_IDS[case]))
    for asked in KINDS:
        if asked == written:
            (log,) = read_access_logs(path, format=asked)
            assert (log.ids == TOLD_IDS[case]).all()
        else:
            with pytest.raises(LogError, match="wrong (width|byte order).* ask for " + written):
                read_access_logs(path, format=asked)


RNG = np.random.default_rng(7)
LEGITIMATE = {
    "hashes of 63 bits, none twice": (">i8", RNG.integers(0, 2**63 - 1, 4_000), ["hashed-ids"]),
    "hashes of 63 bits": ("<i8", HASHES[HOT], ["hashed-ids"]),
    "hashes of 64 bits": (">i8", RNG.integers(-(2**63), 2**63 - 1, 500)[HOT], ["hashed-ids"]),
    "hashes of 32 bits": ("<i4", RNG.integers(-(2**31), 2**31 - 1, 500)[HOT], ["hashed-ids"]),
    "a slot above a hash": (">i8", HOT % 20 + 1 << 48 | HASHES[HOT] >> 15, []),
    "a slot above a row": (">i8", RNG.integers(1, 20, 4_000) << 32 | HOT, []),
    "ids above 2^32": ("<i8", HASHES[HOT] >> 27, []),
    "bits packed from the top": (">i4", (RNG.integers(-16, 16, 4_000) << 27) | HOT, ["hashed-ids"]),
    "tables by turns": ("<i4", np.arange(4_000) % 26 * 100_000 + HOT, []),
    "two tables by turns": (
        *(">i4", np.where(np.arange(4_000) % 2, HOT % 8, HOT * 1_000 + 1)),
        ["log-format-doubtful"],
    ),
}


@pytest.mark.parametrize("case", LEGITIMATE)
def test_unusual_ids_are_read_as_asked(tmp_path, case):
    kind, ids, codes = LEGITIMATE[case]
    name = f"int{8 * int(kind[-1])}-{'be' if kind[0] == '>' else 'le'}"
    (log,) = read_access_logs(write(tmp_path, binary(kind, ids)), format=name)
    assert (log.ids == ids).all()
    assert [note.code for note in log.notes] == codes


RECORDED = {
    "scarab_recs": "int64-be",
    "cache2k_web07": "int32-be",
    "cache2k_web12": "int32-be",
    "cache2k_orm-night": "int32-be",
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_logs_are_read_as_the_manifest_says(shared, tmp_path, name):
    head = unpacked(shared / "dlrm" / "traces" / f"{name}.trace.xz", 1 << 19)
    path = write(tmp_path, head[: len(head) // 8 * 8])
    for asked in ("auto", RECORDED[name]):
        assert read_access_logs(path, format=asked)[0].format == RECORDED[name]
    for other in KINDS:
        if other[:5] != RECORDED[name][:5]:
            with pytest.raises(LogError, match=f"wrong width.* ask for {RECORDED[name][:5]}"):
                read_access_logs(path, format=other)


@pytest.mark.parametrize(
    "content, plain", [(b"10\n20\n30\n40\n", "text"), (b"PK\x03\x04" * 4, "npz")]
)
def test_text_and_archives_are_no_binaries(tmp_path, content, plain):
    with pytest.raises(LogError, match=f"got {plain}; expected int32-le; ask for {plain}"):
        read_access_logs(write(tmp_path, content), format="int32-le")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_in_any_way(tmp_path, end):
    (log,) = read_access_logs(write(tmp_path, end.join(["1", "2", "", "3"]).encode()))
    assert (log.ids.tolist(), log.offsets) == ([1, 2, 3], None)
    (log,) = read_access_logs(write(tmp_path, end.join(["1 2", "", "3", ""]).encode()))
    assert log.offsets is not None
    assert log.offsets.tolist() == [0, 2, 2, 3]


def test_an_id_may_be_as_large_as_its_type(tmp_path):
    most = 2**63 - 1
    (log,) = read_access_logs(write(tmp_path, f"{most}\n0\n{most}\n".encode()))
    assert log.ids.tolist() == [most, 0, most]


@pytest.mark.parametrize("kind", ["<u8", ">u8"])
def test_hashes_of_64_bits_may_be_unsigned_but_one_above_the_others_is_a_fault(kind):
    hashes = np.random.default_rng(8).integers(0, 2**64 - 1, 300, np.uint64)
    assert access_log(hashes.astype(kind)).distinct == 300
    with pytest.raises(LogError, match="access 2: negative id; got -1"):
        access_log(np.array([5, 3, 2**64 - 1], kind))


def test_hashes_below_0_are_no_rows_of_a_table():
    hashes = np.random.default_rng(8).integers(-(2**63), 2**63 - 1, 300)
    with pytest.raises(LogError, match="negative id"):
        access_log(hashes, rows=2**62)


def test_small_ids_and_large_ones_have_the_ranks_of_their_order():
    for ids in ([5, 0, 5, 3], [5 << 40, 0, 5 << 40, 3 << 40]):
        log = access_log(np.array(ids))
        assert (log.row.tolist(), log.row.dtype, log.distinct) == ([2, 0, 2, 1], np.int32, 3)


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


FBGEMM = {  # two tables of a batch of three, as its benchmark's requests
    "indices": [4, 4, 8, 0, 1, 1, 2],
    "offsets": [0, 2, 3, 3, 4, 5, 7],
}
SPLIT_BY = {
    "the batch": {"batch_size": 3},
    "the number of tables": {"num_tables": 2},
    "the rows of each": {"num_embeddings": [10, 3]},
    "all of them": {
        **{"batch_size": 3, "num_embeddings": [10, 3], "lengths": [[2, 1, 0], [1, 1, 2]]},
        **{"weights": np.ones(7)},
    },
}


@pytest.mark.parametrize("case", SPLIT_BY)
def test_offsets_of_tables_and_samples_divide_one_array(tmp_path, case):
    path = npz(tmp_path / "request.npz", **FBGEMM, **SPLIT_BY[case])
    first, second = read_access_logs(path)
    assert (first.table, second.table) == ("request_0", "request_1")
    assert (first.ids.tolist(), second.ids.tolist()) == ([4, 4, 8], [0, 1, 1, 2])
    assert first.offsets is not None and second.offsets is not None
    assert (first.offsets.tolist(), second.offsets.tolist()) == ([0, 2, 3, 3], [0, 1, 2, 4])
    rows = [10, 3] if "num_embeddings" in SPLIT_BY[case] else [None, None]
    assert [first.rows, second.rows] == rows


def test_keys_of_jagged_features_name_their_tables(tmp_path):
    path = npz(
        tmp_path / "batch.npz",
        keys=np.array(["user", "item"]),
        values=[7, 7, 1],
        lengths=[1, 1, 0, 1],
        num_embeddings=np.array(9),
    )
    user, item = read_access_logs(path)
    assert (user.table, user.ids.tolist(), user.rows) == ("user", [7, 7], 9)
    assert (item.table, item.ids.tolist(), item.bags) == ("item", [1], 2)


def test_arrays_of_ids_may_have_the_names_of_other_parts(tmp_path):
    logs = read_access_logs(npz(tmp_path / "t.npz", item_keys=[1, 2], weights=[3, 3]))
    assert [(log.table, log.ids.tolist()) for log in logs] == [
        ("item_keys", [1, 2]),
        ("weights", [3, 3]),
    ]


@pytest.mark.parametrize(
    "arrays, message",
    [
        ({**FBGEMM, "batch_size": 4}, "bags are no whole batches; got 6 bags"),
        ({**FBGEMM, "batch_size": 3, "num_tables": 3}, "got 3 by num_tables, 2 by batch_size"),
        ({**FBGEMM, "num_tables": 4}, "bags do not divide among tables; got 6 bags"),
        ({"indices": [1, 2], "rows": [5, 5]}, "got neither lengths nor offsets"),
        ({**FBGEMM, "weights": np.ones(3)}, "weights and ids do not agree; got 3 weights"),
        ({"ids": [1], "rows": [1.5]}, "no number of rows"),
        ({"ids": [1], "rows": 0}, "no number of rows"),
        ({"ids": [1], "values": [2]}, "two arrays of ids"),
        ({"ids": [1, 2, 3], "offsets": [0, 2]}, "append the end of the last bag"),
    ],
)
def test_what_divides_ids_must_agree(tmp_path, arrays, message):
    with pytest.raises(LogError) as caught:
        read_access_logs(npz(tmp_path / "t.npz", **arrays))
    assert message in str(caught.value)


def test_a_damaged_archive_is_refused(tmp_path):
    path = tmp_path / "t.npz"
    np.savez_compressed(path, ids=np.arange(5_000) % 77)
    content = bytearray(path.read_bytes())
    content[200:260] = bytes(60)
    with pytest.raises(LogError, match="a damaged one"):
        read_access_logs(write(tmp_path, bytes(content)))


BROKEN = {
    "underscore": (b"3\n1_0\n", "auto", "line 2: not an id; got '1_0'"),
    "two in one": (b"3 1\n1-2\n", "auto", "line 2: not an id; got '1-2'"),
    "no byte": (b"3\n1\x00\n", "text", "line 2: not an id"),
    "nothing told": (np.random.default_rng(9).bytes(800), "auto", "no log that can be told"),
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
    "cut gzip": (gzip.compress(FORMATS["text"], mtime=0)[:-20], "auto", "damaged compression"),
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
