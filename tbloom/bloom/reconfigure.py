"""The flow behind ``reconfigure()``: other parameters for a live filter, without forgetting its window.

What a slice holds can't be read back out of its bits, so slices keep the sizes that they were made
with: they get entries in the layout. The current slice gets a further part of the new size.
"""

from __future__ import annotations

from tbloom.bloom.config import Config, from_stored
from tbloom.bloom.layout import Layout
from tbloom.bloom.script_calls import leaves
from tbloom.engine.clock import ServerClock
from tbloom.engine.flow import Command, Flow, ScriptCall, Status, deliver, text
from tbloom.engine.scripts import Script
from tbloom.errors import ConfigMismatch, TBloomError
from tbloom.window import Slice, Window

_RECONFIGURE = Script("bloom/reconfigure")

#: Items are found by these, so a filter can't change them in place.
_FIXED = ("granularity", "tz", "shards", "layout", "hash")
_MAX_ATTEMPTS = 16


def reconfigure(config: Config, clock: ServerClock) -> Flow[None]:
    """Gives the stored filter the parameters of ``config``.

    Where it ends half-way, it, or another one, can be made again: each shard keeps a copy of the
    parameters that it has. The root comes first, so that nobody agrees on the old ones any more.
    """
    root = config.keys.root
    [stored] = yield from deliver([Command(("GET", root))])
    if stored is None:
        return
    differences = config.differences(text(stored))
    fixed = {name: differences[name] for name in _FIXED if name in differences}
    if fixed:
        raise ConfigMismatch(config.name, fixed, text(stored))
    if config.shards > 1:
        yield from _change(config, clock, text(stored), None)
    for shard in range(config.shards):
        [copy] = yield from deliver([Command(("GET", config.keys.config(shard)))])
        if copy is not None:  # else nothing was added to it
            yield from _change(config, clock, text(copy), shard)


def _change(new: Config, clock: ServerClock, stored: str, shard: int | None) -> Flow[None]:
    """Changes one shard, or with None the root."""
    layout = ""
    for _ in range(_MAX_ATTEMPTS):
        if stored == new.stored:
            return
        old = from_stored(new.name, stored)
        now = clock.now()
        ahead = [] if shard is None else (yield from _slices_ahead(old, shard, now))
        call = _call(old, new, now, shard, layout=Layout(old, layout), ahead=ahead)
        [(status, payload)] = yield from deliver([call])
        if status == Status.OK:
            return
        if status == Status.CLOCK:
            clock.learn(payload)
        elif status == Status.LAYOUT:
            layout = text(payload)
        elif not payload:
            return  # cleared meanwhile
        else:
            stored = text(payload)
    raise TBloomError(f"filter {new.name!r} changes too fast to be reconfigured")


def _slices_ahead(config: Config, shard: int, now: int) -> Flow[list[Slice]]:
    """Later slices that have begun already, before the server's clock was set back."""
    [register] = yield from deliver([Command(("HGETALL", config.keys.register(shard)))])
    parts = {text(part) for part in register}
    ahead = config.window.ahead(now)
    return [slice for slice in ahead if config.keys.slice(slice.label, shard) in parts]


def _call(
    old: Config, new: Config, now: int, shard: int | None, *, layout: Layout, ahead: list[Slice]
) -> ScriptCall:
    # The longer of the two windows: what the old one still holds, the new one may want.
    window = Window(new.granularity, max(old.slices, new.slices), new.tz)
    slices = window.live(now)
    current = slices[-1]
    keys, expiries, config_key, handed_over = [], [], new.keys.root, ""
    if shard is not None:
        config_key = new.keys.config(shard)
        labels = [slice.label for slice in slices]
        handed_over = layout.handed_over(Layout(new), labels, [slice.label for slice in ahead])
        for slice in slices + ahead:
            for number in range(len(layout.parts(slice.label))):
                keys.append(new.keys.slice(slice.label, shard, number))
                expiries.append(leaves(new, new.window.expires(slice), shard))
    return ScriptCall(
        _RECONFIGURE,
        (config_key, new.keys.layout(shard), new.keys.register(shard), *keys)
        if shard is not None
        else (config_key,),
        (
            old.stored,
            new.stored,
            layout.text,
            handed_over,
            current.start,
            current.end,
            leaves(new, new.window.expires(current), shard),
            *expiries,
        ),
    )
