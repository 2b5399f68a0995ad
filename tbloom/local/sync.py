"""The filter without a server, for threads and processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tbloom.engine.flow import Flow
from tbloom.engine.verbs import SyncVerbs
from tbloom.items import Item
from tbloom.local.verbs import LocalVerbs

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class LocalBloom(LocalVerbs, SyncVerbs):
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

    def add(self, item: Item, within: int | None = None, keep: int | None = None) -> bool:
        """True: the item is new, and remembered from now on. False: seen within the window.

        ``within`` limits the probes to that many of the newest slices. With ``keep``, a new item is remembered for that
        number of slices; see ``TimeBloom.add``.
        """
        return self._protocol.add(item, within, keep)

    def contains(self, item: Item, within: int | None = None) -> bool:
        """True: the item was seen within the window, or the newest ``within`` slices. Changes nothing."""
        return self._protocol.contains(item, within)

    def __contains__(self, item: Item) -> bool:
        return self._protocol.contains(item, None)

    def run(self, flow: Flow[T]) -> T:
        """The answer of a flow."""
        try:
            while True:
                next(flow)
        except StopIteration as stop:
            answer: T = stop.value
            return answer
        finally:
            flow.close()  # so that it notes an error

    def close(self) -> None:
        """Releases the memory, or the file. The filter can't be used after this."""
        self._protocol.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
