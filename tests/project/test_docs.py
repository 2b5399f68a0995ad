"""The documents are true: their code runs, and their links lead somewhere."""

from __future__ import annotations

import ast
import functools
import itertools
import re
import subprocess
import sys
from ast import literal_eval
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import redis
import scrapy.dupefilters
import scrapy_redis.dupefilter
from scrapy import Request
from scrapy.settings import Settings

from tbloom import ExactFilter
from tbloom.scrapy.addon import Addon
from tbloom.scrapy.done import states
from tbloom.scrapy.extras.counts import make_counters
from tbloom.scrapy.options import make_store
from tbloom.scrapy.settings import FLUSH, KNOWN, MARK
from tests.helpers.cached import THEIRS, Opened
from tests.helpers.documents import DOCUMENTS, ROOT, Runner, blocks
from tests.helpers.website import served
from tests.simulation.cases import PLAYED

each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)


@each_document
def test_every_test_that_is_named_exists(path: Path) -> None:
    test_with_case = r"`(?:tests/)?([\w/]+\.py)::(\w+)(?:\[(.*?)\])?`"
    named = re.findall(test_with_case, path.read_text(encoding="utf-8"))
    for file, test, case in named:
        assert not case or case in PLAYED
        code = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"^(?:async )?(?:def|class) {test}\b|^{test} = ", code, re.MULTILINE), (
            f"{file}::{test}"
        )
    assert named or path.name != "guarantees.md"


@pytest.mark.parametrize(
    "path",
    [*DOCUMENTS, *ROOT.glob("docs/reference/*.md"), *ROOT.glob("examples/*/*.md")],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_every_link_within_the_project_leads_somewhere(path: Path) -> None:
    """To a file of the repository, which a reader of a source copy has too, and to a heading where it names one."""
    text = path.read_text(encoding="utf-8")
    for target, heading in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
        file = path.parent / target if target else path
        assert file.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]
            assert heading in anchors, (target, heading)


def crawled(client: redis.Redis, folder: Path) -> None:
    """Leaves the state after crawls of the spiders ``news`` with scrapy-redis, and ``other`` with a JOBDIR; and a cache."""
    request = Request("https://example.com/a")
    redis_filter = scrapy_redis.dupefilter.RFPDupeFilter(client, "news:dupefilter")
    assert redis_filter.request_seen(request) is False
    (folder / "crawls" / "other").mkdir(parents=True)
    scrapy_filter = scrapy.dupefilters.RFPDupeFilter(str(folder / "crawls" / "other"))
    assert scrapy_filter.request_seen(request) is False
    scrapy_filter.close("finished")
    with Opened(folder / ".scrapy" / "httpcache", storage=THEIRS) as cache:
        cache.store(request)


#: Most of their blocks start processes.
LONG = (
    *("CONTRIBUTING.md", "cli.md", "distinct.md", "comparison.md", "operating.md", "pages.md"),
    "quickstart.md",
)


@pytest.mark.usefixtures("away_from_midnight")
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.check if path.name in LONG else ())
        for path in DOCUMENTS
    ],
    ids=lambda path: path.name,
)
def test_every_block_runs_and_says_the_truth(
    path: Path, own: redis.Redis, site: str, tmp_path: Path
) -> None:
    """In order, on a server that has only the requests of another dupefilter."""
    own.flushall()
    crawled(own, tmp_path)
    port = own.connection_pool.connection_kwargs["port"]
    files = partial(SimpleHTTPRequestHandler, directory=tmp_path / "site")
    with served(files) as own_site:
        runner = Runner(f"redis://127.0.0.1:{port}/0", site, tmp_path, f"{own_site.url}/")
        for block in blocks(path):
            runner.run(block)


