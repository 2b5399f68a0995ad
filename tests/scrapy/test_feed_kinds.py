"""When an item counts as stored, for each kind of feed: after a normal end, kill -9, an error of the store, and on a full disk."""

from __future__ import annotations

import asyncio
import bz2
import csv
import gzip
import json
import lzma
import os
import re
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, ClassVar

import pytest
import scrapy
from scrapy.exporters import BaseItemExporter
from scrapy.extensions.feedexport import FileFeedStorage

from tbloom.scrapy.done import stored as stored_items
from tests.helpers.projects import InOrder, Project, marked, path_of, times
from tests.helpers.schedulers import SCRAPY

PAGES = InOrder.pages
MARKS = pytest.mark.parametrize(
    "mark", ["done, local", pytest.param("done", marks=pytest.mark.check)]
)
OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


class Eight(InOrder):
    """A crawl with KILLED is killed in the callback of "f", once so many other pages are done."""

    async def parse(self, response: Any) -> Any:  # type: ignore[override]
        page, done = path_of(response), self.settings.get("KILLED")
        if page == "f" and done is not None:
            while self.crawler.stats.get_value("tbloom/done", 0) < int(done):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        yield {"page": f"item-{page}!"}


class WritesAtEnd(BaseItemExporter):
    """As exporters of XLSX, Avro and Parquet do. With BREAKS, not even then."""

    def __init__(self, file: IO[bytes], *, breaks: bool = False, **more: Any) -> None:
        super().__init__(dont_fail=True, **more)
        self._file, self._breaks, self._rows = file, breaks, list[Any]()

    @classmethod
    def from_crawler(cls, crawler: Any, file: Any, **more: Any) -> Any:
        return cls(file, breaks=crawler.settings.getbool("BREAKS"), **more)

    def export_item(self, item: Any) -> None:
        self._rows.append(dict(item))

    def finish_exporting(self) -> None:
        if self._breaks:
            raise ValueError("half a row")
        self._file.write(json.dumps(self._rows).encode())


class MovesAtEnd(FileFeedStorage):
    """Stores a file by moving it to its place. With BREAKS, it can't."""

    def __init__(self, uri: str, *, feed_options: Any = None, breaks: bool = False) -> None:
        super().__init__(uri.partition(":")[2], feed_options=feed_options)
        self._place, self.path, self._breaks = Path(self.path), f"{self.path}.part", breaks
        self.write_mode = "wb"

    @classmethod
    def from_crawler(cls, crawler: Any, uri: str, *, feed_options: Any = None) -> Any:
        breaks = crawler.settings.getbool("BREAKS")
        return cls(uri, feed_options=feed_options, breaks=breaks)

    def store(self, file: IO[bytes]) -> None:
        super().store(file)
        if self._breaks:
            raise OSError("no such folder")
        with self._place.open("ab") as place:
            place.write(Path(self.path).read_bytes())
        Path(self.path).unlink()


def _compressed(plugin: str) -> dict[str, Any]:
    plugins = [f"scrapy.extensions.postprocessing.{plugin}"]
    return {"format": "jsonlines", "postprocessing": plugins}


#: Feeds of which items are stored as they come, and those that are stored at their end, by the ends of their names.
AT_ONCE = {f".{kind}": {"format": kind} for kind in ("jsonlines", "csv", "json", "xml")}
AT_ONCE[".batch"] = {"format": "csv", "batch_item_count": 1}
MORE_AT_ONCE = {f".{kind}": {"format": kind} for kind in ("pickle", "marshal")}
AT_END = {
    ".gz": _compressed("GzipPlugin"),
    ".end": {"format": "end"},
    ".moved": {"format": "jsonlines"},
}
MORE_AT_END = {
    ".xz": _compressed("LZMAPlugin"),
    ".bz2": _compressed("Bz2Plugin"),
}
KINDS = AT_ONCE | MORE_AT_ONCE | AT_END | MORE_AT_END


def kinds(*few: dict[str, Any], more: tuple[dict[str, Any], ...] = ()) -> Any:
    """Parametrises a test by ``kind``; ``more``: those that only `make check` has."""
    long = [pytest.param(kind, marks=pytest.mark.check) for each in more for kind in each]
    return pytest.mark.parametrize("kind", [*(kind for each in few for kind in each), *long])


def feed(folder: Path, kind: str, **options: Any) -> dict[str, Any]:
    batch = "-%(batch_id)d" * (kind == ".batch")
    uri = f"{'moved:' * (kind == '.moved')}{folder / 'out'}{batch}{kind}"
    return {
        "FEEDS": {uri: {**KINDS[kind], **options}},
        "FEED_EXPORTERS": {"end": WritesAtEnd},
        "FEED_STORAGES": {"moved": MovesAtEnd},
    }


def stored(folder: Path) -> dict[str, int]:
    """How often the files have each item; what can't be read to its end, or was not moved to its place, does not count."""
    found = Counter[str]()
    for path in folder.glob("out*"):
        with suppress(EOFError), OPENERS.get(path.suffix, open)(path, "rb") as file:
            if path.suffix != ".part":
                found.update(re.findall(r"item-(\w)!", file.read().decode("latin-1")))
    return dict(sorted(found.items()))


