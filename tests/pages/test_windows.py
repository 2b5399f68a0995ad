"""Slices of a page store: which one a page belongs to, and when it leaves, files and all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tbloom.pages import PageStore
from tests.helpers.pagestores import DAY, NOON, Clock, bodies


@pytest.fixture
def store(clock: Clock, tmp_path: Path) -> Iterator[PageStore]:
    """Three days."""
    assert clock.now == NOON
    with PageStore(tmp_path, "d", 3) as store:
        yield store


def labels(store: PageStore) -> list[str]:
    """The slice of each file, in order."""
    return sorted(path.name.split("-")[0] for path in Path(store.path).glob("*.warc.gz"))


def test_a_page_leaves_with_its_slice(store: PageStore, clock: Clock) -> None:
    """At once for all readers; its files leave with the next put, delete or opening to write."""
    reader = PageStore(store.path, readonly=True)
    for days in range(3):
        store.put(f"http://a/{days}", bytes([days]) * 5000, at=NOON - days * DAY)
    assert ["20190608", "20190609", "20190610"] == labels(store)
    before = store.stats()
    assert ("20190608", "20190609", "20190610") == tuple(slice.label for slice in before.slices)
    oldest = before.slices[0]
    midnight = datetime(2019, 6, 11, tzinfo=timezone.utc)
    assert (midnight - 3 * DAY, midnight - 2 * DAY, midnight) == (
        oldest.start,
        oldest.end,
        oldest.expires,
    )
    clock.now = midnight - timedelta(microseconds=1)
    for one in (store, reader):
        assert "http://a/2" in one
        assert 3 == len(one)
    clock.now = midnight
    for one in (store, reader):
        assert (None, False) == (one.get("http://a/2"), "http://a/2" in one)
        assert {"http://a/0", "http://a/1"} == bodies(one).keys()
        assert before.slices[1:] == one.stats().slices
        assert () == one.verify().problems
    assert 3 == len(labels(store))
    assert not store.delete("http://a/2")
    assert ["20190609", "20190610"] == labels(store)
    assert {"http://a/0", "http://a/1"} == bodies(reader).keys()
    clock.now = midnight + 9 * DAY
    assert {} == bodies(reader) == bodies(store)
    reader.close()
    store.close()
    with PageStore(store.path) as opened:
        assert ([], 0, ()) == (labels(opened), opened.stats().segments, opened.stats().slices)
        opened.put("http://a/2", b"again")
        assert {"http://a/2": b"again"} == bodies(opened)


@pytest.mark.parametrize("deleted", [None, 0, 1, 2])
@pytest.mark.parametrize("days", [(0,), (0, 1), (2, 0), (0, 2, 1), (1, 0, 2)])
def test_a_deleted_page_stays_so(
    store: PageStore, clock: Clock, days: tuple[int, ...], deleted: int | None
) -> None:
    """Also after a rebuild when some of its earlier slices have left. One that was replaced in another slice, and not
    deleted, has its last body, and counts once."""
    for n, day in enumerate(days):
        store.put("http://a/", b"%d" % n, at=NOON - day * DAY)
        assert {"http://a/": b"%d" % n} == bodies(store)
    store.put("http://b/", b"other", at=NOON)
    if deleted is not None:
        clock.now = NOON + deleted * DAY
        assert (deleted + days[-1] < 3) == store.delete("http://a/")
    store.close()
    for later in range(deleted or 0, 3):
        clock.now = NOON + later * DAY
        expected = {"http://b/": b"other"}
        if deleted is None and later + days[-1] < 3:
            expected["http://a/"] = b"%d" % (len(days) - 1)
        assert len(expected) == PageStore.rebuild(store.path).pages
        with PageStore(store.path) as opened:
            assert expected == bodies(opened)
            assert () == opened.verify().problems
