"""The recipe that stores rows in a database, with real ones: each row is stored, or its page is fetched again."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.http import Response
from twisted.internet.threads import deferToThread

from tests.helpers.crawl import Part
from tests.helpers.documents import example
from tests.helpers.making import made_once
from tests.helpers.postgres import postgres
from tests.helpers.projects import Project, path_of, times

PAGES = tuple("abcdef")
ROWS = {(page, str(number)) for page in PAGES for number in range(40)}
TABLE = "CREATE TABLE IF NOT EXISTS pages (url TEXT, title TEXT, PRIMARY KEY (url, title))"
MARKS = pytest.mark.parametrize(
    "mark", ["done, local", pytest.param("done", marks=pytest.mark.check)]
)
Rows: Any = example("recipes.md", "class Rows", __name__)["Rows"]


class InPsycopg(Rows):
    """The recipe's other databases, with its own words."""

    def __init__(self, crawler: Any) -> None:
        import psycopg  # noqa: PLC0415 - only `make check` has it

        self.rows, self.send = [], crawler.signals.send_catch_log
        self.database = psycopg.connect(crawler.settings["DATABASE"])

    def store(self) -> None:
        with self.database.transaction():
            words = "INSERT INTO pages VALUES (%s, %s) ON CONFLICT DO NOTHING"
            self.database.cursor().executemany(words, self.rows)


class InSQLAlchemy(Rows):
    def __init__(self, crawler: Any) -> None:
        import sqlalchemy  # noqa: PLC0415 - only `make check` has it

        self.rows, self.send = [], crawler.signals.send_catch_log
        socket = {"host": crawler.settings["DATABASE"].split()[0].partition("=")[2]}
        url = "postgresql+psycopg://postgres@/postgres"
        self.engine = sqlalchemy.create_engine(url, connect_args=socket)
        self.words = sqlalchemy.text(
            "INSERT INTO pages VALUES (:url, :title) ON CONFLICT DO NOTHING"
        )

    def store(self) -> None:
        with self.engine.begin() as connection:
            named = [dict(zip(("url", "title"), row, strict=True)) for row in self.rows]
            connection.execute(self.words, named)


class Database:
    """A database with an empty table."""

    def __init__(self, place: str) -> None:
        self.place = place

    def run(self, words: str) -> list[Any]:
        if " " not in self.place:
            with closing(sqlite3.connect(self.place)) as database, database:
                return database.execute(words).fetchall()
        import psycopg  # noqa: PLC0415 - only `make check` has it

        with psycopg.connect(self.place, autocommit=True) as database:
            cursor = database.execute(words)
            return cursor.fetchall() if cursor.description else []

    @property
    def rows(self) -> set[Any]:
        return {*self.run("SELECT url, title FROM pages")}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as folder:
        yield f"host={folder} user=postgres dbname=postgres"


@pytest.fixture(
    params=[
        Rows,
        pytest.param(InPsycopg, marks=pytest.mark.check),
        pytest.param(InSQLAlchemy, marks=pytest.mark.check),
    ],
    ids=["sqlite3", "psycopg", "SQLAlchemy"],
)
def pipeline(request: Any) -> Any:
    return request.param


@pytest.fixture
def libraries(tmp_path_factory: Any) -> Path:
    return made_once(tmp_path_factory, "databases", install)


@pytest.fixture
def database(request: Any, pipeline: Any, tmp_path: Path, monkeypatch: Any) -> Database:
    made = Database(str(tmp_path / "pages.db"))
    if pipeline in (InPsycopg, InSQLAlchemy):  # a fork has the libraries, too
        monkeypatch.syspath_prepend(request.getfixturevalue("libraries"))
        made = Database(request.getfixturevalue("server"))
        made.run("DROP TABLE IF EXISTS pages")
    made.run(TABLE)
    return made


def install(folder: Path) -> None:
    words = ["uv", "pip", "install", "--quiet", "--target", folder]
    names = ["psycopg[binary]", "sqlalchemy", "aiosqlite"]
    subprocess.run([sys.executable, "-m", *words, *names], check=True)


class Shop(Project):
    """Forty rows a page. It says which pages lack rows when it begins."""

    pages = PAGES

    def links(self) -> Any:
        if self.number:
            self.said.append(lacking(Database(self.settings["DATABASE"])))
        return super().links()

    def parse(self, response: Response) -> Any:
        for number in range(40):
            yield {"url": path_of(response), "title": str(number)}


def lacking(database: Database) -> str:
    """The pages of which rows are missing."""
    return "".join(sorted({page for page, _ in ROWS - database.rows}))


