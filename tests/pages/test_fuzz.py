"""Archives of four writers, changed at random: an import ends, stores or names what it finds, and stays small."""

from __future__ import annotations

import gzip
import multiprocessing
import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import fastwarc
import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from tbloom.errors import ConfigError
from tbloom.pages import PageStore, export_warc, import_warc
from tests.helpers import website
from tests.helpers.foreignwarcs import FORMS
from tests.helpers.making import missing
from tests.helpers.pagestores import url
from tests.pages.test_import import Site

EACH = 500
BODIES = [b"", b"<html>page</html>\r\n\r\n" * 30, random.Random(1).randbytes(3_000)]


def of_tbloom(path: Path) -> bytes:
    """What an export has written."""
    out = BytesIO()
    with PageStore(path / "tbloom") as store:
        for n, body in enumerate(BODIES):
            store.put(url(n), body, headers={"Content-Type": "text/html"}, key=b"key"[n:] or None)
        export_warc(store, out)
    return gzip.decompress(out.getvalue())


def of_warcio(_: Path) -> bytes:
    out = BytesIO()
    writer = WARCWriter(out, gzip=False)
    for n, body in enumerate(BODIES):
        chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        http = StatusAndHeaders("200 OK", [("Transfer-Encoding", "chunked")], protocol="HTTP/1.1")
        writer.write_record(
            writer.create_warc_record(url(n), "response", BytesIO(chunks), http_headers=http)
        )
    return out.getvalue()


def of_fastwarc(path: Path) -> bytes:
    """What it writes of warcio's records."""
    out = BytesIO()
    for record in fastwarc.ArchiveIterator(BytesIO(of_warcio(path)), parse_http=False):
        record.write(out, checksum_data=True)
    return out.getvalue()


def of_wget(path: Path) -> bytes:
    wget = shutil.which("wget")
    if wget is None:
        missing("wget")
    with website.served(Site) as site:
        urls = [f"{site.url}{name}" for name in ("/plain", "/chunked/gzip", "/repeated")]
        command = [wget, "-q", "--tries=1", "--warc-file=crawl", "--no-warc-compression", "-Opage"]
        subprocess.run([*command, *urls], cwd=path, check=True)
    return (path / "crawl.warc").read_bytes()


def changed(chance: random.Random, data: bytes) -> bytes:
    """The data with some changes: of bits, numbers and lines, cut, repeated, or with a long run of one byte."""
    wrong = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at, other = chance.randrange(len(wrong)), chance.randrange(len(wrong))
        size = chance.choice([1, 30, 1_000])
        what = chance.randrange(6)
        if what == 0:
            wrong[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            del wrong[at : at + size]
        elif what == 2:
            wrong[at:at] = wrong[other : other + size]
        elif what == 3 and (one := re.compile(rb"\d+").search(wrong, at)):
            wrong[one.start() : one.end()] = b"%d" % chance.choice(
                [0, 7, 1 << 26, 1 << 40, 1 << 70]
            )
        elif what == 4:
            piece = chance.choice(
                [b"0", b"\0", b"A:\n", b"\r\n", b" ", b"1\r\na\r\n", b"HTTP/1.1 100\n"]
            )
            wrong[at:at] = piece * chance.randrange(1 << 16)
        else:
            del wrong[at:]
        wrong = wrong or bytearray(data)
    return bytes(wrong)


def archives(data: bytes, seed: str) -> Iterator[bytes]:
    """Changed archives, in every form; some are changed as they are, and some after they were compressed."""
    chance = random.Random(seed)
    records = re.split(rb"(?=WARC/1\.\d\r\n)", data)[1:]
    for _ in range(EACH):
        form = chance.choice(FORMS)
        if chance.random() < 0.7:
            yield form.packed([changed(chance, b"".join(records))])
        else:
            yield changed(chance, form.packed(records))


def outcomes(data: bytes, seed: str) -> tuple[Counter[str], int]:
    """What became of the archives and their pages, and the most memory that this process had (bytes)."""
    counts = Counter[str]()
    with TemporaryDirectory() as folder, PageStore(folder) as store:
        for archive in archives(data, seed):
            try:
                done = import_warc(store, BytesIO(archive))
            except ConfigError:  # noqa: PERF203 - each by itself
                counts["refused"] += 1
            else:
                counts["damaged" if done.damaged else "whole"] += 1
                counts["pages"] += done.stored + done.present
        with Path("/dev/null").open("wb") as file:
            assert export_warc(store, file).pages == len(store) > 0
        assert () == store.verify().problems
    # (Not ``ru_maxrss``, which a process inherits from the one that has started it.)
    [most] = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return counts, int(most) << 10


@pytest.mark.check
@pytest.mark.parametrize("writer", [of_tbloom, of_warcio, of_fastwarc, of_wget])
def test_a_changed_archive_is_read_or_refused(
    tmp_path: Path, writer: Callable[[Path], bytes]
) -> None:
    """2,000 of them: nothing else is raised, all end, and the memory stays under 300 MB."""
    data = writer(tmp_path)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        counts, most = pool.apply(outcomes, (data, writer.__name__))
    print(dict(counts), f"{most >> 20} MB")
    assert counts["refused"] + counts["damaged"] + counts["whole"] == EACH
    assert min(counts.values()) > 0
    assert counts["pages"] > EACH / 2
    assert most < 300 << 20
