"""Spiders and spider middlewares that begin a crawl by a method that Scrapy no longer calls. It says nothing of them, and fetches nothing.

Scrapy 2.13 replaced ``start_requests()`` by ``start()``, and ``process_start_requests()`` by ``process_start()``. It goes on calling
the old ones, with a warning, until a later one has none of them: 2.19 has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import unwrap
from types import CodeType
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
    is_called = any(
        _mentions(kind, "start_requests") for kind in kinds
    )  # by a middleware of the project
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
    """Return whether a method of this class, but for those of this name, has the name in its code, and so may call them."""
    methods = (
        value
        for each in kind.__mro__
        if _is_own(each)
        for own, value in vars(each).items()
        if own != name
    )
    codes = (getattr(_function(value), "__code__", None) for value in methods)
    return any(_has(code, name) for code in codes if isinstance(code, CodeType))


def _function(value: Any) -> Any:
    """Return the function of a method of any kind, without its decorators."""
    return unwrap(getattr(value, "fget", None) or getattr(value, "__func__", value))


def _has(code: CodeType, name: str) -> bool:
    """Return whether a function, or one within it, has a name, or a text such as ``getattr`` takes."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return (
        name in code.co_names or name in code.co_consts or any(_has(each, name) for each in inner)
    )
