"""The flow of ``swap``: puts a filter in the place of another one that has the same hash tag."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tbloom.bloom import fingerprinter
from tbloom.bloom.dispatcher import FilterDispatcher
from tbloom.engine.flow import Call, Flow, Status, text
from tbloom.engine.keys import Keys
from tbloom.engine.parameters import mismatch
from tbloom.engine.pending import Batch
from tbloom.engine.scripts import Script
from tbloom.errors import ConfigError, TBloomError

_SWAP = Script("bloom/swap")


def swap(dispatcher: FilterDispatcher, name: str) -> Flow[None]:
    """Puts the filter of that name in the place of the dispatcher's."""
    config = dispatcher.config
    if config.shards > 1:
        raise ConfigError("shards", config.shards, "1, so that a swap is of one moment")
    if Keys(name).tag != config.keys.tag or name == config.name:
        expected = f"'{{{config.name}}}:OTHER', so that both filters are on the same node"
        raise ConfigError("name", name, expected)
    other = FilterDispatcher(replace(config, name=name))
    other.clock = dispatcher.clock

    def accept(_: Batch, reply: Any) -> bool:
        status, payload, *more = reply
        if status == Status.UNKNOWN:
            reason = (
                "it has taken the place already, was not built, or the server has lost its layout"
            )
            raise TBloomError(f"there is no filter {name!r}: {reason}")
        if status == Status.MISMATCH:
            raise mismatch(other.config, payload)
        if status == Status.CLOCK:
            dispatcher.clock.learn(payload)
        elif status == Status.LAYOUT:
            (other if len(more) > 1 else dispatcher).learn_layout(0, text(payload))
        return status in (Status.OK, Status.STRAY)

    call = partial(_call, dispatcher, other)
    yield from dispatcher.replace(0, call, accept, other.config)
    yield from fingerprinter.move(other.config.keys.fingerprinter(), config.keys.fingerprinter())


def _call(
    dispatcher: FilterDispatcher,
    other: FilterDispatcher,
    batch: Batch,
    counted: list[str],
    counted_new: list[str],
) -> Call:
    """``lua/bloom/swap.lua``."""
    old, new = dispatcher.current_calls(), other.current_calls()
    window = len(old.labels)
    parts = [*dict.fromkeys([*old.shard(0).parts(window).keys, *counted])]
    new_parts = dict.fromkeys([*new.shard(0).parts(window).keys, *counted_new])
    tag, new_tag = old.config.keys.tag_of(0), new.config.keys.tag_of(0)
    return _SWAP.call(
        (
            *old.shard(0).guards,
            *new.shard(0).guards,
            *new.shard(0).claims,
            *parts,
            *new_parts,
            *(tag + key.removeprefix(new_tag) for key in new_parts),
        ),
        (batch.lane.token, old.constant(0), old.config.stored, new.layout(0).version, len(parts)),
    )