class AtRow161(Part):
    """Does something in the first crawl, in the midst of its second hundred rows."""

    def __init__(self, crawler: Any) -> None:
        super().__init__(crawler)
        self.left = 161

    def process_item(self, item: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            self.act()
        return item

    def act(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class MakesTheTable(AtRow161):
    """Until then, the database refuses each row."""

    def open_spider(self) -> None:
        if self.crawler.spider.number == 0:
            Database(self.crawler.settings["DATABASE"]).run("DROP TABLE pages")

    def act(self) -> None:
        Database(self.crawler.settings["DATABASE"]).run(TABLE)


class RaisesAtEnd(Part):
    """Scrapy closes pipelines from the last one on, and calls none after one that raises."""

    def process_item(self, item: Any) -> Any:
        return item

    def close_spider(self) -> None:
        if self.crawler.spider.number == 0:
            raise ValueError("no more room")


@pytest.fixture
def project(project: Any, database: Database) -> Any:
    """Crawls in a process of each test's own, which finds the libraries that were installed for these tests."""
    return partial(project, alone=True, DATABASE=database.place)


@MARKS
def test_rows_are_stored_when_the_crawl_has_ended(
    project: Any, database: Database, pipeline: Any
) -> None:
    crawls = project(Shop, Shop, ITEM_PIPELINES={pipeline: 1})
    assert {page: [1, 0] for page in PAGES} == times(crawls)
    assert ROWS == database.rows


@MARKS
def test_after_a_kill_pages_are_refetched_whose_rows_were_lost(
    project: Any, database: Database, pipeline: Any, mark: str
) -> None:
    ttl = {"TBLOOM_SESSION_TTL": None if mark.endswith("local") else 4}
    assert project(Shop, **ttl, ITEM_PIPELINES={AtRow161: 1, pipeline: 2}) is None
    assert 100 == len(database.rows)
    lost = lacking(database)
    again, last = project(Shop, Shop, **ttl, ITEM_PIPELINES={pipeline: 2})
    assert {*lost} <= {*again.pages}
    assert [] == last.fetched
    assert ROWS == database.rows


@MARKS
def test_pages_are_fetched_again_whose_rows_the_database_has_refused(
    project: Any, database: Database, pipeline: Any
) -> None:
    """Once it takes some, it gets those that have waited, too."""
    crawls = project(*[Shop] * 3, ITEM_PIPELINES={MakesTheTable: 1, pipeline: 2})
    assert [[""], [""]] == [crawl.said for crawl in crawls[1:]]
    failed = crawls[0].stats[f"tbloom/failed/pipeline/{pipeline.__qualname__}"]
    assert 0 < failed == len(crawls[1].pages)
    assert [] == crawls[2].fetched
    assert ROWS == database.rows


@MARKS
def test_pages_are_fetched_again_whose_pipeline_was_not_closed(
    project: Any, database: Database, pipeline: Any
) -> None:
    crawls = project(*[Shop] * 3, ITEM_PIPELINES={pipeline: 1, RaisesAtEnd: 2})
    [lost] = crawls[1].said
    assert lost
    assert {*lost} <= {*crawls[1].pages}
    assert [] == crawls[2].fetched
    assert ROWS == database.rows


class OneCommit(Part):
    """As in tutorials. The crawl ends before its commit."""

    def __init__(self, crawler: Any) -> None:
        super().__init__(crawler)
        self.database = sqlite3.connect(crawler.settings["DATABASE"])

    def process_item(self, item: Any) -> Any:
        self.database.execute("INSERT INTO pages VALUES (?, ?)", (item["url"], item["title"]))
        return item


class AwaitsNothing(Part):
    """What it begins, fails."""

    def process_item(self, item: Any) -> Any:
        deferToThread(sqlite3.connect, "/no/folder/pages.db")
        return item


@pytest.mark.parametrize("pipeline", [OneCommit, AwaitsNothing])
def test_without_signals_an_open_transaction_counts_as_stored(
    project: Any, database: Database, pipeline: Any
) -> None:
    """And what a pipeline does not await."""
    crawls = project(Shop, Shop, ITEM_PIPELINES={pipeline: 1})
    assert {page: [1, 0] for page in PAGES} == times(crawls)
    assert not database.rows


def fails(*_: Any, **__: Any) -> None:
    raise ValueError("no more room")


class Extension(Part):
    def __init__(self, crawler: Any) -> None:
        super().__init__(crawler)
        for signal_ in (signals.item_scraped, signals.spider_closed):
            crawler.signals.connect(fails, signal_)


class IsOff(Part):
    def __init__(self, crawler: Any) -> None:  # noqa: ARG002 - Scrapy gives it
        raise NotConfigured("no address")


class CannotOpen(RaisesAtEnd):
    def open_spider(self) -> None:
        raise ValueError("no such database")


class AnExtensionFails(Project):
    pages = ("handler",)
    custom_settings: ClassVar[dict[str, Any]] = {"EXTENSIONS": {Extension: 1}}
    closed = fails


class APipelineIsOff(Project):
    pages = ("off",)
    custom_settings: ClassVar[dict[str, Any]] = {"ITEM_PIPELINES": {IsOff: 1}}


class APipelineCannotOpen(Project):
    pages = ("open",)
    custom_settings: ClassVar[dict[str, Any]] = {"ITEM_PIPELINES": {CannotOpen: 1}}


class StartFails(Project):
    pages = ("first", "second")

    def links(self) -> Iterator[Any]:
        yield self.request("first")
        raise ValueError("no more room")


@pytest.mark.parametrize("pipeline", [Rows])
def test_what_scrapy_only_logs(project: Any) -> None:
    """What is done of it, and what the next crawl fetches."""
    crawls = project(AnExtensionFails, APipelineIsOff, APipelineCannotOpen, StartFails)
    crawls += project(Project, PAGES=("handler", "off", "open", "first", "second"))
    fetched = [{path.strip("/") for path in crawl.fetched} for crawl in crawls]
    assert [{"handler"}, {"off"}, set(), {"first"}, {"open", "second"}] == fetched
