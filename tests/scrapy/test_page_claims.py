"""A page is claimed under its fingerprint, whatever its version: it waits, fails, is left and is given up once, in each store."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from scrapy.http import Response

from tests.helpers.commands import tbloom_in
from tests.helpers.projects import Project, Versions, marked, path_of, times

#: The stores; `make check` has all.
STORES = pytest.mark.parametrize(
    ("mark", "shards"),
    [
        ("done", None),
        pytest.param("done", 8, marks=pytest.mark.check),
        pytest.param("done, local", None, marks=pytest.mark.check),
    ],
)


class OneByOne(Versions):
    """KILLED: in which crawl it is killed by the page "a"."""

    custom_settings = {"CONCURRENT_REQUESTS": 1}  # noqa: RUF012 - as Scrapy has it

    def parse(self, response: Response) -> Any:
        if path_of(response) == "a" and self.settings.get("KILLED") == self.number:
            os.kill(os.getpid(), signal.SIGKILL)
        yield from super().parse(response)


class Crawls:
    """Crawls of one spider on one filter, and the commands about its pages."""

    def __init__(self, project: Any, folder: Path, settings: dict[str, Any]) -> None:
        self._project, self._folder, self._settings = project, folder, settings

    def __call__(self, *versions: Any, **more: Any) -> Any:
        settings = {**self._settings, **more, "VERSIONS": [*versions]}
        return self._project(*[OneByOne] * len(versions), **settings)

    def run(self, *words: str, stdin: str = "") -> str:
        (self._folder / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
        spider = "from tests.helpers.projects import Project as P\nclass Project(P): pass\n"
        (self._folder / "spiders.py").write_text(spider)
        own = {"SPIDER_MODULES": ["spiders"], **self._settings}
        lines = [f"{key} = {value!r}\n" for key, value in own.items() if value is not None]
        (self._folder / "settings.py").write_text("".join(lines))
        done = tbloom_in(self._folder, *words, stdin=stdin)
        assert (0, "") == (done.returncode, done.stderr), done
        return done.stdout

    def kept(self) -> dict[str, list[str]]:
        """The pages that are kept, and in which versions, by their states."""
        found = dict[str, list[str]]()
        for words in ((), ("--left",)):
            said = self.run("failed", "project", *words, "--json-lines")
            for page in map(json.loads, said.splitlines()):
                shown = (
                    f"{page['url'].rpartition('/')[2]} {page.get('meta', {}).get('tbloom_version')}"
                )
                found.setdefault(page["_state"], []).append(shown)
        return found


@pytest.fixture
def crawls(
    project: Any, url: str, name: str, *, tmp_path: Path, mark: str, shards: int | None
) -> Crawls:
    own = {"REDIS_URL": url, "TBLOOM_KEY": name, "TBLOOM_ERROR_RATE": 1e-9, "TBLOOM_SHARDS": shards}
    own |= {"TBLOOM_SESSION_TTL": None if mark.endswith("local") else 3}
    return Crawls(project, tmp_path, {**own, **marked(mark, tmp_path)})


def items(ends: Any) -> list[Any]:
    return [(item["page"], item["version"]) for end in ends for item in end.items]


# A page that fails


@STORES
@pytest.mark.parametrize("last", ["4", None])
def test_a_page_given_up_is_done_in_its_next_version(crawls: Crawls, last: str | None) -> None:
    """Or without one. It is fetched once in each crawl, and nothing of it is kept once it is done."""
    ends = crawls("1", "2", "3", answers={"/a": [503]})
    assert {"a": [1, 1, 1]} == times(ends)
    assert ["given up"] == [*crawls.kept()]
    done = crawls(last, last, None, "4", "3")
    first_of_4 = int(last is None)
    # The link without a version is in none, and so 4 and 3 are new later.
    assert {"a": [1, 0, 0, first_of_4, 1]} == times(done)
    assert ("a", last) == items(done)[0]
    assert {} == crawls.kept()


@STORES
def test_tbloom_retry_of_a_page_that_is_given_up(crawls: Crawls) -> None:
    """A link in another version takes its place; without one it is fetched in the version in which it has failed first."""
    crawls("1", "2", "3", answers={"/a": [503]})
    crawls.run("retry", "project", "--all", "--yes")
    assert ["left"] == [*crawls.kept()]
    ends = crawls("4", [], "4")
    assert [("a", "4")] == items(ends)
    assert {"a": [1, 0, 0]} == times(ends)
    assert {} == crawls.kept()


# A page that is left


@STORES
def test_a_left_page_is_fetched_in_the_next_links_version(
    crawls: Crawls,
) -> None:
    """Once, and without a link in its own version."""
    pages = [*"abcdef"]
    [first] = crawls([(page, "1") for page in pages], CLOSESPIDER_PAGECOUNT=1)
    done = {path.strip("/") for path in first.fetched}
    assert 0 < len(done) < len(pages)
    left = sorted({*pages} - done)
    assert {"left": [f"{page} 1" for page in left]} == {
        state: sorted(kept) for state, kept in crawls.kept().items()
    }
    linked, unlinked = left[:-1], left[-1]
    asked = [(page, "2") for page in linked]
    ends = crawls(asked, asked)
    assert [*((page, "2") for page in linked), (unlinked, "1")] == sorted(items(ends))
    assert {page: [1, 0] for page in left} == times(ends)
    assert {} == crawls.kept()


@STORES
@pytest.mark.parametrize("has_jobdir", [False, pytest.param(True, marks=pytest.mark.check)])
def test_a_stopped_crawls_page_is_fetched_once_in_its_newest_version(
    crawls: Crawls, tmp_path: Path, *, has_jobdir: bool
) -> None:
    """If the next crawl has a link in that version, too."""
    pages = [*"abcdef"]
    asked = [(page, "2") for page in pages]
    more = {"JOBDIR": str(tmp_path / "job")} if has_jobdir else {}
    ends = crawls([*((page, "1") for page in pages), *asked], CLOSESPIDER_PAGECOUNT=1, **more)
    assert len({*ends[0].fetched}) < len(pages)
    ends += crawls(asked, asked, **more)
    assert asked == sorted(item for item in items(ends) if item[1] == "2")
    assert [] == ends[2].fetched
    assert {} == crawls.kept()


@STORES
def test_a_killed_crawls_page_is_fetched_once_whatever_the_link(crawls: Crawls) -> None:
    """The page of which the crawl may have died is fetched as it was. Then the link's version is fetched in this crawl, or later."""
    pages = [*"abcdef"]
    assert crawls([(page, "1") for page in pages], KILLED=0) is None
    asked = [(page, "2") for page in pages]
    ends = crawls(asked, asked, asked, [(page, "1") for page in "f"])
    counts = times(ends)
    assert {1} == {counts[page][0] for page in pages}
    assert {0} == {counts[page][2] for page in pages}
    assert {} == crawls.kept()


