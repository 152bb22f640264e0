"""Names in traces, logs and descriptions may hold anything; what is shown of them stays text."""

import ast
import gzip
import io
import json
import re
import shlex
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

import jaxperf.report
from jaxperf.config import load_hardware, load_job
from jaxperf.cost import Fit, load_fit
from jaxperf.report import point_command, print_replay, write_fit, write_report, write_trace
from jaxperf.report._escape import markup_text
from jaxperf.report._svg import Chart, Series, picture
from jaxperf.report._terminal import plain_table, print_plain, print_sections
from jaxperf.trace import Note
from tests.report.browser import find_chromium

HOSTILE = (
    "<script>document.title='owned'</script>",
    "</script><b>bold</b>",
    "</title></style><h1>",
    '"><img src=x onerror=document.title=1>',
    "' onmouseover='x",
    "&amp;&lt;",
    "-->]]><!--<![CDATA[",
    "$title ${style}",
    "line\u2028end\u2029\r\n\ttab",
    "nul\x00bell\x07 half \ud800 surrogate \udcff",
    "\u202eturned\u2066 round\u200f",
    "[bold]loud[/] [link=http://example.org]link[/link] [/] :smile:",
    "\x1b[31mred\x1b[2J\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\ \x9b31m",
    "\ufffe\uffff",
)
ALL = "".join(HOSTILE)
LONG = "<b>" + "n" * 1_000_000


def renamed(replay, text):
    """A replay all of whose names hold a text."""
    graph = replay.graph
    return replace(
        replay,
        graph=replace(
            graph,
            names=tuple(f"{i}{text}" for i, _ in enumerate(graph.names)),
            lanes=tuple(replace(lane, name=text) for lane in graph.lanes),
            steps=tuple(replace(step, name=text) for step in graph.steps),
        ),
        steps=tuple(replace(step, name=text) for step in replay.steps),
        ranks=tuple(replace(rank, device=text, files=(text,)) for rank in replay.ranks),
        critical_path_us={**replay.critical_path_us, text: 5.0},
        notes=(Note("code", text, text), Note(text, text, None)),
    )


@pytest.fixture(scope="module")
def hostile(replay):
    return renamed(replay, ALL)


# Pages and pictures
# ---------------------------------------------------------------------------------------


