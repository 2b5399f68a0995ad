"""A page is fetched again when its version has changed: ``meta={"tbloom_version": ...}``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import scrapy
from scrapy.http import Response

from tbloom.errors import ConfigError
from tbloom.scrapy.links import version_of
from tests.helpers.clock import Clockwork
from tests.helpers.projects import LOCAL, Project, Versions, path_of, queued, times
from tests.helpers.schedulers import SCRAPY, STORES

MARKS = pytest.mark.parametrize("mark", ["scheduled", "done", LOCAL])


@pytest.fixture
def counts(project: Any) -> Any:
    """How often each crawl fetches the page."""

    def counts(*versions: Any, **more: Any) -> list[int]:
        return [
            len(end.fetched)
            for end in project(*[Versions] * len(versions), VERSIONS=versions, **more)
        ]

    return counts


ALONE = {"ADDONS": {}, **SCRAPY}
SETTINGS = {
    "the class alone": ALONE,
    "an exact store": {**ALONE, **STORES["exact"], "TBLOOM_ERROR_RATE": None},
}


NOW = datetime(2026, 11, 29, 10, tzinfo=UTC)
HERE = timezone(timedelta(hours=1))
SPELLINGS = [
    *("2026-11-29T10:00:00Z", "2026-11-29T10:00Z", "2026-11-29t10:00:00.000z"),
    *("2026-11-29T10:00:00+0000", "2026-11-29T10:00:00-00:00", "2026-11-29T12:00:00+02:00"),
    *("2026-11-29T00:30-0930", "2026-11-29T11:00:00,0+01", "2026-11-29 10:00:00 UTC"),
    *("2026-11-29T10:00:00", b" 2026-11-29T10:00:00.0Z\n"),
]
OTHERS = [
    *(NOW, "2026-11-29", "2026-11-29T00:00:00Z", "20261129T100000Z", "2026-11-29T10:00:00.001Z"),
    *("2026-11-29T10:00:00.0010000001Z", "2026-11-29T10:00:00+02:00", "2026-11-29T10:00:00X"),
    *("2026-11-31T10:00:00Z", "2026-11-31T10:00:00+00:00", "2026-11-29T24:00:00Z"),
    *("9999-12-31T23:00:00-02:00", "x 2026-11-29T10:00:00Z", '"5"', 'W/"5"', "5", " 5"),
]


def hash_of(version: Any) -> bytes:
    return version_of(scrapy.Request("data:,", meta={"tbloom_version": version}))


@MARKS
@pytest.mark.parametrize(
    ("versions", "fetched"),
    [
        (["1", "1", None, "2", ["2", "1", None], 3, None], [1, 0, 0, 1, 0, 1, 0]),
        ([None, "1", "1", None], [1, 1, 0, 0]),
        (["1", [None, "1", "2"], [None, "2", "1"]], [1, 1, 0]),
    ],
    ids=["with a version first", "without one first", "both in a batch"],
)
def test_a_page_is_fetched_once_in_each_version_then_seen(
    counts: Any, versions: list[Any], fetched: list[int]
) -> None:
    """Without a version, too. A version that was never seen is fetched although the URL was seen."""
    assert fetched == counts(*versions)


@pytest.mark.parametrize("mark", ["done", LOCAL])
@pytest.mark.parametrize(
    ("versions", "answers", "fetched"),
    [
        (["1", "2", "3", "3"], [503, 503, 200], [1, 1, 1, 0]),
        (["1", "2", "1", "2"], [503, 200], [1, 1, 0, 0]),
        (["1", "1"], [304], [1, 0]),
    ],
    ids=["replaced", "done in the one in which it was kept", "304"],
)
def test_a_link_in_another_version_replaces_a_failed_page(
    counts: Any, versions: list[Any], answers: list[int], fetched: list[int]
) -> None:
    """It is done in each version that was asked for. 304 without a callback for it: nothing is new."""
    assert fetched == counts(*versions, answers={"/a": answers})


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_versions_without_the_add_on(counts: Any, settings: dict[str, Any]) -> None:
    versions = ["1", "1", None, "2", ["2", "1", None]]
    assert [1, 0, 0, 1, 0] == counts(*versions, **settings)


def test_a_url_is_seen_a_window_after_its_last_version(clockwork: Clockwork, project: Any) -> None:
    """A week, also if it was seen in an earlier version, and each version as long. A page is done in all versions of a batch."""
    fetched = list[int]()
    for days, versions in ((0, 1), (5, 2), (3, [1, 2, None]), (8, [2, None])):
        clockwork.go_on(days * 24 * 3600)
        [end] = project(Versions, VERSIONS=[versions], REDIS_URL=clockwork.server.url)
        fetched.append(len(end.fetched))
    assert [1, 1, 1, 1] == fetched  # version 1 again, and then version 2


@MARKS
def test_several_versions_of_a_page_in_one_batch(counts: Any, mark: str) -> None:
    first, second, third = counts(["1", "2", "1"], ["2", "1", None], ["1", "2"])
    if mark == "scheduled":
        assert (2, 0, 0) == (first, second, third)
    else:  # once; and again in the second version if it was in work when that link came
        assert (True, True, 0) == (first >= 1, first + second <= 2, third)


class ChangesMeanwhile(Versions):
    """While the page is in work, links to it come in two later versions, and two in its own."""

    def parse(self, response: Response) -> Any:
        version = response.meta["tbloom_version"]
        yield {"version": version}
        for later in ("1", "2", "3", "1") if version == "1" else ():
            yield self.request(path_of(response), meta={"tbloom_version": later})


@pytest.mark.parametrize("answers", [{}, {"/a": ["/b"]}], ids=["itself", "behind a redirect"])
@pytest.mark.parametrize("mark", ["done", LOCAL])
def test_a_page_in_work_is_refetched_in_a_links_version(
    project: Any, answers: dict[str, Any]
) -> None:
    """In the last one. The next crawl fetches the other."""
    versions = ["1", ["3", None], "2"]
    ends = project(*[ChangesMeanwhile] * 3, answers=answers, VERSIONS=versions)
    assert [["1", "3"], [], ["2"]] == [[item["version"] for item in end.items] for end in ends]


@pytest.mark.parametrize(
    ("version", "same"),
    [
        ("5", 5),
        ("5", b"5"),
        (date(2026, 11, 29), "2026-11-29"),
        (NOW, "2026-11-29T10:00:00+00:00"),
        (NOW, NOW.replace(tzinfo=None)),
        (NOW, datetime(2026, 11, 29, 11, tzinfo=HERE)),
        (NOW, NOW.timetuple()),  # as of feedparser: without a zone
        (NOW, time.gmtime(NOW.timestamp())),
        (NOW, time.localtime(NOW.timestamp())),
        *((NOW, spelling) for spelling in SPELLINGS),
        (NOW.replace(microsecond=120_000), "2026-11-29T11:00:00.1200+0100"),
        ("2026-11-29T10:00:00.1234567Z", "2026-11-29t10:00:00,12345670z"),
        *((each, None) for each in (None, "", b"")),  # no version
    ],
)
def test_versions_of_each_type(version: Any, same: Any) -> None:
    """A time is in UTC, or in the zone that it has. A moment is one version, however it is spelled."""
    hashes = [*map(hash_of, (version, same, "another"))]
    assert hashes[0] == hashes[1] != hashes[2]
    assert [8 * bool(same), 8] == [*map(len, hashes[1:])]


def test_what_is_no_spelling_of_a_moment_is_another_version() -> None:
    """A day alone, another moment, no moment, and what quotes or marks are around an ETag."""
    assert len(OTHERS) == len({*map(hash_of, OTHERS)})


@pytest.mark.parametrize(
    "version",
    [
        True,
        1.5,
        time.struct_time([10**12, *[1] * 8]),
        [],
        "\ud800",
        bytearray(b"1"),
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=1))),
    ],
)
def test_a_wrong_version_is_named(version: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"meta\['tbloom_version'\] of <GET data:,>: expected a str"
    ):
        hash_of(version)


WRONG = {
    "tbloom_version": 1732873800.5,
    "tbloom_within": 0,
    "tbloom_keep": "2",
    "tbloom_ttl": 60,
    "tbloom_done": "no",
}


class WrongValues(Project):
    """In the first crawl, a wrong value of a key in start() and in each list page's second link, and of an errback's link."""

    def links(self) -> Iterator[Any]:
        yield self.request("start", meta={"tbloom_version": 0.5})
        for key in WRONG:
            yield self.request(f"list-{key}", cb_kwargs={"key": key}, callback=self.parse_list)
        yield self.request("gone", errback=self.failed)

    def parse_list(self, _: Response, key: str) -> Iterator[Any]:
        yield self.request(f"{key}-1")
        meta = {key: WRONG[key]} if self.number == 0 else {}
        yield self.request(f"{key}-2", meta=meta)
        yield self.request(f"{key}-3")

    def failed(self, _: Any) -> Iterator[Any]:
        yield self.request("of-errback", meta={"tbloom_version": 0.5} if self.number == 0 else {})


@MARKS
def test_a_wrong_value_costs_its_link_and_its_page_fails(project: Any, mark: str) -> None:
    """One ERROR names key, value and spider. Nothing else is lost, and the next crawl reads the page again."""
    ends = project(WrongValues, WrongValues, answers={"/gone": [None]})
    first, second = ends
    assert ["finished"] * 2 == [end.reason for end in ends]
    good = {f"/{key}-{number}" for key in WRONG for number in (1, 3)}
    lists = {f"/list-{key}" for key in WRONG}
    assert {*good, *lists, "/gone"} == {*first.fetched}
    wrong = [line for line in first.log if "a request is dropped" in line]
    assert 7 == len(wrong) == first.stats["tbloom/wrong"]
    for key, value in WRONG.items():
        assert any(f"ERROR tbloom.scrapy.links: Spider project: a request is dropped: meta['{key}'] of <GET" in line and repr(value) in line for line in wrong)  # fmt: skip
    if mark.startswith("done"):
        assert {*lists, "/gone", *(f"/{key}-2" for key in WRONG), "/of-errback"} == {
            *second.fetched
        }
        assert (
            6 == first.stats["tbloom/failed"]
        )  # the page of the errback by its download, or by its link


class Says(Project):
    """Says in the callback that its page is done, in the wrong way."""

    pages = ("a",)

    def parse(self, response: Response) -> None:
        response.meta["tbloom_done"] = "no" if self.number == 0 else True


def test_a_wrong_tbloom_done_lets_its_page_fail(project: Any) -> None:
    ends = project(Says, Says, Says)
    assert ["a", "a", ""] == [end.pages for end in ends]
    assert ends[0].warnings("ERROR", "expected True or False, got 'no'")


# What becomes of the request


class Redirected(Versions):
    """The fourth crawl has a link to the page to which the first one leads."""

    def links(self) -> Iterator[Any]:
        yield from super().links()
        yield from [self.request("b")] * (self.number == 3)


@MARKS
def test_a_redirect_keeps_the_version(project: Any) -> None:
    """Both pages are seen, in this version and without one."""
    ends = project(*[Redirected] * 4, answers={"/a": ["/b"]}, VERSIONS=[1, 1, 2, None])
    assert {"a": [1, 0, 1, 0], "b": [1, 0, 1, 0]} == times(ends)


class Wall(Project):
    """All its pages lead to a login, each in a version of its own."""

    def links(self) -> Iterator[Any]:
        for number in range(8):
            yield self.request(f"{number}", meta={"tbloom_version": number})


def test_pages_redirected_to_a_login_fail_in_any_version(project: Any) -> None:
    answers = {f"/{number}": ["/login"] for number in range(8)}
    [end] = project(Wall, answers=answers)
    assert (3, 5) == (end.stats["tbloom/done"], end.stats["tbloom/failed/redirect"])
    assert end.warnings("5 pages that were redirected", "login")


@pytest.mark.parametrize("mark", ["done", LOCAL])
def test_a_failed_page_keeps_its_version_through_crawls_and_retries(project: Any) -> None:
    """The next crawl takes it without a link."""
    settings = {"RETRY_ENABLED": True, "RETRY_TIMES": 1}
    settings["VERSIONS"] = [NOW, [], NOW.replace(tzinfo=None), [], None, "2026-11-30"]
    answers = {"/a": [503, 503, 503, 200]}  # the first two crawls ask twice
    ends = project(*[Versions] * 6, answers=answers, **settings)
    assert [2, 2, 0, 0, 0, 1] == [len(end.fetched) for end in ends]


class Stopped(Project):
    """Asks for each page in the day's version. (None: without one.)"""

    custom_settings = {"CONCURRENT_REQUESTS": 1}  # noqa: RUF012 - as Scrapy has it

    def links(self) -> Iterator[Any]:
        day = self.settings["DAYS"][self.number]
        meta = {"tbloom_version": date(2026, 11, day)} if day else {}
        yield from (self.request(page, meta=dict(meta)) for page in "abcdef")


