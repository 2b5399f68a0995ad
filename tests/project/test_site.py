"""The documentation site: it is whole, it refers to nobody else, and its links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import tbloom.scrapy
from tbloom.cli.commands import registry
from tbloom.cli.commands.registry import COMMANDS
from tbloom.cli.kit import subcommands
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
    """The site, built as `make docs` does it."""
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        missing("The extra docs (pip install 'tbloom[docs]', on Python 3.11 or later)")

    def build(folder: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--site-dir", folder],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, timeout=110, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    return made_once(tmp_path_factory, "site", build)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Document]:
    return {path: Document(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_document_is_a_page(pages: dict[Path, Document]) -> None:
    documents = {path.stem.lower() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]}
    assert documents == {path.stem for path in pages}


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


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_help_and_an_example(site: Path, command: str) -> None:
    """Also those that nobody thought of when the page was written."""
    text = " ".join(Document(site / "cli.html").text.split())
    for said in (
        f"usage: tbloom {command} ",
        COMMANDS[command].help[1:],
        COMMANDS[command].example,
    ):
        assert said in text, said


def test_the_verbs_of_a_command_have_their_help(site: Path) -> None:
    text = " ".join(Document(site / "cli.html").text.split())
    parser = registry.parsers()[1]["count"]
    registry.load("count").add_arguments(parser)
    verbs = subcommands.parsers(parser)
    assert {"add", "show"} <= verbs.keys()
    assert [] == [verb for verb in verbs if f"usage: tbloom count {verb} " not in text]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_example_is_a_command_line_that_its_parser_takes(command: str) -> None:
    """Up to where the shell takes over."""
    words = shlex.split(COMMANDS[command].example)
    of_the_shell = (place for place, word in enumerate(words) if word in {"<", ">", "|", "&&"})
    parser, commands = registry.parsers()
    registry.load(command).add_arguments(commands[command])
    arguments = parser.parse_args(words[1 : next(of_the_shell, None)])
    assert arguments.command == command


def test_every_public_class_of_scrapys_is_in_the_reference(site: Path) -> None:
    anchors = Document(site / "api.html").anchors
    assert {
        f"tbloom.scrapy.{name}" for name in [*tbloom.scrapy.__all__, "PageCacheStorage"]
    } <= anchors


@pytest.mark.parametrize("name", sorted({*tbloom.__all__} - {"__version__"}))
def test_every_public_name_is_in_the_reference(site: Path, name: str) -> None:
    """With all that is public in it."""
    anchors = Document(site / "api.html").anchors
    assert f"tbloom.{name}" in anchors
    public = [verb for verb in vars(getattr(tbloom, name)) if not verb.startswith("_")]
    assert set() == {f"tbloom.{name}.{verb}" for verb in public} - anchors
