"""``tbloom report``: a page with all figures, for any screen, in one file."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import tempfile
from html import escape, unescape
from pathlib import Path
from shutil import which

import pytest

from tbloom import ExactFilter, TimeBloom
from tbloom.bloom.info import FilterInfo
from tbloom.cli.kit import formats
from tests.helpers.commands import process, refused, tbloom
from tests.helpers.making import missing

CHROMIUM = which("chromium")
_OPTIONS = ["--headless", "--no-sandbox", "--no-first-run", "--disable-background-networking"]
_OPTIONS += ["--hide-scrollbars", "--enable-logging=stderr", "--dump-dom"]
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
    assert '<i class="over" style="height: 100.00%">' in html
    assert html.count("<figure>") == html.count('<div class="bars" role="img" aria-label=') == 4
    assert ("Made 20" in text, "tbloom reconfigure" in text) == (True, False)
    with TimeBloom.from_url(url, f"{info.name}-2", capacity=100, grow=False) as fixed:
        fixed.add_many(map(str, range(100)))
    assert "100 % full, and doesn't grow" in _text(_report(url, fixed.name))
    # It loads nothing.
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
            seen.client.hset(seen.config.keys.state(), seen.info().slices[-1].label, items)
        pages[f"{slices}.html"] = _report(url, name + suffix)
    pages["several.html"] = _report(url, *[name + suffix for suffix in sizes if suffix != "most"])
    return pages


@pytest.mark.parametrize(("scheme", "color"), [(1, "rgb(255, 255, 255)"), (0, "rgb(13, 17, 23)")])
def test_the_page_in_a_browser_on_a_phone(
    reports: dict[str, str], tmp_path: Path, scheme: int, color: str
) -> None:
    """Light and dark: nothing is wider than 360 pixels, no labels touch, the browser
    reports no errors, and the figures are visible."""
    if CHROMIUM is None:
        missing("Debian's package chromium")
    frames = [f'<iframe src="{path}" width="360" height="800"></iframe>' for path in reports]
    for path, html in {**reports, "index.html": LOOK.replace("PAGES", "".join(frames))}.items():
        (tmp_path / path).write_text(html, encoding="utf-8")
    options = [*_OPTIONS, "--allow-file-access-from-files"]
    options.append(f"--blink-settings=preferredColorScheme={scheme}")
    with tempfile.TemporaryDirectory(prefix="tbloom-chromium-") as profile:
        done = subprocess.run(
            [CHROMIUM, *options, f"--user-data-dir={profile}", (tmp_path / "index.html").as_uri()],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
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
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
