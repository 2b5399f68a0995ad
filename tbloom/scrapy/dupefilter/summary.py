"""What a crawl says of its filter: at its start in the log, at its end in the stats."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from redis import RedisError

from tbloom import FilterInfo, LocalBloom
from tbloom.bloom.config import Config, leaves
from tbloom.bloom.fingerprinter import note
from tbloom.errors import TBloomError
from tbloom.scrapy.options import address_of
from tbloom.scrapy.outage import AnyStore, CrawlBloom, CrawlExact

_PERIODS = {"h": "hourly", "d": "daily", "w": "weekly", "m": "monthly"}


def summarize(seen: AnyStore, fingerprinter: Any) -> tuple[str, list[str]]:
    """A line about the filter as it is now, and warnings. Some servers don't let us ask for its size."""
    kind = "exact"
    if not isinstance(seen, CrawlExact):
        config = seen.config
        period = config.window.granularity
        period = _PERIODS.get(str(period), period)
        kind = f"{config.slices} {period} slices" if period else "no window"
    place = address_of(seen.client) if not isinstance(seen, LocalBloom) else seen.path or "memory"
    warnings, held, is_new = list[str](), "", False
    with suppress(RedisError):
        info = seen.info()
        is_new = not info.bytes
        held = f", {info.items:,} items"
        if isinstance(info, FilterInfo):
            held += f" ({info.slices[-1].items:,} in the newest)"
            warnings += info.warnings
        held += f", {info.bytes / 2**20:,.2f} MB, {'new' if is_new else 'existing'}"
        warnings += seen.warnings() if isinstance(seen, CrawlExact) else []
    if not isinstance(seen, LocalBloom):
        with suppress(RedisError):
            warnings += _other_fingerprinter(seen, fingerprinter, is_new=is_new)
    return f"filter {seen.name!r}: {kind}{held}, at {place}", warnings


def window_stats(seen: AnyStore) -> dict[str, float]:
    """The stats of the whole window, which this crawl and all others have filled; none where Redis does not let us ask."""
    with suppress(RedisError, TBloomError):
        info = seen.info()
        return {
            "tbloom/window/items": info.items,
            "tbloom/window/bytes": info.bytes,
            "tbloom/window/error_rate": info.error_rate,
        }
    return {}


def _other_fingerprinter(
    seen: CrawlBloom | CrawlExact, fingerprinter: Any, *, is_new: bool
) -> list[str]:
    """A warning if another fingerprinter has filled the filter; else notes ours, with a TTL as what is added has."""
    ours = f"{type(fingerprinter).__module__}.{type(fingerprinter).__qualname__}"
    ttl = seen.lasts_ms if isinstance(seen, CrawlExact) else _lasts_ms(seen.config)
    known = seen.run(note(seen.config.keys.fingerprinter(), ours, ttl, is_new=is_new))
    if known == ours:
        return []
    text = (
        f"REQUEST_FINGERPRINTER_CLASS is {ours}, but the filter was filled with the fingerprints of {known}: "
        "what it has seen is new to this crawl. Set that one, or another TBLOOM_KEY"
    )
    return [text]


def _lasts_ms(config: Config) -> int | None:
    """How long an item is remembered that is added now, by the client's clock; None: for ever."""
    if config.granularity is None:
        return None
    now = time.time_ns() // 1_000_000
    current = config.window.slice_at(now)
    return leaves(config, config.window.expires(current), None) - now
