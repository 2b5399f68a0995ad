"""A CDXJ index of a store: it leads other tools to the pages, and is that of pywb's own indexer."""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

import pytest
from surt import surt
from warcio.archiveiterator import ArchiveIterator

from tbloom.errors import TBloomError
from tbloom.pages import Page, PageStore, cdxj
from tests.helpers import guard
from tests.helpers.localredis import free_port, wait_until_ready
from tests.helpers.making import Child, made_once, missing
from tests.helpers.pagestores import DAY, NOON, files, run_tool, url

pytestmark = pytest.mark.usefixtures("clock")
HTML = (("Content-Type", "text/html; charset=utf-8"),)
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
PAGES = [
    Page(
        address,
        (200, 404, 500)[number % 3],
        (HTML, (), (("content-type", ""),), (("CONTENT-TYPE", "image/png"),))[number % 4],
        b"<p>%d " % number * 100,
        NOON - number % 3 * DAY,
    )
    for number, address in enumerate(URLS)
]


@pytest.mark.parametrize("codec", ["gzip", "identity"])
def test_each_line_leads_to_a_page(path: Path, codec: str) -> None:
    """Of current pages only: none that was replaced or deleted, though its record is there."""
    with PageStore(path, "d", 3, codec=codec, segment_bytes=1500) as store:
        for address in (*URLS, "http://deleted/"):
            store.put(address, b"old")
        store.delete("http://deleted/")
        store.put_many(PAGES)
        store.put(URLS[0], b"with a key", key=b"key", headers=HTML)
        lines = [*store.cdxj()]
        expected = [(page.url, page.status, page.body) for page in store.pages()]
        assert len(URLS) + 1 == len(lines)
        assert sorted(lines) == lines
        found = []
        for line in lines:
            key, time, text = line.decode().split(" ", 2)
            fields = json.loads(text)
            begin, length = int(fields["offset"]), int(fields["length"])
            data = (path / fields["filename"]).read_bytes()[begin : begin + length]
            record = next(ArchiveIterator(BytesIO(data)))
            head = record.rec_headers
            assert surt(fields["url"]) == key
            assert fields["digest"] == head.get_header("WARC-Payload-Digest")
            assert f"{time[:4]}-{time[4:6]}-{time[6:8]}T{time[8:10]}:" in head.get_header(
                "WARC-Date"
            )
            assert fields["url"] == head.get_header("WARC-Target-URI")
            body = record.content_stream().read()
            found.append((fields["url"], int(fields["status"]), body))
        assert sorted(expected) == sorted(found)


def test_more_lines_than_fit_into_memory_are_sorted_in_few_files(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_index() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        with PageStore(path, readonly=True) as store:
            lines = [*store.cdxj()]
        assert 4_000 == len(lines)
        assert sorted(lines) == lines

    monkeypatch.setattr(cdxj, "_SORTED_KB", 1)
    with PageStore(path) as store:
        store.put_many(Page(url(number), 200, (), b"", NOON) for number in range(4_000))
    assert 0 == Child(write_index).wait()


def test_pages_compressed_with_zstd_are_left_out(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With one warning for each file."""
    with PageStore(path, codec="zstd") as store:
        store.put_many(Page(address, 200, (), b"", NOON) for address in URLS)
    with PageStore(path) as store:
        store.put(URLS[0], b"new")
        with caplog.at_level(logging.WARNING, "tbloom.pages"):
            [line] = store.cdxj()
        assert b".warc.gz" in line
    [file] = path.glob("*.zst")
    assert [f"{file} is left out: pywb does not read zstd"] == caplog.messages


def test_without_surt_the_error_names_what_to_install(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "surt", None)
    with PageStore(path) as store, pytest.raises(TBloomError, match="pip install surt"):
        store.cdxj()


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


@pytest.mark.check
@pytest.mark.timeout(900)
def test_it_is_what_pywb_s_indexer_writes(path: Path, pywb: Path) -> None:
    """Byte for byte, where no page was replaced or deleted."""
    with PageStore(path, "d", 3) as store:
        store.put_many(PAGES)
        lines = b"".join(store.cdxj())
    indexer = [pywb / "cdxj-indexer", "--sort", *files(path)]
    assert subprocess.run(indexer, capture_output=True, check=True).stdout == lines


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
    """By the store's own files, byte for byte; none that was deleted."""
    with PageStore(path) as store:
        for address in (*URLS[:2], "http://deleted/"):
            store.put(address, b"old", headers=HTML)
        store.delete("http://deleted/")
        store.put_many(PAGES)
    run_tool("tbloom", "pages", "cdxj", path, "-o", tmp_path / "pages.cdxj", "--quiet")
    web = f"collections: {{web: {{index_paths: pages.cdxj, archive_paths: {path}{os.sep}}}}}\n"
    (tmp_path / "config.yaml").write_text(web)
    with _wayback(pywb, tmp_path) as address:
        for page in PAGES:
            if not page.url.isascii():
                continue  # pywb 2.10 fails at a stored URL beyond Latin-1
            without_part = quote(page.url.partition("#")[0], safe=":/?&=%[]@;+")
            assert (page.status, page.body) == _read(f"{address}/web/2019id_/{without_part}")
        assert 404 == _read(f"{address}/web/2019id_/http://deleted/")[0]
