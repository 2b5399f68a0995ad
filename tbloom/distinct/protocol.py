"""The verbs of a distinct counter, as flows (see ``tbloom.engine.flow``). No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tbloom.distinct.config import CounterConfig
from tbloom.distinct.exchange import CountExchange
from tbloom.distinct.info import CountedSlice, CounterInfo
from tbloom.distinct.members import id_of
from tbloom.distinct.reading import Reader
from tbloom.distinct.roaring import containers_of, imported
from tbloom.distinct.selection import select
from tbloom.distinct.state import StateReader
from tbloom.distinct.storage import clear_counter, clear_mapping, memory
from tbloom.engine.buckets import bucket_keys
from tbloom.engine.flow import Command, Flow, deliver
from tbloom.engine.server import evictions
from tbloom.engine.tree import read_tree
from tbloom.errors import ConfigError
from tbloom.items import Item, check_id, check_items, encode, encode_all, fingerprint

#: A call of the exchange, for the bytes of members by digest, or by id.
Verb = Callable[[dict[int, bytes]], Flow[dict[int, bool]]]


class CountProtocol:
    """The verbs of one counter, for one client."""

    def __init__(self, config: CounterConfig, max_members: int) -> None:
        self.config = config
        self._exchange = CountExchange(config, max_members)
        self.reader = Reader(self._exchange.clock)

    def add(self, member: Item | int) -> Flow[bool]:
        """Is the member counted for the first time?"""
        return self._answer(self._exchange.add_members, member)

    def add_many(self, members: Iterable[Item] | Iterable[int]) -> Flow[list[bool]]:
        """Which of the members are counted for the first time? A repeat within the call is not."""
        return self._answers(self._exchange.add_members, members, once=True)

    def contains(self, member: Item | int) -> Flow[bool]:
        """Is the member counted?"""
        return self._answer(self._exchange.contains, member)

    def contains_many(self, members: Iterable[Item] | Iterable[int]) -> Flow[list[bool]]:
        """Which of the members are counted?"""
        return self._answers(self._exchange.contains, members)

    def discard(self, member: Item | int) -> Flow[bool]:
        """Was the member counted? It is no more."""
        return self._answer(self._exchange.discard, member)

    def discard_many(self, members: Iterable[Item] | Iterable[int]) -> Flow[list[bool]]:
        """Which of the members were counted? They are no more."""
        return self._answers(self._exchange.discard, members, once=True)

    def id_of(self, member: Item | int, generation: str) -> Flow[int | None]:
        """The member's id; None if it has none of the mapping's generation."""
        digest, _ = self._one(member)
        if self.config.mapping is None:
            return digest
        return (yield from id_of(self.config, generation, digest))

    def _one(self, member: Item | int) -> tuple[int, bytes]:
        """The member's digest, or its id without a mapping; and its bytes."""
        if self.config.mapping is None:
            return check_id(member), b""
        data = encode(member, "member")  # type: ignore[arg-type]  # it is checked there
        return fingerprint(data), data

    def _all(self, members: Iterable[Item] | Iterable[int]) -> list[tuple[int, bytes]]:
        if self.config.mapping is None:
            members = check_items(members, "members")  # type: ignore[arg-type]
            return [(check_id(member, f"members[{i}]"), b"") for i, member in enumerate(members)]
        return [(fingerprint(data), data) for data in encode_all(members, "members")]  # type: ignore[arg-type]

    def _answer(self, verb: Verb, member: Item | int) -> Flow[bool]:
        """The verb's answer for the member."""
        digest, data = self._one(member)
        answers = yield from verb({digest: data})
        return answers.get(digest, False)

    def _answers(
        self, verb: Verb, members: Iterable[Item] | Iterable[int], *, once: bool = False
    ) -> Flow[list[bool]]:
        """The verb's answer for each member; with ``once``, a repeat gets False."""
        pairs = self._all(members)
        answers = yield from verb(dict(pairs))
        take, none = answers.pop if once else answers.get, False
        return [take(digest, none) for digest, _ in pairs]

    def from_roaring(self, data: bytes) -> Flow[None]:
        """Counts the ids of a Roaring bitmap in the portable format."""
        ids = imported(data)
        if ids and self.config.mapping is not None:
            [members] = yield from deliver([Command(("GET", self.config.keys.members()))])
            if ids.max() >= int(members or 0):
                raise ConfigError("data", ids.max(), "ids that the mapping has given to members")
        yield from self._exchange.merge(containers_of(ids))

    def clear(self, *, mapping: bool) -> Flow[None]:
        """Forgets what is counted; with ``mapping``, the ids and all other counters too."""
        flow = clear_mapping if mapping and self.config.mapping is not None else clear_counter
        return flow(self._exchange)

    def info(self) -> Flow[CounterInfo]:
        """What the counter and its mapping hold."""
        config, keys = self.config, self.config.keys
        total = yield from self.reader.count(select(config))  # compares the parameters
        slices = []
        state = yield from StateReader(self._exchange.clock).read((select(config),))
        for label, pieces in state.heads[select(config)].items():
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
        return evictions([self.config.keys.config()])
