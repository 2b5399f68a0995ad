"""The program of ``forked.server``. It imports all that a crawl or a command imports, also when it begins, and sizes filters: that
takes longer than a small crawl."""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

from scrapy.settings import default_settings

from tbloom.bloom.config import configure
from tests.helpers import forked


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

LIBRARIES = ("aiohttp.web", "hypothesis", "pytest", "rich.console", "rich.table", "scrapy_redis.scheduler", "tldextract")  # fmt: skip
ADDON = ("tbloom.scrapy", "tbloom.scrapy.extras.doctor", "tbloom.scrapy.extras.pushing")
COMMANDS = (f"tbloom.cli.commands.{name}" for name in ("development", "fleet"))
HELPERS = (f"tests.helpers.{name}" for name in ("commands", "making", "projects"))
for name in (*LIBRARIES, *ADDON, *COMMANDS, *HELPERS):
    with suppress(ImportError):
        import_module(name)

# What a filter's size follows from is computed once.
for rate in (1e-4, 1e-9):
    configure("any", error_rate=rate)

# The garbage collector of a fork looks at none of these, so that the memory that they are in stays shared.
gc.collect()
gc.freeze()

forked.serve(socket.socket(fileno=int(sys.argv[1])))
