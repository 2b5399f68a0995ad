"""The documentation site: it is whole, and refers to nobody else. (MkDocs finds links that lead nowhere: a warning is an error.)"""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import tbloom.distinct
import tbloom.metrics
import tbloom.pages
import tbloom.scrapy
from tests.helpers.browser import in_browser
from tests.helpers.making import made_once

pytestmark = pytest.mark.check
ROOT = Path(__file__).parents[2]
#: What a browser fetches by itself.
FETCHED = re.compile(
    r"<(?:script|img|source|iframe)\b[^>]*? src=\"?([^\" >]+)|<link\b(?![^>]*canonical)[^>]*? href=\"?([^\" >]+)"
)


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


def test_every_public_name_is_in_the_reference(pages: dict[Path, str]) -> None:
    """With all that is public in it."""
    packages = tbloom.distinct, tbloom.metrics, tbloom.pages, tbloom.scrapy
    public = {f"{package.__name__}.{name}" for package in packages for name in package.__all__}
    more = "PageCacheStorage", "ScrapyRedisFingerprinter", "SitemapSpider"
    public |= {f"tbloom.scrapy.{name}" for name in more}
    for name in {*tbloom.__all__} - {"__version__"}:
        verbs = [verb for verb in vars(getattr(tbloom, name)) if not verb.startswith("_")]
        public |= {f"tbloom.{name}", *(f"tbloom.{name}.{verb}" for verb in verbs)}
    html = "".join(html for path, html in pages.items() if path.parent.name == "reference")
    assert set() == public - {*re.findall(r'\bid="([^"]+)"', html)}
