"""What counters have stored at one moment, without the ids: which pieces, and their versions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tbloom.distinct.config import MAX_MEMBERS, CounterConfig, parse_entry
from tbloom.distinct.exchange import MAX_PIECES
from tbloom.distinct.pieces import PIECE, Head, head_of
from tbloom.distinct.refusals import refusal
from tbloom.distinct.selection import Selection
from tbloom.engine.clock import ServerClock
from tbloom.engine.flow import Command, Flow, Status, deliver_all, text

_CALLS_PER_TRIP = 256
_NUMBER = re.compile(rb"\d{1,10}")
#: The replies to commands, by their words.
Replies = Mapping[tuple[str, ...], Any]


class State(NamedTuple):
    """The pieces that have ids, by selection and slice; and the number of ids that each counter's mapping has given."""

    pieces: dict[Selection, dict[str, list[Head]]]
    given: dict[CounterConfig, int]


def read_state(
    selections: Iterable[Selection], clock: ServerClock, large: set[str]
) -> Flow[State | None]:
    """The state at one moment within the slices that it names.

    None: it must be asked again, because other slices are live than the client believed, there are more pieces, or
    counters were cleared or made meanwhile. ``large``: the keys of mappings and counters of integers that have ids from 2^28
    on, so that a slice may have several pieces.
    """
    now = clock.now()
    keys = {
        one: {
            label: _piece_keys(one.config, label)[
                : MAX_PIECES if one.config.keys.root in large else 1
            ]
            for label in one.labels(now)
        }
        for one in selections
    }
    configs = [*dict.fromkeys(one.config for one in keys)]
    entries: list[tuple[str, ...]] = [
        *dict.fromkeys(("HGET", one.keys.counters(), one.name) for one in configs)
    ]
    questions = [*dict.fromkeys([*entries, *_questions(configs, keys)])]
    # The entries also at the end: if they are the same, no counter was cleared meanwhile.
    calls = [Command(("TIME",), configs[0].keys.root), *map(Command, questions + entries)]
    [seconds, microseconds], *replies = yield from deliver_all(calls, _CALLS_PER_TRIP)
    clock.learn(int(seconds) * 1000 + int(microseconds) // 1000)
    currents = [current for one in keys if (current := one.current(now))]
    if not all(current.start <= clock.now() < current.end for current in currents):
        return None
    if replies[: len(entries)] != replies[-len(entries) :]:
        return None
    got = dict(zip(questions, replies, strict=False))
    generations = {config: _generation(config, got) for config in configs}
    given = {config: _given(config, got) for config in configs}
    found = {config.keys.root for config in configs if _is_large(config, got, given[config])}
    if not found <= large:
        large |= found
        return None
    pieces = {
        one: {
            label: _heads(one.config, names, generations[one.config], got)
            for label, names in slices.items()
        }
        for one, slices in keys.items()
    }
    return State(pieces, given)


@lru_cache(1024)
def _piece_keys(config: CounterConfig, label: str) -> list[str]:
    return [config.keys.piece(config.name, label, piece) for piece in range(MAX_PIECES)]


def _questions(
    configs: Iterable[CounterConfig], keys: Mapping[Selection, dict[str, list[str]]]
) -> Iterator[tuple[str, ...]]:
    """The words of the commands."""
    for config in configs:
        yield "GET", config.keys.root
        if config.mapping is not None:
            yield "GETRANGE", config.keys.layout(), "0", "15"
            yield "GET", config.keys.members()
    for one, slices in keys.items():
        for label, pieces in slices.items():
            for key in pieces:
                yield "HGET", key, "head"
                yield "HLEN", key
            others = _piece_keys(one.config, label)[len(pieces) :]
            if one.config.mapping is None and others:
                yield "EXISTS", *others


def _given(config: CounterConfig, got: Replies) -> int:
    """The number of ids that the mapping has given; of integers, that of all."""
    if config.mapping is None:
        return MAX_MEMBERS
    key = config.keys.members()
    members = got["GET", key] or b"0"
    if not _NUMBER.fullmatch(members) or int(members) > MAX_MEMBERS:
        raise refusal(config, Status.DAMAGED, key)
    return int(members)


def _is_large(config: CounterConfig, got: Replies, given: int) -> bool:
    """Has the mapping, or any of these counters of integers, ids from 2^28 on?"""
    if config.mapping is not None:
        return given > PIECE
    return any(reply for words, reply in got.items() if words[0] == "EXISTS")


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
        head = head_of(config, key, piece, got["HGET", key, "head"], got["HLEN", key])
        if head is not None and head.generation == generation:
            if head.ids:
                found.append(head)
        elif generation and config.window is None and not piece:  # made with the entry
            raise refusal(config, Status.DAMAGED, key)
    return found
