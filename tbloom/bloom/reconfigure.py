"""The flow of ``reconfigure()``, which gives a live filter other parameters, and keeps its items.

Items can't be read back from bits, so slices keep their parts, and get entries in the layout. The current slice, and any later
one, get another part, of the new size.
"""

from __future__ import annotations

from collections.abc import Callable

from tbloom.bloom import calls
from tbloom.bloom.config import Config, from_stored, shard_expiry
from tbloom.bloom.layout import Layout
from tbloom.bloom.view import header_of
from tbloom.engine.flow import Call, Flow, Status, corrected, request, text
from tbloom.engine.parameters import refusal
from tbloom.engine.server import ServerClock
from tbloom.errors import ConfigMismatch

#: The parameters that determine where items are stored, so that they can't be changed.
FIXED = ("granularity", "tz", "shards", "layout", "hash", "secret")


def reconfigure(
    config: Config, clock: ServerClock, progress: Callable[[int], object] | None = None
) -> Flow[None]:
    """Give the stored filter the parameters of ``config``. Call ``progress(1)`` after each shard.

    The root key changes first, so that no client accepts the old parameters any longer. Each shard has its own copy of the
    parameters, so a call that ended half-way can be repeated.
    """
    root = config.keys.root
    [stored] = yield from request([Call(("GET", root))])
    if config.shards > 1 and stored is not None:
        yield from _change(config, clock, text(stored), None)
    for shard in range(config.shards):
        [copy] = yield from request([Call(("GET", config.keys.config(shard)))])
        if copy is not None:  # None: the shard is empty
            yield from _change(config, clock, text(copy), shard)
        if progress:
            progress(1)


def _change(new: Config, clock: ServerClock, stored: str, shard: int | None) -> Flow[None]:
    """Change the parameters of one shard, or those at the root key if ``shard`` is None."""
    layout = ""

    def attempt() -> Flow[bool | None]:
        nonlocal stored, layout
        if stored == new.stored:
            return True
        differences = new.differences(stored)
        fixed = {name: differences[name] for name in FIXED if name in differences}
        if fixed:
            raise ConfigMismatch(new.name, fixed, stored)
        key = new.keys.config(shard) if shard is not None else new.keys.root
        old = from_stored(new.name, stored, key, new.prefix)
        begun = set[str]()
        if shard is not None:
            [fields] = yield from request([Call(("HKEYS", new.keys.state(shard)))])
            begun = {text(field).partition(":")[0] for field in fields}
        call = _call((old, new), clock.now(), shard, Layout(old, layout, shard or 0), begun)
        [(status, payload, *_)] = yield from request([call])
        if status in (Status.OK, Status.UNKNOWN):  # UNKNOWN: the filter was cleared meanwhile
            return True
        if status == Status.CLOCK:
            clock.learn(payload)
        elif status == Status.LAYOUT:
            layout = text(payload)
        elif status == Status.MISMATCH:
            stored = text(payload)
        else:
            raise refusal(new, status, payload)
        return None

    yield from corrected(new.name, "it changed", attempt)


def _call(
    configs: tuple[Config, Config], now: int, shard: int | None, layout: Layout, begun: set[str]
) -> Call:
    old, new = configs
    # The longer of both windows is used, so that the new window can have slices that the old one still holds.
    window = max(old.window, new.window, key=lambda window: window.slices)
    slices = window.live(now)
    current = slices[-1]
    # Later slices have begun if the server's clock was set back since.
    slices += [slice for slice in window.ahead(now) if slice.label in begun]
    keys, expiries, entries = [new.keys.root], [], ""
    if shard is not None:
        keys = [new.keys.config(shard), new.keys.state(shard)]
        labels = [slice.label for slice in slices]
        entries = layout.reconfigured(Layout(new), labels, current.label)
        for slice in slices:
            for number in range(len(layout.parts(slice.label))):
                keys.append(new.keys.slice(slice.label, shard, number))
                expiries.append(shard_expiry(new, new.window.expires(slice), shard))
    expires = shard_expiry(new, new.window.expires(slices[-1]), shard)
    header = header_of(current.start, current.end, expires, version=layout.version)
    return calls.reconfigure((old.stored, new.stored), header, entries, keys, expiries)
