"""An older version of tbloom beside this one, as in a deployment that takes hours: neither loses what the other has written.

An older one can't read packed notes: it leaves what it takes of a newer one as failed, to a newer one.

The older one comes out of this repository's history.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tbloom import TimeBloom
from tbloom.bloom.claims.fleet import FAILED, GIVEN_UP, Fleet, Pages
from tests.helpers.keptpages import view_of
from tests.helpers.website import Handler, served

#: The last commit before failed pages were kept in an index.
OLDER = "d2d82ba2"
#: The last commit that claimed each version of a page by itself.
BEFORE_PAGE_CLAIMS = "2df42574"
ROOT = Path(__file__).parents[2]
CRAWL = """
import json
import sys

import scrapy
from scrapy.crawler import CrawlerProcess


class Shop(scrapy.Spider):
    name = "shop"
    start_urls = json.loads(sys.argv[2])

    async def start(self):
        for url, version in self.start_urls:
            yield scrapy.Request(url, meta={"tbloom_version": version} if version else {})

    def parse(self, response):
        yield {"page": response.url}
        for number in range(response.meta.get("links", 0) or int(response.headers["Links"])):
            yield response.follow(f"/{number}")


process = CrawlerProcess(json.loads(sys.argv[1]))
process.crawl(Shop)
process.start()
"""
PAGES = 60
Link = str | tuple[str, str]


class Site(Handler):
    """/ leads to ``PAGES`` pages. While ``is_down``, the other ones answer 503."""

    def get(self) -> None:
        with self.server.lock:
            self.server.asked[self.path] += 1
        if self.path != "/" and self.server.is_down:
            self.answer(503)
        else:
            self.answer(200, b"<html>", Links=PAGES if self.path == "/" else 0)


def extracted(commit: str, folder: Path) -> Path:
    """A folder with an older version."""
    command = ["git", "-C", str(ROOT), "archive", commit, "tbloom", "lua"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("a copy without the history of this repository")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def older(tmp_path_factory: Any) -> Path:
    return extracted(OLDER, tmp_path_factory.mktemp("older"))


@pytest.fixture(scope="module")
def before_page_claims(tmp_path_factory: Any) -> Path:
    return extracted(BEFORE_PAGE_CLAIMS, tmp_path_factory.mktemp("before"))


class Crawls:
    """Crawls of both versions on one filter and one site."""

    def __init__(self, url: str, name: str, older: Path, site: Any) -> None:
        self.site, self.older = site, older
        self.settings = {
            "ADDONS": {"tbloom.scrapy.Addon": 500},
            "REDIS_URL": url,
            "TBLOOM_KEY": name,
            "TBLOOM_SESSION_TTL": 4,
            "TBLOOM_ERROR_RATE": 1e-9,
            "RETRY_ENABLED": False,
            "LOG_LEVEL": "WARNING",
            "TELNETCONSOLE_ENABLED": False,
        }

    def start(self, version: str, *links: Link, **more: Any) -> subprocess.Popen[str]:
        """Starts a crawl of these paths, or of pairs of a path and its version."""
        folder = self.older if version == "older" else ROOT
        pairs = [(link, "") if isinstance(link, str) else link for link in links]
        urls = [(f"{self.site.url}{path}", of_page) for path, of_page in pairs]
        words = [json.dumps({**self.settings, **more}), json.dumps(urls)]
        command = [sys.executable, "-c", CRAWL, *words]
        env = {"PYTHONPATH": str(folder), "PATH": ""}
        # With -c, modules of the working directory come first.
        return subprocess.Popen(command, env=env, cwd=folder, stderr=subprocess.PIPE, text=True)

    def run(self, version: str, *links: Link, **more: Any) -> str:
        crawl = self.start(version, *links, **more)
        log = crawl.communicate()[1]
        assert 0 == crawl.returncode, log
        return log

    def fetched(self) -> dict[str, int]:
        """How often each page was asked for, but for the start page."""
        asked = dict(self.site.asked)  # in one step, because threads of the site change it
        return {path: times for path, times in asked.items() if path != "/"}


@pytest.fixture
def site_of_the_test() -> Any:
    from threading import Lock  # noqa: PLC0415 - of the site alone

    with served(Site, asked=Counter(), is_down=False, lock=Lock()) as site:
        yield site


@pytest.fixture
def crawls(url: str, name: str, older: Path, site_of_the_test: Any) -> Crawls:
    return Crawls(url, name, older, site_of_the_test)


def all_once(times: int = 1) -> dict[str, int]:
    return {f"/{number}": times for number in range(PAGES)}


@pytest.mark.check
def test_both_share_a_site(crawls: Crawls, open_fleet: Any) -> None:
    for order in (("older", "newer"), ("newer", "older")):
        started = [crawls.start(version, "/", CONCURRENT_REQUESTS=2) for version in order]
        logs = [crawl.communicate()[1] for crawl in started]
        assert [0, 0] == [crawl.returncode for crawl in started], logs
        assert "ERROR" not in logs[order.index("newer")]
        listed = {f"/{page.url.rpartition('/')[2]}" for page in open_fleet("shop").kept()}
        assert all_once().keys() - crawls.fetched() == listed
        crawls.run("newer")
        assert all_once() == crawls.fetched()
    fleet: Fleet = open_fleet("shop")
    assert Pages() == view_of(fleet).pages


@pytest.mark.parametrize(
    "order", [pytest.param(("older", "newer"), marks=pytest.mark.check), ("newer", "older")]
)
def test_each_takes_what_has_failed_for_the_other(
    crawls: Crawls, open_fleet: Any, order: tuple[str, str]
) -> None:
    fleet: Fleet = open_fleet("shop")
    crawls.site.is_down = True
    crawls.run(order[0], "/")
    reason = "status/503" if order[0] == "newer" else "unknown"
    kept = [(page.state, page.reason, page.tries) for page in fleet.kept()]
    assert [(FAILED, reason, 1)] * PAGES == kept
    crawls.site.is_down = False
    crawls.run(order[1])
    if order[1] == "older":
        assert {FAILED} == {page.state for page in fleet.kept()}
        crawls.run("newer")
    assert all_once(2) == crawls.fetched()
    assert [] == [*fleet.kept()]
    crawls.run("newer", "/")
    assert all_once(2) == crawls.fetched()


@pytest.mark.check
def test_pages_that_have_failed_for_both_are_given_up_once(crawls: Crawls, open_fleet: Any) -> None:
    """The older one follows a link to them, and takes none."""
    fleet: Fleet = open_fleet("shop")
    crawls.site.is_down = True
    for version in ("older", "older", "newer", "older"):
        crawls.run(version, *["/"] * (not crawls.fetched()))
    assert all_once(3) == crawls.fetched()
    kept = {(page.state, page.reason, page.tries) for page in fleet.kept()}
    assert {(GIVEN_UP, "status/503", 3)} == kept
    crawls.site.is_down = False
    crawls.run("older", "/0", "/1")
    assert PAGES - 2 == view_of(fleet).pages.given_up
    assert (PAGES - 2, 0) == fleet.retry(fleet.kept([GIVEN_UP]))
    crawls.run("older")
    assert all_once(4) == crawls.fetched()
    assert [] == [*fleet.kept()]


@pytest.mark.check
@pytest.mark.parametrize("order", [("older", "newer"), ("newer", "older")])
def test_each_takes_over_the_pages_of_the_other_that_was_killed(
    crawls: Crawls, order: tuple[str, str]
) -> None:
    killed = crawls.start(order[0], "/", CONCURRENT_REQUESTS=1, DOWNLOAD_DELAY=0.05)
    while len(crawls.fetched()) < 10:
        assert killed.poll() is None, killed.communicate()
    killed.kill()
    killed.communicate()
    crawls.run(order[1])
    crawls.run("newer")
    times = crawls.fetched()
    assert all_once().keys() == times.keys()
    # Some were fetched, and their commits were due.
    assert {1, 2} >= {*times.values()}
    assert PAGES + 10 > sum(times.values())


# Pages in versions, which 2df42574 claimed each by itself


FEW = 8
ORDERS = pytest.mark.parametrize("order", [("older", "newer"), ("newer", "older")])


def in_version(version: str, pages: int = FEW) -> list[Link]:
    """Links to the first pages."""
    return [(f"/{number}", version) for number in range(pages)]


class Versions(Crawls):
    """Crawls with versions, and what is kept of the pages."""

    def __init__(self, *given: Any, shards: int) -> None:
        super().__init__(*given)
        self.settings["TBLOOM_SHARDS"] = self.shards = shards

    @property
    def forgets(self) -> bool:
        """Whether the newer one does not know what the older one has seen of versions: it looks for them in their pages' shards."""
        return self.shards > 1

    def all_fetched(self) -> list[int]:
        """How often each page was asked for."""
        times = self.fetched()
        assert {f"/{number}" for number in range(FEW)} == times.keys()
        return [*times.values()]

    def kill(self, crawl: subprocess.Popen[str], fetched: int) -> None:
        """Kills a crawl once so many pages were asked for."""
        while sum(self.fetched().values()) < fetched:
            assert crawl.poll() is None, crawl.communicate()
        crawl.kill()
        crawl.communicate()

    def kept(self) -> list[tuple[str, str, int]]:
        """The path, state and failures of each page that is kept."""
        settings = self.settings
        with TimeBloom.from_url(
            settings["REDIS_URL"], settings["TBLOOM_KEY"], shards=self.shards
        ) as seen:
            pages = [*Fleet(seen, "shop").kept()]
        return sorted((f"/{page.url.rpartition('/')[2]}", page.state, page.tries) for page in pages)


