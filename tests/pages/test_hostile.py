"""Files of a page store that are damaged, or that somebody else has made."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tbloom import ConfigError, TBloomError
from tbloom.pages import PageStore, page

URL = "http://a/"


@pytest.mark.parametrize(
    ("change", "values"),
    [
        ("UPDATE meta SET parameters = ?", ("{}",)),
        ("UPDATE segments SET name = ?", ("../pages-00000001.warc.gz",)),
        ("UPDATE segments SET size = ?", (-1,)),
        ("UPDATE pages SET offset = ?", ("x",)),
        ("DROP TABLE pages", ()),
        ("DELETE FROM meta", ()),
    ],
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


def _change(path: Path, change: str, *values: object) -> None:
    with closing(sqlite3.connect(path / "index-1.sqlite")) as index, index:
        index.execute(change, values)


def _read(path: Path, *, readonly: bool) -> None:
    with PageStore(path, readonly=readonly) as store:
        assert store.get(URL) is not None
        assert [URL] == list(store)
        store.stats()


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
