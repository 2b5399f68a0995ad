"""The page store: pages come back, wrong arguments are refused, and damage is reported."""

from __future__ import annotations

import gzip
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import brotli
import pytest

from tbloom.errors import ConfigError, TBloomError
from tbloom.pages import Page, PageStore
from tbloom.pages.members import zstd
from tests.helpers.pagestores import CODECS, DAY, NOON

URL = "https://example.com/a"
AT = datetime(2019, 6, 3, 4, 5, 6, 789012, tzinfo=UTC)


def files(folder: Path) -> dict[str, bytes]:
    """All files of a folder, but the one by which SQLite's processes speak to each other."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith("-shm")
    }


#: For each argument of ``put`` what it can't be; and what no address can be.
WRONG: dict[str, list[Any]] = {
    "url": ["", "example.com", "ftp://example.com/", "HTTP://a/", "http://a/ b", "http://a/\r\nWARC-Type: x", "http://a/\ud800", b"http://a/"],
    "body": ["text", None, [1, 2]],
    "status": [99, 1000, True, 200.0, "200", None],
    "headers": [5, "text", [("A",)], {"A": None}, [("A", "1\r\n\r\nbody")], [("A:", "1")], [("", "1")], [("A", "€")]],
    "at": [datetime(2019, 6, 3), "2019-06-03", 0],  # noqa: DTZ001 - the fault
    "key": ["", b"", True, "\ud800", ["a"]],
    "fields": [
        *({name: "x"} for name in ("WARC-Type", "content-type", "x-tbloom-deleted", "WARC-Segment-Number", "a b")),
        *({"X-Own": ""}, {"X-Own": "a\r\nWARC-Type: b"}, {"X-Own": "\ud800"}, 5),
    ],
}  # fmt: skip
NO_ADDRESSES: list[Any] = ["", b"", None, True, "\ud800"]


@pytest.mark.parametrize("argument", WRONG)
def test_a_wrong_argument_is_named(store: PageStore, argument: str) -> None:
    """It is refused by its name, and nothing has changed."""
    store.put("http://a/", b"before", at=AT)
    store.flush()
    before = files(Path(store.path))
    for value in WRONG[argument]:
        arguments: dict[str, Any] = {"url": "http://a/", "body": b"", argument: value}
        with pytest.raises(ConfigError, match=rf"^{argument}: expected ") as caught:
            store.put(**arguments)
        assert argument == caught.value.argument
    for verb in (store.get, store.delete, store.__contains__):
        for address in NO_ADDRESSES if argument == "url" else ():
            with pytest.raises(ConfigError, match=r"^url: expected "):
                verb(address)
    assert before == files(Path(store.path))
    assert Page("http://a/", 200, (), b"before", AT) == store.get("http://a/")


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        *(("granularity", {"granularity": g, "slices": 7}) for g in ("day", None)),
        ("slices", {"granularity": "d"}),
        ("tz", {"granularity": "d", "slices": 7, "tz": "Europe/Bonn"}),
        *(("segment_bytes", {"segment_bytes": n}) for n in (0, True, 1e6)),
        ("readonly", {"readonly": 1}),
        *(("path", {"path": path}) for path in ("a\0b", "")),
    ],
)
def test_a_wrong_parameter_is_named(tmp_path: Path, argument: str, given: dict[str, Any]) -> None:
    """No store is begun."""
    with pytest.raises(ConfigError, match=rf"^{argument}: expected "):
        PageStore(**{"path": tmp_path / "store", **given})
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["notes.txt", "crawl-00000001.warc.gz", "index-1.bak/page.html"])
def test_a_foreign_folder_is_refused_and_left_as_it_is(tmp_path: Path, name: str) -> None:
    """It is refused, and left as it is, though its files may have names like a store's; so is a file."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    for file in (name, "lock"):
        (tmp_path / file).write_bytes(b"precious")
    before = files(tmp_path)
    for call in (PageStore, PageStore.rebuild, lambda path: PageStore(path, readonly=True)):
        for path in (tmp_path, tmp_path / name):
            with pytest.raises(ConfigError, match=r"^path: expected a .*folder"):
                call(path)
    with pytest.raises(NotADirectoryError):
        PageStore(tmp_path / name / "store")
    assert before == files(tmp_path)


