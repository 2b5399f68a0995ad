"""The script calls of a filter while one slice is current. Arguments that calls share are prepared once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, TypeVar

from tbloom.bloom.config import Config, leaves
from tbloom.bloom.hasher import COLUMNS_PER_DIGEST, digests_for, packed
from tbloom.bloom.layout import Layout, Part
from tbloom.bloom.sizing import ROW_BYTES, block_step, key_bytes
from tbloom.engine.dispatcher import Agreement
from tbloom.engine.flow import Call
from tbloom.engine.pending import Batch
from tbloom.engine.scripts import Script
from tbloom.engine.tokens import LANE_TTL_MS, Lane
from tbloom.errors import ConfigError
from tbloom.window import Slice

K = TypeVar("K")
V = TypeVar("V")

_ADD = Script("bloom/add")
_CONTAINS = Script("bloom/contains")
_CLEAR = Script("bloom/clear")
_OPEN = Script("bloom/open")
_SET_LAYOUT = Script("bloom/set_layout")
_COMMIT = Script("bloom/claims/commit")

#: The limit of probes in one call. Each item is probed in each part, which takes 1 us on Redis 7.0.
#: The client computes the next call while the server executes one.
_PROBES_PER_CALL = 1_000
_SIZE = Struct(">BH").pack


def constants(
    begins: int,
    ends: int,
    expires: int = 0,
    *,
    size: tuple[int, int] = (0, 0),
    version: str = "",
    field: str = "",
    oldest: str = "",
    columns: int = 0,
    sizes: bytes = b"",
) -> bytes:
    """Return the header that the calls of a slice share (``lua/shared/calls.lua``).

    ``size`` is the capacity, and the size in bytes, of the part that new items go into.
    """
    # A slice begins before 1970 if this machine's clock is wrong; the server corrects it later.
    numbers = [max(number, 0).to_bytes(7, "big") for number in (begins, ends, expires, *size)]
    texts = f"{version} {field} {oldest} ".encode()
    return b"".join([*numbers, bytes([columns]), texts, sizes])


class Parts:
    """The parts that a call names, in the order of the scripts.

    The part that new items go into comes first, then the other parts of its size, then the parts of other sizes; within a
    size, the newest first. ``ages`` has the slice number of each part (1 = current), in two bytes.
    """

    def __init__(self, guards: tuple[str, str], named: list[tuple[str, Part, int]]) -> None:
        groups: dict[tuple[int, int], list[tuple[str, int]]] = {}
        for key, part, age in named:
            groups.setdefault((part.blocks, part.hashes), []).append((key, age))
        in_order = [place for group in groups.values() for place in group]
        self.keys: tuple[str, ...] = tuple([key for key, _ in in_order])
        self.ages: bytes = b"".join([(age + 1).to_bytes(2, "big") for _, age in in_order])
        #: The sizes, and the columns of a packed item, in the format of ``lua/shared/blocks.lua``.
        self.sizes: bytes = b"".join(
            [_SIZE(hashes, len(group)) for (_, hashes), group in groups.items()]
        )
        count = digests_for(max(hashes for _, hashes in groups))
        self.columns: int = COLUMNS_PER_DIGEST * count
        #: The header of calls that name these parts.
        self.constant: bytes = b""
        #: The arguments after the script of calls with no other keys: the number of keys, then the keys.
        self._named: tuple[Any, ...] = (2 + len(self.keys), *guards, *self.keys)
        #: Return the items in the format of the scripts. It is no method, because every call uses it.
        self.packed: Callable[[list[bytes]], bytes] = partial(
            packed,
            count=count,
            sizes=[(blocks, block_step(hashes) * ROW_BYTES) for blocks, hashes in groups],
        )
        #: Return the items, each followed by its digest.
        self.packed_for_claims: Callable[[list[bytes]], bytes] = partial(
            self.packed, with_digests=True
        )

    def add(self, lane: Lane, digests: list[bytes]) -> Call:
        """Return a call of ``lua/bloom/add.lua``."""
        own = lane.token, self.constant, self.packed(digests)
        return Call(("EVALSHA", _ADD.sha, *self._named, *own), "", _ADD)

    def contains(self, digests: list[bytes], *, when: bool = False) -> Call:
        """Return a call of ``lua/bloom/contains.lua``; with ``when``, it asks for the newest slice that holds each item."""
        own = self.constant, *([self.ages] if when else []), self.packed(digests)
        return Call(("EVALSHA", _CONTAINS.sha, *self._named, *own), "", _CONTAINS)


class Made(dict[K, V]):
    """A dict that makes each value at its first look-up."""

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        value = self[key] = self._make(key)
        return value


class ShardCalls:
    """The parts of one shard's live slices, and the arguments that its calls share."""

    def __init__(self, calls: SliceCalls, shard: int, layout: Layout) -> None:
        keys = calls.config.keys
        #: All parts, newest first: key, part, and age (0: the current slice's).
        self._slices: list[tuple[str, Part, int]] = []
        #: For each slice, newest first: the number of parts of it and all newer slices.
        self.slice_ends: list[int] = []
        for age, label in enumerate(calls.labels):
            for number, part in reversed([*enumerate(layout.parts(label))]):
                self._slices.append((keys.slice(label, shard, number), part, age))
            self.slice_ends.append(len(self._slices))
        # Reading and writing a new item's block takes as long as some probes, and longer for a larger block.
        weight = len(self._slices) + 5 + self._slices[0][1].hashes // 8
        #: The limit of items in one call.
        self.most: int = max(1, _PROBES_PER_CALL // weight)
        #: The keys of the shard's parameters and state, and of its claims and their sessions.
        self.guards: tuple[str, str] = keys.config(shard), keys.state(shard)
        self.claims: tuple[str, str] = keys.claims(shard), keys.sessions(shard)
        self.layout = layout
        #: The slice whose size decides how the current one begins; None: the current one begins as usual, or has begun.
        self.begins_after: str | None = layout.newest_before(calls.labels[0], calls.labels)
        #: True if the shard is stored, and an item can be added to the current slice at once.
        self.has_begun: bool = bool(layout.version) and self.begins_after is None
        self._calls, self._number = calls, shard
        #: By a number of newest slices and the age of the slice that new items go into: the parts of a call.
        self.parts: Made[tuple[int, int], Parts] = Made(self._make_parts)

    def _make_parts(self, asked: tuple[int, int]) -> Parts:
        slices, chosen = asked
        named = self._slices[: self.slice_ends[slices - 1]]
        first = self.slice_ends[chosen - 1] if chosen else 0
        made = Parts(self.guards, [named[first], *named[:first], *named[first + 1 :]])
        calls, label = self._calls, self._calls.labels[chosen]
        *_, newest = parts = self.layout.parts(label)
        made.constant = constants(
            calls.begins,
            calls.ends,
            calls.expires_at(self._number, chosen),
            size=(newest.capacity, key_bytes(newest.bits)),
            version=self.layout.version,
            field=calls.config.keys.field(label, len(parts) - 1),
            oldest=calls.labels[-1],
            columns=made.columns,
            sizes=made.sizes,
        )
        return made


class SliceCalls:
    """A filter's script calls, valid for the slice that ``now`` (ms) lies in."""

    def __init__(self, config: Config, now: int, layouts: dict[int, Layout]) -> None:
        #: The live slices, newest first, and their labels.
        self.slices: list[Slice] = config.window.live(now)[::-1]
        self.labels: list[str] = [slice.label for slice in self.slices]
        current = self.slices[0]
        self.config = config
        self.begins: int = current.start
        self.ends: int = current.end
        self._expires = config.window.expires(current)
        self._layouts = layouts
        #: By shard: the parts and arguments that its calls share.
        self.shards: Made[int, ShardCalls] = Made(
            lambda shard: ShardCalls(self, shard, self.layout(shard))
        )
        #: The known state of the stored parameters. A client that knows a single shard's layout has compared them.
        self.agreement: Agreement = Agreement.NONE
        if config.shards == 1 and layouts:
            self.agreement = Agreement.STORED

    def layout(self, shard: int) -> Layout:
        """Return the shard's last known layout."""
        return self._layouts.get(shard) or Layout(self.config)

    def check_live(self, label: str) -> None:
        """Raise ConfigError if the slice is not live."""
        if label not in self.labels:
            raise ConfigError("label", label, f"that of a live slice: {', '.join(self.labels)}")

    def expires_at(self, shard: int | None, age: int = 0) -> int:
        """Return when the shard's keys of a slice expire (ms)."""
        expires = self.config.window.expires(self.slices[age]) if age else self._expires
        return leaves(self.config, expires, shard)

    def learn_layout(self, shard: int, layout: Layout | None) -> None:
        """Replace the shard's layout; None means that none is stored."""
        self.shards.pop(shard, None)
        self._layouts.pop(shard, None)
        if layout:
            self._layouts[shard] = layout
        if self.config.shards == 1:
            self.agreement = Agreement.STORED if layout else Agreement.NONE

    def add(self, within: int, batch: Batch, age: int = 0) -> Call:
        """Return a call of ``lua/bloom/add.lua`` that adds to the slice of this age; the batch has a lane."""
        shard = self.shards[batch.shard]
        batch.generation, batch.age = shard.layout.generation, age
        return shard.parts[within, age].add(batch.lane, batch.digests)

    def commit(
        self, batch: Batch, session: str = "", age: int = 0, label: str | None = None
    ) -> Call:
        """Return a call of ``lua/bloom/claims/commit.lua`` that writes into the slice with this label, or of this age.

        Without a session, it ends no claims.
        """
        if label:
            self.check_live(label)
            age = self.labels.index(label)
        shard, batch.age = self.shards[batch.shard], age
        parts = shard.parts[age + 1, age]
        keys = *shard.guards, shard.claims[0], *parts.keys
        arguments = parts.constant, session, parts.packed_for_claims(batch.digests)
        return _COMMIT.call(keys, arguments)

    def contains(self, within: int, batch: Batch, *, when: bool = False) -> Call:
        """Return a call of ``lua/bloom/contains.lua`` that checks the ``within`` newest slices."""
        return self.shards[batch.shard].parts[within, 0].contains(batch.digests, when=when)

    def constant(self, shard: int | None) -> bytes:
        """Return the header of calls without items."""
        version = "" if shard is None else self.layout(shard).version
        return constants(self.begins, self.ends, self.expires_at(shard), version=version)

    def clear(self, batch: Batch, counted: list[str]) -> Call:
        """Return a call of ``lua/bloom/clear.lua``; the batch has a lane, and no items.

        ``counted`` are the keys of the parts that the state counts.
        """
        shard = self.shards[batch.shard]
        return _CLEAR.call(
            (
                *shard.guards,
                *shard.claims,
                *dict.fromkeys([*shard.parts[len(self.labels), 0].keys, *counted]),
            ),
            (batch.lane.token, self.constant(batch.shard), self.config.stored, LANE_TTL_MS),
        )

    def open(self, shard: int | None, *, store: bool, in_hand: int = 0) -> Call:
        """Return a call of ``lua/bloom/open.lua``, for a shard, or for the root of several shards (None).

        With ``store``, the shard begins with room for the items in hand.
        """
        arguments = self.config.stored, self.constant(shard), int(store)
        if shard is None:
            return _OPEN.call((self.config.keys.root,), arguments)
        entries = self.layout(shard).first_entries(self.labels[0], in_hand) if store else ""
        return _OPEN.call(self.shards[shard].guards, (*arguments, entries))

    def begin(self, shard: int, version: str, entries: str) -> Call:
        """Return a call of ``lua/bloom/set_layout.lua`` that begins the current slice.

        ``entries`` were made from this ``version`` of the layout.
        """
        constant = constants(self.begins, self.ends, self.expires_at(shard), version=version)
        return _SET_LAYOUT.call(self.shards[shard].guards, (constant, entries))

    def grow(self, shard: int, age: int, in_hand: int) -> Call:
        """Return a call of ``lua/bloom/set_layout.lua`` that adds a part, with room for the items in hand, to a slice."""
        calls = self.shards[shard]
        entries = calls.layout.grown(self.labels[age], self.labels, in_hand)
        return _SET_LAYOUT.call(calls.guards, (calls.parts[age + 1, age].constant, entries))
