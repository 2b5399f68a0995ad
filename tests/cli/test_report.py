"""``tbloom report``: a page with all figures, for any screen, in one file."""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections.abc import Iterator
from html import escape, unescape
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from tbloom import ExactFilter, TimeBloom
from tbloom.bloom.info import FilterInfo
from tbloom.cli.commands.report import charts
from tbloom.cli.kit import formats
from tests.helpers import browser
from tests.helpers.commands import process, refused, tbloom
from tests.helpers.making import missing
from tests.helpers.website import Server

HOSTILE = """<img src=x onerror="alert('1')">&amp;"""


def _text(html: str) -> str:
    """The text of a page."""
    body = html[html.index("<body>") :]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def _report(url: str, *names: str) -> str:
    done = tbloom("report", "--url", url, *names, "-o", "-")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def info(url: str, name: str) -> FilterInfo:
    """A filter whose slice has grown."""
    with TimeBloom.from_url(url, name, capacity=1000, slices=3) as seen:
        seen.add_many(map(str, range(2345)))
        return seen.info()


def test_the_page_has_the_figures(url: str, info: FilterInfo) -> None:
    """Totals, parameters, a row for each slice, warnings; time, version and server."""
    html = _report(url, info.name)
    text = _text(html)
    newest = info.slices[-1]
    for slice in info.slices:
        assert f'<th scope="row">{slice.label}' in html
    for part in (
        info.name,
        "Items remembered 2,345",
        f"{formats.rate(info.error_rate)} at most ",
        f"Bits of a slice {info.bits:,}",
        f"Hashes {info.hashes}",
        f"{newest.label} {newest.parts} parts",
        "2,345 235 %",
        formats.size(info.bytes),
        "by tbloom ",
        f"from {url}",
    ):
        assert part in text, part
    assert html.count("<figure>") == html.count('<div class="bars" role="img" aria-label=') == 4
    assert ("Made 20" in text, "tbloom reconfigure" in text) == (True, False)
    with TimeBloom.from_url(url, f"{info.name}-2", capacity=100, grow=False) as fixed:
        fixed.add_many(map(str, range(100)))
    assert "100 % full, and doesn't grow" in _text(_report(url, fixed.name))


def test_the_page_loads_nothing(url: str, info: FilterInfo) -> None:
    html = _report(url, info.name)
    assert "<script" not in html
    assert {"data:,"} == set(re.findall(r'(?:src|href)="([^"]*)"', html))
    assert [] == re.findall(r"url\(|@import", html)


def test_names_are_text(url: str, name: str) -> None:
    """A filter's name can't add HTML to the page."""
    for suffix in (HOSTILE, "other"):
        with TimeBloom.from_url(url, name + suffix, capacity=1000) as seen:
            seen.add("a")
    html = _report(url, name + HOSTILE, name + "other")
    assert HOSTILE not in html
    assert escape(name + HOSTILE, quote=False).replace('"', "&#34;").replace("'", "&#39;") in html
    assert _text(html).count(name + HOSTILE) == 2  # in the list of filters, and above its figures
    assert re.findall(r'href="#([^"]+)"', html) == re.findall(r'<section id="([^"]+)"', html)


def test_a_pipe_is_written_to_and_not_replaced(url: str, info: FilterInfo) -> None:
    done = process("report", "--url", url, info.name, "--output", "/dev/stdout")
    assert done.returncode == 0
    assert done.stdout.endswith(b"</html>")


def test_charts_compare_slices_with_what_was_promised(url: str, name: str) -> None:
    """A bar for each slice, marked if above the capacity; a line far above all bars is left out."""
    with TimeBloom.from_url(url, name, slices=3, capacity=100) as seen:
        seen.add_many(map(str, range(200)))
        items, rate, ratio, memory = charts(seen.info())
    assert [0, 0, 100] == [bar.height for bar in items.bars]
    assert (50, True, "200") == (items.line, items.bars[-1].is_over, items.top)
    assert "The highest is 200; the line, capacity, is at 100." in items.description
    assert (0 < rate.bars[-1].height <= 100, rate.bars[-1].is_over) == (True, False)
    assert 0 < ratio.line <= 100.001
    assert (None, "") == (memory.line, memory.line_name)
    assert [2, 1] == [len(chart.ends) for chart in (items, charts(_few(url, name))[0])]


def _few(url: str, name: str) -> FilterInfo:
    """A filter of one slice, with one item of a million."""
    with TimeBloom.from_url(url, f"{name}-few", slices=1, capacity=1_000_000) as seen:
        seen.add("a")
        info = seen.info()
    items = charts(info)[0]
    assert (None, "1,000,000 (above)", 100) == (items.line, items.line_text, items.bars[0].height)
    return info


