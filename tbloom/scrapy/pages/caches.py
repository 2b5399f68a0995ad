"""The pages in Scrapy's own HTTP caches: those of FilesystemCacheStorage and DbmCacheStorage.

A cache may come from anybody: nothing that it names is imported or called.
"""

from __future__ import annotations

import ast
import dbm
import gzip
import pickle
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from io import BytesIO
from ipaddress import ip_address
from os import PathLike
from pathlib import Path
from typing import IO, Any, NamedTuple

from scrapy import Request
from scrapy.http import Response, TextResponse
from scrapy.utils.request import fingerprint
from w3lib.http import headers_raw_to_dict

from tbloom.errors import TBloomError
from tbloom.pages import Page
from tbloom.pages.exchange.importing import DAMAGED, Skipped
from tbloom.pages.page import MAX_BYTES
from tbloom.scrapy.pages.addresses import KEY, url_of
from tbloom.scrapy.pages.responses import fields_of, headers_of, known_class

#: FilesystemCacheStorage has a folder for each page, in one for the first two digits of its fingerprint.
_META = "[0-9a-f][0-9a-f]/*/meta"
#: DbmCacheStorage has SPIDER.db; most kinds of databases add something to the name.
_DATABASE = re.compile(r"(.+\.db)(\.(dat|dir|bak|pag|db))?")
_DATA, _TIME = b"_data", b"_time"
_GZIP = b"\x1f\x8b"
_PIECE = 1 << 20


class Cached(NamedTuple):
    """A response as Scrapy has stored it."""

    fingerprint: bytes
    method: str
    url: str
    request_body: bytes
    timestamp: float
    #: In the form of Scrapy's ``Response.to_dict``.
    response: dict[str, Any]


#: The place of a page in its cache, and what reads it.
_Found = tuple[str, Callable[[], Cached]]


class ScrapyCaches:
    """A source: the pages that Scrapy has cached."""

    unit = "pages"

    def __init__(
        self, path: Path, caches: list[_Folder | _Database], *, by_fingerprint: bool
    ) -> None:
        self.name = str(path)
        self.done, self.total = 0, sum(cache.pages for cache in caches)
        self._caches, self._by_fingerprint = caches, by_fingerprint

    def __iter__(self) -> Iterator[Page | Skipped]:
        """The pages, spider by spider."""
        for cache in self._caches:
            for place, read in cache:
                yield self._page(place, read)
                self.done += 1

    def _page(self, place: str, read: Callable[[], Cached]) -> Page | Skipped:
        try:
            cached = read()
            response = _response(cached.response)
            return Page(
                response.url,
                response.status,
                tuple((_text(name), _text(value)) for name, value in headers_of(response)),
                response.body,
                datetime.fromtimestamp(cached.timestamp, timezone.utc),
                KEY + cached.fingerprint if self._by_fingerprint else _address(cached),
                tuple(fields_of(response).items()),
            )
        except Exception as error:  # noqa: BLE001 - what was not written by Scrapy can raise any
            return Skipped(DAMAGED, f"{place}: {type(error).__name__}: {error}")


def caches_at(path: str | PathLike[str], *, by_fingerprint: bool = False) -> ScrapyCaches | None:
    """The source for Scrapy's cache folder, or for one spider's folder or database in it; None: that is no cache.

    :param by_fingerprint: True: every page's address is its fingerprint, as ``PageCacheStorage`` has it under a
        fingerprinter other than Scrapy's.
    :raises TBloomError: where a database can't be opened.
    """
    path = Path(path)
    is_spiders = next(path.glob(_META), None) is not None
    inside = [path] if is_spiders or not path.is_dir() else sorted(path.iterdir())
    caches: list[_Folder | _Database] = [_Folder(one) for one in inside if one.is_dir()]
    bases = {
        str(one.parent / named[1]) for one in inside if (named := _DATABASE.fullmatch(one.name))
    }
    caches += [_Database(base) for base in sorted(bases) if dbm.whichdb(base)]
    found = [cache for cache in caches if cache.pages]
    return ScrapyCaches(path, found, by_fingerprint=by_fingerprint) if found else None


