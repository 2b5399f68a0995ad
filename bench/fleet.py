"""Fleets: one crawler beside Scrapy's own filter, eight that share Java's documentation, and eight with one start page."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from bench import javadoc, onecrawler, startpage
from bench.serving import Server
from bench.tables import Table

_USUAL = MappingProxyType(dict[str, Any]())


def measure(
    server: Server,
    *,
    one: Mapping[str, Any] = _USUAL,
    java: Mapping[str, Any] = _USUAL,
    start: Mapping[str, Any] = _USUAL,
) -> list[Table]:
    """Measure all three, each with these arguments."""
    return [
        *javadoc.measure(**java),
        startpage.measure(server, **start),
        onecrawler.measure(server, **one),
    ]
