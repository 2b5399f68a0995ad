"""tbloom for Scrapy: a duplicate filter (``DUPEFILTER_CLASS = "tbloom.scrapy.DupeFilter"``), distinct counts, an HTTP cache."""

from typing import TYPE_CHECKING, Any

try:
    from tbloom.scrapy.addon import Addon
    from tbloom.scrapy.counts.extension import DistinctCounts
    from tbloom.scrapy.dupefilter.dupefilter import DupeFilter
    from tbloom.scrapy.dupefilter.fingerprinter import ScrapyRedisFingerprinter
except ModuleNotFoundError as error:
    if error.name not in {"scrapy", "scrapy_redis"}:
        raise
    message = f"tbloom.scrapy needs {error.name}: pip install 'tbloom[scrapy]'"
    raise ModuleNotFoundError(message, name=error.name) from None

if TYPE_CHECKING:
    from tbloom.scrapy.pages.storage import PageCacheStorage as PageCacheStorage

#: Without PageCacheStorage, which needs the extra ``pages``, so that ``import *`` works without it.
__all__ = ["Addon", "DistinctCounts", "DupeFilter", "ScrapyRedisFingerprinter"]


def __getattr__(name: str) -> Any:
    if name != "PageCacheStorage":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tbloom.scrapy.pages.storage import PageCacheStorage  # noqa: PLC0415 - needs the extra

    return PageCacheStorage
