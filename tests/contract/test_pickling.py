"""What other processes, and copies, get: errors and descriptions whole, and of a store one clear sentence."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import closing
from copy import copy, deepcopy
from pathlib import Path
from typing import Any

import pytest

from tbloom import LocalBloom, TBloomError, errors
from tbloom.local.claims import ClaimsLocked, DiskFull
from tbloom.pages import PageStore
from tbloom.scrapy.settings import UnknownSetting
from tests.helpers.stores import DISTINCT, STORES

WAYS = (copy, deepcopy, pickle.dumps)


def check_refused(seen: Any, *ways: Callable[[Any], Any]) -> None:
    for way in ways:
        with pytest.raises(TypeError) as caught:
            way(seen)
        assert caught.value.args == (
            f"a {type(seen).__name__} can't be copied or pickled: make another one where it is needed",
        )


@pytest.mark.parametrize("cls", [cls for store in STORES for cls in (store.sync, store.aio)])
async def test_a_store_on_a_server_is_not_copied(cls: Any, url: str, name: str) -> None:
    """But what ``info`` answers is."""
    seen = cls.from_url(url, name)
    info = await seen.info() if hasattr(seen, "aclose") else seen.info()
    assert info == pickle.loads(pickle.dumps(info)) == deepcopy(info)  # noqa: S301 - our own
    check_refused(seen, *WAYS, lambda seen: pickle.dumps(seen.contains))
    if cls in (DISTINCT.sync, DISTINCT.aio):
        check_refused(seen.members(), *WAYS, lambda members: pickle.dumps(members.count))
    await seen.aclose() if hasattr(seen, "aclose") else seen.close()


def test_a_store_on_a_disk_is_not_copied(tmp_path: Path) -> None:
    with LocalBloom(path=tmp_path / "filter") as seen, closing(PageStore(tmp_path / "pages")) as p:
        check_refused(seen, *WAYS, lambda seen: pickle.dumps(seen.add))
        check_refused(p, *WAYS, lambda pages: pickle.dumps(pages.get))
        assert pickle.loads(pickle.dumps(seen.info())) == seen.info()  # noqa: S301 - our own


ERRORS = [
    TBloomError("a", "b"),
    errors.ConfigError("capacity", -1, "more"),
    errors.ConfigMismatch("news", {"slices": (7, 8)}, "stored", "take another path"),
    errors.FilterFull("news", 1000),
    errors.MappingFull("members", 1000),
    errors.ServerTooOld("5.0"),
    errors.StoreLocked("/pages", 17, ""),
    ClaimsLocked("/claims"),
    DiskFull("/claims: full"),
    UnknownSetting("TBLOOM_X", None, "did you mean TBLOOM_Y?"),
]


def kinds(error: type[Exception]) -> set[type[Exception]]:
    return {error}.union(*map(kinds, error.__subclasses__()))


def test_an_error_is_sent_whole() -> None:
    """Of each class."""
    for error in ERRORS:
        sent = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
        assert (type(error), str(error), vars(error)) == (type(sent), str(sent), vars(sent))
    assert kinds(TBloomError) == {*map(type, ERRORS)}
