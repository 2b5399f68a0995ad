"""Calls to stores that keep their items in buckets (see ``tbloom.engine.directory``)."""

from __future__ import annotations

from collections.abc import Callable

from tbloom.engine.directory import Directory, read_directory
from tbloom.engine.dispatcher import Agreement, Dispatcher
from tbloom.engine.flow import Call, Flow, chunks
from tbloom.engine.keys import Keys
from tbloom.engine.pending import MOVED, Answers, Batch, answers_of

#: Buckets that one command reads or deletes: less than a millisecond's work.
_BUCKETS_PER_CALL = 100


class BucketDispatcher(Dispatcher):
    """The directories of a store's shards, as far as the client knows them, and its calls."""

    _change = "its layout changed"

    def __init__(self, name: str, keys: Keys, owner: str, remedy: str) -> None:
        """``owner``, ``remedy``: whose layout it is, and what its user can do if that is damaged."""
        super().__init__(name)
        self._keys, self._owner, self._remedy = keys, owner, remedy
        self._directories: dict[int, Directory] = {}
        #: The shards whose layout must be read before the next call.
        self.outdated: set[int] = set()

    def take_out(
        self, digests: list[int], batches: list[Batch], call: Callable[[Batch], Call]
    ) -> Flow[Answers]:
        """Sends calls that take these items out, after all earlier ones that add them. Nothing is kept of those that fail."""
        pending, new = self.pending_answers, dict[int, Batch]()
        if pending.exist:
            # Else an add that is still on its way would come later, and its answer would reach nobody.
            yield from self.fetch_lost(digests)
            # A call that got lost meanwhile may be executed after this one: its caller still gets its answer.
            new = pending.known_new(digests)
        yield from self.send_once(batches, call)
        # Not before: an add of such an item that is repeated meanwhile is told that it was new.
        pending.drop_new(new)
        return answers_of(batches)

    def _next_step(self, batch: Batch, agreement: Agreement) -> Flow[None] | None:  # noqa: ARG002
        """Return a flow that reads the shard's layout, if it has changed."""
        return self._read_layout(batch.shard) if batch.shard in self.outdated else None

    def _read_layout(self, shard: int) -> Flow[None]:
        self.outdated.discard(shard)
        key = self._keys.layout(shard)
        self._directories[shard] = yield from read_directory(self._owner, key, self._remedy)

    def directory(self, shard: int = 0) -> Directory:
        """The shard's directory; without a generation if the client knows of none."""
        return self._directories.get(shard) or self._directories.setdefault(shard, Directory(""))

    def lane(self, batch: Batch) -> tuple[str, int]:
        """The key of the batch's lane, and the number of its call."""
        return self._keys.lanes(batch.shard) + batch.lane.name, batch.lane.number

    def _note_moved(self, batch: Batch) -> None:
        """Has the layout read again before the next call, because items of this batch have moved."""
        self.outdated.add(batch.shard)

    def _rest_of(self, batch: Batch) -> Batch | None:
        """Return a batch of the items that are in other buckets than the client thought, if there are any."""
        moved = batch.items_with(MOVED)
        if not moved:
            return None
        self._note_moved(batch)
        return self._batch_of_rest(batch, moved)


def keys_of_halves(prefix: str, halves: list[int]) -> list[str]:
    """For each bucket whose halves these are, in order of appearance: its key, and those of both halves."""
    buckets = {half >> 1: None for half in halves}
    return [f"{prefix}{n}" for bucket in buckets for n in (bucket, 2 * bucket, 2 * bucket + 1)]


def packed(halves: list[int], digests: list[int]) -> bytes:
    """The items, for the scripts' ``half_at`` and ``fingerprint_at``."""
    items = zip(halves, digests, strict=True)
    return b"".join([(half << 128 | digest).to_bytes(20, "big") for half, digest in items])


def bucket_keys(prefix: str, directory: Directory) -> list[tuple[str, ...]]:
    """The keys of all of a directory's buckets, in groups for one command each."""
    keys = [f"{prefix}{bucket}" for bucket in directory.buckets()] if directory.generation else []
    return [tuple(some) for some in chunks(keys, _BUCKETS_PER_CALL)]
