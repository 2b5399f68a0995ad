"""``TBLOOM_MARK = "done"`` with ``TBLOOM_STORE = "local"``: crawls without a server, one process at a time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.asyncio import call_later

from tbloom import LocalBloom
from tbloom.local.claims import LocalClaims
from tbloom.scrapy.crawl import crawl_of
from tests.helpers.folders import Folder
from tests.helpers.projects import Project, marked, queued, times
from tests.helpers.schedulers import UNREACHABLE
from tests.scrapy.test_later_crawls import CASES, crawl_case


@pytest.fixture
def mark() -> str:
    return "done, local"


@pytest.fixture
def project(project: Any) -> Any:
    """Crawls without a server."""
    return partial(project, REDIS_URL=UNREACHABLE)


@pytest.fixture
def left(tmp_path: Path) -> Any:
    """The notes that the crawls have left to later ones."""

    def left() -> list[str]:
        seen = LocalClaims(path=tmp_path / "seen", error_rate=1e-9)
        with seen:
            seen.open_claims()
            query = "SELECT note FROM claims WHERE queue NOT LIKE '%given up'"
            return [note for (note,) in seen._database.execute(query)]

    return left


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.check if place % 3 else ())
        for place, case in enumerate(CASES)
    ],
)
def test_the_next_crawl_fetches_the_pages_that_a_crawl_leaves(
    project: Any, left: Any, case: str
) -> None:
    """Without a link to it."""
    crawl_case(project, case)
    assert [] == left()


class Dies(Project):
    """Its crawler dies while it works on the first page, and the other one is queued."""

    pages = ("dies", "b")
    custom_settings = {"CONCURRENT_REQUESTS": 1}  # noqa: RUF012 - as Scrapy has it

    def links(self) -> Iterator[Any]:
        yield from [self.request(page, priority=-i) for i, page in enumerate(self.pages)]

    def parse(self, response: Response) -> Any:  # noqa: ARG002 - Scrapy gives it
        os.kill(os.getpid(), signal.SIGKILL)


class DiesUnserialized(Dies):
    def request(self, path: str, **more: Any) -> Request:
        return super().request(path, meta={"crawler": self.crawler}, **more)


class Links(Project):
    pages = ("b", "dies")


@pytest.mark.parametrize("kept", ["memory", "JOBDIR"])
def test_the_next_process_takes_over_what_a_dead_one_left(
    project: Any, left: Any, tmp_path: Path, kept: str
) -> None:
    """The lock of a dead process is none."""
    assert project(Dies, **queued(kept, tmp_path)) is None
    first, second = project(Project, Links)
    assert ({"b": [1], "dies": [1]}, {}) == (times([first]), times([second]))
    assert 2 == first.stats["tbloom/taken"]
    assert [] == left()


def test_a_dead_process_claims_without_notes_have_ended(project: Any, left: Any) -> None:
    assert project(DiesUnserialized) is None
    first, second, third = project(Project, Links, Links)
    assert ({}, {"b": [1], "dies": [1]}) == (times([first]), times([second]))
    assert [] == third.fetched
    assert [] == left()


# One process at a time


def test_a_second_process_is_told_of_the_first(project: Any, tmp_path: Path) -> None:
    """Its crawl ends before its first request, with one line, and the first one goes on."""
    held = LocalClaims(path=tmp_path / "seen", error_rate=1e-9)
    with held:
        held.open_claims()
        held.claim_many([b"x"], notes=["x"])
        [end] = project(Links)
        held.commit_many([b"x"])
    assert ([], "tbloom_error") == (end.fetched, end.reason)
    [line] = end.log
    assert f"TBLOOM_PATH: {tmp_path / 'seen'} is in use by another process" in line
    assert "another TBLOOM_PATH" in line


def test_doctor_compares_the_settings_with_a_locked_file(tmp_path: Path) -> None:
    """From another process than the crawl's. It makes no file, and changes none."""
    path = tmp_path / "seen"
    folder = Folder(tmp_path, **marked("done, local", tmp_path))
    assert (0, []) == (folder.doctor()[0], [*tmp_path.glob("seen*")])
    with LocalClaims(path=path) as held:
        held.open_claims()
        held.claim_many([b"x"], notes=["x"])
        held.commit_many([b"x"])
        before = path.read_bytes()
        assert 0 == folder.doctor()[0]
        folder.write(TBLOOM_SLICES=3)
        code, lines = folder.doctor()
        assert (1, before) == (code, path.read_bytes())
    assert lines[:2] == [
        "✗ TBLOOM_SLICES is 3, the stored filter has 7: another TBLOOM_PATH, or TBLOOM_SLICES = 7",
        "  settings.py: TBLOOM_SLICES",
    ]
    folder.write(TBLOOM_PATH="gone/a")
    code, lines = folder.doctor()
    assert (1, True) == (code, "No such file or directory" in lines[0])


