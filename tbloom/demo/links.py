"""The rule for links to follow, shared by the crawlers and by the count of the site's pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.linkextractors import IGNORED_EXTENSIONS, LinkExtractor

if TYPE_CHECKING:
    from scrapy.http import HtmlResponse, Response

# Files that documentation and shops link to, which are never pages.
_MORE_EXTENSIONS = "txt rst md py js css json xml csv inv whl gz tgz log diff patch".split()  # noqa: SIM905 - one line
# canonicalize: the fragment is dropped and the query is sorted, as in a request's fingerprint.
_EXTRACTOR = LinkExtractor(
    canonicalize=True, deny_extensions=[*IGNORED_EXTENSIONS, *_MORE_EXTENSIONS]
)


def is_page(response: Response) -> bool:
    """Its content type is HTML."""
    return bytes(response.headers.get("Content-Type") or b"").startswith(b"text/html")


def follow(response: HtmlResponse, site: str) -> list[str]:
    """The page's links within the site (``scheme://host:port``), each once."""
    return [
        link.url for link in _EXTRACTOR.extract_links(response) if link.url.startswith(f"{site}/")
    ]