@pytest.fixture(params=[1, pytest.param(8, marks=pytest.mark.check)], ids="{} shards".format)
def in_versions(
    request: Any, url: str, name: str, before_page_claims: Path, site_of_the_test: Any
) -> Versions:
    return Versions(url, name, before_page_claims, site_of_the_test, shards=request.param)


@pytest.mark.parametrize(
    "order", [("older", "newer"), pytest.param(("newer", "older"), marks=pytest.mark.check)]
)
def test_each_takes_pages_in_a_version_that_have_failed_for_the_other(
    in_versions: Versions, order: tuple[str, str]
) -> None:
    """Without a link."""
    in_versions.site.is_down = True
    in_versions.run(order[0], *in_version("1"))
    assert [(f"/{number}", FAILED, 1) for number in range(FEW)] == in_versions.kept()
    in_versions.site.is_down = False
    in_versions.run(order[1])
    in_versions.run("newer")
    assert [2] * FEW == in_versions.all_fetched()
    assert [] == in_versions.kept()
    for _ in range(2):
        in_versions.run("newer", *in_version("1"))
        in_versions.run("newer", *in_version(""))
    assert [2] * FEW == in_versions.all_fetched()
    assert [] == in_versions.kept()


@pytest.mark.check
@ORDERS
def test_a_link_in_another_version_to_a_page_that_has_failed_for_the_other(
    in_versions: Versions, order: tuple[str, str]
) -> None:
    """The newer one fetches it once, and the older one at most once in each version. Nothing of it is kept."""
    in_versions.site.is_down = True
    in_versions.run(order[0], *in_version("1"))
    in_versions.site.is_down = False
    in_versions.run(order[1], *in_version("2"))
    times = in_versions.all_fetched()
    assert {2} == {*times} if order[0] == "older" else {2, 3} >= {*times}
    assert [] == in_versions.kept()
    in_versions.run("newer", *in_version("2"))
    # (Of 8 shards, one page in 8 is looked for where the older one has put it.)
    more = in_versions.forgets and order[1] == "older"
    assert {0, int(more)} >= {b - a for a, b in zip(times, in_versions.all_fetched(), strict=True)}


