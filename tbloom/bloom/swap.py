"""The flow of ``swap``: puts a filter in the place of another one that has the same hash tags."""

from __future__ import annotations

from dataclasses import replace

from tbloom.bloom.claims.commit import commit_call
from tbloom.bloom.config import Config
from tbloom.bloom.exchange import FilterExchange
from tbloom.bloom.script_calls import ShardCalls, SliceCalls
from tbloom.engine.batches import Batch
from tbloom.engine.exchange import MAX_CORRECTIONS, too_many_corrections
from tbloom.engine.flow import Command, Flow, ScriptCall, Status, deliver, text
from tbloom.engine.keys import Keys
from tbloom.engine.scripts import Script
from tbloom.errors import ConfigError, ConfigMismatch, TBloomError

_SWAP = Script("bloom/swap")


def swap(exchange: FilterExchange, name: str) -> Flow[None]:
    """Puts the filter of that name in the place of the exchange's."""
    config = exchange.config
    if Keys(name).tag != config.keys.tag or name == config.name:
        expected = f"'{{{config.name}}}:OTHER', so that both filters are on the same nodes"
        raise ConfigError("name", name, expected)
    other = FilterExchange(replace(config, name=name))
    other.clock = exchange.clock
    root, begun = other.config.keys.root, other.config.keys.swapping()
    stored, is_half_done = yield from deliver([Command(("GET", root)), Command(("EXISTS", begun))])
    if not is_half_done:
        if stored is None:
            raise TBloomError(f"there is no filter {name!r}")
        if text(stored) != config.stored:
            raise ConfigMismatch(name, config.differences(text(stored)), text(stored))
        if config.shards > 1:
            # Each shard gets parameters and a layout: one that has none was swapped.
            batches = [Batch([], shard) for shard in range(config.shards)]
            yield from other.ask(batches, lambda batch: commit_call(batch.known, batch), store=True)
            yield from deliver([Command(("RENAME", root, begun))])
    if config.shards > 1:
        yield from _keep_root(exchange)
    for shard in range(config.shards):
        yield from _swap_shard(exchange, other, shard)
    yield from deliver([Command(("UNLINK", begun))])


def _keep_root(exchange: FilterExchange) -> Flow[None]:
    """Stores the root, or extends its TTL."""
    while True:
        [(status, payload)] = yield from deliver([exchange.current_calls().open(2)])
        if status == Status.OK:
            return
        if status != Status.CLOCK:
            stored = text(payload)
            raise ConfigMismatch(exchange.config.name, exchange.config.differences(stored), stored)
        exchange.clock.learn(payload)


def _swap_shard(exchange: FilterExchange, other: FilterExchange, shard: int) -> Flow[None]:
    for _ in range(MAX_CORRECTIONS):
        call = _call(exchange.current_calls(), other.current_calls(), shard)
        [(status, payload, *of_other)] = yield from deliver([call])
        if status in (Status.OK, Status.UNKNOWN):
            exchange.learn_layout(shard, "")
            return
        if status == Status.CLOCK:
            exchange.clock.learn(payload)
        elif status == Status.LAYOUT:
            (other if of_other else exchange).learn_layout(shard, text(payload))
        else:
            differences = exchange.config.differences(text(payload))
            raise ConfigMismatch(exchange.config.name, differences, text(payload))
    raise too_many_corrections(exchange.config.name, "its layout changed")


def _call(old: SliceCalls, new: SliceCalls, shard: int) -> ScriptCall:
    parts, new_parts = old.shard(shard).keys, new.shard(shard).keys
    layout = new.layout(shard)
    places = ShardCalls(old.config, shard, old.labels, layout).keys
    return ScriptCall(
        _SWAP,
        (
            *_own(old.config, shard),
            *_own(new.config, shard),
            new.config.keys.claims(shard),
            new.config.keys.sessions(shard),
            *parts,
            *new_parts,
            *places,
        ),
        (
            old.config.stored,
            old.begins,
            old.ends,
            old.expires_at(shard),
            old.layout(shard).text,
            layout.text,
            len(parts),
        ),
    )


def _own(config: Config, shard: int) -> tuple[str, str, str]:
    return config.keys.config(shard), config.keys.layout(shard), config.keys.register(shard)
