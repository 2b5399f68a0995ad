"""Reads and clears what counters and their mapping have stored."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tbloom.distinct.config import WHOLE, CounterConfig, from_stored
from tbloom.distinct.exchange import CountExchange
from tbloom.engine.batches import Batch
from tbloom.engine.buckets import bucket_keys
from tbloom.engine.flow import CALLS_AT_ONCE, Command, Flow, ScriptCall, chunks, deliver, text
from tbloom.engine.scripts import Script
from tbloom.engine.tree import Tree, read_tree
from tbloom.errors import TBloomError

_LOOK = Script("distinct/look")
_SWEPT = Script("distinct/swept")
_USAGE = Script("distinct/usage")

#: Keys whose memory one call adds up: less than a millisecond's work.
_KEYS_PER_CALL = 100
#: The limit of chunks that one call clears, unless one slice has more; about 3 us each.
_MAX_CHUNKS = 5000


class StoredSlice(NamedTuple):
    """What is stored of one slice."""

    members: int
    sorted_chunks: int
    bitmaps: list[int]


def look(exchange: CountExchange, *, ahead: bool = False) -> Flow[dict[str, StoredSlice]]:
    """The live slices by label, oldest first; with ``ahead``, the next ones too."""
    window, found = exchange.config.window, (yield from _look_at(exchange, [WHOLE]))
    if window is None:
        return found
    now = exchange.clock.now()  # from the reply above
    slices = window.live(now) + (window.ahead(now) if ahead else [])
    return (yield from _look_at(exchange, [slice.label for slice in slices]))


def _look_at(exchange: CountExchange, labels: list[str]) -> Flow[dict[str, StoredSlice]]:
    config, found = exchange.config, {}
    for some in chunks(labels, CALLS_AT_ONCE):
        keys = [config.keys.directory(config.name, label) for label in some]
        replies = yield from deliver([ScriptCall(_LOOK, (key,), ()) for key in keys])
        for label, (now, *stored) in zip(some, replies, strict=True):
            exchange.clock.learn(now)
            found[label] = StoredSlice(*stored)
    return found


def counters_of(mapping: str) -> Flow[list[CounterConfig]]:
    """The counters that share a mapping, sorted by name."""
    key = CounterConfig("any", mapping).keys.counters()
    [stored] = yield from deliver([Command(("HGETALL", key))])
    return [from_stored(name, mapping, text(value)) for name, value in sorted(stored.items())]


def clear_counter(exchange: CountExchange) -> Flow[None]:
    """Forgets what the counter has counted, also if it is stored with other parameters."""
    config = exchange.config
    [stored] = yield from deliver([Command(("HGET", config.keys.counters(), config.name))])
    if stored is not None and text(stored) != config.stored:
        other = from_stored(config.name, config.mapping, text(stored))
        exchange.forget()
        exchange = CountExchange(other)
    yield from _clear(exchange)


def _clear(exchange: CountExchange) -> Flow[None]:
    exchange.forget()
    while not (yield from exchange.clear(*(yield from _clear_calls(exchange)))):
        pass


def _clear_calls(
    exchange: CountExchange,
) -> Flow[list[Callable[[Batch], ScriptCall]]]:
    """The calls that clear the counter: one, unless it has too many chunks. The server refuses them if there are more
    bitmaps by then."""
    # The next slice may begin meanwhile, or have begun before the server's clock was set back.
    found = yield from look(exchange, ahead=True)
    groups: list[dict[str, list[int]]] = [{}]
    size = 0
    for label, stored in found.items():
        own_chunks = stored.sorted_chunks + len(stored.bitmaps)
        if groups[-1] and size + own_chunks > _MAX_CHUNKS:
            groups.append({})
            size = 0
        groups[-1][label] = stored.bitmaps
        size += own_chunks
    # The last call has all slices in its keys, so that it is refused too if an earlier one was.
    groups[-1] = {**{label: [] for group in groups for label in group}, **groups[-1]}
    return [
        partial(exchange.clear_call, slices=group, last=group is groups[-1]) for group in groups
    ]


def clear_mapping(exchange: CountExchange) -> Flow[None]:
    """Forgets all counters of the counter's mapping, and the ids."""
    config = exchange.config
    is_forgotten = False
    while not is_forgotten:
        yield from _sweep(config)  # what an earlier call may have left
        for counter in (yield from counters_of(config.mapping)):
            yield from _clear(CountExchange(counter))
        # Other clients may still add, so the last counters are cleared together with the ids.
        calls = []
        for counter in (yield from counters_of(config.mapping)):
            calls += yield from _clear_calls(CountExchange(counter))
        exchange.forget()
        is_forgotten = yield from exchange.clear(*calls, exchange.forget_call)
    yield from _sweep(config)


def _sweep(config: CounterConfig) -> Flow[None]:
    """Deletes the buckets of the mapping's former layout, and then that layout."""
    key = config.keys.forgotten()
    try:
        tree = yield from read_tree(config.mapping, key)
    except TBloomError:  # another program's value, which names no buckets
        tree = Tree("")
        yield from deliver([Command(("UNLINK", key))])
    for some in bucket_keys(config.keys.ids(tree.generation), tree):
        yield from deliver([Command(("UNLINK", *some))])
    if tree.generation:
        yield from deliver([ScriptCall(_SWEPT, (key,), (tree.generation,))])


def memory(keys: list[str]) -> Flow[int]:
    """The memory of the keys in Redis, overhead included (bytes)."""
    calls = [ScriptCall(_USAGE, tuple(some), ()) for some in chunks(keys, _KEYS_PER_CALL)]
    taken = 0
    for some in chunks(calls, CALLS_AT_ONCE):
        taken += sum((yield from deliver(some)))
    return taken