@pytest.mark.check
def test_pages_in_versions_that_go_on_failing_for_both_are_given_up_once(
    in_versions: Versions,
) -> None:
    in_versions.site.is_down = True
    for number, version in enumerate(("older", "newer", "newer", "newer")):
        in_versions.run(version, *in_version("1") * (number == 0))
    assert [3] * FEW == in_versions.all_fetched()
    assert [(f"/{number}", GIVEN_UP, 3) for number in range(FEW)] == in_versions.kept()
    in_versions.site.is_down = False
    in_versions.run("newer", *in_version("2"))
    assert [4] * FEW == in_versions.all_fetched()
    assert [] == in_versions.kept()


@pytest.mark.check
@pytest.mark.parametrize("version", ["1", "2"])
def test_pages_that_the_older_one_has_given_up(in_versions: Versions, version: str) -> None:
    """In the same version, nothing of them is kept; in another one, an operator finds them in the old one until the window is over."""
    in_versions.site.is_down = True
    for number in range(3):
        in_versions.run("older", *in_version("1") * (number == 0))
    in_versions.site.is_down = False
    in_versions.run("newer", *in_version(version))
    assert [4] * FEW == in_versions.all_fetched()
    old = [(f"/{number}", GIVEN_UP, 3) for number in range(FEW)]
    kept = in_versions.kept()
    if version == "1" and in_versions.forgets:  # but pages whose version was in their shard before
        assert {*kept} <= {*old}
    else:
        assert ([] if version == "1" else old) == kept
    with TimeBloom.from_url(
        in_versions.settings["REDIS_URL"], in_versions.settings["TBLOOM_KEY"], shards=in_versions.shards
    ) as seen:  # fmt: skip
        fleet = Fleet(seen, "shop")
        fleet.retry([*fleet.kept()])
    in_versions.run("newer")
    assert [] == in_versions.kept()
    assert [4 if version == "1" else 5] * FEW == in_versions.all_fetched()


