"""What scripts rely on: exit codes, one line of complaint, one object on standard output."""

import gzip
import json
import re
import subprocess
import sys

import pytest

import jaxperf
from jaxperf.cli import main
from jaxperf.errors import TraceError


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "jaxperf", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


@pytest.fixture
def replay_that_raises(monkeypatch):
    def arrange(error):
        def replay(*arguments, **options):
            raise error

        monkeypatch.setattr(jaxperf, "replay", replay)

    return arrange


def test_help_names_every_verb_and_succeeds(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(verb in text for verb in ("demo", "inspect", "replay"))


def test_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"jaxperf {jaxperf.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["repaly", "x.json"],
        ["replay"],
        ["replay", "x.json", "--baseline", "lumos"],
        ["inspect", "x.json", "--nonsense"],
    ],
)
def test_a_mistyped_command_ends_in_one_line_and_exit_2(arguments, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "--help" in captured.err


def test_an_error_the_user_can_mend_is_one_line_without_traceback(replay_that_raises, capsys):
    replay_that_raises(TraceError("no events\nat all", where="a\nb.json"))
    assert main(["replay", "a.json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "jaxperf: a\\nb.json: no events\\nat all\n"


def test_too_little_memory_is_not_called_a_bug(replay_that_raises, capsys):
    replay_that_raises(MemoryError())
    assert main(["replay", "a.json"]) == 2
    assert capsys.readouterr().err.startswith("jaxperf: not enough memory")


def test_a_bug_shows_its_traceback_and_ends_in_exit_1(replay_that_raises, capsys):
    replay_that_raises(ZeroDivisionError("here"))
    assert main(["replay", "a.json"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "ZeroDivisionError: here" in captured.err
    assert captured.err.endswith("this is a bug; please report it with the lines above\n")


def test_an_interrupt_ends_as_shells_expect(replay_that_raises, capsys):
    replay_that_raises(KeyboardInterrupt())
    assert main(["replay", "a.json"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_missing_file_ends_in_one_line_and_exit_2(tmp_path):
    result = run("inspect", tmp_path / "absent.json")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "absent.json" in result.stderr


def refused(capsys, *arguments):
    """The complaint about outputs, before any file is read."""
    assert main(["replay", "absent.json", *map(str, arguments)]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "absent.json" not in line
    return line


@pytest.mark.parametrize("option", ["--report", "--trace-out"])
def test_an_existing_file_is_refused_before_the_work_unless_asked(option, tmp_path, capsys):
    existing = tmp_path / "result"
    existing.write_text("precious")
    line = refused(capsys, option, existing)
    assert str(existing) in line
    assert "overwrite" in line
    assert (
        main(["replay", str(tmp_path / "absent.json"), option, str(existing), "--overwrite"]) == 2
    )
    assert "absent.json" in capsys.readouterr().err
    assert existing.read_text() == "precious"


def test_a_place_that_cannot_hold_a_result_is_refused_before_the_work(tmp_path, capsys):
    assert "is a folder" in refused(capsys, "--report", tmp_path)
    assert "does not exist" in refused(capsys, "--report", tmp_path / "absent" / "report.html")


def test_two_results_never_share_a_file(tmp_path, capsys):
    path = tmp_path / "both"
    assert "two results" in refused(capsys, "--report", path, "--trace-out", path)


def test_an_input_is_never_written_over(tmp_path, capsys):
    trace = tmp_path / "trace.json"
    trace.write_text("{}")
    assert main(["replay", str(trace), "--trace-out", str(trace), "--overwrite"]) == 2
    assert "also an input" in capsys.readouterr().err
    assert trace.read_text() == "{}"


@pytest.mark.parametrize("arguments", [["--help"], ["replay", "--help"], ["--version"]])
def test_help_imports_nothing_that_computes_or_paints(arguments):
    program = (
        "import sys; from jaxperf.cli import main; code = main(sys.argv[1:]);"
        "slow = {'jax', 'jaxlib', 'scipy', 'optax', 'rich', 'multiprocessing'} & set(sys.modules);"
        "sys.exit(f'imported {slow}' if slow else code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr


def test_json_is_one_object_and_progress_is_silent_without_a_terminal(traces):
    result = run("inspect", traces, "--json")
    assert result.returncode == 0, result.stderr
    assert set(json.loads(result.stdout)) == {
        "ranks",
        "tasks",
        "dependencies",
        "set_aside",
        "notes",
    }
    assert result.stderr == ""


PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20


def truncated_gzip() -> bytes:
    return gzip.compress(b'{"traceEvents": [')[:12]


@pytest.mark.parametrize(
    "content",
    [b"", b"   \n", PICTURE, truncated_gzip(), b"{}", b"[]", b'"text"', b"not json", b"\x00" * 64],
    ids=["empty", "blank", "picture", "cut-gzip", "object", "list", "string", "prose", "zeros"],
)
@pytest.mark.parametrize("verb", ["inspect", "replay"])
def test_a_file_that_is_no_trace_ends_in_one_line_and_exit_2(verb, content, tmp_path, capsys):
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    assert main([verb, str(path), "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith(f"jaxperf: {path}: ")


@pytest.mark.parametrize("verb", ["inspect", "replay"])
def test_a_folder_without_a_trace_ends_in_one_line_and_exit_2(verb, tmp_path, capsys):
    (tmp_path / "photo.json").write_bytes(PICTURE)
    assert main([verb, str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "photo.json" in captured.err


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["whatif", "x.json", *["--scale", "gemm=0.5"] * 2], "--scale gemm: given twice"),
        (["whatif", "x.json", *["--set", "l2_bytes=1e6"] * 2], "--set l2_bytes: given twice"),
        (["whatif", "x.json", "--scale", "gemm=half"], "expected SELECTOR=FACTOR"),
        (["whatif", "x.json", "--set", "l2_bytes"], "expected KEY=VALUE"),
        (["whatif", "x.json", "--samples", "few"], "invalid int value"),
        (["whatif", "x.json", "--scenarios", "absent.toml"], "absent.toml: cannot be read"),
        (["compare", "x.json"], "required: B"),
        (["compare", "absent", "absent"], "absent: no such file"),
        (["critical-path"], "required: PATH"),
        (["critical-path", "absent"], "absent: no such file"),
        (["calibrate", "absent", "--hold-out", "all"], "invalid choice: 'all'"),
        (["calibrate", "absent"], "absent: no such file"),
        (["calibrate", "absent", "--output", "none/fit.toml"], "its folder does not exist"),
    ],
)
def test_a_verb_that_cannot_begin_says_so_in_one_line(arguments, complaint, capsys):
    assert_refused(arguments, complaint, capsys)


@pytest.mark.parametrize(
    "verb, arguments, complaint",
    [
        ("whatif", [], "nothing is asked"),
        ("whatif", ["--scale", "gem=0.5"], "scale gem: unknown selector.*gemm"),
        ("whatif", ["--scale", "gemm=0.5", "--fit", "absent.toml"], "absent.toml: cannot be read"),
        ("whatif", ["--scale", "gemm=0.5", "--hardware", "h101"], "no such hardware"),
        ("whatif", ["--scale", "gemm=0.5", "--samples", "3"], "too few samples"),
        ("whatif", ["--set", "l2_bytes=1e6"], "recorded machine is not known"),
        ("critical-path", ["--step", "99"], "no such step; got 99"),
        ("calibrate", ["--hardware", "h101"], "no such hardware"),
        ("calibrate", ["--hardware", "h100", "--leaf", "nothing"], "matches no number"),
        ("calibrate", ["--hardware", "h100", "--hold-out", "trace"], "one run cannot be held out"),
    ],
)
def test_a_question_that_a_run_cannot_answer_is_refused_in_one_line(
    traces, verb, arguments, complaint, capsys
):
    assert_refused([verb, traces, *arguments], complaint, capsys)


@pytest.mark.parametrize("verb", ["whatif", "critical-path", "calibrate", "compare"])
def test_every_verb_refuses_a_file_that_is_no_trace(verb, traces, tmp_path, capsys):
    path = tmp_path / "trace.json"
    path.write_bytes(PICTURE)
    further = {"whatif": ["--scale", "gemm=0.5"], "compare": [traces]}.get(verb, [])
    assert_refused([verb, path, *further], "trace.json: ", capsys)


def assert_refused(arguments, complaint, capsys):
    assert main([*map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert re.search(complaint, captured.err), captured.err
