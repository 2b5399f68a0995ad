"""The verbs of a filter without a server, each declared once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from typing import TypeVar, Unpack

from tbloom.arguments import Item, takes
from tbloom.bloom.config import Config, Parameters, configure
from tbloom.bloom.info import FilterInfo
from tbloom.engine.flow import Flow
from tbloom.engine.methods import verb
from tbloom.engine.pending import in_order
from tbloom.errors import ConfigError
from tbloom.local import info
from tbloom.local.file import FileStore
from tbloom.local.memory import MemoryStore
from tbloom.local.protocol import Protocol
from tbloom.window import Period

T = TypeVar("T")


class LocalVerbs:
    """The common base of both classes. Each verb is a flow that does its work in one step and sends nothing."""

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

    @verb
    def add(self, item: Item, within: int | None = None, keep: int | None = None) -> Flow[bool]:
        """Return True if the item is new, and remember it. Return False if it was seen within the window.

        ``within`` limits the probes to that many of the newest slices. With ``keep``, a new item is remembered for that
        number of slices; see ``TimeBloom.add``.
        """
        return (yield from self._adding(lambda: [self.config.digest(item)], within, keep))[0]

    @verb
    def add_many(
        self, items: Iterable[Item], within: int | None = None, keep: int | None = None
    ) -> Flow[list[bool]]:
        """Call ``add`` for each item, in order; a repeat inside the call is False the second time."""
        return self._adding(lambda: self.config.digests_of(items), within, keep)

    @verb
    def contains(self, item: Item, within: int | None = None) -> Flow[bool]:
        """Return whether the item was seen within the window, or the newest ``within`` slices. Change nothing."""
        return _flow(lambda: self._protocol.contains_many([self.config.digest(item)], within)[0])

    @verb
    def contains_many(self, items: Iterable[Item], within: int | None = None) -> Flow[list[bool]]:
        """Call ``contains`` for each item, in order."""
        return _flow(lambda: self._protocol.contains_many(self.config.digests_of(items), within))

    @verb
    def last_seen(self, item: Item) -> Flow[Period | None]:
        """Return the newest slice that has the item, or None if none has. See ``TimeBloom.last_seen``."""
        return _flow(lambda: self._protocol.last_seen_many([self.config.digest(item)])[0])

    @verb
    def last_seen_many(self, items: Iterable[Item]) -> Flow[list[Period | None]]:
        """Call ``last_seen`` for each item, in order."""
        return _flow(lambda: self._protocol.last_seen_many(self.config.digests_of(items)))

    @verb
    def info(self) -> Flow[FilterInfo]:
        """Return the contents of the filter, slice by slice; see ``TimeBloom.info``."""
        return _flow(lambda: info.overview(self._protocol))

    @verb
    def clear(self) -> Flow[None]:
        """Forget everything, for all who share the file, even if it has a filter with other parameters."""
        return _flow(self._protocol.clear)

    def _adding(
        self, digests: Callable[[], list[bytes]], within: int | None, keep: int | None
    ) -> Flow[list[bool]]:
        added = digests()
        new = self._protocol.add_many(added, within, keep)
        try:
            yield ()
        except GeneratorExit:  # a task was cancelled while its thread added
            self._protocol.keep_pending(new)
            raise
        return in_order(dict.fromkeys(new, True), added)

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


def _flow(work: Callable[[], T]) -> Flow[T]:
    """Do the work in a flow's first step, which sends nothing."""
    answer = work()
    yield ()
    return answer


def answer_of(flow: Flow[T]) -> T:
    """Return the result of a flow that has done its work."""
    try:
        next(flow)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    raise AssertionError("a flow of LocalBloom has one step")
