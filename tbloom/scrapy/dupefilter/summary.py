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
from tbloom.engine.clock import ServerClock
from tbloom.engine.flow import Command, Flow, deliver_all
from tbloom.errors import TBloomError
from tbloom.items import check_ttl
from tbloom.scrapy.connection import address_of
from tbloom.scrapy.stores import CrawlBloom, CrawlExact

if TYPE_CHECKING:
    from tbloom.bloom.config import Config
    from tbloom.exact.config import ExactConfig

#: A round trip to Redis that is worth a warning (s).
_FAR = 0.01
#: How slices are called by their granularity, and the current one.
_PERIODS = {
    "h": ("hourly slices", "this hour"),
    "d": ("daily slices", "today"),
    "w": ("weekly slices", "this week"),
    "m": ("monthly slices", "this month"),
}


OTHER_FINGERPRINTER = (
    "REQUEST_FINGERPRINTER_CLASS is %s, but filter %r was filled with the fingerprints of %s: "
    "what it has seen is new to this crawl. Set that one, or another TBLOOM_KEY"
)


class Summary(NamedTuple):
    """A filter as a crawl finds it."""

    #: One line.
    text: str
    is_new: bool
    #: See ``TimeBloom.warnings``.
    warnings: list[str]


def summarize(
    seen: CrawlBloom | CrawlExact | LocalBloom, *, each_link_waits: bool = False
) -> Summary:
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
        if each_link_waits:
            warnings += _far_away(seen)
    age = "new" if is_new else "existing"
    return Summary(f"filter {seen.name!r}: {held}, {age}, {place}", is_new, warnings)


def window_stats(seen: CrawlBloom | CrawlExact | LocalBloom) -> dict[str, float]:
    """The stats of the whole window, which this crawl and all others have filled; none where Redis does not let us ask."""
    with suppress(RedisError, TBloomError):
        info = seen.info()
        return {
            "tbloom/window/items": info.items,
            "tbloom/window/bytes": info.bytes,
            "tbloom/window/error_rate": info.error_rate,
        }
    return {}


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


def _far_away(seen: CrawlBloom | CrawlExact) -> list[str]:
    """What would help, where each link waits for a Redis that is far away."""
    times = []
    for _ in range(3):  # one may meet a busy moment
        began = time.monotonic()
        seen.contains(b"tbloom")
        times.append(time.monotonic() - began)
    if min(times) < _FAR:
        return []
    text = (
        f"Redis takes {1000 * min(times):.0f} ms for each new link, and the crawl stands still meanwhile; "
        "with ADDONS = {'tbloom.scrapy.Addon': 500} and asyncio's reactor it goes on"
    )
    return [text]


def _held(config: Config, items: int, size: int) -> str:
    period = config.window.granularity
    kind, when = _PERIODS.get(period or "", (f"slices of {period}", "now"))
    window = f"{config.slices} {kind}" if period else "no window"
    held = f"{items:,} item" if items == 1 else f"{items:,} items"
    if config.capacity is not None:
        held = f"{items:,} of {config.capacity:,} items"
    return f"{window}, {held} {when}, {size / 2**20:,.2f} MB"


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
