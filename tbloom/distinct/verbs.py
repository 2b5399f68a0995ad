"""The verbs of a distinct counter, as flows (see ``tbloom.engine.methods``). No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Generic, Self, TypedDict, TypeVar, Unpack

from tbloom.arguments import Item, takes
from tbloom.distinct.config import MAX_MEMBERS, CounterConfig
from tbloom.distinct.dispatcher import CountDispatcher, CounterBatch
from tbloom.distinct.info import CountedSlice, CounterInfo
from tbloom.distinct.members import digest_of, digests_of
from tbloom.distinct.reading import At, Reader, Selection, label_of, select
from tbloom.distinct.roaring import containers_of, imported
from tbloom.distinct.storage import clear_counter, clear_mapping
from tbloom.engine.batcher import SharedCall
from tbloom.engine.batches import seen_again, unless_full
from tbloom.engine.buckets import bucket_keys
from tbloom.engine.client import Client, Store
from tbloom.engine.directory import read_directory
from tbloom.engine.flow import Call, Flow, request, request_all
from tbloom.engine.keys import DEFAULT_MAPPING
from tbloom.engine.methods import removing, verb
from tbloom.engine.pending import Answers
from tbloom.engine.server import ask_servers, memory, memory_of_buckets, total
from tbloom.engine.urls import ClientOptions
from tbloom.errors import ConfigError, MappingFull

Sets = TypeVar("Sets")
#: A call of the dispatcher, for the bytes of members by digest, or by id.
Ask = Callable[[dict[int, bytes]], Flow[Answers]]


class CounterArguments(TypedDict, total=False):
    """The optional arguments of both classes."""

    granularity: str | timedelta | None
    slices: int | None
    tz: str
    keep_members: bool
    max_members: int
    prefix: str
    retry_for: float | None


class CounterVerbs(Store[Client, CounterConfig], Generic[Client, Sets]):
    """The common base of both classes."""

    config: CounterConfig
    #: The class of its sets.
    _SETS: Callable[..., Sets]

    @takes(CounterArguments, "client", "name", "mapping")
    def __init__(
        self,
        client: Client,
        name: str,
        mapping: str | None = DEFAULT_MAPPING,
        *,
        granularity: str | timedelta | None = None,
        slices: int | None = None,
        tz: str = "UTC",
        keep_members: bool = False,
        max_members: int = MAX_MEMBERS,
        prefix: str = "",
        retry_for: float | None = None,
    ) -> None:
        """Make a counter of distinct members.

        :param client: a client of redis-py, of its ``asyncio`` for ``AsyncDistinctCounter``; it stays yours to close.
        :param name: the counter's name; clients with the same name and mapping share the counter.
        :param mapping: the name of the mapping from members to ids (``"{ids}"``, which no filter can have as its name).
            Only counters of one mapping can be combined, and they are all on one node of a cluster. None: the members are integers, 0 to 2^32 - 1, and each
            is its own id.
        :param granularity: the period of a slice, as in ``TimeBloom``; None, the default: the counter has no slices, and
            never forgets.
        :param slices: the number of slices that are kept, the current one included. Each leaves with its TTL.
        :param tz: the time zone in which slices begin (``"UTC"``).
        :param keep_members: True: the mapping keeps the members themselves, so that sets can be listed. The same for all
            counters of a mapping.
        :param max_members: the number of members that the mapping may have when this client adds one (2^32, the
            maximum); one more raises ``MappingFull``. A member takes some 30 bytes there, for ever.
        :param prefix: the text with which each key begins (none); see ``TimeBloom``. Mappings of the same name with
            different prefixes are different mappings.
        :param retry_for: how long (seconds) a failed call is retried; None, the default: as in ``TimeBloom``.
        :raises ConfigError: if an argument can't be right.
        """
        super().__init__(client, retry_for=retry_for)
        self.config = CounterConfig(name, mapping, granularity, slices, tz, keep_members, prefix)
        if type(max_members) is not int or not 1 <= max_members <= MAX_MEMBERS:
            raise ConfigError("max_members", max_members, "a whole number from 1 to 2^32")
        if mapping is None and max_members != MAX_MEMBERS:
            raise ConfigError("max_members", max_members, "none, because there is no mapping")
        self._dispatcher = CountDispatcher(self.config, max_members)
        self.reader: Reader = Reader(self._dispatcher.clock)
        self._set_up_driver()

    @classmethod
    def from_url(
        cls,
        url: str,
        name: str,
        mapping: str | None = DEFAULT_MAPPING,
        *,
        client_options: ClientOptions = None,
        **more: Unpack[CounterArguments],
    ) -> Self:
        """Make a counter with a client of its own, which is closed with the counter; see ``TimeBloom.from_url``."""
        return cls._from_url(url, name, client_options, {"mapping": mapping, **more})

    @property
    def mapping(self) -> str | None:
        """The mapping's name."""
        return self.config.mapping

    def members(self) -> Sets:
        """Return the set of the members of all live slices."""
        return self._set(select(self.config))

    def within(self, slices: int) -> Sets:
        """Return the set of the members of the newest ``slices`` slices."""
        return self._set(select(self.config, slices))

    def slice(self, at: At) -> Sets:
        """Return the set of the members of one slice. A slice outside the window has none.

        :param at: an instant in it, as a datetime with a time zone; a day in it, in the counter's time zone; or its label.
        """
        return self._set(Selection(self.config, label=label_of(self.config, at)))

    @verb
    def add(self, member: Item, at: At | None = None) -> Flow[bool]:
        """Count a member. Return True if it was not counted before (in its slice, if there are slices).

        :param at: the live slice that it is counted in, as in ``slice``; None, the default: the current one.
        """
        return self._answer(partial(self._dispatcher.add_members, at=at), member)

    @add.shared
    def _shared_add(self, member: Item, at: At | None = None) -> tuple[SharedCall, int]:
        label, dispatcher = None if at is None else label_of(self.config, at), self._dispatcher

        def keep(digest: int, batch: CounterBatch | None) -> None:
            dispatcher.in_slice(label).keep_new(digest, batch)

        add = partial(dispatcher.add_members, at=at)
        # If the mapping is full, members that have an id are counted all the same.
        some = partial(unless_full, full=MappingFull, add=add, contains=dispatcher.contains)
        digest, data = digest_of(self.config, member)
        return SharedCall(("add", label), self.run, some, keep, seen_again, value=data), digest

    @verb
    def add_many(self, members: Iterable[Item], at: At | None = None) -> Flow[list[bool]]:
        """Call ``add`` for each member, in order; a repeat within the call gets False."""
        return self._answers(partial(self._dispatcher.add_members, at=at), members, once=True)

    @add_many.adds
    def _keys_of(self, members: Iterable[Item]) -> tuple[list[Item], list[int]]:
        pairs = digests_of(self.config, members)
        return [data or digest for digest, data in pairs], [digest for digest, _ in pairs]

    @verb
    def contains(self, member: Item) -> Flow[bool]:
        """Return whether the member is counted in any live slice."""
        return self._answer(self._dispatcher.contains, member)

    @verb
    def contains_many(self, members: Iterable[Item]) -> Flow[list[bool]]:
        """Call ``contains`` for each member, in order."""
        return self._answers(self._dispatcher.contains, members)

    @removing
    @verb
    def discard(self, member: Item) -> Flow[bool]:
        """Remove a member from all live slices. Return True if it was counted."""
        return self._answer(self._dispatcher.discard, member)

    @removing
    @verb
    def discard_many(self, members: Iterable[Item]) -> Flow[list[bool]]:
        """Call ``discard`` for each member, in order."""
        return self._answers(self._dispatcher.discard, members, once=True)

    @verb
    def count(self, within: int | None = None) -> Flow[int]:
        """Return the number of distinct members in all live slices together.

        :param within: the number of newest slices that are counted; None, the default: all.
        """
        return self.reader.count(select(self.config, within))

    @verb
    def from_roaring(self, data: bytes) -> Flow[None]:
        """Count the ids of a Roaring bitmap, in the portable format, in the current slice. With a mapping, its members must have
        these ids."""
        ids = imported(data)
        if ids and self.config.mapping is not None:
            [members] = yield from request([Call(("GET", self.config.keys.members()))])
            if ids.max() >= int(members or 0):
                raise ConfigError("data", ids.max(), "ids that the mapping has given to members")
        yield from self._dispatcher.merge(containers_of(ids))

    @verb
    def info(self) -> Flow[CounterInfo]:
        """Return the contents of the counter and its mapping. The number of commands is bounded."""
        config, keys, whole = self.config, self.config.keys, select(self.config)
        count = yield from self.reader.count(whole)  # compares the parameters
        warnings = (yield from ask_servers([keys.config()])).warnings
        found = yield from self.reader.read([whole], lambda _: False)
        stored = [piece.key for pieces in found.slices[whole].values() for piece in pieces]
        replies = yield from request_all([Call(("HLEN", key)) for key in stored])
        fields = dict(zip(stored, replies, strict=True))
        sizes = dict(zip(stored, (yield from memory(stored, warnings)), strict=True))
        slices = [
            CountedSlice(
                label,
                sum(piece.ids for piece in pieces),
                sum(fields[piece.key] - 1 for piece in pieces),  # without the heads
                total(sizes[piece.key] for piece in pieces),
            )
            for label, pieces in found.slices[whole].items()
        ]
        [members] = yield from request([Call(("GET", keys.members()))])
        directory = yield from read_directory(config.mapping or config.name, keys.layout())
        buckets = [
            key for some in bucket_keys(keys.ids(directory.generation), directory) for key in some
        ]
        others = [keys.config(), keys.layout(), keys.members(), keys.counters(), keys.forgotten()]
        taken = yield from memory_of_buckets(buckets, warnings)
        mapping_bytes = total([taken, *(yield from memory(others, warnings))])
        return CounterInfo(
            name=config.name,
            mapping=config.mapping,
            granularity=config.window.granularity if config.window else None,
            count=count,
            slices=tuple(slices),
            members=int(members or 0),  # compared by the count
            mapping_bytes=mapping_bytes,
            buckets=len(buckets),
            warnings=tuple(warnings),
        )

    @verb
    def warnings(self) -> Flow[list[str]]:
        """Return warnings about dangers to the counter: a server that drops keys when its memory is full."""
        return (yield from ask_servers([self.config.keys.config()])).warnings

    @removing
    @verb
    def clear(self, *, mapping: bool = False) -> Flow[None]:
        """Forget what is counted, for all clients, at once. The ids stay, because other counters may count them.

        :param mapping: True: forget all counters of the mapping, one after another, and then its ids. After an error,
            call it again.
        """
        if type(mapping) is not bool:  # a name, of which it would forget this counter's own
            raise ConfigError("mapping", mapping, "True or False")
        flow = clear_mapping if mapping and self.config.mapping is not None else clear_counter
        return flow(self._dispatcher)

    def _set(self, selection: Selection) -> Sets:
        return self._SETS(self, self.reader, (selection,))

    def _answer(self, ask: Ask, member: Item) -> Flow[bool]:
        """Return the answer for the member."""
        digest, data = digest_of(self.config, member)
        answers = yield from ask({digest: data})
        return bool(answers.get(digest))

    def _answers(
        self, ask: Ask, members: Iterable[Item], *, once: bool = False
    ) -> Flow[list[bool]]:
        """Return the answer for each member. With ``once``, a repeat gets False."""
        pairs = digests_of(self.config, members)

        def each() -> Flow[list[bool]]:
            answers = yield from ask(dict(pairs))
            take = answers.pop if once else answers.get
            return [bool(take(digest, None)) for digest, _ in pairs]

        return each()
