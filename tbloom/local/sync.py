"""The filter without a server, for threads and processes."""

from __future__ import annotations

from typing import Self, TypeVar

from tbloom.arguments import Item
from tbloom.engine.flow import Flow
from tbloom.engine.methods import SyncVerbs
from tbloom.local.verbs import LocalVerbs, answer_of

T = TypeVar("T")


class LocalBloom(LocalVerbs, SyncVerbs):
    """A set of recently seen items in this process, or in a file: ``TimeBloom`` without a server.

    The parameters, verbs and answers are those of ``TimeBloom``, without claims. It is safe to use from many
    threads and after a fork; with a ``path``, from many processes on one machine. Each verb may raise ``ConfigMismatch``
    if the file has a filter with other parameters; ``ConfigError`` for an argument that can't be right, or a file
    that can no longer be opened; ``TBloomError`` if the file is damaged or replaced, or the filter closed or read only; and
    OSError if the disk is full. What a batch had added before such an error is answered new to the next call of
    this object that asks for it.
    """

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)

    def run(self, flow: Flow[T]) -> T:
        """Run a flow and return its result."""
        next(flow)
        return answer_of(flow)

    def close(self) -> None:
        """Release the memory, or the file. The filter can't be used after this.

        Raise TBloomError if the file was deleted, replaced or cut meanwhile.
        """
        self._protocol.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