def test_without_names_all_filters_are_in_the_page(own_url: str) -> None:
    refused(tbloom("report", "--url", own_url, "-o", "-"), "no filters")
    for name in ("blog", "news"):
        with TimeBloom.from_url(own_url, name, capacity=1000) as seen:
            seen.add("a")
    with ExactFilter.from_url(own_url, "exact") as exact:
        exact.add("a")
    assert {"blog", "news"} == {*re.findall(r'-name">(\w+)</h2>', _report(own_url))}


#: A page with the reports in frames of a phone's size, which measures them.
LOOK = """<!DOCTYPE html><link rel="icon" href="data:,"><body><script>
function look(page) {
  const outside = [], touching = [];
  for (const row of page.querySelectorAll(".ends, .ticks")) {
    const boxes = [...row.children].map(label => label.getBoundingClientRect()).filter(box => box.width);
    boxes.forEach((box, i) => {
      if (box.left < 0 || box.right > 360) outside.push(row.textContent);
      for (const other of boxes.slice(i + 1))
        if (box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom)
          touching.push(row.textContent);
    });
  }
  return {
    width: page.documentElement.scrollWidth, outside, touching,
    text: page.body.innerText, color: getComputedStyle(page.body).backgroundColor,
    bars: [...page.querySelectorAll(".bars")].map(bars => Math.max(...[...bars.querySelectorAll("b")].map(bar => bar.lastElementChild.getBoundingClientRect().height))),
  };
}
onload = () => {
  const seen = [...document.querySelectorAll("iframe")].map(frame => look(frame.contentDocument));
  document.body.textContent = "";
  document.body.append(Object.assign(document.createElement("pre"), {textContent: JSON.stringify(seen)}));
}
</script>PAGES"""


class _Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        page = self.server.pages.get(self.path)
        self.send_response(200 if page else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write((page or "").encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Any]:
    server = Server(("127.0.0.1", 0), _Site)
    server.pages, server.asked = {}, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def reports(url: str) -> dict[str, str]:
    """Reports of filters of several sizes, by path."""
    name = f"test-{secrets.token_hex(6)}"
    sizes = {"one": (1, "d"), "four": (4, "15min"), "week": (7, "d"), "hours": (168, "h")}
    sizes |= {"long-and-" + "wide" * 30: (24, "15min"), "most": (1024, "h")}
    pages = {}
    for suffix, (slices, granularity) in sizes.items():
        with TimeBloom.from_url(
            url, name + suffix, granularity=granularity, slices=slices, capacity=100_000
        ) as seen:
            seen.add("one")
            # Larger numbers than real ones.
            items = 1234 if slices == 1 else 987_654_321
            seen.client.execute_command("BITFIELD", seen.keys()[-1], "SET", "u48", 0, items)
        pages[f"/{slices}"] = _report(url, name + suffix)
    pages["/several"] = _report(url, *[name + suffix for suffix in sizes if suffix != "most"])
    return pages


@pytest.mark.parametrize(("scheme", "color"), [(1, "rgb(255, 255, 255)"), (0, "rgb(13, 17, 23)")])
def test_the_page_in_a_browser_on_a_phone(
    reports: dict[str, str], site: Any, scheme: int, color: str
) -> None:
    """Light and dark: nothing is wider than 360 pixels, no labels touch, the page loads nothing, the
    browser reports no errors, and the figures are visible."""
    if browser.CHROMIUM is None:
        missing("Debian's package chromium")
    frames = [f'<iframe src="{path}" width="360" height="800"></iframe>' for path in reports]
    site.pages = {**reports, "/": LOOK.replace("PAGES", "".join(frames))}
    done = browser.run(
        f"http://127.0.0.1:{site.server_port}/", "--dump-dom",
        f"--blink-settings=preferredColorScheme={scheme}",
    )  # fmt: skip
    looks = json.loads(unescape(re.search("<pre>(.*)</pre>", done.stdout, re.DOTALL)[1]))
    assert len(looks) == len(reports)
    for look in looks:
        assert (look["width"], look["outside"], look["touching"]) == (360, [], [])
        assert look["color"] == color
        # One more if a slice has begun meanwhile.
        assert re.search("Items remembered\\s+(1,23[45]|987,654,32[12])\\s", look["text"])
        assert len(look["bars"]) >= 4
        assert 0 < max(look["bars"])
    assert sorted(site.asked) == sorted(["/", *reports])
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
