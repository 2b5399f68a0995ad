"""Under which address of a page store a request's response is kept."""

from __future__ import annotations

import re

from scrapy import Request
from w3lib.url import canonicalize_url

#: Comes before a fingerprint, so that this address of a page is no URL.
KEY = b"scrapy:"
#: URLs that ``canonicalize_url`` leaves as they are; it would take a tenth of the time of a whole get.
PLAIN = re.compile(
    r"(?!.*/\.)https?://[a-z0-9-]+(?:\.[a-z0-9-]+)*/[\w~/.-]*(?:\?[\w~-]+=[\w.~-]*)?", re.ASCII
)


def url_of(request: Request) -> bytes | None:
    """The address by URL, under Scrapy's own fingerprinter; None: the request has none."""
    if request.method != "GET" or request.body:
        return None
    url = request.url
    if not PLAIN.fullmatch(url) and not request.meta.get("verbatim_url"):
        url = canonicalize_url(url)
    return url.encode()