class Structure(HTMLParser):
    """Elements and attributes in order, and the text between them."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.elements, self.text, self.values = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, [name for name, _ in attributes]))
        self.values += [value for _, value in attributes if value]

    def handle_endtag(self, tag):
        self.elements.append((f"/{tag}", []))

    def handle_data(self, data):
        self.text.append(data)

    def handle_comment(self, data):
        self.elements.append(("comment", []))

    def handle_decl(self, decl):
        self.elements.append((decl, []))

    def unknown_decl(self, data):
        self.elements.append(("declaration", []))


def page_of(result, folder):
    write_report(result, folder / "page.html", overwrite=True)
    return (folder / "page.html").read_text("utf-8")


def test_no_element_and_no_attribute_of_a_page_comes_from_a_name(replay, hostile, tmp_path):
    plain = Structure(page_of(renamed(replay, "name"), tmp_path))
    page = page_of(hostile, tmp_path)
    shown = Structure(page)
    assert shown.elements == plain.elements
    assert HOSTILE[1] in "".join(shown.text)
    assert any(HOSTILE[3] in value for value in shown.values)
    for kind in ("\x00", "\x1b", "\u2028", "\u202e", "\u2066"):
        assert kind not in page


def test_names_reach_the_script_of_a_page_as_they_are(hostile, tmp_path):
    page = page_of(hostile, tmp_path)
    meta = re.search(r'<script type="application/json" id="meta">(.*?)</script>', page, re.S)
    assert meta is not None
    assert json.loads(meta[1])["names"] == list(hostile.graph.names)


def test_a_name_of_a_million_characters_is_no_fault(replay, tmp_path):
    page = page_of(renamed(replay, LONG), tmp_path)
    assert Structure(page).elements == Structure(page_of(renamed(replay, "n"), tmp_path)).elements
    assert len(printed(renamed(replay, LONG))) < 50_000


@pytest.mark.slow
@pytest.mark.skipif(find_chromium() is None, reason="needs Chromium")
def test_a_browser_runs_nothing_that_a_name_says(hostile, tmp_path):
    from tests.report.browser import Browser

    page_of(hostile, tmp_path)
    browser = Browser(find_chromium(), tmp_path / "profile")
    try:
        browser.open((tmp_path / "page.html").as_uri(), 1000, 800)
        assert browser.evaluate("document.title").endswith("jaxperf")
        assert browser.evaluate("document.querySelectorAll('b, img, h1').length") == 0
        assert browser.exceptions == []
    finally:
        browser.close()


def test_a_picture_is_the_same_xml_whatever_its_names(replay):
    def tags(name):
        chart = Chart(name, name, name, (Series(name, [1.0, 20.0], [0.2, 0.4]),))
        root = ElementTree.fromstring(picture(name, [chart]))
        return [(each.tag, sorted(each.attrib)) for each in root.iter()]

    assert tags(ALL) == tags("name")


@pytest.mark.parametrize("text", HOSTILE)
def test_markup_holds_the_text_and_nothing_else(text):
    found = ElementTree.fromstring(f'<a b="{markup_text(text)}">{markup_text(text)}</a>')
    assert len(found) == 0
    told = re.sub("\ufffd|\\s", "", found.text or "")
    assert told == re.sub(f"{STEERING.pattern}|[\ufffe\uffff]|\\s", "", text)


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_written_trace_is_json_with_the_names_as_they_are(name, hostile, tmp_path):
    write_trace(hostile, tmp_path / name)
    content = (tmp_path / name).read_bytes()
    found = json.loads(gzip.decompress(content) if name.endswith("gz") else content)
    names = {event["name"] for event in found["traceEvents"]}
    assert names & set(hostile.graph.names)
    assert found["deviceProperties"][0]["name"] == ALL


# Terminals
# ---------------------------------------------------------------------------------------

STYLE = re.compile(r"\x1b\[[0-9;]*m")
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printed(result, show=print_replay, **options):
    file = io.StringIO()
    show(result, Console(file=file, width=80, **options))
    return file.getvalue()


def test_nothing_of_a_name_steers_a_terminal(replay, hostile):
    assert not STEERING.search(printed(hostile))
    coloured = printed(hostile, force_terminal=True, color_system="truecolor")
    styles = set(STYLE.findall(coloured))
    plain = printed(renamed(replay, "n"), force_terminal=True, color_system="truecolor")
    assert styles <= set(STYLE.findall(plain))
    assert not STEERING.search(STYLE.sub("", coloured))


def test_markup_is_printed_as_it_is(hostile):
    text = "".join(printed(hostile).split())
    assert "[bold]loud[/][link=http://example.org]link[/link][/]" in text


@pytest.mark.parametrize("text", HOSTILE)
def test_an_answer_a_title_and_a_cell_are_literal(text):
    table = plain_table(text, "")
    table.add_row(text, Text(text))
    shown = printed(None, lambda _, console: print_sections(text, [(text, table)], console))
    assert not STEERING.search(shown)
    if "[bold]" in text:
        assert "".join(shown.split()).count("[bold]loud[/][link") >= 2


def test_a_command_that_is_printed_whole_is_literal():
    shown = printed(
        None, lambda _, console: print_plain(f"{'w' * 200} {ALL}", console, soft_wrap=True)
    )
    assert not STEERING.search(shown)
    assert "w" * 200 in shown
    assert "[link=http://example.org]" in shown


SOURCES = sorted(Path(jaxperf.report.__file__).parent.glob("*.py"))
HOME = {
    "console.print": "_terminal.py",
    "Table": None,
    "Table.grid": None,
    "Text.from_markup": None,
    "escape": "_escape.py",
}
"""The one module that may call each: all others go by what is harmless there."""


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_every_printer_prints_by_the_one_that_is_harmless(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert HOME.get(called, path.name) == path.name, f"{called} in line {node.lineno}"


# Files that programs read
# ---------------------------------------------------------------------------------------


ODD = "h\"100'\n[table]\n# \\ $(rm) `rm` ; \x7f\t"


def test_a_fit_of_a_machine_with_any_name_is_read_again(tmp_path):
    fit = Fit(hardware=(ODD,), numbers={"memory.latency_us": (1.0,)})
    write_fit(fit, tmp_path / "fit.toml")
    assert load_fit(tmp_path / "fit.toml") == fit


def test_a_shell_takes_a_printed_command_apart_as_it_was_meant():
    job, machine = load_job("llama3-8b"), load_hardware("h100")
    inputs = {"job": ODD, "hardware": f"-{ODD}", "fit": ODD, "power": "p"}
    result: Any = SimpleNamespace(inputs=inputs, problem=SimpleNamespace(job=job))
    point: Any = SimpleNamespace(values={}, hardware=machine, job=job)
    words = shlex.split(point_command(result, point))
    assert words[:5] == ["jaxperf", "estimate", ODD, "--hardware", f"-{ODD}"]
    assert words[5:] == ["--fit", ODD, "--power", "p"]
