"""What counters have stored at one moment, without the ids: which pieces, and their versions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from tbloom.distinct.config import CounterConfig, parse_entry
from tbloom.distinct.exchange import MAX_PIECES, refusal
from tbloom.distinct.pieces import PIECE, Head, head_of
from tbloom.distinct.selection import Selection
from tbloom.engine.exchange import MAX_CORRECTIONS, ServerClock, too_many_corrections
from tbloom.engine.flow import Command, Flow, Status, deliver_all, text
from tbloom.errors import TBloomError
from tbloom.window import ALWAYS

_CALLS_PER_TRIP = 256
#: The questions that are kept.
_MAX_LAST = 256
_NUMBER = re.compile(rb"\d{1,10}")
#: The replies to commands, by their words.
Replies = Mapping[tuple[str | bytes, ...], Any]
#: The keys of a slice's pieces; and of those that there are none of, as far as known.
_Keys = tuple[list[str], list[str]]


class State(NamedTuple):
    """The generations of counters; and their pieces that have ids, by selection and slice."""

    generations: dict[CounterConfig, str]
    heads: dict[Selection, dict[str, list[Head]]]

    def pieces(self, selection: Selection) -> list[Head]:
        """The pieces of a selection."""
        return [head for slice in self.heads[selection].values() for head in slice]


class _Asked(NamedTuple):
    """Commands, as long as these slices are live: the time, a number of counters' entries, the rest, the entries again; their
    replies, without the time; and what these mean."""

    begins: int
    ends: int
    keys: dict[Selection, dict[str, _Keys]]
    calls: list[Command]
    counters: int
    replies: list[Any] | None = None
    state: State | None = None


class StateReader:
    """Asks for states, through one client."""

    def __init__(self, clock: ServerClock) -> None:
        self._clock = clock
        #: The mappings and counters of integers with ids from 2^28 on, by their keys: a slice may have several pieces.
        self._large: set[str] = set()
        #: What was asked last, and may be asked again.
        self._last: dict[tuple[Selection, ...], _Asked] = {}

    def read(self, selections: tuple[Selection, ...], kept: Collection[str] = ()) -> Flow[State]:
        """The state at one moment within the slices that it names; asked once, unless other slices are live than the client
        believes, there are more pieces, or they are cleared or made meanwhile.

        ``kept``: the keys of pieces whose number of chunks is not asked.
        """
        refused = None
        for _ in range(MAX_CORRECTIONS):
            now, asked = self._clock.now(), self._last.get(selections)
            if asked is None or not asked.begins <= now < asked.ends:
                asked = self._ask(selections, now, kept)
            [seconds, microseconds], *replies = yield from deliver_all(asked.calls, _CALLS_PER_TRIP)
            self._clock.learn(int(seconds) * 1000 + int(microseconds) // 1000)
            if not asked.begins <= self._clock.now() < asked.ends:
                continue
            if asked.state is not None and replies == asked.replies:
                return asked.state
            self._last.pop(selections, None)
            try:
                state = self._state(asked, replies)
            except TBloomError:  # a piece may have been made between two of the commands
                if replies == refused:
                    raise
                refused = replies
            else:
                if state is not None:
                    self._keep(selections, asked._replace(replies=replies, state=state))
                    return state
        raise too_many_corrections(selections[0].config.name, "its slices changed")

    def _ask(self, selections: Iterable[Selection], now: int, kept: Collection[str]) -> _Asked:
        keys = {
            one: {label: self._keys(one.config, label) for label in one.labels(now)}
            for one in selections
        }
        currents = [current for one in keys if (current := one.current(now))]
        configs = [*dict.fromkeys(one.config for one in keys)]
        # Also at the end: if they are the same, no counter was cleared meanwhile.
        entries = dict.fromkeys(("HGET", one.keys.counters(), one.name) for one in configs)
        questions = dict.fromkeys([*entries, *_questions(configs, keys, kept)])
        calls = [Command(("TIME",), configs[0].keys.root)]
        calls += [Command(words) for words in (*questions, *entries)]
        begins = max((current.start for current in currents), default=ALWAYS.start)
        ends = min((current.end for current in currents), default=ALWAYS.end)
        return _Asked(begins, ends, keys, calls, len(entries))

    def _keep(self, selections: tuple[Selection, ...], asked: _Asked) -> None:
        """Keeps what is the same to be asked again."""
        if not any(call.words[0] == "HLEN" for call in asked.calls):
            if len(self._last) >= _MAX_LAST:
                self._last.clear()
            self._last[selections] = asked

    def _state(self, asked: _Asked, replies: list[Any]) -> State | None:
        """What the replies mean; None if a counter was cleared meanwhile, or there are more pieces than were asked for."""
        if replies[: asked.counters] != replies[-asked.counters :]:
            return None
        keys, words = asked.keys, [call.words for call in asked.calls[1:]]
        got = dict(zip(words, replies, strict=True))
        generations = {one.config: _generation(one.config, got) for one in keys}
        large = {config.keys.root for config in generations if _is_large(config, got)}
        if not large <= self._large:
            self._large |= large
            return None
        heads = {
            one: {
                label: _heads(one.config, own, generations[one.config], got)
                for label, (own, _) in some.items()
            }
            for one, some in keys.items()
        }
        return State(generations, heads)

    def _keys(self, config: CounterConfig, label: str) -> _Keys:
        keys = _piece_keys(config, label)
        if config.keys.root in self._large:
            return keys, []
        return keys[:1], keys[1:] if config.mapping is None else []


@lru_cache(1024)
def _piece_keys(config: CounterConfig, label: str) -> list[str]:
    return [config.keys.piece(config.name, label, piece) for piece in range(MAX_PIECES)]


def _questions(
    configs: Iterable[CounterConfig],
    keys: Mapping[Selection, dict[str, _Keys]],
    kept: Collection[str],
) -> Iterator[tuple[str, ...]]:
    """The words of the commands."""
    for config in configs:
        yield "GET", config.keys.root
        if config.mapping is not None:
            yield "GETRANGE", config.keys.layout(), "0", "15"
            yield "GET", config.keys.members()
    for own, others in chain.from_iterable(some.values() for some in keys.values()):
        for key in own:
            yield "HGET", key, "head"
            if key not in kept:
                yield "HLEN", key
        if others:
            yield "EXISTS", *others


def _is_large(config: CounterConfig, got: Replies) -> bool:
    """Has the mapping, or any of these counters of integers, ids from 2^28 on?"""
    if config.mapping is None:
        return any(reply for words, reply in got.items() if words[0] == "EXISTS")
    key = config.keys.members()
    members = got["GET", key] or b"0"
    if not _NUMBER.fullmatch(members):
        raise refusal(config, Status.DAMAGED, key)
    return int(members) > PIECE


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
        head = head_of(config, key, piece, got["HGET", key, "head"], got.get(("HLEN", key), -1))
        if head is not None and head.generation == generation:
            if head.ids:
                found.append(head)
        elif generation and config.window is None and not piece:  # made with the entry
            raise refusal(config, Status.DAMAGED, key)
    return found
