"""Imports all that a crawl imports, also when it begins: that takes longer than a small crawl."""

from __future__ import annotations

import sys
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


# A crawl installs its own reactor, so nothing may import one before: Scrapy 2.13's FTP handler does.
sys.modules["twisted.internet.reactor"] = None  # type: ignore[assignment]
for setting in vars(default_settings).values():
    for name in modules(setting):
        with suppress(ImportError):  # of the reactor, or of a package that is not here
            import_module(name)
del sys.modules["twisted.internet.reactor"]

for name in ("aiohttp.web", "scrapy_redis.scheduler", "tbloom.scrapy", "tests.helpers.projects", "tldextract"):  # fmt: skip
    with suppress(ImportError):
        import_module(name)
