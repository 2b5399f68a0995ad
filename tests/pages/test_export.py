"""Segments and exports are WARC files: other tools read them without complaint, and find the same pages; so do imports, and pywb,
by the files that cdxj-indexer lists."""

from __future__ import annotations

import gzip
import os
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fastwarc
import pytest
from warcio.archiveiterator import ArchiveIterator

from tbloom.pages import Page, PagesExported, PageStore, export_warc, import_warc, record
from tbloom.pages.members import zstd
from tests.helpers import guard
from tests.helpers.localredis import free_port, wait_until_ready
from tests.helpers.making import made_once, missing
from tests.helpers.pagestores import DAY, NOON, files, run_tool, url

pytestmark = pytest.mark.usefixtures("clock")
AT = datetime(2019, 6, 3, 4, 5, 6, 789012, tzinfo=UTC)
HTML = b"<html><title>page</title>\r\n\r\n</html>" * 100


def content() -> dict[str, dict[str, Any]]:
    """Pages of all kinds, by URL.

    None has a Content-Encoding of "br": where Google's package brotli is installed, `warcio check` fails at each of
    those, whatever wrote it (webrecorder/warcio#73). ``test_model`` has some.
    """
    pages: dict[str, dict[str, Any]] = {
        "plain": {"body": HTML, "headers": {"Content-Type": "text/html", "Content-Length": f"{len(HTML)}"}},
        "empty": {"body": b""},
        "empty-gzip": {"body": b"", "headers": {"Content-Encoding": "gzip", "Content-Length": "0"}},
        "empty-chunked": {"body": b"", "headers": {"Transfer-Encoding": "chunked"}},
        "gzip": {"body": gzip.compress(HTML), "headers": {"Content-Encoding": "gzip"}},
        "deflate": {"body": zlib.compress(HTML), "headers": {"Content-Encoding": "deflate"}},
        "decoded": {
            "body": HTML,
            "headers": {"Content-Encoding": "gzip", "Content-Length": "77", "Transfer-Encoding": "chunked"},
        },
        "decoded-deflate": {"body": HTML, "headers": {"Content-Encoding": "deflate"}},
        "decoded-twice": {"body": HTML, "headers": {"Content-Encoding": "deflate, gzip"}},
        "unknown-encoding": {"body": HTML, "headers": {"Content-Encoding": "zstd"}},
        "identity": {"body": HTML, "headers": {"Content-Encoding": "identity", "Transfer-Encoding": "identity"}},
        "like-chunks": {"body": b"5\r\nhello\r\n0\r\n\r\n", "headers": {"Transfer-Encoding": "Chunked"}},
        "binary": {"body": bytes(range(256)) * 300, "headers": {"Content-Type": "image/png"}},
        "a-warc-file": {"body": record.of_info(record.new_id(), "gzip") * 3},
        "like-a-record": {"body": b"\r\n\r\nWARC/1.1\r\nWARC-Type: response\r\n\r\n\r\n\r\n"},
        "münchen/€/𝄞": {"body": "grüezi".encode()},
        "?q=%41+b&c[]='\"<>|\\^`{}": {"body": b"odd"},
        "keyed": {"body": b"keyed", "key": b"\x00\xff a key", "fields": {"WARC-IP-Address": "127.0.0.1"}},
    }  # fmt: skip
    pages |= {f"status/{code}": {"body": b"%d" % code, "status": code} for code in range(100, 1000)}
    return {f"https://example.com/{name}": page for name, page in pages.items()}


PAGES = content()


