"""Copies the pages of Scrapy's FilesystemCacheStorage into a page store.

    python scrapy_cache.py .scrapy/httpcache/SPIDER /var/lib/crawler/pages

PageCacheStorage then finds them. A page that the store has, fetched at the same time or later, stays.
"""

import ast
import gzip
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from scrapy import Request
from scrapy.utils.request import fingerprint
from w3lib.http import headers_raw_to_dict
from w3lib.url import canonicalize_url

from tbloom.pages import Page, PageStore


def page(folder: Path) -> Page:
    names = ("meta", "response_headers", "response_body")
    files = {name: (folder / name).read_bytes() for name in names}
    if files["meta"].startswith(b"\x1f\x8b"):  # HTTPCACHE_GZIP
        files = {name: gzip.decompress(content) for name, content in files.items()}
    meta = ast.literal_eval(files["meta"].decode())
    is_plain = (
        fingerprint(Request(meta["url"])).hex() == folder.name
    )  # a GET, by Scrapy's fingerprinter
    key = canonicalize_url(meta["url"]).encode() if is_plain else None
    headers = headers_raw_to_dict(files["response_headers"]) or {}
    return Page(
        meta["response_url"],
        meta["status"],
        tuple((k.decode("latin-1"), v.decode("latin-1")) for k in headers for v in headers[k]),
        files["response_body"],
        datetime.fromtimestamp(meta["timestamp"], UTC),
        key or b"scrapy:" + bytes.fromhex(folder.name),
    )


def pages(cache: Path) -> Iterator[Page]:
    return (page(meta.parent) for meta in cache.glob("[0-9a-f][0-9a-f]/*/meta"))


if __name__ == "__main__":
    cache, folder = sys.argv[1:]
    with PageStore(folder) as store:
        print(store.put_many(pages(Path(cache)), newer=True), "pages stored")
