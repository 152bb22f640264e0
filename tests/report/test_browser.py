"""The page in a real browser, at two sizes: it draws, it answers, and it asks for nothing."""

import os

import pytest

from jaxperf.report import write_report
from tests.report.browser import NAMES, Browser, find_chromium
from tests.report.fabricated import make_replay

pytestmark = pytest.mark.slow

SIZES = [(1400, 900), (800, 600)]
READY_S = 3.0  # eight ranks of a hundred thousand tasks, to the first picture
LARGEST_BYTES = 15e6


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = find_chromium()
    if program is None and os.environ.get("CI") == "true":
        pytest.fail(f"no browser among {NAMES}; CI needs one of a distribution's packages")
    if program is None:
        pytest.skip(f"no browser among {NAMES}")
    browser = Browser(program, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def address(replay, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(replay, path)
    return path.as_uri()


def colours(browser):
    """How often each colour stands in the timeline's canvas."""
    return browser.evaluate("""(() => {
      const canvas = document.getElementById("canvas");
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const count = {};
      for (let i = 0; i < data.length; i += 4) {
        const hex = [0, 1, 2].map((k) => data[i + k].toString(16).padStart(2, "0")).join("");
        count["#" + hex] = (count["#" + hex] || 0) + 1;
      }
      return count;
    })()""")


def style(browser, name):
    return browser.evaluate(
        f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()"
    )


def box(browser, selector):
    script = f"""(() => {{
      const box = document.querySelector({selector!r}).getBoundingClientRect();
      return [box.left, box.top, box.width, box.height];
    }})()"""
    return browser.evaluate(script)


def settle(browser):
    browser.evaluate("new Promise((done) => setTimeout(done, 400))")


def assert_no_fault(browser):
    assert browser.evaluate("document.body.dataset.error") is None
    assert browser.exceptions == []


@pytest.mark.parametrize("width, height", SIZES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_is_drawn(browser, address, width, height, dark):
    browser.open(address, width, height, dark)
    assert_no_fault(browser)
    assert int(browser.evaluate("document.body.dataset.drawnSlices")) > 60
    assert browser.evaluate("document.scrollingElement.scrollWidth") <= width
    count = colours(browser)
    for name in ("gemm", "communication", "host"):
        assert count[style(browser, name)] > 200, name
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(12, 15, 19)" if dark else "rgb(246, 247, 249)")
    # A page without a picture packs into a few thousand bytes.
    assert len(browser.picture()) > 25_000


def test_nothing_but_the_file_is_asked_for(browser, address):
    browser.requests.clear()
    browser.open(address, *SIZES[0])
    assert {url for url in browser.requests if url != "about:blank"} <= {address}
    assert address in browser.requests


def test_an_address_leads_to_a_place_in_time(browser, address):
    browser.open(f"{address}#100,300", *SIZES[0])
    settle(browser)
    assert browser.evaluate("location.hash") == "#100.000,300.000"
    assert_no_fault(browser)


def test_the_wheel_zooms_once_the_timeline_is_clicked_and_a_click_explains(browser, address):
    browser.open(address, *SIZES[0])
    browser.evaluate("document.getElementById('canvas').scrollIntoView()")
    left, top, _, _ = box(browser, "#canvas")
    x, y = left + 420, top + 26 + 24 + 40 + 12  # on the first stream
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-400)
    settle(browser)
    assert browser.evaluate("location.hash") == ""  # the page scrolls instead
    browser.evaluate("document.getElementById('canvas').scrollIntoView()")
    browser.click(x, y)
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-400)
    settle(browser)
    begin, end = map(float, browser.evaluate("location.hash").strip("#").split(",")[:2])
    assert 0 < begin < end < 1000
    assert "Its chain of causes" in browser.evaluate("document.getElementById('details').innerText")
    assert_no_fault(browser)


def test_the_pointer_tells_the_measured_and_the_replayed_time(browser, address):
    browser.open(address, *SIZES[0])
    browser.evaluate("document.getElementById('canvas').scrollIntoView()")
    left, top, _, _ = box(browser, "#canvas")
    browser.mouse("mouseMoved", left + 420, top + 26 + 24 + 40 + 12)
    settle(browser)
    text = browser.evaluate("document.getElementById('tip').innerText")
    assert "measured" in text and "replayed" in text and "Starts when" in text


def test_keys_and_buttons_reach_everything(browser, address):
    browser.open(address, *SIZES[0])
    press = """(key) => document.getElementById("canvas").dispatchEvent(
        new KeyboardEvent("keydown", { key, bubbles: true }))"""
    for key in ["w", "w", "d", ".", ".", ",", "c", "f", "s", "a", "0"]:
        browser.evaluate(f"({press})({key!r})")
    settle(browser)
    assert browser.evaluate("document.getElementById('details').innerText")
    browser.evaluate(f"({press})('Escape')")
    assert browser.evaluate("document.getElementById('details').innerText") == ""
    browser.evaluate("document.getElementById('critical').click()")
    assert "cudaDeviceSynchronize" in browser.evaluate(
        "document.getElementById('details').innerText"
    )
    for shown in ("measured", "replayed", "both"):
        browser.evaluate(f"document.querySelector('[data-show={shown}]').click()")
        settle(browser)
        assert int(browser.evaluate("document.body.dataset.drawnSlices")) > 20
    assert_no_fault(browser)


def test_the_search_counts_what_it_finds(browser, address, replay):
    browser.open(address, *SIZES[0])
    browser.evaluate("""(() => {
      const search = document.getElementById("search");
      search.value = "</script>";
      search.dispatchEvent(new Event("input"));
      search.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
    })()""")
    settle(browser)
    assert browser.evaluate("document.getElementById('found').innerText") == "1 of 4"
    assert "</script><b>bold</b>" in browser.evaluate(
        "document.querySelector('#details h3').innerText"
    )
    assert browser.evaluate("document.querySelector('#details h3 b')") is None
    assert_no_fault(browser)


def test_eight_ranks_of_a_hundred_thousand_tasks_open_fast_and_move_smoothly(browser, tmp_path):
    replay = make_replay(ranks=8, steps=10, layers=1100)
    assert replay.graph.tasks > 790_000
    path = tmp_path / "large.html"
    write_report(replay, path)
    assert path.stat().st_size < LARGEST_BYTES
    browser.open(path.as_uri(), *SIZES[0])
    ready_ms = browser.evaluate("Number(document.body.dataset.readyMs)")
    assert ready_ms < 1e3 * READY_S
    frame_ms = browser.evaluate("""(async () => {
      const taken = [];
      const canvas = document.getElementById("canvas");
      for (const key of "wwwwwwddaassssss") {
        canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
        await new Promise((done) => setTimeout(done, 60));
        taken.push(Number(document.body.dataset.drawMs));
      }
      return taken.sort((a, b) => a - b)[Math.floor(taken.length / 2)];
    })()""")
    assert 0 < frame_ms < 50
    assert_no_fault(browser)
