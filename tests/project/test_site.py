"""The documentation site: it is whole, and refers to nobody else. (MkDocs finds links that lead nowhere: a warning is an error.)"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import tbloom.scrapy
from tests.helpers.browser import in_browser
from tests.helpers.making import made_once

pytestmark = pytest.mark.check
ROOT = Path(__file__).parents[2]
#: What a browser fetches by itself.
FETCHED = re.compile(
    r"<(?:script|img|source|iframe)\b[^>]*? src=\"?([^\" >]+)|<link\b(?![^>]*canonical)[^>]*? href=\"?([^\" >]+)"
)
#: Shows each page in a frame of a width, and measures what is in it.
HOST = """<!DOCTYPE html><meta charset="utf-8"><iframe style="border: 0; height: 800px; width: %dpx"></iframe><script>
const frame = document.querySelector("iframe")
const measured = () => {
    const page = frame.contentDocument, all = (selector) => [...page.querySelectorAll(selector)]
    const style = (element, part) => frame.contentWindow.getComputedStyle(element, part)
    const seen = (box) => box.width && box.right > 0 && box.left < page.documentElement.clientWidth
    return {
        width: page.documentElement.scrollWidth,
        over: all("main *").filter((each) => style(each).position == "fixed" && seen(each.getBoundingClientRect())).map((each) => each.className),
        scrolled: all(".md-typeset__scrollwrap").filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.innerText),
        empty: all("td:empty").filter((each) => style(each).display != "none").map((each) => style(each, "::before").content),
    }
}
const next = (addresses, found) => {
    if (!addresses.length) {
        document.body.append(Object.assign(document.createElement("pre"), {textContent: JSON.stringify(found)}))
        return
    }
    frame.src = addresses[0]
    frame.onload = () => {
        // The theme's script lets tables be scrolled.
        const ready = !frame.contentDocument.querySelector("article table:not([class], .md-typeset__scrollwrap *)")
        if (ready) next(addresses.slice(1), [...found, measured()])
        else setTimeout(frame.onload, 10)
    }
}
next(%s, [])
</script>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` makes it in a fresh clone."""

    def build(folder: Path) -> None:
        words = [f"PYTHON={sys.executable}", f"VENV={folder}.venv", f"ARGS=--site-dir {folder}"]
        done = subprocess.run(
            ["make", "docs", *words],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    return made_once(tmp_path_factory, "site", build)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, str]:
    found = (path for path in site.rglob("*.html") if path.name != "404.html")
    return {path.relative_to(site): path.read_text(encoding="utf-8") for path in found}


def test_every_document_is_a_page(pages: dict[Path, str]) -> None:
    documents = {path.relative_to(ROOT / "docs") for path in ROOT.glob("docs/**/*.md")}
    documents |= {Path(path.name.lower()) for path in ROOT.glob("*.md")}
    documents = documents - {Path("readme.md")} | {Path("index.md")}
    documents.add(Path("reference/commands.md"))  # docs/site.py makes it
    assert documents == {path.with_suffix(".md") for path in pages}


def test_nothing_is_fetched_from_elsewhere(site: Path, pages: dict[Path, str]) -> None:
    """No script, style, font or image of another host; what is fetched is there."""
    fetched = {
        (path, unescape(a or b)) for path, html in pages.items() for a, b in FETCHED.findall(html)
    }
    assert len(fetched) > len(pages)
    for path, address in fetched:
        assert not urlsplit(address).netloc, f"{path}: {address}"
        assert (
            address.startswith("data:")
            or (site / path).parent.joinpath(unquote(urlsplit(address).path)).exists()
        ), address
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert [] == re.findall(r"(?:url\(|@import )['\"]?(?:https?:)?//", text), style.name


def test_the_search_works_from_a_folder(site: Path, tmp_path: Path) -> None:
    html = in_browser(f"{site.as_uri()}/index.html?q=claims", tmp_path)
    assert len(re.findall(r'<li class="md-search-result__item"', html)) > 3


@pytest.mark.parametrize("width", [390, 1280], ids=["phone", "laptop"])
def test_pages_fit(width: int, site: Path, pages: dict[Path, str], tmp_path: Path) -> None:
    """No page is wider than the screen, and nothing lies over it. Tables fit too, or are scrolled by themselves on a phone."""
    addresses = [f"{site.as_uri()}/{path.as_posix()}" for path in pages]
    host = tmp_path / "host.html"
    host.write_text(HOST % (width, json.dumps(addresses)), encoding="utf-8")
    options = ["--hide-scrollbars", "--allow-file-access-from-files"]
    html = in_browser(host.as_uri(), tmp_path / "profile", *options)
    [found] = re.findall(r"<pre>(.*?)</pre>", html, re.DOTALL)
    measured: dict[str, Any] = dict(zip(addresses, json.loads(unescape(found)), strict=True))
    home = f"{site.as_uri()}/index.html"
    for address, page in measured.items():
        assert page["width"] <= width, address
        assert [] == page["over"], address
        assert {*page["empty"]} <= {'"\u2013"'}, address
        if width == 1280 or address == home:
            assert [] == page["scrolled"], address
    assert any(page["empty"] for page in measured.values())
    assert any(page["scrolled"] for page in measured.values()) == (width == 390)


def test_every_public_name_is_in_the_reference(pages: dict[Path, str]) -> None:
    """With all that is public in it."""
    public = {
        f"tbloom.scrapy.{name}"
        for name in [*tbloom.scrapy.__all__, "PageCacheStorage", "SitemapSpider"]
    }
    for name in {*tbloom.__all__} - {"__version__"}:
        verbs = [verb for verb in vars(getattr(tbloom, name)) if not verb.startswith("_")]
        public |= {f"tbloom.{name}", *(f"tbloom.{name}.{verb}" for verb in verbs)}
    html = "".join(html for path, html in pages.items() if path.parent.name == "reference")
    assert set() == public - {*re.findall(r'\bid="([^"]+)"', html)}
