"""Imports all that a crawl imports, also when it begins: that takes longer than a small crawl."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

from scrapy.settings import default_settings


def modules(setting: Any) -> Iterator[str]:
    """The modules of Scrapy in a setting."""
    if isinstance(setting, dict):
        for value in (*setting, *setting.values()):
            yield from modules(value)
    elif isinstance(setting, str) and setting.startswith("scrapy."):
        yield setting.rpartition(".")[0]


for setting in vars(default_settings).values():
    for name in modules(setting):
        with suppress(ImportError):  # of a package that is not here
            import_module(name)

for name in ("aiohttp.web", "scrapy_redis.scheduler", "tbloom.scrapy", "tests.helpers.projects", "tldextract"):  # fmt: skip
    with suppress(ImportError):
        import_module(name)
