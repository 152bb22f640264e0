"""What a search keeps in a folder; no point is evaluated here."""

from collections import Counter
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from jaxperf.config import Job, SearchSpace, load_hardware, set_hardware
from jaxperf.errors import ConfigError, OutputError
from jaxperf.search._archive import Archive
from jaxperf.search._parts import Outcome, parts_of
from jaxperf.search._problem import pose
from jaxperf.search._processes import merge
from jaxperf.search._saved import open_folder
from jaxperf.search._tally import Tally

JOB = Job(layers=2, hidden_size=256, attention_heads=4, vocabulary_size=512, sequence_length=256)
SPACE = SearchSpace(
    "small",
    {"tensor_parallel": (1, 2), "micro_batch_size": (1, 2, 4, 8)},
    objectives=("step_us", "tokens_per_s_per_gpu"),
)
HARD_TO_WRITE = [[0.1 + 0.2, -0.0], [5e-324, -1.7976931348623157e308], [1 / 3, -np.pi * 1e22]]


@pytest.fixture(scope="module")
def parts():
    return parts_of(pose(JOB, load_hardware("h100"), SPACE), "exhaustive", 3)


def outcome(chunk, points=3):
    archive = Archive(np.array([7, 2, 5]) + chunk, np.array(HARD_TO_WRITE) + chunk * 0.0)
    tally = Tally(points, Counter({"a rule": 1}), Counter(), Counter(work=1), points - 2)
    return Outcome(chunk, archive, tally)


def filled(folder, parts, chunks=(0, 1, 2), shards=1):
    found = open_folder(folder, parts)
    for chunk in chunks:
        found.save(outcome(chunk, parts.points(chunk)), shards)
    return found


def test_what_is_kept_comes_back_to_the_bit(tmp_path, parts):
    filled(tmp_path, parts)
    for chunk in range(parts.count):
        kept, saved = (
            open_folder(tmp_path, parts).chunk(chunk),
            outcome(chunk, parts.points(chunk)),
        )
        assert kept is not None
        assert kept.archive.index.tolist() == saved.archive.index.tolist()
        assert kept.archive.cost.tobytes() == saved.archive.cost.tobytes()
        assert kept.tally == saved.tally


def test_what_is_not_settled_is_not_there(tmp_path, parts):
    assert filled(tmp_path, parts, [1]).chunk(0) is None


def test_half_a_file_that_a_kill_left_behind_does_no_harm(tmp_path, parts):
    folder = filled(tmp_path, parts, [1])
    (tmp_path / ".tmpabc").write_text('{"sha256":')
    assert folder.chunk(0) is None
    assert folder.chunk(1) is not None


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("0.3333333333333333", "0.3333333333333334"),
        lambda text: "",
    ],
)
def test_a_damaged_file_is_named(tmp_path, parts, damage):
    folder = filled(tmp_path, parts)
    file = tmp_path / "chunk-00000001.json"
    file.write_text(damage(file.read_text()))
    with pytest.raises(ConfigError, match=r"chunk-00000001\.json: is damaged; remove it"):
        folder.chunk(1)
    with pytest.raises(ConfigError, match=r"chunk-00000001\.json"):
        merge(parts, folder)


def test_a_merge_says_which_chunks_are_missing_and_of_which_shards(tmp_path, parts):
    folder = filled(tmp_path, parts, [1], shards=3)
    with pytest.raises(ConfigError, match=r"got 1 of 3 chunks; .*0, 2 of shard 0/3, 2/3"):
        merge(parts, folder)
    folder.save(outcome(0), 3)
    folder.save(outcome(2, 2), 3)
    _, tally = merge(parts, folder)
    assert tally.complete
    assert tally.refused == {"a rule": 3}


def other_problems(problem):
    axes = {key: SPACE.axes[key] for key in reversed(list(SPACE.axes))}
    hardware = set_hardware(load_hardware("h100"), {"memory_bytes_per_s": 1e12})
    return {
        "job": replace(problem, job=msgspec.structs.replace(JOB, layers=4)),
        "space": replace(problem, space=replace(SPACE, axes=axes)),
        "machines": pose(JOB, hardware, SPACE),
    }


@pytest.mark.parametrize("what", ["job", "space", "machines"])
def test_a_folder_of_another_search_is_refused(tmp_path, parts, what):
    filled(tmp_path, parts)
    other = replace(parts, problem=other_problems(parts.problem)[what])
    with pytest.raises(ConfigError, match=f"another search; got another value of {what};"):
        open_folder(tmp_path, other)


def test_so_is_one_of_other_chunks(tmp_path, parts):
    filled(tmp_path, parts)
    with pytest.raises(ConfigError, match="another value of chunk_points"):
        open_folder(tmp_path, replace(parts, chunk_points=4))


def test_a_file_from_the_folder_of_another_search_is_refused(tmp_path, parts):
    filled(tmp_path / "one", parts)
    other = replace(parts, problem=other_problems(parts.problem)["job"])
    folder = open_folder(tmp_path / "two", other)
    (tmp_path / "one/chunk-00000001.json").rename(tmp_path / "two/chunk-00000001.json")
    with pytest.raises(ConfigError, match=r"chunk-00000001\.json: is of another search"):
        folder.chunk(1)


def test_where_no_folder_can_be_is_an_error(tmp_path, parts):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be made"):
        open_folder(tmp_path / "file/folder", parts)


def test_the_same_search_posed_again_has_the_same_folder(tmp_path, parts):
    filled(tmp_path, parts)
    again = parts_of(pose(JOB, load_hardware("h100"), SPACE), "exhaustive", 3)
    assert merge(again, open_folder(tmp_path, again))[1].complete