ROW = re.compile(r"^\| (`[A-Z]\w+`(?:, `\w+`)*) \| (?:`(.*?)`)? ?\| (.+) \|$", re.MULTILINE)
#: The settings that one needs most, and the others.
SETTINGS = "".join(
    (ROOT / "docs" / name).read_text("utf-8") for name in ("scrapy.md", "settings.md")
)
README = (ROOT / "README.md").read_text(encoding="utf-8")
#: The default of each setting, or "".
TABLE = {name: row[1] for row in ROW.findall(SETTINGS) for name in re.findall(r"\w+", row[0])}


def test_the_scrapy_guide_has_every_setting_and_no_other() -> None:
    """Each stands in one row, and there only."""
    rows = [name for row in ROW.findall(SETTINGS) for name in re.findall(r"\w+", row[0])]
    assert sorted(KNOWN) == sorted(rows)
    assert not ROW.findall(README)


@pytest.mark.parametrize("setting", [name for name, default in TABLE.items() if default])
def test_the_defaults_in_the_scrapy_guide_are_right(setting: str, url: str) -> None:
    """To set a setting to its default changes nothing, with the add-on."""
    store = {"TBLOOM_STORE": "exact", "TBLOOM_MARK": "scheduled"} if setting == "TBLOOM_TTL" else {}
    base = {"REDIS_URL": url, **store}
    given = {**base, setting: literal_eval(TABLE[setting])}
    assert _described(base) == _described(given)


def _described(settings: dict[str, Any]) -> list[Any]:
    """All that the settings lead to."""
    read_from = Settings(settings)
    Addon().update_settings(read_from)
    seen = make_store(read_from, "news")
    own = [seen.config, seen._retry_for]
    if isinstance(seen, ExactFilter):
        own.append(seen._ttl)
    else:
        own += [seen.session_ttl, seen._cache.size, seen._cache._ttl]
    counters = make_counters(read_from, "news").values()
    own += [counter.config for counter in counters]
    return [*own, type(seen), MARK.value(read_from), FLUSH.value(read_from)]


@pytest.mark.check
def test_each_report_that_the_documents_name_has_a_test() -> None:
    """Whose docstring names it, as ``project#number``."""
    link = re.compile(r"\[(([\w.-]+)#(\d+))\]\(https://github\.com/[\w-]+/\2/(?:issues|pull)/\3\)")
    page = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if "](" in line]
    listed = [[report for report, *_ in link.findall(row)] for row in rows]
    assert [row.count("](") for row in rows] == [*map(len, listed)]
    assert {*itertools.chain(*listed)} <= {*_reports_that_tests_name()}


def _reports_that_tests_name() -> Iterator[str]:
    """Each report that the docstring of a test (or of a class of users' code) names."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            is_test = named and (node.name.startswith("test_") or path.parent.name == "typing")
            for project, numbers in re.findall(
                r"\b([A-Za-z][\w.-]*)(#\d+(?:, #\d+)*)", (is_test and ast.get_docstring(node)) or ""
            ):
                for number in numbers.split(", "):
                    yield project + number


@functools.cache
def _fast_tests() -> list[str]:
    """The tests of the fast tier, with their cases."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not check", "tests"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return [line.removeprefix("tests/") for line in found.splitlines() if "::" in line]


@pytest.mark.check
def test_make_test_shows_every_promise() -> None:
    """Each row of docs/guarantees.md that names tests names one that runs in the fast tier."""
    fast = {re.sub(r"\[.*", "", test) for test in _fast_tests()}
    rows = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8").splitlines()
    named = [set(re.findall(r"`([\w/]+\.py::\w+)(?:\[.*?\])?`", row)) for row in rows]
    assert [] == [tests for tests in named if tests and not tests & fast]
    assert len([tests for tests in named if tests]) > 60


def test_the_architecture_shows_the_table_of_a_pages_states() -> None:
    rows = ["| state | what happens → next state |", "|---|---|"]
    for state, events in states.TABLE.items():
        steps = "; ".join(f"{event.value} → *{to.value}*" for event, to in events.items())
        rows.append(f"| *{state.value}* | {steps} |")
    page = ROOT / "docs" / "architecture.md"
    assert "\n".join(["", *rows, ""]) in page.read_text(encoding="utf-8")
