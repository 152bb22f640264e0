import os

import pytest

from jaxperf._files import check_new_file, new_file
from jaxperf.errors import OutputError


def test_a_file_appears_whole(tmp_path):
    path = tmp_path / "result"
    with new_file(path) as file:
        file.write(b"half, ")
        assert not path.exists()
        file.write(b"and half")
    assert path.read_bytes() == b"half, and half"
    assert os.listdir(tmp_path) == ["result"]


def test_a_crash_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), new_file(tmp_path / "result") as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_a_crash_leaves_the_file_that_was_to_be_replaced(tmp_path):
    path = tmp_path / "result"
    path.write_text("old")
    with pytest.raises(RuntimeError), new_file(path, overwrite=True) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_text() == "old"


def test_nothing_is_written_over_unless_asked(tmp_path):
    path = tmp_path / "result"
    path.write_text("old")
    with pytest.raises(OutputError, match="exists already"):
        with new_file(path):
            pass
    with new_file(path, overwrite=True) as file:
        file.write(b"new")
    assert path.read_text() == "new"


def test_a_place_that_cannot_be_is_refused_before_the_work(tmp_path):
    with pytest.raises(OutputError, match="create .*nowhere first"):
        check_new_file(tmp_path / "nowhere" / "result")
    with pytest.raises(OutputError, match="is a folder"):
        check_new_file(tmp_path)


def test_a_full_disk_is_the_users_to_mend(tmp_path):
    with pytest.raises(OutputError, match="No space left"), new_file(tmp_path / "result"):
        raise OSError(28, "No space left on device")
    assert os.listdir(tmp_path) == []


def test_a_result_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "any").write_text("")
    with new_file(tmp_path / "result"):
        pass
    assert (tmp_path / "result").stat().st_mode == (tmp_path / "any").stat().st_mode
