"""What counters and their mapping have stored: looked at, and removed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tbloom.distinct.config import WHOLE, CounterConfig, from_stored
from tbloom.distinct.exchange import CountExchange
from tbloom.engine.batches import Batch
from tbloom.engine.flow import CALLS_AT_ONCE, Command, Flow, ScriptCall, chunks, deliver, text
from tbloom.engine.scripts import Script
from tbloom.engine.tree import Tree, read_tree
from tbloom.errors import TBloomError

_LOOK = Script("distinct/look")
_SWEPT = Script("distinct/swept")
_USAGE = Script("distinct/usage")

#: Keys that one command looks at, or deletes: less than a millisecond's work.
_KEYS_PER_CALL = 100
#: So many chunks are cleared in one call, or those of one slice; about 3 us each.
_MOST_CHUNKS = 5000


class StoredSlice(NamedTuple):
    """One slice of a counter, as it is stored."""

    members: int
    sorted_chunks: int
    bitmaps: list[int]


def look(exchange: CountExchange, *, ahead: bool = False) -> Flow[dict[str, StoredSlice]]:
    """The live slices, by label, oldest first; ``ahead``: those that come next too."""
    window, found = exchange.config.window, (yield from _look_at(exchange, [WHOLE]))
    if window is None:
        return found
    now = exchange.clock.now()  # which that look has told
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


def counters_of(mapping: str) -> Flow[dict[str, CounterConfig]]:
    """The counters that share a mapping, by name."""
    key = CounterConfig("any", mapping).keys.counters()
    [stored] = yield from deliver([Command(("HGETALL", key))])
    pairs = sorted((text(name), text(parameters)) for name, parameters in stored.items())
    return {name: from_stored(name, mapping, parameters) for name, parameters in pairs}


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
    while not (yield from exchange.tell(*(yield from _clear_calls(exchange)))):
        pass


def _clear_calls(
    exchange: CountExchange,
) -> Flow[list[Callable[[Batch], ScriptCall]]]:
    """They clear the counter, unless more of its chunks are bitmaps by then: one call, if its chunks are not too many."""
    # A slice that comes next may begin meanwhile, or have begun before the server's clock was set back.
    found = yield from look(exchange, ahead=True)
    groups: list[dict[str, list[int]]] = [{}]
    size = 0
    for label, stored in found.items():
        chunks_there = stored.sorted_chunks + len(stored.bitmaps)
        if groups[-1] and size + chunks_there > _MOST_CHUNKS:
            groups.append({})
            size = 0
        groups[-1][label] = stored.bitmaps
        size += chunks_there
    # The last call has all slices in its keys, so that it is refused too where one before it was.
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
        for counter in (yield from counters_of(config.mapping)).values():
            yield from _clear(CountExchange(counter))
        # Others may go on, so the last counters are cleared, and the ids forgotten, by calls that go together.
        calls = []
        for counter in (yield from counters_of(config.mapping)).values():
            calls += yield from _clear_calls(CountExchange(counter))
        exchange.forget()
        is_forgotten = yield from exchange.tell(*calls, exchange.forget_call)
    yield from _sweep(config)


def _sweep(config: CounterConfig) -> Flow[None]:
    """Deletes the buckets that the mapping has forgotten, and then what tells of them."""
    key = config.keys.forgotten()
    try:
        tree = yield from read_tree(config.mapping, key)
    except TBloomError:  # somebody has written there: it tells of no buckets
        tree = Tree("")
        yield from deliver([Command(("UNLINK", key))])
    for some in chunks(bucket_keys(config, tree), _KEYS_PER_CALL):
        yield from deliver([Command(("UNLINK", *some))])
    if tree.generation:
        yield from deliver([ScriptCall(_SWEPT, (key,), (tree.generation,))])


def bucket_keys(config: CounterConfig, tree: Tree) -> list[str]:
    """The keys of all of the mapping's buckets."""
    if not tree.generation:
        return []
    return [config.keys.ids(tree.generation, bucket) for bucket in tree.buckets()]


def memory(keys: list[str]) -> Flow[int]:
    """What the keys take in Redis, overhead included."""
    calls = [ScriptCall(_USAGE, tuple(some), ()) for some in chunks(keys, _KEYS_PER_CALL)]
    taken = 0
    for some in chunks(calls, CALLS_AT_ONCE):
        taken += sum((yield from deliver(some)))
    return taken
