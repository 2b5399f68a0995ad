"""A process whose descriptors were closed by a part of it that does not know them, as a daemon does at its start."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tbloom import LocalBloom, TBloomError
from tbloom.local.claims import LocalClaims
from tbloom.pages import PageStore
from tests.helpers.making import Child
from tests.helpers.pagestores import bodies, url

LINE = b"line of another program\n"
ITEM = b"i" * 16


def _filter(path: Path) -> tuple[Any, list[Callable[[], object]]]:
    seen = LocalBloom(path=path, capacity=50)
    seen.add_many(map(str, range(20)))
    return seen, [
        partial(seen.add, "a"),
        partial(seen.add_many, map(str, range(1000))),
        partial(seen.contains, "0"),
        seen.info,
        seen.clear,
    ]


def _claims(path: Path) -> tuple[Any, list[Callable[[], object]]]:
    seen = LocalClaims(path=path, capacity=1000)
    seen.open_claims()
    seen.claim_many([ITEM], notes=["note"])
    return seen, [
        partial(seen.claim_many, [b"j" * 16], notes=["x" * 10_000]),
        partial(seen.commit_many, [ITEM]),
        partial(seen.release_many, [ITEM]),
    ]


def _pages(path: Path) -> tuple[Any, list[Callable[[], object]]]:
    store = PageStore(path)
    store.put(url(0), b"0")
    return store, [
        partial(store.put, url(1), b"x" * 100_000),
        partial(store.put_many, store.pages()),
        partial(store.delete, url(0)),
        partial(store.get, url(0)),
        store.flush,
    ]


def _readers(path: Path) -> tuple[Any, list[Callable[[], object]]]:
    _pages(path)[0].close()
    LocalBloom(path=f"{path}.filter", capacity=50).close()
    store, seen = PageStore(path, readonly=True), LocalBloom(path=f"{path}.filter", readonly=True)
    assert len(store) == 1
    return store, [
        partial(store.get, url(0)),
        store.stats,
        store.verify,
        partial(seen.contains, "0"),
    ]


@pytest.mark.parametrize("is_reused", [True, False])
@pytest.mark.parametrize("make", [_filter, _claims, _pages, _readers])
def test_nothing_is_written_into_files_that_got_our_descriptors(
    tmp_path: Path, make: Callable[[Path], Any], is_reused: bool
) -> None:
    """Each verb says why it fails. What was there stays, and is whole (vnstat#82, gallia#664)."""
    path = tmp_path / "ours"

    def use() -> None:
        store, verbs = make(path)
        os.closerange(3, 100)
        others = [*_others(tmp_path)] if is_reused else []
        for verb in verbs:
            with pytest.raises(TBloomError, match=r"ours.* was closed or reused by this process"):
                verb()
        with pytest.raises(ValueError, match="the cause"), store:
            raise ValueError("the cause")
        for other in others:
            assert os.pread(other, 1 << 20, 0) == LINE
            os.fstat(other)

    with Child(use) as child:
        assert 0 == child.wait()
    assert {LINE} >= {each.read_bytes() for each in tmp_path.glob("other*")}
    if make in (_pages, _readers):
        with PageStore(path) as store:
            assert {url(0): b"0"} == bodies(store)
            assert () == store.verify().problems
    elif make is _claims:
        with closing(LocalClaims(path=path, capacity=1000)) as seen:
            seen.open_claims()
            assert ["note"] == [note.text for note in seen.take(9, "", idle=True).notes]
    else:
        with LocalBloom(path=path, capacity=50) as seen:
            assert all(seen.contains_many(map(str, range(20))))
            assert 20 == seen.info().items


def _others(folder: Path) -> Iterator[int]:
    """Open files, which get the numbers that are free."""
    for number in range(50):
        fd = os.open(folder / f"other{number}", os.O_RDWR | os.O_CREAT)
        os.write(fd, LINE)
        yield fd