@pytest.fixture(scope="module", params=["gzip", "zstd"])
def warcs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The files of a store with all pages; some were replaced, and others deleted. Those of zstd are decompressed."""
    path = tmp_path_factory.mktemp("pages")
    with PageStore(path, codec=request.param, segment_bytes=150_000) as store:
        for n in range(20):
            store.put(f"https://example.com/deleted/{n}", b"deleted", at=AT)
        for url, page in PAGES.items():
            store.put(url, b"replaced", at=AT, key=page.get("key"))
            store.put(url, **{"at": AT + timedelta(microseconds=len(url)), **page})
        for n in range(20):
            assert store.delete(f"https://example.com/deleted/{n}")
        assert len(PAGES) == len(store)
    stored = files(path)
    assert len(stored) > 1
    if request.param == "gzip":
        return stored
    for file in stored:
        file.with_suffix("").write_bytes(zstd.decompress(file.read_bytes()))
    return [file.with_suffix("") for file in stored]


def test_warcio_finds_no_fault(warcs: list[Path]) -> None:
    """All digests are there, and right."""
    output = run_tool("warcio", "check", "-v", *warcs)
    assert "fail" not in output.lower()
    assert output.count("digest pass") >= 2 * len(PAGES)


def test_the_content_is_what_a_browser_shows(warcs: list[Path]) -> None:
    """A tool that believes the headers decodes encoded bodies only: untrue headers have another name."""
    contents, headers = dict[str, bytes](), dict[str, list[str]]()
    for path in warcs:
        with path.open("rb") as file:
            for one in ArchiveIterator(file):
                if one.rec_type == "response":
                    url = one.rec_headers.get_header("WARC-Target-URI")
                    contents[url] = one.content_stream().read()
                    headers[url] = [header for header, _ in one.http_headers.headers]
    encoded = {f"https://example.com/{name}": HTML for name in ("gzip", "deflate")}
    for url, page in PAGES.items():
        assert encoded.get(url, page["body"]) == contents[url], url
    expected = ["Content-Encoding", "Content-Length", "Transfer-Encoding"]
    assert [f"X-Archive-Orig-{header}" for header in expected] == headers[
        "https://example.com/decoded"
    ]


def test_other_tools_read_pages_with_long_headers(path: Path) -> None:
    """Headers for which they have no room are left out, and named: FastWARC reads nothing behind them."""
    long: list[dict[str, Any]] = [
        {"headers": {"A": "1", "B": "b" * 70_000, "C": "3"}},
        {"headers": [("A", f"{n}") for n in range(9_000)]},
        {"fields": [(f"X-{n}", "a") for n in range(9_000)]},
        {"fields": {"X-A": "a" * 70_000}},
    ]
    addresses = [url(n) for n in range(len(long))]
    with PageStore(path) as store:
        for address, page in zip(addresses, long, strict=True):
            store.put(address, b"long", at=NOON, **page)
        store.put(url("a" * 70_000), b"", at=NOON)
        store.put(url("last"), b"last", at=NOON)
        out = BytesIO()
        done = export_warc(store, out)
    assert PagesExported(5, (), (*addresses, url("a" * 70_000))) == done
    expected = [(address, b"long") for address in addresses] + [(url("last"), b"last")]
    only = fastwarc.WarcRecordType.response
    data = out.getvalue()
    read = fastwarc.ArchiveIterator(BytesIO(data), record_types=only)
    assert expected == [(one.headers["WARC-Target-URI"], one.reader.read()) for one in read]
    found = [one for one in ArchiveIterator(BytesIO(data)) if one.rec_type == "response"]
    assert len(expected) == len(found)
    assert [("A", "1")] == found[0].http_headers.headers
    assert 1_000 < len(found[1].http_headers.headers) < 9_000
    with PageStore(path.with_name("again")) as again:
        assert import_warc(again, BytesIO(data)).stored == 5


HTML_ONLY = (("Content-Type", "text/html; charset=utf-8"),)
URLS = [
    "https://www.Example.com:443/A/../b/?z=1&a=2#part",
    "http://example.com/",
    "https://example.com/münchen/€?q=\"<>{}|\\^`'",
    "https://example.com/%7e%41;jsessionid=0123456789ABCDEF0123456789ABCDEF?&&=",
    "https://user:secret@[::1]:8080/",
    "https://xn--mnchen-3ya.de/?q=a+b",
    "http://192.168.0.1:81/a",
]  # fmt: skip
#: One for each URL, of three days, with all kinds of headers and statuses.
OF_URLS = [
    Page(
        address,
        (200, 404, 500)[number % 3],
        (HTML_ONLY, (), (("content-type", ""),), (("CONTENT-TYPE", "image/png"),))[number % 4],
        b"<p>%d " % number * 100,
        NOON - number % 3 * DAY,
    )
    for number, address in enumerate(URLS)
]


def _install(folder: Path) -> None:
    """Install pywb and its indexer in an environment of their own: they need other versions of libraries than tests do."""
    python = folder / "bin" / "python"
    for words in (
        ["venv", "--quiet", "--clear", "--python", sys.executable, folder],
        ["pip", "install", "--quiet", "--python", python, "pywb>=2.10", "cdxj-indexer>=1.5", "setuptools<81"],
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "uv", *words], capture_output=True, check=False
        )
        if done.returncode:
            missing(f"pywb ({done.stderr.decode()[-300:]})")


@pytest.fixture(scope="session")
def pywb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of pywb's programs."""
    return made_once(tmp_path_factory, "pywb", _install) / "bin"


#: Reads no proxy from the environment.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _read(address: str) -> tuple[int, bytes]:
    """The status and the body that pywb answers with."""
    try:
        with _OPENER.open(address, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@contextmanager
def _wayback(pywb: Path, folder: Path) -> Iterator[str]:
    """The address of a pywb whose configuration is in this folder."""
    port = free_port()
    words = [pywb / "wayback", "--bind", "127.0.0.1", "--port", f"{port}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log)
    guard.watch(process.pid)
    try:
        wait_until_ready(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        guard.reap(process)


@pytest.mark.check
@pytest.mark.timeout(900)
def test_pywb_shows_the_pages(path: Path, tmp_path: Path, pywb: Path) -> None:
    """Byte for byte."""
    with PageStore(path, "d", 3) as store:
        store.put_many(OF_URLS)
    indexer = [pywb / "cdxj-indexer", "--sort", "--output", tmp_path / "pages.cdxj", *files(path)]
    subprocess.run(indexer, check=True)
    web = f"collections: {{web: {{index_paths: pages.cdxj, archive_paths: {path}{os.sep}}}}}\n"
    (tmp_path / "config.yaml").write_text(web)
    with _wayback(pywb, tmp_path) as address:
        for page in OF_URLS:
            if not page.url.isascii():
                continue  # pywb 2.10 fails at a stored URL beyond Latin-1
            without_part = quote(page.url.partition("#")[0], safe=":/?&=%[]@;+")
            assert (page.status, page.body) == _read(f"{address}/web/2019id_/{without_part}")
        assert 404 == _read(f"{address}/web/2019id_/http://none/")[0]


def test_a_full_disk_is_an_error_with_the_files_name(store: PageStore, tmp_path: Path) -> None:
    """The limit of a file's size stands for the end of a disk."""
    store.put(url(0), os.urandom(9999))
    target = tmp_path / "all.warc.gz"
    words = [sys.executable, "-m", "tbloom", "pages", "export", store.path, "-o", str(target)]
    shell = f"trap '' XFSZ; ulimit -f 1; {shlex.join(words)}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert (2, f"tbloom: {target}: File too large\n") == (done.returncode, done.stderr)
    assert not target.exists()