@pytest.mark.parametrize("mark", ["scheduled", "done", LOCAL])
def test_a_jobdir_keeps_the_version(project: Any, tmp_path: Path) -> None:
    """Of pages that a crawl has queued when it is stopped: the next one goes on there (scrapy#5312)."""
    settings = queued("JOBDIR", tmp_path)
    [first] = project(Stopped, DAYS=[28], CLOSESPIDER_PAGECOUNT=1, **settings)
    assert first.pages
    ends = project(Stopped, Stopped, Stopped, Stopped, DAYS=[28, 28, None, 29], **settings)
    assert "abcdef" == "".join(sorted(first.pages + ends[0].pages))
    assert ["", "", "abcdef"] == [end.pages for end in ends[1:]]


class Mixed(Project):
    """A list has links to 30 pages in the crawl's version; each page has links to others without one, and to itself."""

    def links(self) -> Iterator[Any]:
        yield self.request("list", dont_filter=True)

    def parse(self, response: Response) -> Any:
        yield {"page": path_of(response)}
        if path_of(response) == "list":
            meta = {"tbloom_version": self.number}
            yield from (self.request(f"{page}", meta=dict(meta)) for page in range(30))
        else:
            number = int(path_of(response))
            yield from (self.request(f"{(7 * number + n) % 30}") for n in range(5))
            yield self.request(f"{number}")


