"""The verbs of a distinct counter, as flows (see ``tbloom.engine.flow``). No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tbloom.distinct.config import CounterConfig
from tbloom.distinct.exchange import CountExchange, refusal
from tbloom.distinct.info import CountedSlice, CounterInfo
from tbloom.distinct.reading import Reader
from tbloom.distinct.roaring import containers_of, imported
from tbloom.distinct.selection import Selection, select
from tbloom.distinct.storage import clear_counter, clear_mapping, look, memory
from tbloom.engine.buckets import bucket_keys
from tbloom.engine.flow import Command, Flow, Status, deliver, text
from tbloom.engine.server import evictions
from tbloom.engine.tree import read_tree
from tbloom.errors import ConfigError
from tbloom.items import Item, check_id, encode, fingerprint, fingerprints_of


class CountProtocol:
    """The verbs of one counter, for one client."""

    def __init__(self, config: CounterConfig, max_members: int) -> None:
        self.config = config
        self._exchange = CountExchange(config, max_members)
        self.reader = Reader(self._exchange.clock)

    def add(self, member: Item) -> Flow[bool]:
        """Is the member counted for the first time?"""
        key = fingerprint(encode(member, "member"))
        answers = yield from self._exchange.add_items([key])
        return answers.get(key, False)

    def add_many(self, members: Iterable[Item]) -> Flow[list[bool]]:
        """Which of the members are counted for the first time? A repeat within the call is not."""
        digests = fingerprints_of(members, "members")
        answers = yield from self._exchange.add_items(digests)
        return [answers.pop(digest, False) for digest in digests]

    def id_of(self, member: Item | int) -> Flow[int | None]:
        """The member's id; None if it has none."""
        if self.config.mapping is None:
            return check_id(member)
        key = fingerprint(encode(member, "member"))
        return (yield from self._exchange.ids_of([key])).get(key)

    def from_roaring(self, data: bytes) -> Flow[None]:
        """Counts the ids of a Roaring bitmap in the portable format."""
        yield from self.merge(containers_of(imported(data)))

    def count(self, selection: Selection) -> Flow[int]:
        """The number of distinct members in these slices."""
        return (yield from self.reader.count(selection))

    def clear(self, *, mapping: bool) -> Flow[None]:
        """Forgets what is counted; with ``mapping``, the ids and all other counters too."""
        flow = clear_mapping if mapping else clear_counter
        yield from flow(self._exchange)

    def info(self) -> Flow[CounterInfo]:
        """What the counter and its mapping hold."""
        config, keys = self.config, self.config.keys
        count = yield from self.count(select(config))  # compares the parameters
        slices = []
        for label, stored in (yield from look(self._exchange)).items():
            bitmaps = [keys.bitmap(config.name, label, chunk) for chunk in stored.bitmaps]
            taken = yield from memory([keys.directory(config.name, label), *bitmaps])
            slices.append(
                CountedSlice(label, stored.members, stored.sorted_chunks, len(bitmaps), taken)
            )
        [members] = yield from deliver([Command(("GET", keys.members()))])
        if members is not None and not re.fullmatch("[0-9]{1,16}", text(members)):
            raise refusal(config, Status.DAMAGED, keys.members())
        tree = yield from read_tree(config.mapping, keys.layout())
        buckets = [key for some in bucket_keys(keys.ids(tree.generation), tree) for key in some]
        others = [keys.config(), keys.layout(), keys.members(), keys.counters(), keys.forgotten()]
        return CounterInfo(
            name=config.name,
            mapping=config.mapping,
            granularity=config.window.granularity if config.window else None,
            count=count,
            slices=tuple(slices),
            members=int(members or 0),
            mapping_bytes=(yield from memory(buckets + others)),
            buckets=len(buckets),
            warnings=tuple((yield from self.warnings())),
        )

    def warnings(self) -> Flow[list[str]]:
        """What threatens the counter."""
        return (yield from evictions([self.config.keys.config()]))
