"""Imports what a crawl imports, and what it imports only when it begins, which takes several times as long as a small crawl."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

from scrapy.settings import default_settings


def modules(setting: Any) -> Iterator[str]:
    """The modules of Scrapy in a setting."""
    if isinstance(setting, dict):
        for values in (setting.keys(), setting.values()):
            for value in values:
                yield from modules(value)
    elif isinstance(setting, str) and setting.startswith("scrapy."):
        yield setting.rpartition(".")[0]


for setting in vars(default_settings).values():
    for name in modules(setting):
        with suppress(ImportError):  # needs a package that is not here
            import_module(name)

for name in ("aiohttp.web", "scrapy_redis.scheduler", "tbloom.scrapy", "tests.helpers.projects", "tldextract"):  # fmt: skip
    import_module(name)
