"""A client's view of a filter: the live slices, the shards' layouts, and the headers of calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from struct import Struct

from tbloom.bloom.config import Config, shard_expiry
from tbloom.bloom.hasher import COLUMNS_PER_DIGEST, digests_for, packed
from tbloom.bloom.layout import Layout
from tbloom.bloom.sizing import ROW_BYTES, block_step, key_bytes
from tbloom.engine.batches import Knowledge
from tbloom.errors import ConfigError
from tbloom.window import Slice

#: The limit of probes in one call. Each item is probed in each part, and a probe takes 0.7 us on Redis 7.0. With several short
#: calls, the client computes the next call while the server executes one.
_PROBES_PER_CALL = 1_300
#: A client sorts a hundredth of a part's capacity at a time (``neighbours``). If 16 clients do so while the part becomes full, its
#: error rate rises by 1 to 2 %.
_NEIGHBOURS = 100
_SIZE = Struct(">BH").pack


def header_of(
    begins: int,
    ends: int,
    expires: int = 0,
    *,
    size: tuple[int, int] = (0, 0),
    version: str = "",
    field: str = "",
    oldest: str = "",
    column_bytes: int = 0,
    sizes: bytes = b"",
) -> bytes:
    """Return a call's header (``lua/shared/header.lua``).

    ``size`` is the capacity and the size (bytes) of the part that new items go into.
    """
    header = b""
    for number in (begins, ends, expires, *size):
        # A slice may begin before 1970 if this machine's clock is wrong. The server's reply corrects the clock.
        header += max(number, 0).to_bytes(7, "big")
    return header + bytes([column_bytes]) + f"{version} {field} {oldest} ".encode() + sizes


class Header:
    """The arguments that a shard's calls share: the keys of parts, and the packed header.

    The calls check the ``within`` newest slices. New items go into the newest part of the slice of age ``age`` (0: the current
    slice). The key of that part comes first. The keys of the other parts are grouped by part size; in a group, the newest part
    comes first.
    """

    def __init__(self, view: View, shard: int, within: int, age: int) -> None:
        keys, labels, layout = view.config.keys, view.labels, view.layout(shard)
        chosen = labels[age]
        *_, newest = layout.parts(chosen)
        groups: dict[tuple[int, int], list[tuple[str, int]]] = {(newest.blocks, newest.hashes): []}
        for number, label in enumerate(labels[:within], 1):
            parts = layout.parts(label)
            for part in range(len(parts) - 1, -1, -1):
                size = parts[part].blocks, parts[part].hashes
                place = keys.slice(label, shard, part), number
                if part == len(parts) - 1 and label == chosen:
                    groups[size].insert(0, place)
                else:
                    groups.setdefault(size, []).append(place)
        #: The view that the header belongs to, and the shard's layout.
        self.view: View = view
        self.layout: Layout = layout
        named, numbers, packed_sizes, steps = [keys.config(shard), keys.state(shard)], b"", b"", []
        most_hashes = 0
        for (blocks, hashes), group in groups.items():
            for key, number in group:
                named.append(key)
                numbers += number.to_bytes(2, "big")
            packed_sizes += _SIZE(hashes, len(group))
            steps.append((blocks, block_step(hashes) * ROW_BYTES))
            most_hashes = max(most_hashes, hashes)
        #: The keys of the shard's parameters and state, then the keys of the parts. They are encoded here, because otherwise
        #: redis-py would encode them in each call.
        self.keys: tuple[bytes, ...] = tuple(map(str.encode, named))
        #: The number of each part's slice (1: the current slice), two bytes each.
        self.slice_numbers: bytes = numbers
        #: The slice whose items decide the size of the current one; None: the current slice needs no entry in the layout.
        self.sized_after: str | None = layout.sized_after(labels[0], labels)
        # Reading and writing a new item's block takes as long as some probes, and longer for a larger block.
        weight = len(named) + 3 + newest.hashes // 8
        #: The limit of items in one call.
        self.most_items: int = max(1, _PROBES_PER_CALL // weight)
        #: How many items are sorted at a time.
        self.most_neighbours: int = max(1, newest.capacity // _NEIGHBOURS)
        #: When new items leave the window (ms).
        self.expires: int = view.expires_at(shard, age)
        count = digests_for(most_hashes)
        #: Return the items in the format of the scripts. It is an attribute, because every call uses it.
        self.pack: Callable[..., bytes] = partial(packed, count=count, sizes=steps)
        #: The packed header.
        self.packed: bytes = header_of(
            view.begins,
            view.ends,
            self.expires,
            size=(newest.capacity, key_bytes(newest.bits)),
            version=layout.version,
            field=keys.field(chosen, len(layout.parts(chosen)) - 1),
            oldest=labels[-1],
            column_bytes=2 * COLUMNS_PER_DIGEST * count,
            sizes=packed_sizes,
        )


class View:
    """A client's view of a filter while one slice is current.

    ``layouts`` has the shards' last known layouts. The dict belongs to the dispatcher, and outlives the view.
    """

    def __init__(self, config: Config, now: int, layouts: dict[int, Layout]) -> None:
        self.config: Config = config
        #: The live slices, newest first, and their labels.
        self.slices: list[Slice] = config.window.live(now)[::-1]
        self.labels: list[str] = [*map(attrgetter("label"), self.slices)]
        current = self.slices[0]
        #: When the current slice begins and ends (ms).
        self.begins: int = current.start
        self.ends: int = current.end
        self._expires = config.window.expires(current)
        self._layouts = layouts
        #: By shard, then by the number of slices that are checked, and the age of the slice for new items.
        self._headers: dict[int, dict[tuple[int, int], Header]] = {}
        #: What the client knows of the stored parameters. If it knows the layout of a single shard, it has compared them.
        self.knowledge: Knowledge = Knowledge.NONE
        if config.shards == 1 and layouts:
            self.knowledge = Knowledge.STORED

    def header(self, shard: int, within: int, age: int = 0) -> Header:
        """Return the header of calls that check the ``within`` newest slices, and add new items to the slice of this age."""
        try:
            return self._headers[shard][within, age]
        except KeyError:
            headers = self._headers.setdefault(shard, {})
            header = headers[within, age] = Header(self, shard, within, age)
            return header

    def layout(self, shard: int) -> Layout:
        """Return the shard's last known layout."""
        return self._layouts.get(shard) or Layout(self.config)

    def learn_layout(self, shard: int, layout: Layout | None) -> None:
        """Replace the shard's layout; None means that none is stored."""
        self._headers.pop(shard, None)
        self._layouts.pop(shard, None)
        if layout:
            self._layouts[shard] = layout
        if self.config.shards == 1:
            self.knowledge = Knowledge.STORED if layout else Knowledge.NONE

    def expires_at(self, shard: int | None, age: int = 0) -> int:
        """Return when the shard's keys of a slice expire (ms)."""
        expires = self.config.window.expires(self.slices[age]) if age else self._expires
        return shard_expiry(self.config, expires, shard)

    def age_of(self, label: str | None) -> int:
        """Return the age of the slice with this label; for None, that of the current slice. Raise ConfigError if it is not live."""
        if label is None:
            return 0
        if label not in self.labels:
            raise ConfigError("label", label, f"that of a live slice: {', '.join(self.labels)}")
        return self.labels.index(label)

    def header_without_items(self, shard: int | None, version: str = "") -> bytes:
        """Return the packed header of a call without items, and with this version of the layout.

        If ``shard`` is None, the call is for the root key.
        """
        return header_of(self.begins, self.ends, self.expires_at(shard), version=version)