# Pushed pages


@pytest.mark.parametrize(
    ("mark", "shards"), [("done", None), pytest.param("done", 8, marks=pytest.mark.check)]
)
def test_one_page_pushed_in_two_versions(crawls: Crawls, tmp_path: Path) -> None:
    """It waits once, in the last one. What was seen is new in another version."""
    url = "http://127.0.0.1:1/a"
    lines = [{"url": url, "meta": {"tbloom_version": version}} for version in ("1", "2", "2")]
    (tmp_path / "lines").write_text("\n".join([*map(json.dumps, lines), url]))
    said = json.loads(crawls.run("push", "project", "lines", "--json"))
    assert (4, 2) == (said["lines"], said["new"])
    assert {"left": ["a 2"]} == crawls.kept()
    said = json.loads(crawls.run("push", "project", "lines", "--json"))
    assert (4, 0) == (said["lines"], said["new"])
    assert {"left": ["a 2"]} == crawls.kept()


class CopiesMeta(Project):
    """A page fails when what it has asked for, with its meta, was fetched."""

    pages = ("a",)

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.was_fetched = asyncio.Event()

    async def parse(self, response: Response) -> Any:
        if path_of(response) == "a":
            yield self.request("b", meta=response.meta, dont_filter=True)
            yield self.request("c", priority=-1, dont_filter=True)
            await self.was_fetched.wait()
            raise ZeroDivisionError
        if path_of(response) == "c":
            self.was_fetched.set()


def test_a_request_with_a_failing_pages_meta_is_not_that_page(project: Any) -> None:
    crawls = project(CopiesMeta, CopiesMeta, **marked("done", Path()))
    assert {"a": [1, 1], "b": [1, 1], "c": [1, 1]} == times(crawls)
