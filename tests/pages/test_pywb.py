"""pywb shows the pages of a store by its own files, which cdxj-indexer lists."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from tbloom.pages import Page, PageStore
from tests.helpers import guard
from tests.helpers.localredis import free_port, wait_until_ready
from tests.helpers.making import made_once, missing
from tests.helpers.pagestores import DAY, NOON, files

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
        store.put_many(PAGES)
    indexer = [pywb / "cdxj-indexer", "--sort", "--output", tmp_path / "pages.cdxj", *files(path)]
    subprocess.run(indexer, check=True)
    web = f"collections: {{web: {{index_paths: pages.cdxj, archive_paths: {path}{os.sep}}}}}\n"
    (tmp_path / "config.yaml").write_text(web)
    with _wayback(pywb, tmp_path) as address:
        for page in PAGES:
            if not page.url.isascii():
                continue  # pywb 2.10 fails at a stored URL beyond Latin-1
            without_part = quote(page.url.partition("#")[0], safe=":/?&=%[]@;+")
            assert (page.status, page.body) == _read(f"{address}/web/2019id_/{without_part}")
        assert 404 == _read(f"{address}/web/2019id_/http://none/")[0]