@pytest.mark.check
@ORDERS
@pytest.mark.parametrize("version", ["", "1", "2"])
def test_each_takes_over_pages_in_versions_of_the_other_that_was_killed(
    in_versions: Versions, order: tuple[str, str], version: str
) -> None:
    """Also beside links in a version."""
    slow = {"CONCURRENT_REQUESTS": 1, "DOWNLOAD_DELAY": 0.1}
    in_versions.kill(in_versions.start(order[0], *in_version("1"), **slow), fetched=3)
    in_versions.run(order[1], *in_version(version) if version else ())
    in_versions.run("newer")
    times = in_versions.all_fetched()
    # 2df42574 has a page in each version; those that were fetched before the kill are new in another one.
    assert {1, 2, 3} >= {*times}
    assert [] == in_versions.kept()
    for asked in ("1", "2", ""):
        in_versions.run("newer", *in_version(asked))
    assert [] == in_versions.kept()
    times = in_versions.all_fetched()
    in_versions.run("newer", *in_version("1"), *in_version("2"))
    assert times == in_versions.all_fetched()


@pytest.mark.check
@ORDERS
@pytest.mark.parametrize("killed", [0, 1])
def test_both_at_once_in_versions_while_one_is_killed(
    in_versions: Versions, order: tuple[str, str], killed: int
) -> None:
    """Each page is fetched, and nothing is kept for ever."""
    slow = {"CONCURRENT_REQUESTS": 1, "DOWNLOAD_DELAY": 0.2}
    started = [in_versions.start(version, *in_version("1"), *in_version("2"), **slow) for version in order]  # fmt: skip
    dead = started.pop(killed)
    in_versions.kill(dead, fetched=5)
    for crawl in started:
        assert 0 == crawl.wait(), crawl.communicate()
        crawl.communicate()
    in_versions.all_fetched()
    in_versions.run("newer", *in_version("1"))
    in_versions.run("newer", *in_version("2"))
    assert [] == in_versions.kept()
    times = in_versions.all_fetched()
    in_versions.run("newer", *in_version("1"), *in_version("2"), *in_version(""))
    assert times == in_versions.all_fetched()


@pytest.mark.check
@pytest.mark.parametrize("linked", ["", "1", "2"])
def test_a_jobdir_of_the_older_one_goes_on(
    in_versions: Versions, tmp_path: Path, linked: str
) -> None:
    """Each page once, and in another version at most once more."""
    more = {"JOBDIR": str(tmp_path / "job"), "CONCURRENT_REQUESTS": 1}
    in_versions.run("older", *in_version("1"), CLOSESPIDER_PAGECOUNT=3, **more)
    assert 0 < sum(in_versions.fetched().values()) < FEW
    in_versions.run("newer", *in_version(linked) if linked else (), **more)
    times = in_versions.all_fetched()
    is_once = not linked or (linked == "1" and not in_versions.forgets)
    assert {1} == {*times} if is_once else {1, 2} >= {*times}
    assert [] == in_versions.kept()
    in_versions.run("newer", *in_version("1"), **more)
    if is_once and not in_versions.forgets:
        assert times == in_versions.all_fetched()
    assert [] == in_versions.kept()
