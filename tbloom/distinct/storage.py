"""Clear counters and mappings."""

from __future__ import annotations

from tbloom.distinct.config import CounterConfig, from_stored, refusal
from tbloom.distinct.dispatcher import CountDispatcher
from tbloom.distinct.reading import MAX_PIECES
from tbloom.engine.buckets import bucket_keys
from tbloom.engine.directory import read_directory
from tbloom.engine.flow import Call, Flow, Status, chunks, request
from tbloom.engine.scripts import Script
from tbloom.window import WHOLE

_CLEAR = Script("distinct/clear")
_FORGET = Script("distinct/forget")
_SWEEP = Script("distinct/sweep")

#: Keys that one call deletes: less than a millisecond's work.
_KEYS_PER_CALL = 100


def clear_counter(dispatcher: CountDispatcher) -> Flow[None]:
    """Forget what the counter has counted, even if it is stored with other parameters."""
    config, keys = dispatcher.config, dispatcher.config.keys
    dispatcher.forget()
    counters = keys.counters()
    [entry] = yield from request([Call(("HGET", counters, config.name))])
    call = _CLEAR.call(
        (keys.config(), counters),
        (
            config.stored_mapping,
            config.name,
            "" if entry is None else entry,
            int(config.mapping is None),
        ),
    )
    yield from _clear(dispatcher, call)
    stored = (
        None if entry is None else from_stored(config.name, config.mapping, entry, config.prefix)
    )
    yield from _sweep(stored or config, dispatcher.clock.now())


def clear_mapping(dispatcher: CountDispatcher) -> Flow[None]:
    """Forget all counters of the counter's mapping, and the ids."""
    config, keys = dispatcher.config, dispatcher.config.keys
    dispatcher.forget()
    own = keys.config(), keys.layout(), keys.members(), keys.counters()
    forgotten = keys.forgotten(), keys.forgotten_counters()
    [generation] = yield from request([Call(("GETRANGE", own[1], "0", "15"))])
    swept, is_done = "-", False
    while not is_done:
        call = _FORGET.call((*own, *forgotten), (config.stored_mapping, generation, swept))
        is_done = yield from _clear(dispatcher, call)
        if not is_done:
            swept = yield from _sweep_mapping(config, dispatcher.clock.now())
    yield from _sweep(config, dispatcher.clock.now())  # its entry may have been lost


def _clear(dispatcher: CountDispatcher, call: Call) -> Flow[bool]:
    """Make a call that clears. Return False if something is left to sweep."""
    [[status, payload]] = yield from request([call])
    if status not in (Status.OK, Status.IN_USE):
        raise refusal(dispatcher.config, status, payload)
    dispatcher.clock.learn(payload)
    return bool(status == Status.OK)


def _sweep(config: CounterConfig, now: int) -> Flow[None]:
    """Delete the counter's stale pieces."""
    keys, labels = config.keys, [WHOLE]
    if config.window:
        # The next slice may begin meanwhile, or have begun before the server's clock was set back.
        slices = config.window.live(now) + config.window.ahead(now)
        labels = [slice.label for slice in slices]
    pieces = [keys.piece(config.name, label, i) for label in labels for i in range(MAX_PIECES)]
    for some in chunks(pieces, _KEYS_PER_CALL):
        yield from request([_SWEEP.call((keys.counters(), *some), (config.name,))])


def _sweep_mapping(config: CounterConfig, now: int) -> Flow[str]:
    """Delete the pieces of the mapping's counters that are being cleared, and the buckets. Return the generation of the buckets."""
    keys, forgotten = config.keys, (config.keys.forgotten(), config.keys.forgotten_counters())
    directory = yield from read_directory(config.mapping or config.name, forgotten[0])
    [names] = yield from request([Call(("HKEYS", forgotten[1]))])
    for name in names:
        [entry] = yield from request([Call(("HGET", forgotten[1], name))])
        if counter := from_stored(name, config.mapping, entry or b"", config.prefix):
            yield from _sweep(counter, now)
    for some in bucket_keys(keys.ids(directory.generation), directory):
        yield from request([Call(("UNLINK", *some))])
    return directory.generation
