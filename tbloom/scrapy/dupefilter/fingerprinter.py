"""scrapy-redis' fingerprints, for a crawl that moves from its dupefilter to tbloom's."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy_redis.dupefilter import RFPDupeFilter

if TYPE_CHECKING:
    from scrapy import Request


class ScrapyRedisFingerprinter:
    """``REQUEST_FINGERPRINTER_CLASS = "tbloom.scrapy.ScrapyRedisFingerprinter"``

    scrapy-redis' dupefilter (from 0.8 on) does not use Scrapy's fingerprinter. Only these fingerprints
    find what its set holds.
    """

    def __init__(self) -> None:
        self._theirs = RFPDupeFilter(server=None, key="")
        self._known: WeakKeyDictionary[Request, bytes] = WeakKeyDictionary()

    def fingerprint(self, request: Request) -> bytes:
        """scrapy-redis' fingerprint as bytes, computed once for a request, as Scrapy's is."""
        known = self._known.get(request)
        if known is None:
            known = bytes.fromhex(self._theirs.request_fingerprint(request))
            self._known[request] = known
        return known