class _Folder:
    """The cache of one spider, made by FilesystemCacheStorage."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.pages = sum(1 for _ in path.glob(_META))

    def __iter__(self) -> Iterator[_Found]:
        for meta in self._path.glob(_META):
            yield str(meta.parent), partial(self._read, meta.parent)

    def _read(self, folder: Path) -> Cached:
        with (folder / "meta").open("rb") as file:
            is_gzipped = file.read(len(_GZIP)) == _GZIP

        def content(name: str) -> bytes:
            return _content((gzip.open if is_gzipped else open)(folder / name, "rb"))

        meta = ast.literal_eval(content("meta").decode())
        response = {
            "url": meta["response_url"],
            "status": meta["status"],
            "headers": headers_raw_to_dict(content("response_headers")),
            "body": content("response_body"),
        }
        if (folder / "response_data").exists():  # since Scrapy 2.19
            response = _unpickled(content("response_data")) | response
        key, body = bytes.fromhex(folder.name), content("request_body")
        return Cached(key, meta["method"], meta["url"], body, meta["timestamp"], response)


class _Database:
    """The cache of one spider, made by DbmCacheStorage. It does not have the requests."""

    def __init__(self, base: str) -> None:
        self._base = base
        try:
            with self._open() as database:
                self.pages = len(_names(database))
        except dbm.error as error:
            raise TBloomError(f"{base!r} can't be opened: {error}") from error

    def __iter__(self) -> Iterator[_Found]:
        with self._open() as database:
            for name in _names(database):
                yield f"{self._base}, {name!r}", partial(self._read, database, name)

    def _open(self) -> Any:
        return dbm.open(self._base, "r")

    def _read(self, database: Any, name: bytes) -> Cached:
        response = _unpickled(database[name + _DATA])
        found, timestamp = bytes.fromhex(name.decode()), float(database[name + _TIME])
        return Cached(found, "GET", response["url"], b"", timestamp, response)


def _names(database: Any) -> list[bytes]:
    keys: list[bytes] = database.keys()  # not all kinds can be iterated over
    return [key.removesuffix(_DATA) for key in keys if key.endswith(_DATA)]


class _Unpickler(pickle.Unpickler):
    """Loads builtin values and IP addresses only."""

    def find_class(self, module: str, name: str) -> Any:
        """What makes an IP address; an error for any other name."""
        if module == "ipaddress" and name in {"IPv4Address", "IPv6Address"}:
            return partial(
                ip_address
            )  # a new object, because a pickle can set attributes of what it finds
        raise pickle.UnpicklingError(f"it has a {module}.{name}")


def _unpickled(data: bytes) -> dict[str, Any]:
    return dict(_Unpickler(BytesIO(data)).load())


def _content(file: IO[bytes] | gzip.GzipFile) -> bytes:
    """The file's content; a small gzip file may have any length."""
    whole = BytesIO()
    with file:
        while piece := file.read(_PIECE):
            whole.write(piece)
            if whole.tell() > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES} bytes")
    return whole.getvalue()


def _response(found: dict[str, Any]) -> Response:
    kind = known_class(found.get("_class"))
    more = {"encoding": found.get("encoding")} if issubclass(kind, TextResponse) else {}
    return kind(
        found["url"],
        status=found["status"],
        headers=found["headers"],
        body=found["body"],
        flags=found.get("flags"),
        ip_address=found.get("ip_address"),
        protocol=found.get("protocol"),
        **more,
    )


def _address(cached: Cached) -> bytes:
    """The address where ``PageCacheStorage`` looks under Scrapy's own fingerprinter."""
    for meta in ({}, {"verbatim_url": True}):
        request = Request(cached.url, method=cached.method, body=cached.request_body, meta=meta)
        if fingerprint(request) == cached.fingerprint:
            return url_of(request) or KEY + cached.fingerprint
    return KEY + cached.fingerprint


def _text(header: bytes) -> str:
    return header.decode("latin-1")
