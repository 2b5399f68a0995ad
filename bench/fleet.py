"""Fleets: one crawler beside Scrapy's own filter, its seen links, sitemaps, waiting pages, start and end, eight that share Java's documentation, eight with one start page, and fleets by size."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from bench import javadoc, onecrawler, seenlinks, sitemaps, sizes, startend, startpage, waiting
from bench.serving import Server
from bench.tables import Table

_USUAL = MappingProxyType(dict[str, Any]())


def measure(
    server: Server,
    *,
    one: Mapping[str, Any] = _USUAL,
    java: Mapping[str, Any] = _USUAL,
    start: Mapping[str, Any] = _USUAL,
    seen: Mapping[str, Any] = _USUAL,
    maps: Mapping[str, Any] = _USUAL,
    waits: Mapping[str, Any] = _USUAL,
    fleets: Mapping[str, Any] = _USUAL,
    ends: Mapping[str, Any] = _USUAL,
) -> list[Table]:
    """Measure all eight, each with these arguments."""
    return [
        *javadoc.measure(**java),
        startpage.measure(server, **start),
        onecrawler.measure(server, **one),
        seenlinks.measure(server, **seen),
        sitemaps.measure(server, **maps),
        waiting.measure(**waits),
        sizes.measure(**fleets),
        startend.measure(server, **ends),
    ]
