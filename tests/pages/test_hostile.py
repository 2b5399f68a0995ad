"""Files of a page store that are damaged, or that somebody else has made."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tbloom import TBloomError
from tbloom.pages import PageStore

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
