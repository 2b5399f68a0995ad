"""The filter without a server, for threads and processes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from tbloom.bloom.hasher import digests_of
from tbloom.bloom.info import FilterInfo
from tbloom.items import Item
from tbloom.local import info
from tbloom.local.base import LocalBase
from tbloom.window import Period

if TYPE_CHECKING:
    from os import PathLike

    from typing_extensions import Self


class LocalBloom(LocalBase):
    """A set of recently seen items in this process, or in a file: ``TimeBloom`` without a server.

    The parameters, verbs and answers are those of ``TimeBloom``, without claims. It is safe to use from many
    threads and after a fork; with a ``path``, from many processes on one machine. ``pip install 'tbloom[local]'``
    brings numpy, with which batches are five times as fast. Each verb may raise ``ConfigMismatch``
    where the file has a filter with other parameters; ``ConfigError`` for an argument that can't be right, or a file
    that may not be opened any more; ``TBloomError`` where the file is damaged or replaced, or the filter closed; and
    OSError where the disk is full. What a batch had added before such an error is answered new to the next call of
    this object that asks for it.

    A filter with a ``path`` can be pickled; the copy is the same file's filter in another process.
    """

    def add(self, item: Item, within: int | None = None) -> bool:
        """True: the item is new, and remembered from now on. False: seen within the window.

        ``within`` limits the look to that many of the newest slices.
        """
        return self._protocol.add(item, within)

    def add_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """``add`` for each item, in order; a repeat inside the call is False the second time."""
        return self._protocol.add_many(digests_of(items), within).in_order()

    def contains(self, item: Item, within: int | None = None) -> bool:
        """True: the item was seen within the window, or the newest ``within`` slices. Changes nothing."""
        return self._protocol.contains(item, within)

    def contains_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """``contains`` for each item, in order."""
        return self._protocol.contains_many(digests_of(items), within)

    def last_seen(self, item: Item) -> Period | None:
        """The newest slice that holds the item; None: not seen within the window. See ``TimeBloom.last_seen``."""
        return self.last_seen_many([item])[0]

    def last_seen_many(self, items: Iterable[Item]) -> list[Period | None]:
        """``last_seen`` for each item, in order."""
        return self._protocol.last_seen_many(digests_of(items))

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)

    def keys(self, at: datetime | None = None) -> list[str]:
        """The keys that the slices live now, or ``at`` another time, would have in Redis; oldest first."""
        return info.keys(self._protocol, at)

    def info(self, earlier: FilterInfo | None = None) -> FilterInfo:
        """What the filter holds, slice by slice; see ``TimeBloom.info``."""
        return info.overview(self._protocol, earlier)

    def merge(self, *others: LocalBase | str | PathLike[str]) -> None:
        """Adds what other filters, or files of them, hold in slices that are live now: OR of their bits.

        Their parameters must be the same: else ConfigMismatch names the filter, and nothing has changed. What does not
        fit into a slice's parts becomes further parts of it; with ``grow=False``, ``FilterFull`` is raised. From then on
        ``info()`` has estimates of the items, never more than all filters had together; and an error rate that may be
        above the promised one, where more than two full filters are merged. If the process is killed meanwhile, the
        filter has some of the others' items: merge again. It takes a few times the memory of the filters.
        """
        self._merge(others)

    def clear(self) -> None:
        """Forgets everything, for all who share the file, also where it has a filter with other parameters."""
        self._protocol.clear()

    def close(self) -> None:
        """Releases the memory, or the file. The filter can't be used after this."""
        self._protocol.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
