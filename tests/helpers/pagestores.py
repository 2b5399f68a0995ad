"""Page stores in tests: their pages and files, children that end or are killed, and other disks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tbloom.arguments import Item
from tbloom.pages import Page, PageStore
from tests.helpers.making import missing

CODECS = ("gzip", "zstd")
NOON = datetime(2019, 6, 10, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def url(name: object) -> str:
    return f"https://example.com/{name}"


def got(store: PageStore, address: Item) -> Page:
    """The page with this address, which exists."""
    page = store.get(address)
    assert page is not None
    return page


def body_of(store: PageStore, address: Item) -> bytes | None:
    """The body of a page; None where there is none."""
    page = store.get(address)
    return None if page is None else page.body


def bodies(store: PageStore) -> dict[str, bytes]:
    """The body of each page, as the listing and ``get`` find it; all numbers of pages agree."""
    found = {page.url: page.body for page in store.pages()}
    assert found == {address: body_of(store, address) for address in found}
    assert len(found) == len(store) == store.stats().pages
    return found


def files(path: Path) -> list[Path]:
    """The WARC files of a store."""
    return sorted(path.glob("*.warc.*"))


def flip(path: Path, offset: int) -> None:
    """Changes a bit of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def run_tool(tool: str, *arguments: object) -> str:
    """The output of a WARC tool, which must end without an error."""
    program = Path(sysconfig.get_path("scripts")) / tool
    done = subprocess.run([sys.executable, program, *arguments], capture_output=True, check=False)
    assert (0, "") == (done.returncode, done.stderr.decode())
    return done.stdout.decode()


def die(*_: object, **__: object) -> None:
    """Kills this process."""
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def mounted(folder: Path, *how: object) -> Iterator[Path]:
    """What these arguments of ``mount`` put into a new folder."""
    folder.mkdir()
    mount = ["mount", *how, folder]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        missing("The right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
