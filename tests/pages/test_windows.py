"""Slices of a page store: which one a page belongs to, and when it leaves, files and all."""

from __future__ import annotations

from collections.abc import Iterator
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