ONCE = dict.fromkeys(PAGES, 1)


@MARKS
@kinds(
    {".jsonlines": 0, ".json": 0, ".batch": 0}, AT_END, more=(AT_ONCE, MORE_AT_ONCE, MORE_AT_END)
)
def test_after_a_kill_what_is_not_stored_is_fetched(
    project: Any, tmp_path: Path, mark: str, kind: str
) -> None:
    """And what is, is marked, though no request leaves the queue. Some versions stored a batch only at the crawl's end (scrapy#7730)."""
    at_once = kind in AT_ONCE | MORE_AT_ONCE
    if kind == ".batch" and scrapy.version_info < (2, 18):
        at_once = False
    settings = feed(tmp_path, kind)
    settings |= {} if "local" in mark else {"TBLOOM_SESSION_TTL": 4}
    assert project(Eight, **settings, KILLED=7 * at_once) is None
    assert (7 if at_once else 0) == len(stored(tmp_path))
    crawls = project(Eight, Eight, **settings)
    again = "f" if at_once else PAGES
    assert {page: [1, 0] for page in again} == times(crawls)
    assert ONCE == stored(tmp_path)


@MARKS
@kinds({".end": 0, ".moved": 0})
def test_pages_fail_whose_feed_cannot_be_finished(project: Any, tmp_path: Path, kind: str) -> None:
    """scrapy#5537: after an error in finish_exporting, Scrapy sends no signal, and counts nothing."""
    settings = feed(tmp_path, kind)
    [first] = project(Eight, **settings, BREAKS=True)
    assert 8 == first.stats["tbloom/failed/items"]
    assert "tbloom/done" not in first.stats
    crawls = project(Eight, Eight, **settings)
    assert {page: [1, 0] for page in PAGES} == times(crawls)
    assert ONCE == stored(tmp_path)


def no_such_bucket(_: Any, spider: Any) -> Any:
    raise LookupError(f"no bucket for {spider.name}")


@pytest.mark.parametrize(
    "mark",
    [
        "done",
        *(
            pytest.param(mark, marks=pytest.mark.check)
            for mark in ("done, local", "scheduled", "alone")
        ),
    ],
)
def test_a_crawl_fetches_nothing_if_a_feed_is_not_open(
    project: Any, tmp_path: Path, mark: str
) -> None:
    """One line names the feed, and the files are as they were. Scrapy logs an ERROR, and crawls on (scrapy#2089)."""
    settings = SCRAPY if mark == "alone" else marked(mark, tmp_path)
    first = tmp_path / "first.json"
    first.write_text("yesterday's")
    wrong: dict[str, tuple[dict[str, Any], str]] = {
        f"{tmp_path}/a.jsonx": ({"format": "jsonx"}, "Unknown feed format: jsonx"),
        "nowhere://a.csv": ({"format": "csv"}, "Unknown feed storage scheme: nowhere"),
        f"{tmp_path}/%(category)s.csv": ({"format": "csv"}, "%(category)s.csv"),
        f"{tmp_path}/b.csv": ({"format": "csv", "uri_params": no_such_bucket}, "b.csv"),
        f"{tmp_path}/c.csv": ({"format": "csv", "batch_item_count": 2}, "must be in the feed URI"),
    }
    for uri, (options, why) in wrong.items():
        feeds = {str(first): {"format": "json", "overwrite": True}, uri: options}
        feeds[f"{tmp_path}/last.csv"] = {"format": "csv"}
        [crawl] = project(Eight, **settings, FEEDS=feeds)
        [line] = crawl.warnings("The crawl ends: a feed of FEEDS can't be opened, as the log says")
        assert (why in line, "tbloom_error") == (True, crawl.reason)
        assert [] == crawl.fetched
    [crawl] = project(Eight, **settings, FEEDS={uri: {"format": "csv"}})
    assert 8 == len(crawl.fetched)
    assert "yesterday's" == first.read_text()


# Files to which later crawls append


class Rows(Project):
    """Items with these fields in turn, one crawl after the other."""

    fields: ClassVar[list[list[str]]] = [["a", "b"], ["b", "a"], ["a"], ["a", "b", "c"]]

    def links(self) -> Any:
        yield self.request(f"{self.number}", dont_filter=True)

    def parse(self, _: Any) -> Any:
        yield {field: f"{field}{self.number}, of many" for field in self.fields[self.number]}


COLUMNS = ["a,b", "a0,b0", "a1,b1", "a2,", "a,b,c", "a3,b3,c3"]


