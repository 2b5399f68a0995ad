"""Page stores in tests: their pages and files, children that end or are killed, and disks of some megabytes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

from typing_extensions import Self

from tbloom.items import Item
from tbloom.pages import Page, PageStore
from tests.helpers.making import missing

CODECS = ("gzip", "identity", "zstd")
NOON = datetime(2019, 6, 10, 12, tzinfo=timezone.utc)
DAY = timedelta(days=1)


class Clock:
    """The machine's clock, as the store sees it."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


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


class Child:
    """A forked child that does some work. It is waited for, or killed at the end of the block."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.pid = os.fork()
        if not self.pid:
            code = 1
            try:
                work()
                code = 0
            except BaseException as error:  # noqa: BLE001 - printed, and the child ends
                os.write(2, repr(error).encode() + b"\n")
            finally:
                os._exit(code)
        self._lives = True

    def wait(self) -> int:
        """Its exit code; below 0, the signal that ended it."""
        try:
            _, status = os.waitpid(self.pid, 0)
        except BaseException:  # the test's time is up
            self.__exit__()
            raise
        self._lives = False
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert -signal.SIGKILL == self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lives:
            self._lives = False
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def die(*_: object, **__: object) -> None:
    """Kills this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def assert_killed(work: Callable[[], object]) -> None:
    """Does the work in a child, which must be killed by it."""
    assert -signal.SIGKILL == Child(work).wait()


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of this size."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        missing("The right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
