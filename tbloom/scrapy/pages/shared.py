"""The page stores that this process has open: its crawls share a store, and the last one closes it."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

from tbloom.pages import PageStore
from tbloom.pages.opening import folder

#: The stores by folder, and whether they are only read; and the number of crawls that use each.
_opened: dict[tuple[str, bool], PageStore] = {}
_users: Counter[tuple[str, bool]] = Counter()


class SharedStore:
    """The store that the arguments describe, until ``release``."""

    def __init__(
        self, path: str | os.PathLike[str], *, readonly: bool, codec: str = "gzip", **slices: Any
    ) -> None:
        """Opens the store, if it is not open in this process; raises what ``PageStore`` does. The first user's codec counts."""
        self._key = os.path.realpath(folder(path)), readonly
        if self._key in _opened:
            _opened[self._key].check_parameters(**slices)
        else:
            _opened[self._key] = PageStore(path, readonly=readonly, codec=codec, **slices)
        _users[self._key] += 1
        self.store = _opened[self._key]

    def release(self) -> None:
        """Closes the store, if nothing else in this process uses it."""
        _users[self._key] -= 1
        if not _users[self._key]:
            _opened.pop(self._key).close()
