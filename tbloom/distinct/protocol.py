"""The verbs of a distinct counter, as flows (see ``tbloom.engine.flow``). No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tbloom.distinct.config import CounterConfig
from tbloom.distinct.exchange import CountExchange
from tbloom.distinct.info import CountedSlice, CounterInfo
from tbloom.distinct.members import id_of
from tbloom.distinct.reading import Reader
from tbloom.distinct.roaring import containers_of, imported
from tbloom.distinct.selection import Selection, select
from tbloom.distinct.storage import clear_counter, clear_mapping, look, memory
from tbloom.engine.buckets import bucket_keys
from tbloom.engine.flow import Command, Flow, deliver
from tbloom.engine.server import evictions
from tbloom.engine.tree import read_tree
from tbloom.errors import ConfigError
from tbloom.items import Item, check_id, check_items, encode, encode_all, fingerprint


class CountProtocol:
    """The verbs of one counter, for one client."""

    def __init__(self, config: CounterConfig, max_members: int) -> None:
        self.config = config
        self._exchange = CountExchange(config, max_members)
        self.reader = Reader(self._exchange.clock)

    def add(self, member: Item) -> Flow[bool]:
        """Is the member counted for the first time?"""
        [answer] = yield from self._answers(self._exchange.add_members, self._one(member))
        return answer

    def add_many(self, members: Iterable[Item]) -> Flow[list[bool]]:
        """Which of the members are counted for the first time? A repeat within the call is not."""
        return (yield from self._answers(self._exchange.add_members, self._all(members), once=True))

    def contains(self, member: Item) -> Flow[bool]:
        """Is the member counted?"""
        [answer] = yield from self._answers(self._exchange.contains, self._one(member))
        return answer

    def contains_many(self, members: Iterable[Item]) -> Flow[list[bool]]:
        """Which of the members are counted?"""
        return (yield from self._answers(self._exchange.contains, self._all(members)))

    def discard(self, member: Item) -> Flow[bool]:
        """Was the member counted? It is no more."""
        [answer] = yield from self._answers(self._exchange.discard, self._one(member))
        return answer

    def discard_many(self, members: Iterable[Item]) -> Flow[list[bool]]:
        """Which of the members were counted? They are no more."""
        return (yield from self._answers(self._exchange.discard, self._all(members), once=True))

    def id_of(self, member: Item, generation: str) -> Flow[int | None]:
        """The member's id; None if it has none of the mapping's generation."""
        [(digest, _)] = self._one(member)
        if self.config.mapping is None:
            return digest
        return (yield from id_of(self.config, generation, digest))

    def merge(self, containers: Mapping[int, bytes]) -> Flow[None]:
        """Adds the ids of these containers (``lua/shared/containers.lua``), by chunk, to the current slice; of a mapping
        they must be ids that it has given."""
        yield from self._exchange.merge(containers)

    def _one(self, member: Item) -> list[tuple[int, bytes]]:
        """The member's digest, or its id without a mapping; and its bytes."""
        if self.config.mapping is None:
            return [(check_id(member), b"")]
        data = encode(member, "member")
        return [(fingerprint(data), data)]

    def _all(self, members: Iterable[Item]) -> list[tuple[int, bytes]]:
        if self.config.mapping is None:
            members = check_items(members, "members")
            return [(check_id(member, f"members[{i}]"), b"") for i, member in enumerate(members)]
        return [(fingerprint(data), data) for data in encode_all(members, "members")]

    def _answers(
        self,
        verb: Callable[[dict[int, bytes]], Flow[dict[int, bool]]],
        members: list[tuple[int, bytes]],
        *,
        once: bool = False,
    ) -> Flow[list[bool]]:
        """The verb's answer for each member; with ``once``, a repeat gets False."""
        answers = yield from verb(dict(members))
        take, none = answers.pop if once else answers.get, False
        return [take(digest, none) for digest, _ in members]

    def from_roaring(self, data: bytes) -> Flow[None]:
        """Counts the ids of a Roaring bitmap in the portable format."""
        ids = imported(data)
        if ids and self.config.mapping is not None:
            [members] = yield from deliver([Command(("GET", self.config.keys.members()))])
            if ids.max() >= int(members or 0):
                raise ConfigError("data", ids.max(), "ids that the mapping has given to members")
        yield from self.merge(containers_of(ids))

    def count(self, selection: Selection) -> Flow[int]:
        """The number of distinct members in these slices."""
        return (yield from self.reader.count(selection))

    def clear(self, *, mapping: bool) -> Flow[None]:
        """Forgets what is counted; with ``mapping``, the ids and all other counters too."""
        flow = clear_mapping if mapping and self.config.mapping is not None else clear_counter
        yield from flow(self._exchange)

    def info(self) -> Flow[CounterInfo]:
        """What the counter and its mapping hold."""
        config, keys = self.config, self.config.keys
        total = yield from self.count(select(config))  # compares the parameters
        slices = []
        for label, pieces in (yield from look(self._exchange, select(config))):
            ids = sum(piece.ids for piece in pieces)
            taken = yield from memory([piece.key for piece in pieces])
            slices.append(
                CountedSlice(label, ids, sum(piece.fields - 1 for piece in pieces), taken)
            )
        [members] = yield from deliver([Command(("GET", keys.members()))])
        tree = yield from read_tree(config.mapping or config.name, keys.layout())
        buckets = [key for some in bucket_keys(keys.ids(tree.generation), tree) for key in some]
        others = [keys.config(), keys.layout(), keys.members(), keys.counters(), keys.forgotten()]
        return CounterInfo(
            name=config.name,
            mapping=config.mapping,
            granularity=config.window.granularity if config.window else None,
            count=total,
            slices=tuple(slices),
            members=int(members or 0),  # compared by the count
            mapping_bytes=(yield from memory(buckets + others)),
            buckets=len(buckets),
            warnings=tuple((yield from self.warnings())),
        )

    def warnings(self) -> Flow[list[str]]:
        """What threatens the counter."""
        return (yield from evictions([self.config.keys.config()]))
