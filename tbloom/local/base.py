"""What ``LocalBloom`` and ``AsyncLocalBloom`` share."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbloom.bloom.config import Config, Parameters, configure
from tbloom.errors import ConfigError
from tbloom.local.file import FileStore
from tbloom.local.memory import MemoryStore
from tbloom.local.merging import merge
from tbloom.local.protocol import Protocol

if TYPE_CHECKING:
    from os import PathLike

    from typing_extensions import Unpack


class LocalBase:
    """A filter in one store, without its verbs."""

    def __init__(
        self,
        *,
        path: str | PathLike[str] | None = None,
        name: str = "local",
        **parameters: Unpack[Parameters],
    ) -> None:
        """A filter that remembers items for the newest ``slices`` periods of ``granularity``.

        ``parameters`` are those of ``TimeBloom``, with the same defaults.

        :param path: a file that keeps the filter, and that other processes on this machine may share;
            it survives the end of the process, ``kill -9`` included. None, the default: the filter is in
            the memory of this process, and ends with it.
        :param name: the filter's name in ``info()``, ``keys()`` and errors.
        :raises ConfigError: where an argument can't be right, such as the path of another program's file.
        :raises TBloomError: where the file is damaged.
        :raises OSError: where the disk is full, or the machine can't open another file.
        """
        config = configure(name, **parameters)
        self._arguments: dict[str, Any] = {"name": name, **parameters}
        store = MemoryStore() if path is None else FileStore(path)
        self._protocol = Protocol(config, store, adopts_shards=parameters.get("shards") is None)

    def _merge(self, others: Iterable[LocalBase | str | PathLike[str]]) -> None:
        """Adds what the others hold."""
        with ExitStack() as stack:
            opened = [self._opened(stack, other) for other in others]
            merge(self._protocol, [other._protocol for other in opened])  # noqa: SLF001

    def _opened(self, stack: ExitStack, other: LocalBase | str | PathLike[str]) -> LocalBase:
        """The filter; one in a file, until the stack ends."""
        if isinstance(other, LocalBase):
            return other
        try:
            path = Path(other)
        except TypeError:
            raise ConfigError("others", other, "filters, or paths of their files") from None
        if not path.exists():
            raise ConfigError("others", other, "the path of a file that exists")
        opened = LocalBase(path=path, **{**self._arguments, "name": str(path)})
        stack.callback(opened._protocol.close)
        opened._protocol.clock = self._protocol.clock
        return opened

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

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the arguments: in another process the copy opens the same file."""
        if self.path is None:
            raise TypeError("a filter in memory can't be pickled; give it a path, to share it")
        return partial(type(self), path=self.path, **self._arguments), ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.config!r}>"
