"""Calls to stores with buckets of items (see ``tbloom.engine.directory``)."""

from __future__ import annotations

from collections.abc import Callable

from tbloom.engine.batches import B, Dispatcher, Knowledge
from tbloom.engine.directory import Directory, read_directory
from tbloom.engine.flow import Call, Flow, chunks
from tbloom.engine.keys import Keys
from tbloom.engine.pending import MOVED, Answers, answers_of

#: The most buckets that one command reads or deletes: less than a millisecond's work.
_BUCKETS_PER_CALL = 100


class BucketDispatcher(Dispatcher[B]):
    """One client's calls to a store with buckets, and the shards' directories as the client knows them."""

    _correction_cause = "its layout changed"

    def __init__(self, name: str, keys: Keys, owner: str, remedy: str) -> None:
        """Errors about a damaged layout name the store ``owner``, and the call ``remedy`` that repairs it."""
        super().__init__(name)
        self._keys, self._owner, self._remedy = keys, owner, remedy
        self._directories: dict[int, Directory] = {}
        #: The shards whose layout must be read before the next call.
        self.outdated: set[int] = set()

    def remove_items(self, batches: list[B], call: Callable[[B], Call]) -> Flow[Answers]:
        """Send batches that remove items, and return the answers.

        Earlier calls that add the items are ended first. If a removal fails, its answers are lost.
        """
        pending = self.pending_answers
        # Otherwise a late copy of an add could be executed after the removal, and its answer would reach nobody.
        yield from self.look_up_lost(batches)
        # Only answers that are pending now are dropped below: a call that is lost later may be executed after the removal.
        new = pending.known_new(batches)
        yield from self.send(batches, call, Knowledge.STORED)
        # They are dropped only now, so that an add that is repeated during the removal still gets "new".
        pending.take(new)
        return answers_of(batches)

    def _next_step(self, batch: B, required: Knowledge) -> Flow[None] | None:  # noqa: ARG002
        """Return a flow that reads the shard's layout if it has changed, or None."""
        return self._read_layout(batch.shard) if batch.shard in self.outdated else None

    def _read_layout(self, shard: int) -> Flow[None]:
        self.outdated.discard(shard)
        key = self._keys.layout(shard)
        self._directories[shard] = yield from read_directory(self._owner, key, self._remedy)

    def directory(self, shard: int = 0) -> Directory:
        """Return the shard's last known directory; without a generation if none is known."""
        return self._directories.get(shard) or self._directories.setdefault(shard, Directory(""))

    def _note_moved(self, batch: B) -> None:
        """Mark the shard's layout as outdated, because items of this batch have moved to other buckets."""
        self.outdated.add(batch.shard)

    def _rest_of(self, batch: B) -> B | None:
        """Return a batch of the items that have moved to other buckets, or None."""
        moved = batch.items_with(MOVED)
        if not moved:
            return None
        self._note_moved(batch)
        return self._batch_of_rest(batch, moved)


def keys_of_halves(prefix: str, halves: list[int]) -> list[str]:
    """Return three keys for each bucket that has one of these halves: its own key, and the keys of its two halves."""
    buckets = {half >> 1: None for half in halves}
    return [f"{prefix}{n}" for bucket in buckets for n in (bucket, 2 * bucket, 2 * bucket + 1)]


def packed(halves: list[int], digests: list[int]) -> bytes:
    """Return the items, packed in 20 bytes each, as ``lua/shared/buckets.lua`` reads them."""
    items = zip(halves, digests, strict=True)
    return b"".join([(half << 128 | digest).to_bytes(20, "big") for half, digest in items])


def bucket_keys(prefix: str, directory: Directory) -> list[tuple[str, ...]]:
    """Return the keys of all buckets of a directory, grouped so that each group suits one command."""
    keys = [f"{prefix}{bucket}" for bucket in directory.buckets()] if directory.generation else []
    return [tuple(some) for some in chunks(keys, _BUCKETS_PER_CALL)]
