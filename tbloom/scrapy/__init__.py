"""tbloom for Scrapy: a duplicate filter (``DUPEFILTER_CLASS = "tbloom.scrapy.DupeFilter"``), distinct counts, an HTTP cache."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    from tbloom.scrapy.counts import DistinctCounts
    from tbloom.scrapy.dupefilter.dupefilter import DupeFilter
    from tbloom.scrapy.gates import Addon
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "scrapy":
        raise
    message = "tbloom.scrapy needs Scrapy: pip install 'tbloom[scrapy]'"
    raise ModuleNotFoundError(message, name=error.name) from None

if TYPE_CHECKING:
    from tbloom.scrapy.dupefilter.fingerprinter import (
        ScrapyRedisFingerprinter as ScrapyRedisFingerprinter,
    )
    from tbloom.scrapy.storage import PageCacheStorage as PageCacheStorage

#: Without those of ``_OTHERS``, so that ``import *`` works without what they need.
__all__ = ["Addon", "DistinctCounts", "DupeFilter"]

#: What needs the extra ``pages``, or scrapy-redis.
_OTHERS = {
    "PageCacheStorage": "tbloom.scrapy.storage",
    "ScrapyRedisFingerprinter": "tbloom.scrapy.dupefilter.fingerprinter",
}


def __getattr__(name: str) -> Any:
    if name not in _OTHERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_OTHERS[name]), name)
