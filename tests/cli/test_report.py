"""``tbloom report``: a page with all figures, for any screen, in one file."""

from __future__ import annotations

import re
from html import escape, unescape

import pytest

from tbloom import ExactFilter, TimeBloom
from tbloom.bloom.info import FilterInfo
from tbloom.cli.kit import formats
from tests.helpers.commands import process, refused, tbloom

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
