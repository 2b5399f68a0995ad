"""tbloom for Scrapy: a duplicate filter (``DUPEFILTER_CLASS = "tbloom.scrapy.DupeFilter"``), distinct counts, an HTTP cache.

The classes of this package have it as their ``__module__``: Scrapy's log then shows the names that settings may have.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tbloom.version import OLDEST_SCRAPY

try:
    import scrapy
except ModuleNotFoundError as error:
    if error.name != "scrapy":
        raise
    _message = "tbloom.scrapy needs Scrapy: pip install 'tbloom[scrapy]'"
    raise ModuleNotFoundError(_message, name=error.name) from None
if (*(n for n in scrapy.version_info if isinstance(n, int)),) < OLDEST_SCRAPY:
    needed = ".".join(map(str, OLDEST_SCRAPY))
    _message = f"tbloom.scrapy needs Scrapy {needed} or later; {scrapy.__version__} is installed: pip install 'scrapy>={needed}'"
    raise ImportError(_message, name="scrapy")

from tbloom.scrapy.addon import Addon
from tbloom.scrapy.components import DupeFilter

if TYPE_CHECKING:
    from tbloom.scrapy.components import PageSpiderMiddleware as PageSpiderMiddleware
    from tbloom.scrapy.extras.counts import DistinctCounts
    from tbloom.scrapy.extras.httpcache import PageCacheStorage as PageCacheStorage
    from tbloom.scrapy.extras.moving import ScrapyRedisFingerprinter as ScrapyRedisFingerprinter
    from tbloom.scrapy.extras.sitemap import SitemapSpider as SitemapSpider

#: Without the names of ``_OTHERS``, so that ``import *`` works without the packages that those names need.
__all__ = ["Addon", "DistinctCounts", "DupeFilter"]

#: Imported on first use: few crawls use them, or they need the extra ``pages`` or scrapy-redis, or Scrapy's log names them.
_OTHERS = {
    "DistinctCounts": "tbloom.scrapy.extras.counts",
    "PageSpiderMiddleware": "tbloom.scrapy.components",
    "PageCacheStorage": "tbloom.scrapy.extras.httpcache",
    "ScrapyRedisFingerprinter": "tbloom.scrapy.extras.moving",
    "SitemapSpider": "tbloom.scrapy.extras.sitemap",
}


def __getattr__(name: str) -> Any:
    if name not in _OTHERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_OTHERS[name]), name)
