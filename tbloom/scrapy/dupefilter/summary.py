"""The line about the filter in the log of a crawl, at its start."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from redis import RedisError

from tbloom import LocalBloom
from tbloom.bloom.fingerprinter import note
from tbloom.bloom.info import Glance, ask_time, glance
from tbloom.bloom.script_calls import leaves
from tbloom.engine.exchange import ServerClock
from tbloom.engine.flow import Command, Flow, deliver_all
from tbloom.items import check_ttl
from tbloom.scrapy.connection import address_of
from tbloom.scrapy.outage import CrawlBloom, CrawlExact

if TYPE_CHECKING:
    from tbloom.bloom.config import Config
    from tbloom.exact.config import ExactConfig

#: How slices are called by their granularity, and the current one.
_PERIODS = {
    "h": ("hourly slices", "this hour"),
    "d": ("daily slices", "today"),
    "w": ("weekly slices", "this week"),
    "m": ("monthly slices", "this month"),
}


class Summary(NamedTuple):
    """A filter as a crawl finds it."""

    #: One line.
    text: str
    is_new: bool
    #: See ``TimeBloom.warnings``.
    warnings: list[str]


def summarize(seen: CrawlBloom | CrawlExact | LocalBloom) -> Summary:
    """The filter as it is now. On a server no bits are counted."""
    warnings: list[str] = []
    if isinstance(seen, LocalBloom):
        info = seen.info()
        held, is_new = _held(seen.config, info.slices[-1].items, info.bytes), not info.bytes
        place = f"in {seen.path or 'the memory of this process'}"
    else:
        place = f"at {address_of(seen.client)}"
        if isinstance(seen, CrawlBloom):
            found = seen.run(_glance(seen.config))
            size, warnings = sum(size for _, size, _ in found.parts.values()), found.warnings
            held, is_new = _held(seen.config, _newest_items(seen.config, found), size), not size
        else:
            held, is_new = "exact", seen.run(_is_new(seen.config))
            warnings = seen.warnings()
    age = "new" if is_new else "existing"
    return Summary(f"filter {seen.name!r}: {held}, {age}, {place}", is_new, warnings)


class FingerprinterNote:
    """The note on the server that this fingerprinter fills the filter. It has a TTL as what is added has."""

    def __init__(self, fingerprinter: Any) -> None:
        kind = type(fingerprinter)
        self._ours = f"{kind.__module__}.{kind.__qualname__}"
        self._renewed_from = math.inf

    def write(self, seen: CrawlBloom | CrawlExact, *, is_new: bool = False) -> str | None:
        """Writes it, unless another fingerprinter has filled the filter: returns that one."""
        ttl = check_ttl(seen.ttl) if isinstance(seen, CrawlExact) else _lasts_ms(seen.config)
        self._renewed_from = math.inf if ttl is None else time.monotonic() + ttl / 2000
        key = seen.config.keys.fingerprinter()
        known = seen.run(note(key, self._ours, ttl, is_new=is_new))
        return None if known == self._ours else known

    def renew(self, seen: CrawlBloom | CrawlExact | LocalBloom) -> None:
        """Writes it again once half of its time is over."""
        if time.monotonic() > self._renewed_from and not isinstance(seen, LocalBloom):
            with suppress(RedisError):
                self.write(seen)


def _held(config: Config, items: int, size: int) -> str:
    period = config.window.granularity
    kind, when = _PERIODS.get(period or "", (f"slices of {period}", "now"))
    window = f"{config.slices} {kind}" if period else "no window"
    return f"{window}, {items:,} of {config.capacity:,} items {when}, {size / 2**20:,.1f} MB"


def _newest_items(config: Config, found: Glance) -> int:
    """Items in the current slice."""
    [current] = config.window.live(found.now, newest=1)
    heads = {config.keys.slice(current.label, shard) for shard in range(config.shards)}
    return sum(
        items
        for key, (items, _, _) in found.parts.items()
        if key in heads or key.rpartition(":")[0] in heads
    )


def _lasts_ms(config: Config) -> int | None:
    """How long an item is remembered that is added now, by the client's clock; None: for ever."""
    if config.granularity is None:
        return None
    now = time.time_ns() // 1_000_000
    [current] = config.window.live(now, newest=1)
    return leaves(config, config.window.expires(current), None) - now


def _glance(config: Config) -> Flow[Glance]:
    clock = ServerClock()
    yield from ask_time(config, clock)
    return (yield from glance(config, clock))


def _is_new(config: ExactConfig) -> Flow[bool]:
    keys = map(config.keys.layout, range(config.shards))
    return not any((yield from deliver_all([Command(("GET", key)) for key in keys])))