def test_a_closed_store_says_so(store: PageStore) -> None:
    """It may be closed again."""
    for _ in range(2):
        store.close()
        for verb in (PageStore.flush, PageStore.stats, PageStore.verify, len, iter):
            with pytest.raises(TBloomError, match=r"the page store '.*' is closed$"):
                verb(store)
        for verb in (store.get, store.delete, store.__contains__, lambda url: store.put(url, b"")):
            with pytest.raises(TBloomError, match=r"is closed$"):
                verb(URL)


def test_a_store_without_a_name_is_open_while_listed(path: Path) -> None:
    """Only the iterator refers to it."""
    with PageStore(path) as store:
        store.put_many(_pages(range(300)))
    assert 300 == sum(1 for _ in PageStore(path, readonly=True))
    assert 300 == sum(1 for _ in PageStore(path, readonly=True).pages())
    for _ in PageStore(path):  # the lock goes with it
        break
    PageStore(path).close()


def _pages(numbers: Iterable[int]) -> Iterator[Page]:
    return (Page(f"http://a/{n}", 200, (), b"%d" % n, AT) for n in numbers)


def test_batches_are_stored_whole_or_not_at_all(store: PageStore) -> None:
    """A page that is refused leaves its batch out, and so does an error of the iterable."""
    with pytest.raises(ConfigError, match="url: "):
        store.put_many([*_pages(range(300)), Page("a", 200, (), b"", AT)])
    assert 256 == len(store)

    def failing() -> Iterator[Page]:
        yield from _pages(range(300, 700))
        raise LookupError

    with pytest.raises(LookupError):
        store.put_many(failing())
    assert 512 == len(store)
    assert 0 == store.put_many([])
    assert () == store.verify().problems


@pytest.mark.parametrize("codec", CODECS)
def test_every_damage_of_a_record_is_noticed(tmp_path: Path, codec: str) -> None:
    """With any bit wrong, or cut anywhere: the page as it was put, or an error; never another page."""
    store = PageStore(tmp_path, codec=codec)
    store.put(URL, b"hello " * 20, headers={"A": "b"}, key=b"k", fields={"X-Own": "z"}, at=AT)
    [path] = tmp_path.glob("*.warc.*")
    data = path.read_bytes()
    begin = [*store._index.rows(store._index.segments()[0])][-1].offset
    expected = store.get(b"k")
    assert expected is not None
    wrong = [data[:cut] for cut in range(begin, len(data))]
    wrong += [
        data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]
        for at in range(begin, len(data))
    ]
    noticed = 0
    for content in wrong:
        path.write_bytes(content)
        try:
            assert expected == store.get(b"k")
        except TBloomError as error:
            noticed += 1
            assert str(path) in str(error)  # noqa: PT017 - some bits mean nothing
    assert noticed > 0.9 * len(wrong)
    path.write_bytes(data)
    assert expected == store.get(b"k")
    store.close()


def _read_all(path: Path, *, readonly: bool) -> None:
    with PageStore(path, readonly=readonly) as store:
        store.get_many(f"http://a/{n}" for n in range(300))
        store.stats()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE meta SET parameters = '{}'",
        "DROP TABLE pages",
        "",
    ],
)
def test_an_index_that_can_t_be_read(tmp_path: Path, statement: str) -> None:
    """Another program has changed it, or it is none: the error names the rebuild, and no page is lost."""
    with PageStore(tmp_path) as store:
        store.put_many(_pages(range(300)))
    index = tmp_path / "index.sqlite"
    with closing(sqlite3.connect(index)) as tool, tool:
        tool.execute(statement)
    if not statement:
        index.write_bytes(b"x" * 20_000)
    for readonly in (False, True):
        with pytest.raises(TBloomError, match="rebuild'"):
            _read_all(tmp_path, readonly=readonly)
    assert 300 == PageStore.rebuild(tmp_path).pages


GZIPPED, DEFLATED = gzip.compress(b"<p>body", mtime=0), zlib.compress(b"<p>body")
TWO_MEMBERS = gzip.compress(b"<p>", mtime=0) + gzip.compress(b"body", mtime=0)
NOT_GZIP, NOT_DEFLATE = "is 'gzip', and the body is not: ", "is 'deflate', and the body is not: "


