"""The flow of ``last_seen_many``: the newest live slice that holds each item."""

from __future__ import annotations

from tbloom.bloom.exchange import FilterExchange
from tbloom.engine.flow import Flow
from tbloom.window import Period


def last_seen(exchange: FilterExchange, digests: list[bytes]) -> Flow[list[Period | None]]:
    """The slice of each item; None: no live slice holds it."""
    batches, period = exchange.batches(digests), exchange.config.window.period
    yield from exchange.ask(batches, lambda batch: batch.known.last_seen(batch))
    found: dict[bytes, Period | None] = {}
    for batch in batches:
        periods = [None, *map(period, batch.known.slices)]
        slices = map(ord, batch.answers or "")
        found.update(zip(batch.digests, map(periods.__getitem__, slices), strict=True))
    return [found[digest] for digest in digests]
