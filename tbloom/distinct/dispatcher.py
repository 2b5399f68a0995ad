"""One client's calls to one counter and its mapping."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from struct import pack
from types import MappingProxyType
from typing import Any

from tbloom.distinct.config import MAX_MEMBERS, CounterConfig, refusal
from tbloom.distinct.reading import At, label_of
from tbloom.engine.batches import CLOCK_CHANGED, Knowledge
from tbloom.engine.buckets import BucketDispatcher, keys_of_halves, packed
from tbloom.engine.directory import LAST_BUCKET, Directory
from tbloom.engine.flow import Call, Flow, Status, chunks, text
from tbloom.engine.pending import MOVED, Answers, Batch, answers_of
from tbloom.engine.scripts import Script
from tbloom.engine.server import ServerClock, ask_time
from tbloom.engine.tokens import LANE_TTL_MS
from tbloom.errors import ConfigError, MappingFull
from tbloom.window import ALWAYS, Slice, Window

_CHANGE = Script("distinct/change")

#: A bucket with more entries is split. Redis keeps up to 512 in its compact form (a listpack).
_MAX_ENTRIES = 100
#: A new member takes the server some 8 us.
_MEMBERS_PER_CALL = 150
#: The members of a call times the slices that it probes.
_PROBES_PER_CALL = 1000
#: The containers of a call: at most 8 KB each.
_CONTAINERS_PER_CALL = 64
#: The answer of a member that may get no id.
_REFUSED = "3"
#: The verbs that probe all live slices.
_ON_ALL_SLICES = ("contains", "discard")
_NONE: Mapping[int, bytes] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class CounterBatch(Batch):
    """The members, or containers to merge, of one call to a counter."""

    verb: str = "discard"
    #: The members, if the mapping keeps them, or the containers, by digest or chunk.
    values: Mapping[int, bytes] = field(default_factory=dict)
    #: The label of the slice to count in; None: the current one.
    label: str | None = None
    #: Of its last call: the directory, whether the mapping was full, and whether items are left for another call.
    directory: Directory | None = None
    is_full: bool = False
    is_left: bool = False


class CountDispatcher(BucketDispatcher[CounterBatch]):
    """A client's view of a counter and its mapping, and its calls."""

    _BATCH = CounterBatch

    def __init__(self, config: CounterConfig, max_members: int = MAX_MEMBERS) -> None:
        super().__init__(config.name, config.keys, config.mapping or "", "clear(mapping=True)")
        self.config = config
        self.clock: ServerClock = ServerClock()
        self._max_members = max_members
        #: The counter's generation, and the number of the mapping's members.
        self._generation = ""
        self._members = 0
        #: The current slice, and when it leaves the window (ms; 0: never).
        self._current: tuple[Slice, int] = (ALWAYS, 0)
        #: One dispatcher for each past slice, because pending answers are kept by member: one slice's are none in another.
        self._past: dict[str, CountDispatcher] = {}

    def send(
        self,
        batches: list[CounterBatch],
        call: Callable[[CounterBatch], Call],
        required: Knowledge = Knowledge.COMPARED,
        learn: Callable[[CounterBatch, Any], None] | None = None,
    ) -> Flow[None]:
        """Send the batches' calls. Raise MappingFull once all members that have an id are counted."""
        yield from super().send(batches, call, required, learn)
        if any(_REFUSED in (batch.answers or "") for batch in batches):
            raise MappingFull(self.config.mapping or self.config.name, self._max_members)

    def add_members(self, members: Mapping[int, bytes], at: At | None = None) -> Flow[Answers]:
        """Count the members in the slice of ``at``, or in the current one, and return which were not counted there.

        ``members`` are by digest, or by id; the mapping keeps the values.
        """
        label = None
        if at is not None:
            label = label_of(self.config, at)
            yield from ask_time(self.config, self.clock)  # ``_live_slice`` goes by it
        batches, dispatcher = self.batches(members, "add", members, label), self.in_slice(label)
        return (yield from dispatcher.add(batches, dispatcher.make_call))

    def discard(self, digests: Iterable[int]) -> Flow[Answers]:
        """Discard the members, and return which were counted."""
        return self.remove_items(self.batches(digests, "discard"), self.make_call)

    def contains(self, digests: Iterable[int]) -> Flow[Answers]:
        """Return which of the members are counted."""
        batches = self.batches(digests, "contains")
        yield from self.send(batches, self.make_call)
        return answers_of(batches)

    def merge(self, containers: Mapping[int, bytes]) -> Flow[None]:
        """Add the ids of these containers, by their chunks' numbers."""
        batches = self.batches(containers, "merge", containers)
        yield from self.send(batches, self.make_call, Knowledge.STORED)

    def batches(
        self,
        digests: Iterable[int],
        verb: str = "add",
        values: Mapping[int, bytes] = _NONE,
        label: str | None = None,
    ) -> list[CounterBatch]:
        """Return the distinct digests, or chunks to merge, in batches of one call each."""
        probed = self.config.window.slices if self.config.window and verb in _ON_ALL_SLICES else 1
        size = min(_MEMBERS_PER_CALL, max(1, _PROBES_PER_CALL // probed))
        if verb == "merge":
            size = _CONTAINERS_PER_CALL
        some = chunks([*dict.fromkeys(digests)], size)
        return [CounterBatch([*digests], verb=verb, values=values, label=label) for digests in some]

    def make_call(self, batch: CounterBatch) -> Call:
        """Return a call of ``lua/distinct/change.lua``."""
        config, keys, digests = self.config, self.config.keys, batch.digests
        (current, expires), verb = self._current_slice(), batch.verb
        batch.directory = directory = self.directory()
        batch.generation = generation = self._generation
        labels = [current.label]
        if config.window and verb in _ON_ALL_SLICES:
            labels = [slice.label for slice in config.window.live(self.clock.now())]
        elif config.window and batch.label not in (None, current.label):
            past = self._live_slice(config.window, batch.label)
            labels, expires = [past.label], config.window.expires(past)
        halves = list[int]()
        if verb == "merge":
            pieces = {0, *(chunk >> 12 for chunk in digests)}
        elif config.mapping is None:
            pieces = {0, *(id >> 28 for id in digests)}
        else:
            pieces = {*range((self._members + len(digests) >> 28) + 1)}
            halves = [*map(directory.half_of, digests)]
        keeps = verb == "merge" or (config.keep_members and verb == "add")
        return _CHANGE.call(
            (
                keys.lane(batch.lane.name),
                keys.config(),
                keys.layout(),
                keys.members(),
                keys.counters(),
                *(
                    keys.piece(config.name, label, piece)
                    for label in labels
                    for piece in sorted(pieces)
                ),
                *keys_of_halves(keys.ids(directory.generation), halves),
                *([keys.scratch()] if verb == "merge" else []),
            ),
            (
                batch.lane.token,
                verb,
                config.stored_mapping,
                config.name,
                config.stored,
                generation,
                "-" if config.mapping is None else directory.generation,
                current.start,
                current.end,
                expires,
                LANE_TTL_MS,
                _MAX_ENTRIES,
                LAST_BUCKET,
                self._max_members,
                len(labels),
                " ".join(map(str, sorted(pieces))),
                packed(halves, digests) if halves else pack(f">{len(digests)}I", *digests),
                *([batch.values[digest] for digest in digests] if keeps else []),
            ),
        )

    def replay(self, batch: CounterBatch) -> Call:
        """Return a call that discards no members. Its answer is always kept."""
        return self.make_call(batch)

    def forget(self) -> None:
        """Forget the generation, because the counter is cleared."""
        self._generation, self._members = "", 0

    def _lifetime_ms(self, batch: CounterBatch) -> int:  # noqa: ARG002
        """Return how long (ms) the members that a batch has added are counted."""
        _, expires = self._current_slice()
        return expires - self.clock.now() if expires else LANE_TTL_MS

    def _current_slice(self) -> tuple[Slice, int]:
        """Return the current slice, and when it leaves the window."""
        # Kept, because ``expires`` takes a step for each slice.
        window, now = self.config.window, self.clock.now()
        slice, expires = self._current
        if window and not (expires and slice.start <= now < slice.end):
            slice = window.slice_at(now)
            expires = window.expires(slice)
            self._current = slice, expires
        return slice, expires

    def in_slice(self, label: str | None) -> CountDispatcher:
        """Return the dispatcher that counts in the slice with this label; None: in the current one."""
        if label in (None, self._current_slice()[0].label):
            return self
        dispatcher = self._past.get(label)
        if dispatcher is None:
            dispatcher = CountDispatcher(self.config, self._max_members)
            dispatcher.clock, dispatcher._directories, dispatcher.outdated = (
                self.clock,
                self._directories,
                self.outdated,
            )
            dispatcher = self._past.setdefault(label, dispatcher)
        return dispatcher

    def _live_slice(self, window: Window, label: str | None) -> Slice:
        """Return the live slice with this label. Raise ConfigError if there is none."""
        live = window.live(self.clock.now())
        for slice in live:
            if slice.label == label:
                return slice
        expected = f"an instant in a slice of the window, {live[0].label!r} to {live[-1].label!r}"
        raise ConfigError("at", label, expected)

    def _note_moved(self, batch: CounterBatch) -> None:
        """Mark the layout as outdated, unless the items were only left for another call."""
        if not batch.is_left and self.config.mapping is not None:
            super()._note_moved(batch)

    def _learn(self, batch: CounterBatch, reply: Any) -> None:
        """Take the answers from a reply, or correct what the client knows; see ``Dispatcher._learn``."""
        status, payload, *more = reply
        if status in (Status.OK, Status.FULL):
            answers = self._answers(batch, payload, complete=True)
            # Members without an answer are sent again, because they may have an id in another bucket.
            if status == Status.FULL and batch.is_full and {*answers} == {MOVED}:
                answers = _REFUSED * len(batch.digests)
            batch.answers = answers
            splits, members, is_left = more
            if batch.directory is not None:
                batch.directory.note_splits(splits)
            self._members = max(self._members, members)
            batch.is_full, batch.is_left = status == Status.FULL, bool(is_left)
        elif status == Status.CLOCK:
            self.clock.learn(payload)
            self._correction_cause = CLOCK_CHANGED
        elif status == Status.LAYOUT:
            self._generation = text(more[0])
            if self.config.mapping is not None and text(payload) != self.directory().generation:
                self.outdated.add(batch.shard)
        else:
            raise refusal(self.config, status, payload, *more)
