"""Scrapy's responses as pages of a store, and back."""

from __future__ import annotations

import json
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from scrapy.http import Headers, HtmlResponse, JsonResponse, Response, TextResponse, XmlResponse
from scrapy.responsetypes import responsetypes

from tbloom.pages.page import is_true

if TYPE_CHECKING:
    from tbloom.pages import Page

#: Fields of a page's WARC record. The first two are the standard's, the others have what only Scrapy knows.
_IP, _PROTOCOL = "WARC-IP-Address", "WARC-Protocol"
_FLAGS, _CLASS, _ENCODING = "X-Scrapy-Flags", "X-Scrapy-Class", "X-Scrapy-Encoding"
#: Classes are known by name: a file must not say what is imported.
_CLASSES = {
    kind.__name__: kind
    for kind in (Response, TextResponse, HtmlResponse, XmlResponse, JsonResponse)
}


def fields_of(response: Response) -> dict[str, str]:
    """What a page's record has besides URL, status, headers and body."""
    fields = dict[str, str]()
    if response.ip_address is not None:
        fields[_IP] = str(response.ip_address)
    if response.protocol:
        fields[_PROTOCOL] = response.protocol.lower()
    if response.flags:
        fields[_FLAGS] = json.dumps([str(flag) for flag in response.flags])
    if type(response) is not Response:
        fields[_CLASS] = next(
            kind.__name__ for kind in type(response).__mro__ if kind in _CLASSES.values()
        )
    # Only where whoever made the response knew better than its headers and its body.
    encoding = getattr(response, "_encoding", None)
    if encoding:
        fields[_ENCODING] = encoding
    return fields


def headers_of(response: Response) -> list[tuple[bytes, bytes]]:
    """Its headers, those that repeat several times."""
    return [(name, value) for name, values in response.headers.items() for value in values]


def response_of(page: Page) -> Response:
    """The response that was stored as this page; or of one that others have stored, what Scrapy would make of it."""
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in page.headers]
    headers = Headers(pairs)
    codings = b", ".join(headers.getlist("Content-Encoding")).decode("latin-1")
    if page.body and not is_true("Content-Encoding", codings, page.body):
        # Such as a body that requests has decoded: Scrapy would try it again, and fail.
        del headers["Content-Encoding"]
    fields = dict(page.fields)
    kind = _CLASSES.get(fields.get(_CLASS, ""))
    if kind is None:
        kind = responsetypes.from_args(headers=headers, url=page.url, body=page.body)
    more: dict[str, Any] = {}
    if _ENCODING in fields and issubclass(kind, TextResponse):
        more["encoding"] = fields[_ENCODING]
    return kind(
        page.url,
        status=page.status,
        headers=headers,
        body=page.body,
        flags=_flags(fields.get(_FLAGS, "[]")),
        ip_address=_ip(fields.get(_IP, "")),
        protocol=_protocol(fields.get(_PROTOCOL)),
        **more,
    )


def _flags(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError:
        return []
    return [str(flag) for flag in found] if isinstance(found, list) else []


def _ip(text: str) -> Any:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _protocol(text: str | None) -> str | None:
    """As Scrapy spells it: ``HTTP/1.1``, ``h2``; in a WARC file it is ``http/1.1``."""
    return text.upper() if text and text.startswith("http/") else text
