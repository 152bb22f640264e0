"""A folder is a run: which files count, which rank is which, and reading in parallel."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxperf.errors import TraceError
from jaxperf.trace import Run, read_run
from jaxperf.trace._document import NotATrace
from jaxperf.trace._worker import _Child, read_in_parallel
from tests.trace.written import document, kernel

PLAIN = json.dumps({"traceEvents": [kernel("k", 1)]})


def ranked(rank, world_size=4):
    return document(
        [kernel(f"k{rank}", rank)], distributedInfo={"rank": rank, "world_size": world_size}
    )


def write(folder, **contents):
    for name, text in contents.items():
        (folder / name.replace("_json", ".json")).write_text(text)
    return folder


def ranks(run: Run):
    return [trace.rank for trace in run.traces]


def note_codes(run: Run):
    return [note.code for note in run.notes]


def test_a_folder_a_file_and_several_of_either(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    write(folder, a_json=ranked(0), b_json=ranked(3))
    write(tmp_path, c_json=ranked(1), d_json=ranked(2))
    assert ranks(read_run(folder)) == [0, 3]
    assert ranks(read_run(str(folder / "b.json"))) == [3]
    run = read_run([folder, tmp_path / "c.json", str(tmp_path / "d.json"), folder / "a.json"])
    assert ranks(run) == [0, 1, 2, 3]
    assert not run.notes


def test_ranks_that_are_not_there_are_noted(tmp_path):
    run = read_run(write(tmp_path, a_json=ranked(0), b_json=ranked(3)))
    assert note_codes(run) == ["ranks-missing"]
    assert "2 of the 4" in run.notes[0].text


def test_a_rank_inside_wins_over_the_name_also_between_files(tmp_path):
    run = read_run(write(tmp_path, rank1_json=ranked(0), rank0_json=ranked(1)))
    assert [(t.rank, Path(t.files[0]).name) for t in run.traces] == [
        (0, "rank1.json"),
        (1, "rank0.json"),
    ]


def test_of_two_captures_of_a_worker_the_newest_counts(tmp_path):
    for stamp in ("999", "1700000000000", "1700000005000"):
        (tmp_path / f"host.x_41.{stamp}.pt.trace.json").write_text(PLAIN)
    run = read_run(tmp_path)
    assert ranks(run) == [0]
    assert run.traces[0].files[0].endswith("1700000005000.pt.trace.json")
    assert note_codes(run) == ["older-capture", "older-capture"]
    (tmp_path / "host.y_42.1700000005000.pt.trace.json").write_text(PLAIN)
    with pytest.raises(TraceError, match="two files of rank 0"):
        read_run(tmp_path)


def test_two_captures_with_different_ranks_are_two_ranks(tmp_path):
    (tmp_path / "w.1.pt.trace.json").write_text(ranked(0, 2))
    (tmp_path / "w.2.pt.trace.json").write_text(ranked(1, 2))
    assert ranks(read_run(tmp_path)) == [0, 1]


def test_a_given_rank_replaces_what_was_found(tmp_path):
    write(tmp_path, rank5_json=PLAIN, b_json=ranked(1))
    run = read_run(tmp_path, ranks={0: tmp_path / "rank5.json"})
    assert ranks(run) == [0, 1]
    assert not run.traces[0].notes


def test_only_files_of_the_folder_itself_are_read(tmp_path):
    (tmp_path / "inner").mkdir()
    write(tmp_path / "inner", a_json=ranked(1))
    with pytest.raises(TraceError, match="no trace in it, but in its sub-folders.*inner"):
        read_run(tmp_path)
    write(tmp_path, b_json=ranked(0))
    assert ranks(read_run(tmp_path)) == [0]


def test_a_folder_without_any_trace_says_what_it_holds(tmp_path):
    with pytest.raises(TraceError, match="no trace found; got nothing"):
        read_run(tmp_path)
    write(tmp_path, loss_json='{"loss": 1}')
    (tmp_path / "plot.png").write_bytes(b"\x89PNG\0")
    with pytest.raises(TraceError, match=r"loss.json \(JSON without traceEvents\), plot.png"):
        read_run(tmp_path)
    with pytest.raises(TraceError, match="no trace found"):
        read_run([])


def test_a_stranger_is_set_aside_in_a_folder_and_refused_by_name(tmp_path):
    write(tmp_path, a_json=ranked(0, 1), loss_json='{"loss": 1}')
    run = read_run(tmp_path)
    assert [(Path(a.file).name, a.reason) for a in run.set_aside] == [
        ("loss.json", "JSON without traceEvents")
    ]
    with pytest.raises(NotATrace, match="JSON without traceEvents"):
        read_run(
            [tmp_path, tmp_path.parent / tmp_path.name / "loss.json", tmp_path / "b.json"][1:2]
        )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_of_the_folder_that_may_not_be_read_is_an_error(tmp_path):
    write(tmp_path, a_json=ranked(0), b_json=ranked(1))
    (tmp_path / "b.json").chmod(0)
    with pytest.raises(TraceError, match="cannot be read"):
        read_run(tmp_path)


def test_parallel_reading_gives_the_same_run(tmp_path):
    write(tmp_path, a_json=ranked(0), b_json=ranked(1), c_json=ranked(3), loss_json="{}")
    alone, together = read_run(tmp_path, workers=1), read_run(tmp_path, workers=2)
    assert ranks(alone) == ranks(together) == [0, 1, 3]
    assert alone.set_aside == together.set_aside
    for one, other in zip(alone.traces, together.traces, strict=True):
        assert (one.names, one.lanes, one.origin_ns) == (other.names, other.lanes, other.origin_ns)
        assert np.array_equal(one.start_ns, other.start_ns)


def test_errors_come_back_from_the_processes(tmp_path):
    write(tmp_path, a_json=ranked(0), b_json="{}")
    with pytest.raises(TraceError, match="no such file"):
        read_run([tmp_path / "a.json", tmp_path / "absent.json"], workers=2)
    with pytest.raises(NotATrace, match="without traceEvents"):
        read_run([tmp_path / "a.json", tmp_path / "b.json"], workers=2)


def test_a_process_that_dies_is_an_error_that_names_the_file(tmp_path, monkeypatch):
    write(tmp_path, a_json=ranked(0), b_json=ranked(1))
    read = _Child.read

    def read_and_die(self, path):
        if path.name == "b.json":
            self.kill()
        return read(self, path)

    monkeypatch.setattr(_Child, "read", read_and_die)
    with pytest.raises(TraceError, match=r"b\.json: the process.*signal 9.*workers=1"):
        read_in_parallel([tmp_path / "a.json", tmp_path / "b.json"], 2)


@pytest.mark.parametrize("start", ["stdin", "-c", "script", "after jax"])
def test_parallel_reading_works_however_python_was_started(tmp_path, start):
    write(tmp_path, a_json=ranked(0), b_json=ranked(1))
    program = f"""
{"import jax; jax.numpy.zeros(2).block_until_ready()" if start == "after jax" else ""}
from jaxperf.trace import read_run
print([trace.rank for trace in read_run({str(tmp_path)!r}, workers=2).traces])
"""
    script = tmp_path / "script.txt"
    script.write_text(program)
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, *{"stdin": ["-"], "script": [str(script)]}.get(start, ["-c", program])],
        input=program if start == "stdin" else None,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "[0, 1]\n", done.stderr


def test_a_file_too_large_for_the_memory_is_one_line(tmp_path):
    events = ",\n".join(json.dumps(kernel(f"k{index}", index)) for index in range(2000))
    with open(tmp_path / "large.json", "w") as file:
        file.write('{"traceEvents": [' + ",\n".join([events] * 200) + "]}")
    program = f"""
import resource
from jaxperf.trace import read_file
from jaxperf.errors import TraceError
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (24 << 20),) * 2)
try:
    read_file({str(tmp_path / "large.json")!r})
except TraceError as error:
    print(error)
"""
    if sys.platform != "linux":
        pytest.skip("only Linux limits address space")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "large.json: not enough memory" in done.stdout, done.stderr
    assert done.stdout.count("\n") == 1
