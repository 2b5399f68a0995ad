"""The documentation site: it is whole, it refers to nobody else, and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import tbloom.scrapy
from tbloom.cli.group import COMMANDS
from tests.helpers.commands import VERBS
from tests.helpers.making import made_once, missing

pytestmark = pytest.mark.check
ROOT = Path(__file__).parents[2]
#: What a browser fetches by itself.
FETCHED = {
    ("audio", "src"), ("embed", "src"), ("iframe", "src"), ("img", "src"), ("link", "href"),
    ("object", "data"), ("script", "src"), ("source", "src"), ("video", "src"),
}  # fmt: skip


class Document(HTMLParser):
    """A page's links, what it fetches, its anchors and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := given.get(name))}
        for name, value in attrs:
            if value and (tag, name) in FETCHED and given.get("rel") != "canonical":
                self.fetched.append(value)
            elif value and (tag, name) == ("a", "href"):
                self.links.append(value)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` makes it in a fresh clone."""
    if sys.version_info < (3, 11):
        missing("Python 3.11, which the site needs,")

    def build(folder: Path) -> None:
        words = [f"PYTHON={sys.executable}", f"VENV={folder}.venv", f"ARGS=--site-dir {folder}"]
        done = subprocess.run(
            ["make", "docs", *words],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    return made_once(tmp_path_factory, "site", build)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Document]:
    return {path: Document(path) for path in site.rglob("*.html") if path.name != "404.html"}


@pytest.fixture(scope="module")
def reference(pages: dict[Path, Document]) -> set[str]:
    """The anchors of its pages: what stands in it."""
    return set().union(*(pages[path].anchors for path in pages if path.parent.name == "reference"))


def test_every_document_is_a_page(site: Path, pages: dict[Path, Document]) -> None:
    documents = {path.relative_to(ROOT / "docs") for path in ROOT.glob("docs/**/*.md")}
    documents |= {Path(path.name.lower()) for path in ROOT.glob("*.md")}
    assert documents == {path.relative_to(site).with_suffix(".md") for path in pages}


def test_nothing_is_fetched_from_elsewhere(site: Path, pages: dict[Path, Document]) -> None:
    """No script, style, font or image of another host; what is fetched is there."""
    fetched = 0
    for path, document in pages.items():
        for address in document.fetched:
            assert not urlsplit(address).netloc, f"{path.name}: {address}"
            assert address.startswith("data:") or (path.parent / unquote(address)).exists(), address
            fetched += 1
    assert fetched > len(pages)
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert [] == re.findall(r"(?:url\(|@import )['\"]?(?:https?:)?//", text), style.name


def test_links_and_anchors_within_the_site_hold(pages: dict[Path, Document]) -> None:
    followed = 0
    for path, document in pages.items():
        for link in document.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{path.name}: {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, f"{path.name}: {link}"
            followed += 1
    assert followed > 100


def test_every_command_has_its_help(site: Path) -> None:
    """And those with sub-commands the help of these."""
    text = " ".join(Document(site / "cli.html").text.split())
    said = [*COMMANDS, *(" ".join(words) for words in VERBS)]
    assert [] == [name for name in said if f"Usage: tbloom {name} " not in text]


def test_every_public_class_of_scrapys_is_in_the_reference(reference: set[str]) -> None:
    names = [*tbloom.scrapy.__all__, "PageCacheStorage"]
    assert {f"tbloom.scrapy.{name}" for name in names} <= reference


@pytest.mark.parametrize("name", sorted({*tbloom.__all__} - {"__version__"}))
def test_every_public_name_is_in_the_reference(reference: set[str], name: str) -> None:
    """With all that is public in it."""
    assert f"tbloom.{name}" in reference
    public = [verb for verb in vars(getattr(tbloom, name)) if not verb.startswith("_")]
    assert set() == {f"tbloom.{name}.{verb}" for verb in public} - reference
