"""Spiders and spider middlewares that begin a crawl by a method that Scrapy no longer calls. It says nothing of them, and fetches nothing.

Scrapy 2.13 replaced ``start_requests()`` by ``start()``, and ``process_start_requests()`` by ``process_start()``. It goes on calling
the old ones, with a warning, until a later one has none of them: 2.19 has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from inspect import getsource
from typing import Any

import scrapy
from scrapy import Spider

#: Whether this Scrapy calls the old methods.
CALLS_OLD = hasattr(Spider, "start_requests")
#: The old methods, what takes their places, and what to write.
_OF_SPIDER = (
    "start_requests",
    "start",
    "'async def start(self):' with 'for each in self.start_requests(): yield each'",
)
_OF_MIDDLEWARE = (
    "process_start_requests",
    "process_start",
    "'async def process_start(self, start):' with 'async for each in start: yield each'",
)
#: The packages whose classes work without their old methods: RedisSpider reads its first URLs when it is idle.
_FINE = ("builtins", "scrapy", "scrapy_redis", "tbloom")


def uncalled(spider: type[Spider], middlewares: Iterable[type[Any]]) -> Iterator[str]:
    """Yield a line for each of these classes that begins a crawl by a method that this Scrapy never calls."""
    if CALLS_OLD:
        return
    kinds = [*middlewares]
    # By a middleware of the project.
    is_called = any(_mentions(kind, "start_requests") for kind in kinds)
    for kind, names in ((spider, _OF_SPIDER), *((kind, _OF_MIDDLEWARE) for kind in kinds)):
        old, new, remedy = names
        owner, has_new = _owner(kind, old), _owner(kind, new)
        if owner and not (has_new or _mentions(kind, old) or (kind is spider and is_called)):
            yield (
                f"Scrapy {scrapy.__version__} never calls {owner.__module__}.{owner.__qualname__}.{old}(): "
                f"add {remedy}"
            )


def _owner(kind: type[Any], name: str) -> type[Any] | None:
    """Return the project's class that defines what this one has by this name; None: there is none, or it is a library's."""
    owner = next((each for each in kind.__mro__ if name in vars(each)), None)
    return owner if owner and _is_own(owner) else None


def _is_own(kind: type[Any]) -> bool:
    return kind.__module__.partition(".")[0] not in _FINE


def _mentions(kind: type[Any], name: str) -> bool:
    """Return whether the source of a class has a name where it is not defined, and so may call it. True: there is no source."""
    used = re.compile(rf"(?<!def )(?<!super\(\)\.)\b{name}\b")
    with suppress(OSError, TypeError):
        return any(used.search(getsource(each)) for each in kind.__mro__ if _is_own(each))
    return True
