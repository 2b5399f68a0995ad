"""What counters have stored at one moment, without the ids: which pieces, and their versions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tbloom.distinct.config import CounterConfig, parse_entry
from tbloom.distinct.exchange import MAX_PIECES, refusal
from tbloom.distinct.pieces import PIECE, Head, head_of
from tbloom.distinct.selection import Selection
from tbloom.engine.exchange import ServerClock
from tbloom.engine.flow import Flow, Read, Status, chunks, deliver, pack, text
from tbloom.window import ALWAYS

_CALLS_PER_TRIP = 256
#: The questions that are kept.
_MAX_LAST = 256
_NUMBER = re.compile(rb"\d{1,10}")
#: The replies to commands, by their words.
Replies = Mapping[tuple[str | bytes, ...], Any]


class State(NamedTuple):
    """The generations of counters; and their pieces that have ids, by selection and slice."""

    generations: dict[CounterConfig, str]
    heads: list[list[list[Head]]]

    @property
    def pieces(self) -> dict[str, Head]:
        """The pieces, by key."""
        return {head.key: head for some in self.heads for slice in some for head in slice}


class _Asked(NamedTuple):
    """Commands, as long as these slices are live; their replies, without the server's time; and what these mean."""

    begins: int
    ends: int
    labels: dict[Selection, list[str]]
    calls: list[Read]
    replies: list[Any] | None = None
    state: State | None = None


class StateReader:
    """Asks for states, through one client."""

    def __init__(self, clock: ServerClock) -> None:
        self._clock = clock
        #: The pieces that a slice has, as far as known, by the key of the counter's mapping.
        self._pieces: dict[str, int] = {}
        #: What was asked last, and may be asked again.
        self._last: dict[tuple[Selection, ...], _Asked] = {}

    def read(self, chosen: Sequence[Selection], kept: Collection[str]) -> Flow[State | None]:
        """The state, in one trip; None: other slices are live than the client believes, or there are more pieces.

        ``kept``: the keys of pieces whose number of chunks is not asked.
        """
        selections, now = tuple(chosen), self._clock.now()
        asked = self._last.get(selections)
        if asked is None or not asked.begins <= now < asked.ends:
            asked = self._ask(selections, now, kept)
        replies: list[Any] = []
        for calls in chunks(asked.calls, _CALLS_PER_TRIP):
            replies += yield from deliver(calls)
        seconds, microseconds = replies.pop(0)
        self._clock.learn(int(seconds) * 1000 + int(microseconds) // 1000)
        if not asked.begins <= self._clock.now() < asked.ends:
            return None
        if replies == asked.replies:
            return asked.state
        words = [call.words for call in asked.calls[1:]]
        state = self._state(asked.labels, dict(zip(words, replies, strict=True)))
        if len(self._last) >= _MAX_LAST:
            self._last.clear()
        if state is None:
            self._last.pop(selections, None)
        elif not any(name == "HLEN" for name, *_ in words):
            self._last[selections] = asked._replace(replies=replies, state=state)
        return state

    def _ask(self, selections: tuple[Selection, ...], now: int, kept: Collection[str]) -> _Asked:
        labels = {selection: selection.labels(now) for selection in selections}
        currents = [current for one in selections if (current := one.current(now))]
        keys = [self._keys(one.config, label) for one, some in labels.items() for label in some]
        configs = [selection.config for selection in selections]
        calls = [Read(("TIME",), configs[0].keys.root, pack(("TIME",)))]
        calls += [
            Read(words, words[1], pack(words))
            for words in dict.fromkeys(_questions(configs, keys, kept))
        ]
        begins = max((current.start for current in currents), default=ALWAYS.start)
        ends = min((current.end for current in currents), default=ALWAYS.end)
        return _Asked(begins, ends, labels, calls)

    def _state(self, labels: Mapping[Selection, list[str]], got: Replies) -> State | None:
        """What the replies mean."""
        generations = {one.config: _generation(one.config, got) for one in labels}
        if self._finds_more({config.keys.root: config for config in generations}, got):
            return None
        heads = [
            [
                _heads(one.config, self._keys(one.config, label)[0], generations[one.config], got)
                for label in some
            ]
            for one, some in labels.items()
        ]
        return State(generations, heads)

    def _keys(self, config: CounterConfig, label: str) -> tuple[list[str], list[str]]:
        """The keys of a slice's pieces; and of those that there are none of, as far as known."""
        count = self._pieces.get(config.keys.root, 1)
        keys = _piece_keys(config, label, MAX_PIECES if config.mapping is None else count)
        return keys[:count], keys[count:]

    def _finds_more(self, roots: Mapping[str, CounterConfig], got: Replies) -> bool:
        """Notes how many pieces slices may have. True: more than were asked for."""
        known = {root: self._pieces.get(root, 1) for root in roots}
        for root, config in roots.items():
            if config.mapping is None:
                others = any(reply for words, reply in got.items() if words[0] == "EXISTS")
                found = MAX_PIECES if others else 1
            else:
                key = config.keys.members()
                members = got["GET", key] or b"0"
                if not _NUMBER.fullmatch(members):
                    raise refusal(config, Status.DAMAGED, key)
                found = min(max(int(members) - 1, 0) // PIECE + 1, MAX_PIECES)
            self._pieces[root] = max(found, known[root])
        return any(self._pieces[root] > known[root] for root in roots)


@lru_cache(1024)
def _piece_keys(config: CounterConfig, label: str, count: int) -> list[str]:
    return [config.keys.piece(config.name, label, piece) for piece in range(count)]


def _questions(
    configs: Iterable[CounterConfig],
    keys: Iterable[tuple[list[str], list[str]]],
    kept: Collection[str],
) -> Iterator[tuple[str, ...]]:
    """The words of the commands."""
    for config in configs:
        yield "GET", config.keys.root
        yield "HGET", config.keys.counters(), config.name
        if config.mapping is not None:
            yield "GETRANGE", config.keys.layout(), "0", "15"
            yield "GET", config.keys.members()
    for own, others in keys:
        for key in own:
            yield "HGET", key, "head"
            if key not in kept:
                yield "HLEN", key
        if others:
            yield "EXISTS", *others


def _generation(config: CounterConfig, got: Replies) -> str:
    """The stored generation of the counter; "" if it is not stored."""
    stored = got["GET", config.keys.root]
    if stored is not None and text(stored) != config.stored_mapping:
        raise refusal(config, Status.MISMATCH, stored)
    entry = got["HGET", config.keys.counters(), config.name]
    if entry is None:
        return ""
    generation, of, parameters = parse_entry(entry)
    if parameters != config.stored:
        raise refusal(config, Status.MISMATCH, parameters, 0)
    if config.mapping is not None and of != text(got["GETRANGE", config.keys.layout(), "0", "15"]):
        raise refusal(config, Status.OTHER_IDS, of)
    return generation


def _heads(config: CounterConfig, keys: Sequence[str], generation: str, got: Replies) -> list[Head]:
    """The heads of a slice's pieces that have ids."""
    found = []
    for piece, key in enumerate(keys):
        head = head_of(config, key, piece, got["HGET", key, "head"], got.get(("HLEN", key)))
        if head is not None and head.generation == generation:
            if head.ids:
                found.append(head)
        elif generation and config.window is None and not piece:  # made with the entry
            raise refusal(config, Status.DAMAGED, key)
    return found
