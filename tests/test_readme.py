"""What the README shows is run."""

import re
import shutil
from pathlib import Path

from jaxperf.cli import main

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()


def test_the_examples_run_as_written(traces, tmp_path, monkeypatch, capsys):
    examples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    shutil.copytree(traces, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    names = {}
    for example in examples:
        exec(compile(example, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "ProfilerStep#" in printed
    assert "Matrix products in half the time" in printed
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_the_commands_run_as_written(traces, tmp_path, monkeypatch):
    commands = re.findall(r"^    jaxperf (.*?)(?: #.*)?$", README, re.MULTILINE)
    assert len(commands) >= 3
    shutil.copytree(traces, tmp_path / "run")
    shutil.copytree(traces, tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    for command in commands:
        assert main(command.split()) == 0, command
