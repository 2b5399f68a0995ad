"""tbloom as Scrapy's duplicate filter: ``DUPEFILTER_CLASS = "tbloom.scrapy.DupeFilter"``; distinct counts; an HTTP cache."""

from typing import TYPE_CHECKING, Any

from tbloom.scrapy.addon import Addon
from tbloom.scrapy.counts import DistinctCounts
from tbloom.scrapy.dupefilter import DupeFilter
from tbloom.scrapy.fingerprinter import ScrapyRedisFingerprinter

if TYPE_CHECKING:
    from tbloom.scrapy.pages import PageCacheStorage

__all__ = [
    "Addon",
    "DistinctCounts",
    "DupeFilter",
    "PageCacheStorage",
    "ScrapyRedisFingerprinter",
]

#: What the page store needs, and only those have who use it.
_EXTRA = {"isal", "lmdb", "warcio"}


def __getattr__(name: str) -> Any:
    if name != "PageCacheStorage":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from tbloom.scrapy.pages import PageCacheStorage  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRA:
            raise
        message = f"tbloom.scrapy.{name} needs {missing}: pip install 'tbloom[pages]'"
        raise ImportError(message) from error
    return PageCacheStorage
