"""What a disk, a terminal, a signal or a stranger's file can do to a command: never a traceback."""

import argparse
import errno
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import jaxperf.cli._results as results
from jaxperf._files import check_new_file, new_file
from jaxperf.cli import main
from jaxperf.cli._compiled import keep_compiled
from jaxperf.cli._streams import one_line, write_stdout
from jaxperf.errors import OutputError
from jaxperf.trace._worker import _CHILD

COMMAND = [sys.executable, "-m", "jaxperf"]


def program(text, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", text, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


def refused(arguments, capsys):
    """The one line of a command that ends in exit 2."""
    assert main([*map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


# Files
# ---------------------------------------------------------------------------------------


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "result"
    path.write_text("old")
    return path


def test_a_name_as_long_as_any_can_be_written(tmp_path):
    path = tmp_path / ("n" * 255)
    with new_file(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


def test_a_name_that_is_too_long_is_refused_before_the_work(tmp_path):
    with pytest.raises(OutputError, match="File name too long"):
        check_new_file(tmp_path / ("n" * 256))


def test_a_name_of_bytes_that_are_no_text_can_be_written(tmp_path):
    path = tmp_path / os.fsdecode(b"\xff\n\"'")
    with new_file(path) as file:
        file.write(b"new")
    assert os.listdir(os.fsencode(tmp_path)) == [b"\xff\n\"'"]


def test_a_device_or_a_pipe_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "socket"))
    for path in (tmp_path / "pipe", tmp_path / "socket", os.devnull):
        with pytest.raises(OutputError, match="is a device or a pipe"):
            check_new_file(path, overwrite=True)


def test_a_link_stays_and_what_it_points_to_is_written(tmp_path, old):
    link, far = tmp_path / "link", tmp_path / "far"
    link.symlink_to(old)
    with new_file(link, overwrite=True) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert old.read_text() == "new"
    far.mkdir()
    (tmp_path / "dangling").symlink_to(far / "result")
    with new_file(tmp_path / "dangling") as file:
        file.write(b"new")
    assert (far / "result").read_text() == "new"
    assert os.listdir(far) == ["result"]


def test_a_link_to_nowhere_is_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "lost").symlink_to(tmp_path / "absent" / "file")
    assert "symbolic links" in refused(["replay", "x", "--report", tmp_path / "loop"], capsys)
    assert "symbolic links" in refused(["inspect", tmp_path / "loop"], capsys)
    assert "folder does not" in refused(["replay", "x", "--report", tmp_path / "lost"], capsys)


def test_a_place_below_a_file_or_in_a_folder_without_leave_is_refused(old, monkeypatch):
    with pytest.raises(OutputError, match="its folder does not exist"):
        check_new_file(old / "below")
    monkeypatch.setattr(os, "access", lambda *_: False)  # as on a disk that is only read
    with pytest.raises(OutputError, match="takes no files"):
        check_new_file(old, overwrite=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(OutputError, match="takes no files"):
        check_new_file(tmp_path / "result")


def test_what_another_writes_meanwhile_is_not_written_over(tmp_path):
    path = tmp_path / "result"
    with pytest.raises(OutputError, match="exists already"), new_file(path) as file:
        file.write(b"ours")
        path.write_text("theirs")
    assert path.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["result"]


def test_a_folder_that_vanishes_is_the_users_to_mend(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(OutputError, match="folder does not exist"), new_file(folder / "x") as file:
        next(folder.iterdir()).unlink()
        folder.rmdir()
        file.write(b"lost")
    assert not folder.exists()


def test_a_file_that_is_replaced_hands_its_permissions_on(old):
    old.chmod(0o600)
    with new_file(old, overwrite=True) as file:
        file.write(b"new")
    assert old.stat().st_mode & 0o777 == 0o600


WRITE = """
import os, resource, signal, sys
from jaxperf._files import new_file
from jaxperf.errors import OutputError
def full():
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
def killed():
    os.kill(os.getpid(), signal.SIGKILL)
try:
    with new_file(sys.argv[2], overwrite=True) as file:
        file.write(b"half")
        file.flush()
        globals()[sys.argv[1]]()
        file.write(b"n" * 100_000)
except OutputError as error:
    sys.exit(str(error))
"""


def test_a_disk_that_is_full_leaves_the_old_file_and_no_other(old):
    result = program(WRITE, "full", old)
    assert result.returncode == 1
    assert "cannot be written; got File too large" in result.stderr
    assert old.read_text() == "old"
    assert os.listdir(old.parent) == ["result"]


def test_a_process_that_is_killed_leaves_the_old_file_and_at_most_a_hidden_one(old):
    assert program(WRITE, "killed", old).returncode == -signal.SIGKILL
    assert old.read_text() == "old"
    assert [name for name in os.listdir(old.parent) if name[0] != "."] == ["result"]


# What a verb hands over
# ---------------------------------------------------------------------------------------


ASKED = argparse.Namespace(json=True, quiet=False, overwrite=False)


def write_result(result, path, overwrite):
    with new_file(path, overwrite) as file:
        file.write(json.dumps(result).encode())


def test_files_are_whole_before_a_reader_can_leave(tmp_path, monkeypatch):
    def leave(text):
        raise BrokenPipeError

    monkeypatch.setattr(results, "write_stdout", leave)
    path = tmp_path / "fit"
    with pytest.raises(BrokenPipeError):
        results.print_result(ASKED, {"a": 1}, dict, None, (write_result, path))
    assert path.read_text() == '{"a": 1}'


def test_a_file_that_cannot_be_written_costs_neither_the_others_nor_the_result(tmp_path, capsys):
    files = [(write_result, tmp_path / name) for name in ("absent/first", "second")]
    with pytest.raises(OutputError, match="absent/first: its folder does not exist"):
        results.print_result(ASKED, {"a": 1}, dict, None, *files)
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"a": 1}
    assert captured.err == f"Wrote {tmp_path}/second\n"
    assert (tmp_path / "second").exists()


def test_no_input_of_any_verb_is_written_over(tmp_path, capsys):
    job = tmp_path / "job.toml"
    job.write_text("precious")
    line = refused(["estimate", job, "--report", job, "--overwrite"], capsys)
    assert "also an input" in line
    assert job.read_text() == "precious"


# Standard output and error
# ---------------------------------------------------------------------------------------


def test_a_closed_pipe_ends_quietly_and_the_file_is_there(traces, tmp_path, monkeypatch, capsys):
    reads, writes = os.pipe()
    os.close(reads)
    path = tmp_path / "page.html"
    with os.fdopen(writes, "w") as closed, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", closed)
        assert main(["replay", str(traces), "--quiet", "--report", str(path)]) == 141
    assert capsys.readouterr().err == ""
    assert path.read_bytes().endswith(b"</html>\n")


needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")


@needs_full
@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["inspect"]])
def test_standard_output_that_is_full_ends_in_one_line_and_exit_2(
    arguments, traces, monkeypatch, capsys
):
    paths = [str(traces)] * (arguments == ["inspect"])
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert main([*arguments, *paths]) == 2
    line = "jaxperf: standard output: cannot be written; got No space left on device\n"
    assert capsys.readouterr().err == line


