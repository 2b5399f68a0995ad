"""Files of a page store that are damaged, or that somebody else has made."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from tbloom import ConfigError, TBloomError
from tbloom.pages import PageStore, members, page, record, segments
from tests.helpers.pagestores import CODECS

URL = "http://a/"
#: More than a rebuild may take.
LONG = 24 << 20


#: Columns of the index, and what none of them may have.
WRONG = {
    "meta.parameters": ("", b"\xff", "{}"),
    "segments.name": (
        "",
        "../pages-00000001.warc.gz",
        "pages-00000002.warc.gz",
        b"pages-00000001.warc.gz",
    ),
    "segments.start": ("x", 1 << 62),
    **dict.fromkeys(("segments.size", "segments.records"), ("x", -1, 1 << 62)),
    **dict.fromkeys(("segments.sequence", "segments.pages"), ("x", 1 << 62)),
    **dict.fromkeys(("pages.offset", "pages.length"), ("x", -1, 1 << 62)),
}


@pytest.mark.parametrize(
    ("change", "values"),
    [
        (f"UPDATE {column.replace('.', ' SET ')} = ?", (value,))  # noqa: S608 - words of this file
        for column, values in WRONG.items()
        for value in values
    ]
    + [(f"DROP TABLE {name}", ()) for name in ("meta", "segments", "pages")]
    + [("DELETE FROM meta", ())],
)
def test_an_index_with_a_wrong_value_names_the_rebuild(
    path: Path, change: str, values: tuple[object, ...]
) -> None:
    with PageStore(path) as store:
        store.put(URL, b"body")
    _change(path, change, *values)
    for readonly in (True, False):
        with pytest.raises(TBloomError, match="'tbloom pages rebuild'"):
            _read(path, readonly=readonly)
    assert 1 == PageStore.rebuild(path).pages
    _read(path, readonly=True)


@pytest.mark.parametrize(
    ("slices", "start"),
    [*((7, at) for at in (0, -(1 << 55), 1_500_000_000_000)), (None, -(1 << 55))],
)
def test_a_slice_with_a_wrong_start_keeps_its_files(
    path: Path, slices: int | None, start: int
) -> None:
    """The writer does not take it for one that has left the window."""
    with PageStore(path, slices and "d", slices) as store:
        store.put(URL, b"body")
    _change(path, "UPDATE segments SET start = ?", start)
    with pytest.raises(TBloomError, match="'tbloom pages rebuild'"):
        PageStore(path)
    assert 1 == PageStore.rebuild(path).pages
    _read(path, readonly=True)


def _change(path: Path, change: str, *values: object) -> None:
    with closing(sqlite3.connect(path / "index-1.sqlite")) as index, index:
        index.execute(change, values)


def _read(path: Path, *, readonly: bool) -> None:
    with PageStore(path, readonly=readonly) as store:
        assert store.get(URL) is not None
        assert [URL] == list(store)
        store.stats()


def _without_end(path: Path, codec: str) -> None:
    _append(path, members.member(codec, b"WARC/1.1\r\nWARC-Type: " + b"x" * LONG))


def _longer_than_it_says(path: Path, codec: str) -> None:
    data = members.member(codec, b"WARC/1.1\r\nWARC-Type: " + b"x" * LONG)
    tail = data[-4:] if codec == "zstd" else pack("<I", 10)
    _append(path, _says(data, 10)[:-4] + tail)


def _first_record(path: Path, codec: str) -> None:
    """Of a further segment."""
    name = segments.name_of("pages", 2, members.SUFFIXES[codec])
    (path / name).write_bytes(record.of_segment(name, "x" * LONG, record.new_id(), codec))


def _page_put_twice(path: Path, codec: str) -> None:
    """A page that may be so long."""
    with PageStore(path, codec=codec) as store:
        for _ in range(2):
            store.put("http://long/", b"x" * LONG)


def _append(path: Path, data: bytes) -> None:
    [segment] = path.glob("pages-00000001.*")
    with segment.open("ab") as file:
        file.write(data)


def _says(data: bytes, held: int) -> bytes:
    """The member with another length of its content."""
    match = members.MAGIC.match(data)
    assert match
    at = match.end() + 4
    return data[:at] + pack("<I", held) + data[at + 4 :]


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
@pytest.mark.parametrize(
    "plant", [_without_end, _longer_than_it_says, _first_record, _page_put_twice]
)
def test_a_small_record_with_a_long_content_takes_no_memory_in_a_rebuild(
    path: Path, plant: Callable[[Path, str], None], codec: str
) -> None:
    with PageStore(path, codec=codec) as store:
        store.put(URL, b"body")
    plant(path, codec)
    for file in path.glob("index-*"):
        file.unlink()
    tracemalloc.start()
    try:
        info = PageStore.rebuild(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < LONG * 3 / 4
    assert info.pages == 1 + (plant is _page_put_twice)
    with PageStore(path, readonly=True) as store:
        assert store.get(URL) is not None


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_is_read_up_to_the_length_that_it_says(codec: str) -> None:
    data = members.member(codec, b"x" * LONG)
    for held in (0, 10, LONG - 1, LONG + 1, (1 << 32) - 1):
        with pytest.raises(members.Damaged, match=f"{held} bytes"):
            record.block_of(_says(data, held))
    assert LONG == len(record.block_of(data))


@pytest.mark.parametrize("part", ["url", "key", "headers", "fields"])
def test_a_page_with_more_than_a_rebuild_reads_is_refused(path: Path, part: str) -> None:
    """At the limit, it is found by a rebuild."""

    def put(store: PageStore, size: int) -> None:
        more: dict[str, Any] = {
            "url": {},
            "key": {"key": b"\xff" * (size // 2)},
            "headers": {"headers": {"A": "x" * (size - 1)}},
            "fields": {"fields": {"A": "x" * (size - 1)}},
        }[part]
        store.put(URL + "x" * size * (part == "url"), b"body", **more)

    room = page.MAX_HEAD_BYTES - len(URL)
    with PageStore(path) as store:
        put(store, room)
        with pytest.raises(ConfigError, match="url: expected at most 4194304 bytes, together"):
            put(store, room + 2)
        assert () == store.verify().problems
    assert 1 == PageStore.rebuild(path).pages