@MARKS
def test_a_link_without_version_is_dropped_while_its_page_waits(project: Any) -> None:
    """And once it is done."""
    ends = project(Mixed, Mixed)
    assert {"list": [1, 1], **{f"{page}": [1, 1] for page in range(30)}} == times(ends)


class Links(Versions):
    """Has a second page with links, which is fetched while the first one waits to be fetched again. LATER: a page and its version."""

    custom_settings = {  # noqa: RUF012 - as Scrapy has it
        "CONCURRENT_REQUESTS": 1,
        "RETRY_PRIORITY_ADJUST": -5,
        "REDIRECT_PRIORITY_ADJUST": -5,
    }

    def links(self) -> Iterator[Any]:
        yield from super().links()
        yield self.request("links")
        yield self.request("between", priority=-1)  # is fetched while the callback of "links" runs

    def parse(self, response: Response) -> Any:
        later = self.settings.get("LATER")
        if path_of(response) != "links":
            yield from super().parse(response)
        elif not later:
            yield from map(self.request, ["a", "b"])
        elif self.number == 0:
            yield self.request(later[0], meta={"tbloom_version": later[1]})


@pytest.mark.parametrize(("first", "times_a"), [(503, 2), ("/b", 1)])
def test_links_without_a_version_are_dropped_during_retries_and_redirects(
    project: Any, first: Any, times_a: int
) -> None:
    [end] = project(Links, answers={"/a": [first, 200]}, RETRY_ENABLED=True, VERSIONS=["1"])
    assert {"a": [times_a], "b": [1], "between": [1], "links": [1]} == times([end])


@pytest.mark.parametrize("mark", ["done", LOCAL])
@pytest.mark.parametrize(("first", "page"), [(503, "a"), ("/b", "b")])
def test_a_page_that_waits_is_fetched_in_a_links_version(
    project: Any, first: Any, page: str
) -> None:
    """Once: it is done in that version, too."""
    ends = project(
        Links,
        Links,
        answers={"/a": [first, 200], "/between": [(0.5, 200)]},  # while the filter is asked
        RETRY_ENABLED=True,
        LATER=(page, "2"),
        VERSIONS="12",
    )
    assert {"page": page, "version": "2"} in ends[0].items
    assert [1, 0] == [len([item for item in end.items if item["page"] == page]) for end in ends]
