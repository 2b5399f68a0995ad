"""scrapy-redis' fingerprints, for a crawl that is moved over from its dupefilter."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy_redis.dupefilter import RFPDupeFilter

if TYPE_CHECKING:
    from scrapy import Request


class ScrapyRedisFingerprinter:
    """``REQUEST_FINGERPRINTER_CLASS = "tbloom.scrapy.ScrapyRedisFingerprinter"``

    scrapy-redis' own dupefilter (from 0.8 on) does not ask Scrapy's fingerprinter: it hashes a text of
    its own. What its set holds is found by the same fingerprints only.
    """

    def __init__(self) -> None:
        self._theirs = RFPDupeFilter(server=None, key="")
        self._known: WeakKeyDictionary[Request, bytes] = WeakKeyDictionary()

    def fingerprint(self, request: Request) -> bytes:
        """scrapy-redis' fingerprint, as bytes; worked out once for a request, as Scrapy's is."""
        known = self._known.get(request)
        if known is None:
            known = bytes.fromhex(self._theirs.request_fingerprint(request))
            self._known[request] = known
        return known
