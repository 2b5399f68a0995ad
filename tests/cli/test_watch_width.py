"""The page of ``tbloom watch`` on a phone and on a desk: no column lies off the screen."""

from __future__ import annotations

import json
import re
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.cli.test_watch import fleet, large, once  # noqa: F401 - fixtures
from tests.helpers.browser import in_browser

#: Measures the page in a frame: how wide it is, and what of it is to the right of its edge.
_MEASURE = """
<iframe id="frame" width="{width}" height="3000" style="border: 0" srcdoc="{page}"></iframe><pre id="found"></pre><script>
onload = () => {{
  const inner = document.getElementById("frame").contentDocument, found = []
  for (const each of inner.querySelectorAll("body *")) {{
    const place = each.getBoundingClientRect()
    if (place.right > {width} + 1 || each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflowX != "visible") found.push(each.outerHTML.slice(0, 200))
  }}
  document.getElementById("found").textContent = JSON.stringify([inner.documentElement.scrollWidth, found])
}}
</script>
"""


class _Tables(HTMLParser):
    """The headings of each table, and the headings that the cells of its rows have."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[tuple[list[str], list[list[str]]]] = []
        self._reads = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "table":
            self.tables.append(([], []))
        elif tag == "tr" and self.tables[-1][0]:
            self.tables[-1][1].append([])
        elif tag == "th" and "scope" not in given:
            self._reads = True
            self.tables[-1][0].append("")
        elif tag in ("th", "td"):
            self.tables[-1][1][-1].append(given.get("data-h") or "")

    def handle_endtag(self, tag: str) -> None:
        self._reads &= tag != "th"

    def handle_data(self, data: str) -> None:
        if self._reads:
            self.tables[-1][0][-1] += data


@pytest.mark.parametrize("shown", ["fleet", "large", ""])
def test_each_cell_of_a_narrow_page_says_what_it_is(
    url: str, shown: str, request: pytest.FixtureRequest
) -> None:
    """There, it stands below the others of its row (linkerd2#1825); the first one is the row's heading."""
    names = [request.getfixturevalue(shown).name] if shown else []
    if not shown:
        request.getfixturevalue("fleet")
    reader = _Tables()
    reader.feed(once(url, *names))
    assert len(reader.tables) >= 1 + 2 * bool(shown)
    for headings, rows in reader.tables:
        assert rows
        for row in rows:
            assert len(headings) == len(row)
            assert [*zip(headings, row, strict=True)][1:] == [(each, each) for each in headings[1:]]


@pytest.mark.check
@pytest.mark.parametrize("width", [390, 800, 1280])
@pytest.mark.parametrize("shown", ["fleet", "large", ""])
def test_no_column_is_off_the_screen(
    url: str, tmp_path: Path, shown: str, width: int, request: pytest.FixtureRequest
) -> None:
    names = [request.getfixturevalue(shown).name] if shown else []
    if not shown:
        request.getfixturevalue("large")
    page = re.sub("<meta http-equiv=.*?>", "", once(url, *names))
    file = tmp_path / "page.html"
    file.write_text(_MEASURE.format(width=width, page=escape(page)), encoding="utf-8")
    html = in_browser(f"file://{file}", tmp_path / "profile")
    wide, found = json.loads(unescape(re.search('<pre id="found">(.*?)</pre>', html, re.DOTALL)[1]))
    assert [] == found
    assert wide <= width
