"""Looks at what counters and their mapping have stored, and clears it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from tbloom.distinct.config import WHOLE, CounterConfig, from_stored
from tbloom.distinct.exchange import MAX_PIECES, CountExchange, refusal
from tbloom.engine.buckets import bucket_keys
from tbloom.engine.flow import (
    CALLS_AT_ONCE,
    Command,
    Flow,
    ScriptCall,
    Status,
    chunks,
    deliver,
    text,
)
from tbloom.engine.scripts import Script
from tbloom.engine.tree import Tree, read_tree
from tbloom.errors import ConfigError, TBloomError

_CLEAR = Script("distinct/clear")
_FORGET = Script("distinct/forget")
_SWEEP = Script("distinct/sweep")
_SWEPT = Script("distinct/swept")
_USAGE = Script("distinct/usage")

#: Keys whose memory one call adds up, or that it deletes: less than a millisecond's work.
_KEYS_PER_CALL = 100


class StoredPiece(NamedTuple):
    """What is stored of one piece of a slice: its head, its chunks and its key."""

    head: str
    chunks: int
    key: str


def look(config: CounterConfig, now: int) -> Flow[dict[str, list[StoredPiece]]]:
    """The slices that are live ``now``, by label, oldest first, with the pieces that exist."""
    keys, found = config.keys, dict[str, list[StoredPiece]]()
    [members] = yield from deliver([Command(("GET", keys.members()))])
    pieces = MAX_PIECES if config.mapping is None else number(config, members) + (1 << 28) - 1 >> 28
    labels = [WHOLE]
    if config.window:
        labels = [slice.label for slice in config.window.live(now)]
    places = [(label, piece) for label in labels for piece in range(max(1, pieces))]
    for some in chunks(places, CALLS_AT_ONCE // 2):
        own = [keys.piece(config.name, label, piece) for label, piece in some]
        commands = [
            Command(words) for key in own for words in (("HGET", key, "head"), ("HLEN", key))
        ]
        replies = yield from deliver(commands)
        for (label, _), key, head, size in zip(some, own, replies[::2], replies[1::2], strict=True):
            stored = found.setdefault(label, [])
            if head is not None:
                stored.append(StoredPiece(text(head), size - 1, key))
    return found


def number(config: CounterConfig, reply: Any) -> int:
    """The number of members that a mapping has stored; raises TBloomError if it is none."""
    found = text(reply or "0")
    if not (found.isascii() and found.isdigit() and len(found) <= 16):
        raise refusal(config, Status.DAMAGED, config.keys.members())
    return int(found)


def clear_counter(exchange: CountExchange) -> Flow[None]:
    """Forgets what the counter has counted, also if it is stored with other parameters."""
    config, keys = exchange.config, exchange.config.keys
    exchange.forget()
    [entry] = yield from deliver([Command(("HGET", keys.counters(), config.name))])
    call = ScriptCall(
        _CLEAR,
        (keys.config(), keys.counters()),
        (
            config.stored_mapping,
            config.name,
            "" if entry is None else entry,
            int(config.mapping is None),
        ),
    )
    yield from _clear(exchange, call)
    if entry is not None:
        with suppress(ConfigError):  # another program's names no slices
            config = from_stored(config.name, config.mapping, text(entry))
    yield from _sweep(config, exchange.clock.now())


def clear_mapping(exchange: CountExchange) -> Flow[None]:
    """Forgets all counters of the counter's mapping, and the ids."""
    config, keys = exchange.config, exchange.config.keys
    exchange.forget()
    own = keys.config(), keys.layout(), keys.members(), keys.counters()
    former = keys.forgotten(), keys.forgotten_counters()
    is_done = False
    while not is_done:  # what an earlier call has left is swept first
        [generation] = yield from deliver([Command(("GETRANGE", keys.layout(), 0, 15))])
        call = ScriptCall(_FORGET, (*own, *former), (config.stored_mapping, generation))
        is_done = yield from _clear(exchange, call)
        yield from _sweep_mapping(config, exchange.clock.now())


def _clear(exchange: CountExchange, call: ScriptCall) -> Flow[bool]:
    """Makes a call that clears something. False: there is something to be swept first."""
    [[status, payload]] = yield from deliver([call])
    if status not in (Status.OK, Status.IN_USE):
        raise refusal(exchange.config, status, payload)
    exchange.clock.learn(payload)
    return bool(status == Status.OK)


def _sweep(config: CounterConfig, now: int) -> Flow[None]:
    """Deletes the counter's stale pieces."""
    keys, labels = config.keys, [WHOLE]
    if config.window:
        # The next slice may begin meanwhile, or have begun before the server's clock was set back.
        slices = config.window.live(now) + config.window.ahead(now)
        labels = [slice.label for slice in slices]
    pieces = [keys.piece(config.name, label, i) for label in labels for i in range(MAX_PIECES)]
    for some in chunks(pieces, _KEYS_PER_CALL):
        yield from deliver([ScriptCall(_SWEEP, (keys.counters(), *some), (config.name,))])


def _sweep_mapping(config: CounterConfig, now: int) -> Flow[None]:
    """Deletes the pieces of the mapping's former counters and the buckets of its former layout, and then what names them."""
    keys, former = config.keys, (config.keys.forgotten(), config.keys.forgotten_counters())
    try:
        tree = yield from read_tree(config.mapping or config.name, former[0])
    except TBloomError:  # another program's value, which names no buckets
        tree = Tree("")
        yield from deliver([Command(("UNLINK", former[0]))])
    [entries] = yield from deliver([Command(("HGETALL", former[1]))])
    for name, entry in entries.items():
        with suppress(ConfigError):  # another program's names no slices
            yield from _sweep(from_stored(name, config.mapping, text(entry)), now)
    for some in bucket_keys(keys.ids(tree.generation), tree):
        yield from deliver([Command(("UNLINK", *some))])
    if tree.generation or entries:
        yield from deliver([ScriptCall(_SWEPT, former, (tree.generation,))])


def memory(keys: list[str]) -> Flow[int]:
    """The memory of the keys in Redis, overhead included (bytes)."""
    calls = [ScriptCall(_USAGE, tuple(some), ()) for some in chunks(keys, _KEYS_PER_CALL)]
    taken = 0
    for some in chunks(calls, CALLS_AT_ONCE):
        taken += sum((yield from deliver(some)))
    return taken
