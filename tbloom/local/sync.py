"""The filter without a server, for threads and processes."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import Self, Unpack

from tbloom.arguments import Item, takes
from tbloom.bloom.config import Config, Parameters, configure
from tbloom.bloom.info import FilterInfo
from tbloom.engine.forks import NotCopied
from tbloom.errors import ConfigError
from tbloom.local.file import FileStore
from tbloom.local.info import overview
from tbloom.local.memory import MemoryStore
from tbloom.local.protocol import Protocol
from tbloom.window import Period


class LocalBloom(NotCopied):
    """A set of recently seen items in this process, or in a file: ``TimeBloom`` without a server.

    The parameters, verbs and answers are those of ``TimeBloom``, without claims. It is safe to use from many
    threads and after a fork; with a ``path``, from many processes on one machine. Each verb may raise ``ConfigMismatch``
    if the file has a filter with other parameters; ``ConfigError`` for an argument that can't be right, or a file
    that can no longer be opened; ``TBloomError`` if the file is damaged or replaced, or the filter closed or read only; and
    OSError if the disk is full. What a batch had added before such an error is answered new to the next call of
    this object that asks for it.
    """

    @takes(Parameters, "path", "name", "readonly")
    def __init__(
        self,
        *,
        path: str | PathLike[str] | None = None,
        name: str = "local",
        readonly: bool = False,
        **parameters: Unpack[Parameters],
    ) -> None:
        """Make a filter that remembers items for the newest ``slices`` periods of ``granularity``.

        ``parameters`` are those of ``TimeBloom``, with the same defaults.

        :param path: a file that keeps the filter, and that other processes on this machine may share;
            it survives the end of the process, ``kill -9`` included. None, the default: the filter is in
            the memory of this process, and ends with it.
        :param name: the filter's name in ``info()``, ``keys()`` and errors.
        :param readonly: True: only read a file that exists, also while others write to it. It needs no right to write.
        :raises ConfigError: if an argument can't be right, such as the path of another program's file.
        :raises TBloomError: if the file is damaged.
        :raises OSError: if the disk is full, or the machine can't open another file.
        """
        config = configure(name, **parameters)
        if not isinstance(readonly, bool) or (readonly and path is None):
            raise ConfigError("readonly", readonly, "True with a path, or False")
        store = MemoryStore() if path is None else FileStore(path, readonly=readonly)
        self._protocol = Protocol(config, store)

    def add(self, item: Item, within: int | None = None, keep: int | None = None) -> bool:
        """Return True if the item is new, and remember it. Return False if it was seen within the window.

        ``within`` limits the probes to that many of the newest slices. With ``keep``, a new item is remembered for that
        number of slices; see ``TimeBloom.add``.
        """
        protocol = self._protocol
        return protocol.add(protocol.config.digest(item), within, keep)

    def add_many(
        self, items: Iterable[Item], within: int | None = None, keep: int | None = None
    ) -> list[bool]:
        """Call ``add`` for each item, in order; a repeat inside the call is False the second time."""
        return self._protocol.add_many(self.config.digests_of(items), within, keep)

    def contains(self, item: Item, within: int | None = None) -> bool:
        """Return whether the item was seen within the window, or the newest ``within`` slices. Change nothing."""
        protocol = self._protocol
        return protocol.contains(protocol.config.digest(item), within)

    def contains_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """Call ``contains`` for each item, in order."""
        return self._protocol.contains_many(self.config.digests_of(items), within)

    def last_seen(self, item: Item) -> Period | None:
        """Return the newest slice that has the item, or None if none has. See ``TimeBloom.last_seen``."""
        return self._protocol.last_seen_many([self.config.digest(item)])[0]

    def last_seen_many(self, items: Iterable[Item]) -> list[Period | None]:
        """Call ``last_seen`` for each item, in order."""
        return self._protocol.last_seen_many(self.config.digests_of(items))

    def info(self) -> FilterInfo:
        """Return the contents of the filter, slice by slice; see ``TimeBloom.info``."""
        return overview(self._protocol)

    def clear(self) -> None:
        """Forget everything, for all who share the file, even if it has a filter with other parameters."""
        self._protocol.clear()

    @property
    def path(self) -> str | None:
        """The file's absolute path; None: the filter is in memory."""
        return getattr(self._protocol.store, "path", None)

    @property
    def name(self) -> str:
        """The filter's name."""
        return self.config.name

    @property
    def config(self) -> Config:
        """The filter's parameters, the derived ones too."""
        return self._protocol.config

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.config!r}>"

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)

    def close(self) -> None:
        """Release the memory, or the file. The filter can't be used after this.

        Raise TBloomError if the file was deleted, replaced or cut meanwhile.
        """
        self._protocol.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
