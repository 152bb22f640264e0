"""The rules of the house that no other tool keeps."""

import ast
import re
from pathlib import Path

import pytest

from jaxperf.trace import _notes

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = sorted((ROOT / "jaxperf").rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_the_package_was_found():
    assert len(PACKAGE) > 10
    assert len(PAGES) > 5


@pytest.mark.parametrize("path", PACKAGE, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_left_for_later(path):
    assert not re.search(r"\b(TODO|FIXME|XXX|NotImplementedError)\b", path.read_text())


@pytest.mark.parametrize("path", PACKAGE, ids=lambda path: str(path.relative_to(ROOT)))
def test_annotations_are_evaluated(path):
    assert "from __future__ import annotations" not in path.read_text()


@pytest.mark.parametrize("path", PACKAGE, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_private_to_a_package_is_imported_there_alone(path):
    mine = path.relative_to(ROOT).parts[1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jaxperf."):
            _, package, *rest = (node.module or "").split(".")
            assert package == mine or not any(part.startswith("_") for part in rest)
            modules = {each.stem for each in (ROOT / "jaxperf" / package).glob("_*.py")}
            names = {each.name for each in node.names if each.name.startswith("_")}
            assert names <= modules


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


NO_NOTES = {"utf-16"}


def note_codes():
    """Every text of the package that is written like the code of a note."""
    yield from _notes.TEXTS
    parts = "trace graph replay inspection whatif calibrate critical_path comparison estimate"
    for part in [*parts.split(), "interchange"]:
        for path in PACKAGE:
            if path.is_relative_to(ROOT / "jaxperf" / part) or path.stem == part:
                for node in ast.walk(ast.parse(path.read_text())):
                    value = node.value if isinstance(node, ast.Constant) else None
                    if isinstance(value, str) and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", value):
                        yield value


def note_calls():
    """What is handed to a note first, where other texts are written like codes: names of models."""
    for path in PACKAGE:
        if path.relative_to(ROOT / "jaxperf").parts[0] in ("energy", "embedding"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and re.search(
                    "note|add", ast.unparse(node.func), re.I
                ):
                    value = getattr(node.args[0], "value", None) if node.args else None
                    if isinstance(value, str) and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", value):
                        yield value


def test_every_note_is_explained():
    page = (ROOT / "docs" / "notes.md").read_text()
    codes = {*note_codes(), *note_calls()} - NO_NOTES
    missing = sorted(code for code in codes if f"`{code}`" not in page)
    assert not missing


def test_scripts_and_gate_can_be_run():
    for path in [ROOT / ".ci" / "run", *(ROOT / "scripts").glob("[!_]*")]:
        assert path.stat().st_mode & 0o111, f"{path} is not executable"
        assert path.read_text().startswith("#!")
