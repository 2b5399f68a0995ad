"""The page stores that this process has open: its crawls share a store, and the last one closes it."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any

from tbloom.pages import PageStore
from tbloom.pages.opening import folder

#: The process, the folder, and True if it is only read.
_Key = tuple[int, str, bool]


@dataclass(slots=True)
class _Open:
    store: PageStore
    users: int = 0


_PARAMETERS = {"granularity", "slices", "tz"}
_opened: dict[_Key, _Open] = {}
# Reentrant: the garbage collector, which releases forgotten stores, runs anywhere.
_guard = threading.RLock()


class SharedStore:
    """The store that the arguments describe, until ``release``."""

    def __init__(self, path: str, *, readonly: bool = False, **arguments: Any) -> None:
        """Opens the store, if it is not open in this process; raises what ``PageStore`` does."""
        self._key: _Key = os.getpid(), os.path.realpath(folder(path)), readonly
        with _guard:
            found = _opened.get(self._key)
            if found is None:
                found = _Open(PageStore(path, readonly=readonly, **arguments))
                _opened[self._key] = found
            else:
                # The first user's ``segment_bytes`` and ``codec`` count.
                like = {name: value for name, value in arguments.items() if name in _PARAMETERS}
                found.store.check_parameters(**like)
            found.users += 1
        self.store = found.store

    def release(self) -> None:
        """Closes the store, if nothing else in this process uses it."""
        with _guard:
            found = _opened[self._key]
            found.users -= 1
            # A forked child leaves its parent's store to the parent.
            if not found.users and self._key[0] == os.getpid():
                del _opened[self._key]
                found.store.close()
