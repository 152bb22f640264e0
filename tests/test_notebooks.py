"""The notebooks: what they print is what their code prints, and they tell nothing of a machine."""

import contextlib
import io
import json
import re
import sys
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import pytest

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
NAMES = ("lumos", "mtrains", "mlperf-power")

NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
RELATIVE = 0.02


def cells(name: str, kind: str = "code") -> list[dict[str, Any]]:
    notebook = json.loads((FOLDER / f"{name}.ipynb").read_text())
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def printed(cell: dict[str, Any]) -> str:
    return "".join("".join(output.get("text", "")) for output in cell["outputs"])


def pictures(cell: dict[str, Any]) -> int:
    return sum("image/svg+xml" in output.get("data", {}) for output in cell["outputs"])


def difference(stored: str, now: str) -> str | None:
    """Where two texts differ in a word, or in a number by more than its last places."""
    for old, new in zip_longest(stored.splitlines(), now.splitlines(), fillvalue=""):
        same_words = NUMBER.sub("0", old).split() == NUMBER.sub("0", new).split()
        if not same_words or not all(map(near, NUMBER.findall(old), NUMBER.findall(new))):
            return f"{old!r} stored, {new!r} now"
    return None


def near(old: str, new: str) -> bool:
    """Whether two printed numbers are within 2 %, or one in the last decimal that is printed."""
    decimals = len(old.partition(".")[2])
    unit = 10.0**-decimals if decimals else 0.0
    one, other = (float(text.replace(",", "")) for text in (old, new))
    return abs(one - other) <= max(RELATIVE * abs(one), 1.001 * unit)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was displayed: the tests need no notebook server."""
    found: list[str] = []
    display = ModuleType("IPython.display")
    monkeypatch.setattr(display, "SVG", str, raising=False)
    monkeypatch.setattr(display, "display", found.append, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_prints_what_is_stored_in_it(
    name: str, shown: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    # As a reader's own session has it, not as the other tests do.
    with (
        jax.enable_x64(False),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        for number, cell in enumerate(cells(name)):
            shown.clear()
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile("".join(cell["source"]), f"{name}, cell {number}", "exec"), names)
            assert difference(printed(cell), out.getvalue()) is None
            assert len(shown) == pictures(cell)
            assert all(picture.startswith("<svg") for picture in shown)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_small_and_says_nothing_of_the_machine_that_ran_it(name: str):
    text = (FOLDER / f"{name}.ipynb").read_text()
    assert len(text) < 200_000
    assert not re.search(r"/(tmp|home|root|work|Users|usr)/", text)
    notebook = json.loads(text)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert 12 <= len(notebook["cells"]) <= 25
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
        assert cell.get("execution_count") is None


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_links_only_to_pages_that_exist(name: str):
    for cell in cells(name, "markdown"):
        for path in re.findall(r"\]\(([^)#:]+)", "".join(cell["source"])):
            assert (FOLDER / path).is_file(), path


@pytest.mark.parametrize(
    ("stored", "now", "same"),
    [
        ("a step of 16,927 us", "a step of 16,930 us", True),
        ("a step of 16,927 us", "a step of 18,000 us", False),
        ("3 nodes", "4 nodes", False),
        ("error -0.00 %", "error 0.01 %", True),
        ("bound by wear", "bound by capacity", False),
    ],
)
def test_texts_are_the_same_up_to_the_last_places(stored: str, now: str, same: bool):
    assert (difference(stored, now) is None) == same
