"""The site: its pages run as they stand, show what is printed, and leave nothing out."""

import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_origin
from xml.etree import ElementTree

import pytest

from jaxperf.cli import main
from tests.energy.inference_sessions import made_session
from tests.test_exported_members import PUBLIC

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

# A page of one of these runs from its first line to its last; those that take longest are marked.
FOLDERS = ["roads", "howto", "adding", "concepts"]
SLOW = {
    *("roads/traces.md", "roads/job.md", "roads/embedding.md"),
    *("howto/cut-energy.md", "howto/parallelism.md", "howto/sweep.md"),
    "howto/embedding-servers.md",
}
PAGES = [
    pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else [])
    for folder in FOLDERS
    for page in sorted(str(path.relative_to(DOCS)) for path in (DOCS / folder).glob("*.md"))
]

# In their order on a page: files, Python, what was printed, commands.
PARTS = re.compile(
    r"```(?P<kind>toml|csv|python|text)\n(?:# (?P<name>[\w-]+\.\w+)\n)?(?P<block>.*?)```"
    r"|^    jaxperf (?P<command>.*?)(?: +#.*)?$",
    re.MULTILINE | re.DOTALL,
)


def in_words(text: str) -> str:
    """A line without its figures, units and bars, which differ in their last digits and widths."""
    text = re.sub(r"[█▉▊▋▌▍▎▏]", "", text)
    text = re.sub(r"[-+]?\d[\d,.]*", "0", text)
    return re.sub(r"0 [mµnk]?(s|J|W|B)\b", r"0 \1", " ".join(text.split()))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_as_written_and_shows_what_is_printed(
    page, traces, tmp_path, monkeypatch, capsys
):
    text = (DOCS / page).read_text()
    shutil.copytree(traces, tmp_path / "run")
    if " session\n" in text:
        made_session().write(tmp_path / "session")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "90")
    names = {"__name__": "page"}
    printed = ""
    for part in PARTS.finditer(text):
        if part["command"]:
            assert main(shlex.split(part["command"])) == 0, part["command"]
        elif part["kind"] == "python" and part["name"]:
            Path(part["name"]).write_text(part["block"])
            monkeypatch.syspath_prepend(tmp_path)
        elif part["kind"] == "python":
            exec(compile(part["block"], page, "exec"), names)
        elif part["kind"] == "text":
            shown = [in_words(line) for line in part["block"].splitlines() if line != "..."]
            missing = [line for line in shown if line not in in_words(printed)]
            assert not missing, f"{page} shows what is not printed: {missing}\n{printed}"
        else:
            Path(part["name"] or "scenarios.toml").write_text(part["block"])
        if part["kind"] != "text":
            printed = capsys.readouterr().out or printed


def test_every_public_package_is_on_one_page_of_the_reference():
    pages = [path.read_text() for path in sorted((DOCS / "reference").glob("*.md"))]
    shown = sorted(re.findall(r"^::: (\S+)$", "\n".join(pages), re.MULTILINE))
    assert shown == sorted({package for package, _ in PUBLIC} - {"jaxperf", "jaxperf.cli"})


def test_a_how_to_guide_is_in_the_list_of_them():
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / "howto" / "index.md").read_text())
    assert sorted([*listed, "index.md"]) == sorted(p.name for p in (DOCS / "howto").glob("*.md"))


@pytest.mark.slow
def test_the_site_builds_without_a_broken_link_and_asks_nothing_of_a_network(tmp_path):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", tmp_path]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert built.returncode == 0, built.stderr
    for page in tmp_path.rglob("*.html"):
        fetched = re.findall(r'(?:src=|<link [^>]*href=)"(?:https?:)?//[^"]*"', page.read_text())
        assert not fetched, f"{page.name} fetches {fetched}"
    reference = "".join(page.read_text() for page in (tmp_path / "reference").glob("*.html"))
    shown = set(re.findall(r'id="(jaxperf\.[\w.]+)"', reference))
    missing = [
        name
        for package, name, value in (
            (p, a.name, getattr(import_module(p), a.name)) for p, a in PUBLIC
        )
        if package not in ("jaxperf", "jaxperf.cli")
        and f"{package}.{name}" not in shown
        # What has no docstring of its own: constants, and names for types.
        and not name.isupper()
        and get_origin(value) is None
    ]
    assert not missing, f"the reference lacks {missing}"


def test_the_pictures_are_what_their_script_draws(tmp_path):
    folder = DOCS / "pictures"
    command = [sys.executable, folder / "draw.py", tmp_path]
    subprocess.run(command, check=True, timeout=120)
    kept = {path.name: path.read_bytes() for path in folder.glob("*.svg")}
    drawn = {path.name: path.read_bytes() for path in tmp_path.glob("*.svg")}
    assert kept.keys() == drawn.keys()
    differ = [name for name in kept if kept[name] != drawn[name]]
    assert not differ, f"run docs/pictures/draw.py: {differ} are not what it draws"


def test_each_picture_is_shown_and_described():
    pages = "\n".join(path.read_text() for path in (DOCS / "concepts").glob("*.md"))
    for path in sorted((DOCS / "pictures").glob("*.svg")):
        assert f"](../pictures/{path.name})" in pages, f"no page shows {path.name}"
        picture = ElementTree.parse(path).getroot()
        names = {element.tag.split("}")[1] for element in picture}
        assert {"title", "desc"} <= names
