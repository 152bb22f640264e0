"""What the pages show is run: Python, TOML, tables as they stand, commands on two ranks."""

import re
import shutil
from pathlib import Path

import pytest

from jaxperf.cli import main

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = [
    *("jobs.md", "whatif.md", "calibration.md", "cost.md", "estimate.md"),
    *("energy.md", "embedding.md", "search.md", "interchange.md"),
]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_as_written(page, traces, tmp_path, monkeypatch, capsys):
    text = (DOCS / page).read_text()
    shutil.copytree(traces, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    for name, block in re.findall(r"```(?:toml|csv)\n(?:# (\w+\.\w+)\n)?(.*?)```", text, re.DOTALL):
        Path(name or "scenarios.toml").write_text(block)
    commands = re.findall(r"^    jaxperf (.*?)(?: #.*)?$", text, re.MULTILINE)
    for command in commands:
        assert main(command.split()) == 0, command
    names = {}
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for example in examples:
        exec(compile(example, page, "exec"), names)
    assert commands or examples
    assert capsys.readouterr().out
