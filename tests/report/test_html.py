"""The page as a text: whole, safe, and without a network. See test_browser for how it looks."""

import base64
import dataclasses
import json
import re
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest

from jaxperf.errors import OutputError
from jaxperf.report import write_report
from jaxperf.report._columns import page_data
from jaxperf.report._timeline import timeline_spans
from jaxperf.trace import Note
from tests.report.fabricated import ADAM


@pytest.fixture(scope="module")
def page(replay, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(replay, path)
    return path.read_text("utf-8")


class Elements(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.open, self.text = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "br", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text.append(data)


def columns(tables, data):
    """The packed columns, by the description alone."""
    plain = np.frombuffer(zlib.decompress(base64.b64decode(data)), np.uint8)
    result, at = {}, 0
    for name, n in tables["columns"]:
        planes = plain[at : at + 4 * n].reshape(4, n).astype(np.int64)
        zigzag = planes[0] | planes[1] << 8 | planes[2] << 16 | planes[3] << 24
        result[name] = (zigzag >> 1) ^ -(zigzag & 1)
        at += 4 * n
    assert at == len(plain)
    return result


def test_every_element_is_closed(page):
    assert Elements(page).open == []


def test_nothing_is_asked_of_a_network(page):
    assert not re.search(r"https?:|//[a-z]+\.|url\(|@import|fetch\(|XMLHttp", page)
    elements = Elements(page)
    assert not [tag for tag, attrs in elements.tags if "src" in attrs or tag in ("link", "iframe")]
    policy = next(
        attrs["content"]
        for tag, attrs in elements.tags
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'")
    assert "script-src 'sha256-" in policy  # no script runs but ours


def test_the_answer_stands_in_the_text(page):
    text = " ".join(" ".join(Elements(page).text).split())
    assert "measured, mean of 2 steps" in text
    assert "The critical path is 61 % matrix multiplication and 24 % communication." in text
    assert "on steps held out" in text
    assert "rank1.pt.trace.json.gz" in text
    assert "12 inferred." in text  # all notes, not only the first of a kind


def test_names_cannot_break_out(page, replay):
    assert ADAM in replay.graph.names and "</script>" in ADAM
    assert page.count("</script>") == 3  # tables, columns, and the program
    assert "<b>bold" not in page
    assert "<b>12.5</b>" not in page and "&lt;b&gt;12.5&lt;/b&gt;" in page
    (meta,) = re.findall(r'<script type="application/json" id="meta">(.*?)</script>', page, re.S)
    assert ADAM in json.loads(meta)["names"]


def test_a_note_cannot_fill_in_the_template(replay, tmp_path):
    odd = dataclasses.replace(replay, notes=(Note("odd", "$script ${data} $$ \udc80", None),))
    write_report(odd, tmp_path / "odd.html")
    page = (tmp_path / "odd.html").read_text("utf-8")
    assert "$script ${data} $$ \ufffd" in page


def test_the_columns_hold_both_timelines_exactly(replay):
    tables, data = page_data(replay)
    column = columns(tables, data)
    measured, replayed = timeline_spans(replay)
    graph = replay.graph
    order = np.lexsort((graph.order, replayed.start_ns, graph.lane))
    end = np.cumsum(column["gap"] + column["duration"])
    start = end - column["duration"]
    assert np.array_equal(start, replayed.start_ns[order])
    assert np.array_equal(end, replayed.end_ns[order])
    shift = np.cumsum(column["shift"])
    assert np.array_equal(start + shift, measured.start_ns[order])
    assert np.array_equal(end + shift + column["stretch"], measured.end_ns[order])
    names = [tables["labels"][label][0] for label in column["label"]]
    assert np.array_equal(names, graph.name[order])


def test_the_columns_lead_from_each_task_to_its_cause(replay):
    tables, data = page_data(replay)
    column = columns(tables, data)
    graph = replay.graph
    order = np.lexsort((graph.order, timeline_spans(replay)[1].start_ns, graph.lane))
    bound = column["why"] > 0
    place = np.flatnonzero(bound)
    dependency = replay.binding[order[place]]
    assert np.array_equal(replay.binding[order] >= 0, bound)
    assert np.array_equal(order[place - column["back"][place]], graph.source[dependency])
    assert np.array_equal(column["why"][place] - 1, graph.dependency[dependency])


def test_a_window_beyond_32_bits_of_nanoseconds_is_coarser_not_wrong(replay):
    long = dataclasses.replace(
        replay,
        measured=dataclasses.replace(
            replay.measured,
            start_us=replay.measured.start_us * 1e5,
            end_us=replay.measured.end_us * 1e5,
        ),
        replayed=dataclasses.replace(
            replay.replayed,
            start_us=replay.replayed.start_us * 1e5,
            end_us=replay.replayed.end_us * 1e5,
        ),
    )
    tables, data = page_data(long)
    column = columns(tables, data)
    end_us = np.cumsum(column["gap"] + column["duration"]) * tables["quantum_us"]
    assert 0.001 < tables["quantum_us"] < 1.0
    assert abs(end_us.max() - timeline_spans(long)[1].end_ns.max() / 1e3) <= tables["quantum_us"]


def test_every_class_has_a_colour_in_both_schemes_that_can_be_seen(page, replay):
    def luminance(colour):
        channel = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(channel <= 0.04045, channel / 12.92, ((channel + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    light, dark = re.findall(r":root \{(.*?)\}", page, re.S)
    for scheme in (light, dark):
        colours = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", scheme))
        panel = luminance(colours["panel"])
        for name in page_data(replay)[0]["classes"]:
            low, high = sorted([luminance(colours[name]), panel])
            assert (high + 0.05) / (low + 0.05) >= 3.0, name


def test_a_replay_without_device_work_or_steps_is_a_page_too(replay, tmp_path):
    bare = dataclasses.replace(
        replay,
        steps=(),
        rank_breakdowns=(),
        breakdown_measured=None,
        breakdown_replayed=None,
        critical_path_us={},
        hold_out=None,
        notes=(),
    )
    write_report(bare, tmp_path / "bare.html")
    text = " ".join(Elements((tmp_path / "bare.html").read_text("utf-8")).text)
    assert "No work on a device." in text
    assert "Nothing was repaired or guessed." in text
    assert "nan" not in text.lower()


def test_a_page_is_not_written_over(replay, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("mine")
    with pytest.raises(OutputError, match="exists already"):
        write_report(replay, path)
    assert path.read_text() == "mine"
