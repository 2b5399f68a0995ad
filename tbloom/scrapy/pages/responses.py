"""Scrapy's responses as pages of a store, and back."""

from __future__ import annotations

import json
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from scrapy.http import Headers, HtmlResponse, JsonResponse, Response, TextResponse, XmlResponse
from scrapy.responsetypes import responsetypes

from tbloom.pages.page import is_true

if TYPE_CHECKING:
    from tbloom.pages import Page

#: Fields of a page's WARC record: the standard's two, and those for what only Scrapy knows.
_IP, _PROTOCOL = "WARC-IP-Address", "WARC-Protocol"
_FLAGS, _CLASS, _ENCODING = "X-Scrapy-Flags", "X-Scrapy-Class", "X-Scrapy-Encoding"
#: The classes by name: a stored file must not decide what is imported.
_CLASSES = {
    kind.__name__: kind
    for kind in (Response, TextResponse, HtmlResponse, XmlResponse, JsonResponse)
}


def known_class(path: Any) -> type[Response]:
    """The class with this path, if it is one of Scrapy's."""
    module, _, name = str(path).rpartition(".")
    return _CLASSES.get(name, Response) if module.startswith("scrapy.http.") else Response


def fields_of(response: Response) -> dict[str, str]:
    """The fields of a page's record besides URL, status, headers and body."""
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
    # Set only if the maker of the response gave one, against its headers and its body.
    encoding = getattr(response, "_encoding", None)
    if encoding:
        fields[_ENCODING] = encoding
    return fields


def headers_of(response: Response) -> list[tuple[bytes, bytes]]:
    """The response's headers; one that repeats comes several times."""
    # Those of ``Headers.items``, in a quarter of the time.
    return [(name, value) for name, values in dict.items(response.headers) for value in values]


def response_of(page: Page) -> Response:
    """The response that was stored as this page, or what Scrapy makes of another program's page."""
    headers = _headers(page)
    codings = b", ".join(headers.getlist(b"Content-Encoding")).decode("latin-1")
    if codings and page.body and not is_true("Content-Encoding", codings, page.body):
        # The library requests stores decoded bodies, for example: Scrapy would fail to decode them.
        del headers["Content-Encoding"]
    fields = dict(page.fields)
    kind = _CLASSES.get(fields.get(_CLASS, ""))
    if kind is None:
        kind = responsetypes.from_args(headers=headers, url=page.url, body=page.body)
    more: dict[str, Any] = {}
    if _ENCODING in fields and issubclass(kind, TextResponse):
        more["encoding"] = fields[_ENCODING]
    if _FLAGS in fields:
        more["flags"] = _flags(fields[_FLAGS])
    if _IP in fields:
        more["ip_address"] = _ip(fields[_IP])
    response = kind(
        page.url, page.status, body=page.body, protocol=_protocol(fields.get(_PROTOCOL)), **more
    )
    response.headers = headers  # the class would make them anew
    return response


@lru_cache(1000)
def _header(name: str) -> bytes:
    return Headers().normkey(name.encode("latin-1"))


def _headers(page: Page) -> Headers:
    found: dict[bytes, list[bytes]] = {}
    for name, value in page.headers:
        found.setdefault(_header(name), []).append(value.encode("latin-1"))
    headers = Headers()
    dict.update(
        headers, found
    )  # they are as Headers itself would make them, in three times the time
    return headers


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
    """Scrapy's spelling (``HTTP/1.1``, ``h2``) of a WARC file's ``http/1.1``."""
    return text.upper() if text and text.startswith("http/") else text
