"""The flow behind ``reconfigure()``: other parameters for a live filter, without forgetting its window.

What a slice holds can't be read back out of its bits, so slices keep the sizes that they were made
with: they get entries in the layout. The current slice gets a further part of the new size.
"""

from __future__ import annotations

from tbloom import scripts
from tbloom.calls import Command, Flow, ScriptCall, deliver, text
from tbloom.clock import ServerClock
from tbloom.config import Config, from_stored
from tbloom.errors import ConfigMismatch, TBloomError
from tbloom.layout import Layout
from tbloom.window import Window

#: Items are found by these, so a filter can't change them in place.
_FIXED = ("granularity", "tz", "shards", "layout", "hash")
_MAX_ATTEMPTS = 16
_OK, _CLOCK, _MISMATCH, _LAYOUT = 0, 1, 2, 5


def reconfigure(config: Config, clock: ServerClock) -> Flow[None]:
    """Gives the stored filter the parameters of ``config``."""
    root = config.keys.root
    [stored] = yield from deliver([Command(("GET", root))])
    if stored is None or text(stored) == config.stored:
        return
    old = from_stored(config.name, text(stored))
    differences = config.differences(text(stored))
    fixed = {name: differences[name] for name in _FIXED if name in differences}
    if fixed:
        raise ConfigMismatch(config.name, fixed)
    for shard in range(config.shards):
        yield from _shard(old, config, clock, shard)
    if config.shards > 1:
        [ttl] = yield from deliver([Command(("PTTL", config.keys.config(0)))])
        yield from deliver([Command(("SET", root, config.stored, "PX", max(ttl, 1)))])


def _shard(old: Config, new: Config, clock: ServerClock, shard: int) -> Flow[None]:
    layout = ""
    for _ in range(_MAX_ATTEMPTS):
        call = _call(old, new, clock.now(), shard, Layout(old, layout))
        [(status, payload)] = yield from deliver([call])
        if status == _OK:
            return
        if status == _CLOCK:
            clock.learn(payload)
        elif status == _LAYOUT:
            layout = text(payload)
        elif not payload:
            return  # nothing was ever added to this shard
        else:
            raise ConfigMismatch(new.name, new.differences(text(payload)))
    raise TBloomError(f"filter {new.name!r} changes too fast to be reconfigured")


def _call(old: Config, new: Config, now: int, shard: int, layout: Layout) -> ScriptCall:
    # The longer of the two windows: what the old one still holds, the new one may want.
    window = Window(new.granularity, max(old.slices, new.slices), new.tz)
    slices = window.live(now)
    current = slices[-1]
    keys, expiries = [], []
    for slice in slices:
        for number in range(len(layout.parts(slice.label))):
            keys.append(new.keys.slice(slice.label, shard, number))
            expiries.append(new.window.expires(slice))
    return ScriptCall(
        scripts.RECONFIGURE,
        (new.keys.config(shard), new.keys.layout(shard), *keys),
        (
            old.stored,
            new.stored,
            layout.text,
            layout.handed_over(Layout(new), [slice.label for slice in slices]),
            current.start,
            current.end,
            new.window.expires(current),
            *expiries,
        ),
    )