class Deletes(Links):
    """Its first page, or its end, deletes a file of the store."""

    def delete(self, when: str) -> None:
        if when == self.settings["DELETES_WHEN"]:
            Path(self.settings["DELETES"]).unlink(missing_ok=True)

    def parse(self, response: Response) -> Any:
        self.delete("parse")
        yield from super().parse(response)

    def closed(self, reason: str) -> None:  # noqa: ARG002 - Scrapy gives it
        self.delete("closed")


@pytest.mark.parametrize("file", ["seen", "seen.claims"])
@pytest.mark.parametrize("when", ["parse", "closed"])
def test_a_crawl_whose_files_are_deleted_says_so(
    project: Any, tmp_path: Path, file: str, when: str
) -> None:
    """Also where that happens at its very end; it has failed."""
    path = str(tmp_path / file)
    [end] = project(Deletes, DELETES=path, DELETES_WHEN=when)
    assert ("tbloom_error" if when == "parse" else "finished") == end.reason
    [line] = end.warnings("The crawl ends")
    assert path in line
    assert "was deleted or replaced while it was in use" in line


class FullDisk(Project):
    """Its first page leaves its links no room for a second."""

    pages = ("a",)

    def parse(self, response: Response) -> Any:
        yield from super().parse(response)
        if response.url.endswith("/a"):
            database = crawl_of(self.crawler).seen._database
            database.execute("PRAGMA max_page_count = 1")  # no more than there are
            call_later(1, partial(database.execute, "PRAGMA max_page_count = 100000"))
            yield from (self.request(page, meta={"text": "x" * 60_000}) for page in "bcdef")


def test_a_crawl_waits_while_the_disk_is_full(project: Any, left: Any) -> None:
    [end] = project(FullDisk)
    assert ("abcdef", "finished", 1) == (end.pages, end.reason, end.stats["tbloom/outages"])
    assert 6 == end.stats["tbloom/done"]
    [line] = end.warnings("TBLOOM_PATH: nothing can be written since")
    assert "seen.claims: database or disk is full" in line
    assert [] == left()


# Other uses


def test_in_memory_pages_are_claimed_and_nothing_is_left(project: Any) -> None:
    first, second = project(Links, Links, answers={"/b": [503]}, TBLOOM_PATH=None)
    assert {"b": [1, 1], "dies": [1, 1]} == times([first, second])
    assert (1, 1) == (first.stats["tbloom/done"], first.stats["tbloom/failed"])


def test_a_crawl_that_clears_the_filter_clears_the_claims(project: Any, left: Any) -> None:
    assert project(Dies) is None
    cleared, end = project(Project, Links, SCHEDULER_FLUSH_ON_START=True)
    assert [] == cleared.fetched
    assert {"b": [1], "dies": [1]} == times([end])
    assert [] == left()


def test_another_use_of_the_file_is_not_locked_out(project: Any, tmp_path: Path) -> None:
    """As of ``LocalBloom`` in Python, or a crawl that marks requests when they are scheduled."""
    held = LocalClaims(path=tmp_path / "seen", error_rate=1e-9)
    with held:
        held.open_claims()
        [end] = project(Links, TBLOOM_MARK="scheduled")
        assert 2 == len(end.fetched)
        with LocalBloom(path=tmp_path / "seen", error_rate=1e-9) as other:
            assert 2 == other.info().items