@pytest.mark.parametrize(
    ("codings", "body", "error"),
    [
        ([], b"<p>body", None),
        (["identity"], b"<p>body", None),
        (["gzip"], GZIPPED, None),
        (["X-GZip"], TWO_MEMBERS, None),
        (["deflate"], DEFLATED, None),
        (["deflate, gzip"], gzip.compress(DEFLATED, mtime=0), None),
        (["gzip"], b"<p>body", None),
        (["br"], brotli.compress(b"<p>body"), None),
        (["gzip, br"], brotli.compress(GZIPPED), None),
        (["br"], brotli.compress(b"<p>body")[:-1], "is 'br', and the body is not"),
        (["zstd"], zstd.compress(b"<p>bo") + zstd.compress(b"dy"), None),
        (["zstd"], b"<p>body", None),
        (["deflate, zstd"], zstd.compress(DEFLATED), None),
        (["zstd"], zstd.compress(b"<p>body")[:-1], "is 'zstd', and the body is not"),
        (["UTF-8"], b"<p>body", None),
        (["compress"], b"body", "is 'compress', and only gzip, deflate, br and zstd are decoded"),
        (["gzip"], GZIPPED[:-1], NOT_GZIP),
        (["deflate"], DEFLATED[:-1], NOT_DEFLATE),
        (["deflate"], b"<p>body", NOT_DEFLATE),
    ],
)
def test_a_body_is_decoded(codings: list[str], body: bytes, error: str | None) -> None:
    """Once for each Content-Encoding, the last one first. One that is neither gzip nor zstd at all is taken as it is. (jwarc#98, wabac.js#191)"""
    headers = tuple(("CONTENT-encoding", coding) for coding in codings)
    found = Page(URL, 200, headers, body, AT)
    if error is None:
        assert b"<p>body" == found.decoded()
        assert b"" == Page(URL, 200, headers, b"", AT).decoded()  # such as the answer to a HEAD
    else:
        with pytest.raises(TBloomError, match=error):
            found.decoded()


def steps(store: PageStore, work: Callable[[], object]) -> int:
    """The number of instructions that SQLite runs for the index meanwhile."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    connection = store._index._current()
    connection.set_progress_handler(count, 1)
    work()
    connection.set_progress_handler(None, 1)
    return steps


def test_a_listing_reads_what_is_listed(path: Path) -> None:
    """By the index, once, in however many files the pages are: not all that was ever written, here versions of each page."""
    urls = [f"{URL}{n:03}" for n in range(300)]
    with PageStore(path, segment_bytes=2_000) as store:
        for version in range(4):
            store.put_many(Page(url, 200, (), b"%d" % version, NOON) for url in urls)
        assert urls == [*store]
        assert {b"3"} == {page.body for page in store.pages()}
        segments = len(store._index.segments())
        assert segments > 100
        for listing in (store.pages, store.__iter__):
            assert steps(store, lambda: [*listing()]) < 50 * (len(urls) + segments)  # noqa: B023


def test_the_first_put_of_a_period_is_quick(tmp_path: Path, clock: SimpleNamespace) -> None:
    """The index does as much for 100 pages as for 3,000."""
    found = []
    for count in (100, 3_000):
        with PageStore(tmp_path / f"{count}", "d", 2) as store:
            store.put_many(Page(f"{URL}{n}", 200, (), b"", NOON) for n in range(count))
            clock.now = NOON + 2 * DAY
            found.append(steps(store, lambda: store.put(URL, b"")))
            assert [URL] == [*store]
            clock.now = NOON
    assert abs(found[0] - found[1]) < 20


def _rows(path: Path) -> int:
    [index] = path.glob("index.sqlite")
    with closing(sqlite3.connect(index)) as tool:
        [(count,)] = tool.execute("SELECT count(*) FROM pages")
    return int(count)


def test_the_index_of_a_window_does_not_grow(path: Path, clock: SimpleNamespace) -> None:
    """Each day has pages of its own, and two days are kept: puts remove the rows of others."""
    with PageStore(path, "d", 2) as store:
        for day in range(15):
            store.put_many(Page(f"{URL}{day}-{n}", 200, (), b"", clock.now) for n in range(100))
            clock.now += DAY
        assert 100 == len(store)
    assert 100 <= _rows(path) < 300