@needs_full
def test_the_interpreter_adds_nothing_at_its_end_to_what_was_said(traces):
    with open("/dev/full", "wb") as full:
        command = [*COMMAND, "inspect", traces]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert (result.returncode, result.stderr.count(b"\n")) == (2, 1)


def test_closed_streams_end_in_exit_2(capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert main(["--version"]) == 2
        assert "standard output: is closed" in capsys.readouterr().err
        patch.setattr(sys, "stderr", None)
        assert main(["--version"]) == 2
        sys.stderr.close()


def test_nobody_to_complain_to_is_no_bug(monkeypatch):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(sys, "stderr", Full())
    assert main(["inspect", "absent.json"]) == 2


@pytest.mark.parametrize(
    "encoding, text",
    [
        ("ascii", "12 us ### \\udcff \\u5b57"),
        ("latin-1", "12 us ### \\udcff \\u5b57"),
        ("utf-8", "12 µs ██▌ \\udcff 字"),
    ],
)
def test_an_encoding_that_lacks_characters_is_no_fault(encoding, text, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        write_stdout("12 µs ██▌ \udcff 字")
    assert stream.detach().getvalue().decode(encoding) == text


def test_a_message_shows_what_would_steer_a_terminal():
    assert one_line("a\x1b[2J\nb\u202ec\udcff µ") == "a\\x1b[2J b\\u202ec\\udcff µ"


def test_names_in_messages_do_not_reach_the_terminal_raw(tmp_path, capsys):
    name = "\x1b]0;title\x07\n[bold]\u202e"
    line = refused(["inspect", tmp_path / name], capsys)
    assert line[:-1].isprintable()
    assert refused([f"\x1b[31m{name}"], capsys)[:-1].isprintable()
    assert refused(["inspect", "x", f"--{name}"], capsys)[:-1].isprintable()


# Reading
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        "inspect {}",
        "replay {}",
        "compare x {}",
        "whatif x --scenarios {}",
        "calibrate {}",
        "estimate {}",
        "estimate x --fit {}",
        "energy score {}",
        "energy calibrate x --readings {}",
        "energy trends {}",
        "embedding profile {}",
        "embedding plan {}",
        "search {}",
        "search x --trace {}",
    ],
)
def test_what_reading_could_wait_for_without_end_is_refused(arguments, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    line = refused([*arguments.format(tmp_path / "pipe").split()], capsys)
    assert "pipe: is a device or a pipe" in line


def test_a_folder_with_a_link_to_nothing_and_a_pipe_is_read(traces, tmp_path, capsys):
    for path in traces.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "dangling").symlink_to("absent")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / os.fsdecode(b"\xff\n.txt")).write_text("no trace")
    assert main(["inspect", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1]
    lost = [each["file"] for each in found["set_aside"] if "leads nowhere" in each["reason"]]
    assert [Path(file).name for file in lost] == ["dangling", "loop"]


@pytest.mark.parametrize(
    "fault",
    [
        FileNotFoundError(errno.ENOENT, "No such file or directory", "a\x1bb"),
        PermissionError(errno.EACCES, "Permission denied", "a\x1bb"),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.EIO, "Input/output error"),
    ],
)
def test_what_the_system_refuses_is_not_called_a_bug(fault, monkeypatch, capsys):
    def inspect(*arguments, **options):
        raise fault

    monkeypatch.setattr("jaxperf.inspection.inspect", inspect)
    assert fault.strerror in refused(["inspect", "x"], capsys)


