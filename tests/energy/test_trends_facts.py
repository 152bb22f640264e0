"""The table of published results: what is read, and what is refused with its line."""

import gzip
import lzma

import pytest

from jaxperf.energy.published import read_facts
from jaxperf.errors import LogError

HEAD = (
    "round,scale,public_id,org,system,accelerator,total_accelerators,model,scenario,metric,unit,"
    "value\n"
)
ROW = "v4.1,datacenter,1,A,S,G,8,ResNet,Offline,throughput,samples/s,1000\n"


def written(tmp_path, text, name="facts.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_the_shared_table_has_all_its_rows(shared):
    facts = read_facts(shared / "power" / "tables" / "mlperf_published_power_facts.csv")
    assert facts.rows == 3234
    assert facts.line[0] == 2
    assert facts.line[-1] == 3235
    assert [note.code for note in facts.notes] == ["repeated-facts"]


@pytest.mark.parametrize("pack", [lzma.compress, gzip.compress])
def test_compression_is_told_by_content(tmp_path, pack):
    facts = read_facts(written(tmp_path, pack((HEAD + ROW).encode())))
    assert facts.value.tolist() == [1000.0]
    assert facts.unit.tolist() == ["samples/s"]


def test_columns_may_stand_in_any_order(tmp_path):
    names = HEAD.strip().split(",")[::-1]
    values = ROW.strip().split(",")[::-1]
    facts = read_facts(written(tmp_path, ",".join(names) + "\n" + ",".join(values) + "\n"))
    assert (facts.model[0], facts.value[0], facts.total_accelerators[0]) == ("ResNet", 1000.0, 8.0)


def test_a_number_of_accelerators_that_is_not_told_is_missing(tmp_path):
    facts = read_facts(written(tmp_path, HEAD + ROW.replace(",8,", ",,")))
    assert facts.total_accelerators[0] != facts.total_accelerators[0]


@pytest.mark.parametrize(
    "before, after, says",
    [
        ("samples/s", "W", "wrong unit of throughput"),
        ("1000", "fast", "no positive number in value"),
        ("1000", "nan", "no positive number in value"),
        ("1000", "0", "no positive number in value"),
        ("1000", "-1", "no positive number in value"),
        (",8,", ",many,", "no positive number in total_accelerators"),
        ("datacenter", "moon", "unknown scale"),
        ("Offline", "Sideways", "unknown scenario"),
        ("throughput", "speed", "unknown metric"),
        ("v4.1", "soon", "not a round"),
        (",1000", "", "wrong number of fields"),
        ("throughput,samples/s", "energy_per_stream,J", "outside a scenario of streams"),
    ],
)
def test_a_wrong_row_is_named_by_file_and_line(tmp_path, before, after, says):
    path = written(tmp_path, HEAD + ROW + ROW.replace(before, after, 1))
    with pytest.raises(LogError, match=says) as error:
        read_facts(path)
    assert error.value.where == f"{path}, line 3"


@pytest.mark.parametrize(
    "text, says",
    [
        (HEAD.replace("unit,", ""), "missing columns.*unit"),
        (HEAD.replace("org,", "org,org,"), "a column stands twice.*org"),
        ("", "missing columns"),
        (HEAD, "no rows"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (lzma.compress((HEAD + ROW).encode())[:-20], "damaged compression"),
        (gzip.compress((HEAD + ROW).encode(), mtime=0)[:-20], "damaged compression"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, text, says):
    path = written(tmp_path, text)
    with pytest.raises(LogError, match=says) as error:
        read_facts(path)
    assert str(path) in str(error.value)


def test_a_file_that_is_absent_is_refused(tmp_path):
    with pytest.raises(LogError, match="cannot be read"):
        read_facts(tmp_path / "absent.csv")
