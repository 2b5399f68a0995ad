"""scrapy-redis' fingerprints, for a crawl that moves from its dupefilter to tbloom's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_redis.dupefilter import RFPDupeFilter

if TYPE_CHECKING:
    from scrapy import Request


class ScrapyRedisFingerprinter:
    """scrapy-redis' fingerprints: ``REQUEST_FINGERPRINTER_CLASS = "tbloom.scrapy.ScrapyRedisFingerprinter"``.

    scrapy-redis' dupefilter (from 0.8 on) does not use Scrapy's fingerprinter. Only these fingerprints
    find what its set holds.
    """

    __module__ = "tbloom.scrapy"

    def __init__(self) -> None:
        self._theirs = RFPDupeFilter(server=None, key="")

    def fingerprint(self, request: Request) -> bytes:
        """Return scrapy-redis' fingerprint as bytes."""
        return bytes.fromhex(self._theirs.request_fingerprint(request))