# Signals and surroundings
# ---------------------------------------------------------------------------------------


LONG = """
import signal, sys, time, jaxperf.inspection
for number in (signal.SIGTERM, signal.SIGHUP):  # whoever runs the tests may have them ignored
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
from jaxperf._files import new_file
def wait(paths, **options):
    with new_file(sys.argv[1]) as file:
        file.write(b"half")
        print("ready", file=sys.stderr, flush=True)
        time.sleep(60)
jaxperf.inspection.inspect = wait
from jaxperf.cli import main
sys.exit(main(["inspect", "x"]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_verb_without_a_trace_or_half_a_file(number, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", LONG, tmp_path / "result"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == b"ready\n"
    process.send_signal(number)
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == 128 + number
    assert os.listdir(tmp_path) == []


def test_handlers_of_a_caller_stay_as_they_were(capsys):
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]
    codes = [main(["--version"])]
    thread = threading.Thread(target=lambda: codes.append(main(["--version"])))
    thread.start()
    thread.join()
    assert codes == [0, 0]
    assert before == [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]


def test_a_reader_whose_parent_is_gone_ends_without_a_word(traces):
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdin and child.stdout and child.stderr
    child.stdout.close()
    child.stdin.write(json.dumps(str(next(traces.iterdir()))).encode() + b"\n")
    child.stdin.close()
    assert child.stderr.read() == b""
    assert child.wait(60) == -signal.SIGPIPE
    child.stderr.close()


def test_a_user_without_a_home_has_no_cache_and_no_fault(monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delitem(sys.modules, "jax")
    monkeypatch.setattr(Path, "home", home)
    for name in ("JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    keep_compiled()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


def test_an_odd_terminal_and_warnings_as_errors_are_no_fault(traces, tmp_path):
    surroundings = {
        "PYTHONWARNINGS": "error",
        "PYTHONIOENCODING": "ascii",
        "LC_ALL": "C",
        "TERM": "dumb",
        "COLUMNS": "20",
        "JAX_COMPILATION_CACHE_DIR": f"{tmp_path}/file/cache",
    }
    (tmp_path / "file").write_text("where a folder should be")
    command = [*COMMAND, "replay", traces]
    environment = os.environ | surroundings
    result = subprocess.run(command, capture_output=True, timeout=120, env=environment)
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.isascii()
