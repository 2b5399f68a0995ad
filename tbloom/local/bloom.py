"""The classes: a filter without a server, for threads and processes, and for asyncio."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tbloom.bloom.config import Config, Parameters, configure
from tbloom.bloom.info import FilterInfo
from tbloom.items import Item, check_at, check_within
from tbloom.local.engine import Engine, Steps, finish
from tbloom.local.file import FileStore
from tbloom.local.info import keys, overview
from tbloom.local.memory import MemoryStore

if TYPE_CHECKING:
    from os import PathLike

    from typing_extensions import Self, Unpack

T = TypeVar("T")


class _Base:
    """What the two classes share."""

    def __init__(
        self,
        *,
        path: str | PathLike[str] | None = None,
        name: str = "local",
        **parameters: Unpack[Parameters],
    ) -> None:
        """A filter that remembers items for the newest ``slices`` periods of ``granularity``.

        :param path: a file that keeps the filter, and that other processes on this machine may share;
            it survives the end of the process, a ``kill -9`` too. None, the default: the filter is in
            the memory of this process, and ends with it.
        :param name: what the filter is called in ``info()``, ``keys()`` and errors.
        :param parameters: ``granularity``, ``slices``, ``capacity``, ``error_rate``, ``tz``, ``grow``,
            ``bits``, ``hashes`` and ``shards``, as for ``TimeBloom``; so are the defaults.
        :raises ConfigError: where an argument can't be right, such as the path of something else's file.
        :raises TBloomError: where the file is damaged.
        :raises OSError: where the disk is full, or the machine can't open another file.
        """
        config = configure(name, **parameters)
        self._arguments: dict[str, Any] = {"name": name, **parameters}
        store = MemoryStore() if path is None else FileStore(path)
        self._engine = Engine(config, store, adopts_shards=parameters.get("shards") is None)

    @property
    def name(self) -> str:
        """The filter's name."""
        return self.config.name

    @property
    def config(self) -> Config:
        """The filter's parameters, the derived ones too."""
        return self._engine.config

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it was made of: in another process it opens the same file."""
        store = self._engine.store
        if not isinstance(store, FileStore):
            raise TypeError("a filter in memory can't be pickled; give it a path, to share it")
        return partial(type(self), path=store.path, **self._arguments), ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.config!r}>"

    def _add(self, item: Item, within: int | None) -> bool:
        return self._engine.add(item, check_within(within, self.config.slices))

    def _add_many(self, items: Iterable[Item], within: int | None) -> Steps[list[bool]]:
        within = check_within(within, self.config.slices)
        return self._engine.add_many(items, within)

    def _contains(self, item: Item, within: int | None) -> bool:
        return self._engine.contains(item, check_within(within, self.config.slices))

    def _contains_many(self, items: Iterable[Item], within: int | None) -> Steps[list[bool]]:
        within = check_within(within, self.config.slices)
        return self._engine.contains_many(items, within)

    def _keys(self, at: datetime | None) -> list[str]:
        return keys(self._engine, check_at(at))

    def _info(self, earlier: FilterInfo | None) -> FilterInfo:
        return overview(self._engine, earlier)

    def _close(self) -> None:
        with self._engine.store.guard:
            self._engine.store.close()
            self._engine.go_on_with(self.config)  # without views of what is closed


class LocalBloom(_Base):
    """A set of recently seen items in this process, or in a file: ``TimeBloom`` without a server.

    The same parameters, verbs and answers, but for claims. Safe to use from many threads, and after a
    fork; with a ``path``, from many processes on one machine. ``pip install 'tbloom[local]'`` makes batches
    about twice as fast, and single items take a third less. Each verb may raise ``ConfigMismatch`` where the
    file has a filter with other parameters, ``ConfigError`` for an argument that can't be right, or a file
    that may not be opened any more, ``TBloomError`` where the file is damaged or replaced, or the filter
    closed, and OSError where the disk is full. What a batch had added before is told new to whoever of this
    object asks for it next.

    With a ``path`` it can be pickled, and is the same file's filter in another process.
    """

    def add(self, item: Item, within: int | None = None) -> bool:
        """True: the item is new, and remembered from now on. False: seen within the window.

        With ``within``, only the newest so many slices are asked.
        """
        return self._add(item, within)

    def add_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """``add`` for each item, in order; a repeat inside the call is False the second time."""
        return finish(self._add_many(items, within))

    def contains(self, item: Item, within: int | None = None) -> bool:
        """Has the item been seen within the window, or the newest ``within`` slices? Changes nothing."""
        return self._contains(item, within)

    def contains_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """``contains`` for each item, in order."""
        return finish(self._contains_many(items, within))

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)

    def keys(self, at: datetime | None = None) -> list[str]:
        """What the slices that are live now, or ``at`` another time, would be called in Redis; oldest first."""
        return self._keys(at)

    def info(self, earlier: FilterInfo | None = None) -> FilterInfo:
        """What the filter holds, slice by slice; see ``TimeBloom.info``."""
        return self._info(earlier)

    def clear(self) -> None:
        """Forgets everything, for everybody, also if it is stored with other parameters."""
        self._engine.clear()

    def close(self) -> None:
        """Lets go of the memory, or of the file. The filter can't be used after this."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncLocalBloom(_Base):
    """``LocalBloom`` for asyncio: the same verbs, awaited.

    A call with many items lets other tasks run, every 10,000 items or so. Between hashing them and asking
    for the first, and at the end, it goes through all of them: of a million that takes up to half a second,
    so give it tens of thousands at a time. ``info()`` counts all bits without a pause (300 MB: 0.2 s). What
    waits for the lock of a file holds up the loop, for as long as others take for a look at it.
    """

    async def add(self, item: Item, within: int | None = None) -> bool:
        """See ``LocalBloom.add``."""
        return self._add(item, within)

    async def add_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """See ``LocalBloom.add_many``."""
        return await _finish(self._add_many(items, within))

    async def contains(self, item: Item, within: int | None = None) -> bool:
        """See ``LocalBloom.contains``."""
        return self._contains(item, within)

    async def contains_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """See ``LocalBloom.contains_many``."""
        return await _finish(self._contains_many(items, within))

    async def keys(self, at: datetime | None = None) -> list[str]:
        """See ``LocalBloom.keys``."""
        return self._keys(at)

    async def info(self, earlier: FilterInfo | None = None) -> FilterInfo:
        """See ``LocalBloom.info``."""
        return self._info(earlier)

    async def clear(self) -> None:
        """See ``LocalBloom.clear``."""
        self._engine.clear()

    async def aclose(self) -> None:
        """See ``LocalBloom.close``."""
        self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _finish(steps: Steps[T]) -> T:
    """The answer; other tasks run between the steps."""
    try:
        while True:
            next(steps)
            await sleep(0)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    finally:
        steps.close()  # tells it of a cancellation