@pytest.mark.parametrize(
    ("suffix", "more", "expected"),
    [
        ("", {}, COLUMNS),
        ("", {"item_export_kwargs": {"delimiter": ";"}}, COLUMNS),
        (".gz", {"postprocessing": ["scrapy.extensions.postprocessing.GzipPlugin"]}, COLUMNS),
        ("", {"fields": ["a", "b", "c"]}, ["a,b,c", "a0,b0,", "a1,b1,", "a2,,", "a3,b3,c3"]),
        ("", {"fields": {"a": "first", "b": "second"}}, ["first,second", "a0,b0", "a1,b1", "a2,", "a3,b3"]),
    ],
    ids=["plain", "with semicolons", "compressed", "fields", "names of fields"],
)  # fmt: skip
def test_csv_gets_a_second_header_for_other_columns_only(
    project: Any, tmp_path: Path, suffix: str, more: dict[str, Any], expected: list[str]
) -> None:
    """Today's columns, or some of them, stand under the header of the first crawl, whatever their order (scrapy#6753)."""
    path = tmp_path / f"out.csv{suffix}"
    project(*[Rows] * 4, mark="done, local", FEEDS={str(path): {"format": "csv", **more}})
    delimiter = more.get("item_export_kwargs", {}).get("delimiter", ",")
    with OPENERS.get(suffix, open)(path, "rt", encoding="utf-8", newline="") as file:
        rows = [*csv.reader(file, delimiter=delimiter)]
    assert expected == [",".join(row).replace(", of many", "") for row in rows]


class Long(Project):
    """Its items are longer than the memory of a compressor."""

    pages = tuple(map(str, range(30)))

    def parse(self, response: Any) -> Any:
        if path_of(response) == "29" and self.settings.get("KILLED"):
            os.kill(os.getpid(), signal.SIGKILL)
        yield {"page": path_of(response), "text": os.urandom(20_000).hex()}


@kinds({".gz": 0}, more=({".xz": 0, ".bz2": 0},))
def test_a_torn_file_is_moved_aside(project: Any, tmp_path: Path, kind: str) -> None:
    """What is appended behind the end that a killed crawl has left can't be read by anyone."""
    settings = {**marked("done, local", tmp_path), **feed(tmp_path, kind)}
    path = tmp_path / f"out{kind}"

    def pages() -> list[int]:
        with OPENERS[kind](path, "rt") as file:
            return sorted(int(json.loads(line)["page"]) for line in file)

    project(Eight, **settings)
    path.rename(tmp_path / "whole")
    assert project(Long, **settings, KILLED=True) is None
    torn = (tmp_path / "whole").read_bytes() + path.read_bytes()
    path.write_bytes(torn)
    assert len(torn) > 100_000
    crawls = project(Project, Long, **settings)
    [warning] = crawls[0].warnings("a crawler that was killed")
    [aside] = tmp_path.glob("out*.torn-*")
    assert (str(path) in warning, aside.name in warning) == (True, True)
    assert torn == aside.read_bytes()
    assert [*range(30)] == pages()
    [crawl] = project(Project, **settings)
    assert ([], [*range(30)]) == (crawl.warnings("torn"), pages())


class CannotMend(Eight):
    """Has no room to end the half line of its feed's file."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        stored_items.mend = self.mend

    def mend(self, _: Any) -> None:
        raise OSError(28, "No space left on device")


def test_a_crawl_ends_if_a_feeds_file_cannot_be_mended(project: Any, tmp_path: Path) -> None:
    settings = {**marked("done, local", tmp_path), **feed(tmp_path, ".jsonlines")}
    [end] = project(CannotMend, alone=True, **settings)
    assert ([], "tbloom_error") == (end.fetched, end.reason)
    assert end.warnings("ERROR", "can't be mended: [Errno 28]")


@kinds({".json": 0}, more=({".xml": 0, ".pickle": 0, ".marshal": 0, ".end": 0},))
def test_an_older_document_is_moved_aside_before_the_first_item(
    project: Any, tmp_path: Path, kind: str
) -> None:
    """A crawl without items leaves it as it is (scrapy#2071)."""
    path, older = tmp_path / f"out{kind}", b"yesterday's"
    path.write_bytes(older)
    settings = {**marked("done, local", tmp_path), **feed(tmp_path, kind)}
    project(Project, **settings)
    assert older == path.read_bytes()
    first, second = project(Eight, Project, **settings)
    [warning] = first.warnings(str(path))
    [aside] = tmp_path.glob("out*.older-*")
    assert (True, older, []) == (
        aside.name in warning,
        aside.read_bytes(),
        second.warnings(str(path)),
    )
    assert ONCE == stored(tmp_path)


@kinds({".jsonlines": 0}, AT_END, more=({".csv": 0, ".json": 0}, MORE_AT_END))
def test_after_a_full_disk_what_is_not_stored_is_fetched(
    project: Any, tmp_path: Path, kind: str
) -> None:
    settings = {**marked("done, local", tmp_path), **feed(tmp_path, kind)}
    full = tmp_path / f"out{kind}{'.part' * (kind == '.moved')}"
    full.symlink_to("/dev/full")
    [first] = project(Eight, **settings)
    assert "tbloom/done" not in first.stats
    full.unlink()
    crawls = project(Eight, Eight, **settings)
    assert {page: [1, 0] for page in PAGES} == times(crawls)
    assert ONCE == stored(tmp_path)
