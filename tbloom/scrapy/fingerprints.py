"""The fingerprints of a crawl's requests. Those of plain requests are computed here, because Scrapy spends most time on their URLs."""

from __future__ import annotations

import re
from hashlib import sha1

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.utils.request import RequestFingerprinter

_LABEL, _SEGMENT = "[a-z0-9]+(?:-[a-z0-9]+)*", "[A-Za-z0-9_-][A-Za-z0-9_.-]*"
_PORT = r"(?::[1-9]\d{3}|:[1-5]\d{4}|:6[0-4]\d{3})?"
#: A URL that is its own canonical form. (A label of a host's name has at most 63 letters.)
_PLAIN = re.compile(
    rf"https?://(?=[^/]{{1,63}}/)(?:{_LABEL}\.)*[a-z]+{_PORT}/(?:{_SEGMENT}/)*(?:{_SEGMENT})?(?:\?\w+=\w+)?",
    re.ASCII,
)
#: With these, the crawl's fingerprinter has to agree.
_SAMPLES = "http://a-b.example.com:8080/", "https://example.com/A_b/c-d.html?e=F1"


class Fingerprints:
    """What the crawl's fingerprinter returns, whichever that is."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        given = crawler.request_fingerprinter
        is_scrapys = type(given) is RequestFingerprinter and all(
            given.fingerprint(Request(url)) == _of_plain(url) for url in _SAMPLES
        )
        #: The fingerprinter that agrees, if it is Scrapy's own. A spider may set another one later.
        self._scrapys = given if is_scrapys else None

    def of(self, request: Request) -> bytes:
        """Return the request's fingerprint."""
        given, url = self._crawler.request_fingerprinter, request.url
        is_get = request.method == "GET" and not request.body
        if is_get and given is self._scrapys and _PLAIN.fullmatch(url):
            return _of_plain(url)
        return given.fingerprint(request)


def _of_plain(url: str) -> bytes:
    """Return what Scrapy's own fingerprinter returns for a GET request with this URL, without a body."""
    text = f'{{"body": "", "headers": {{}}, "method": "GET", "url": "{url}"}}'
    return sha1(text.encode(), usedforsecurity=False).digest()
