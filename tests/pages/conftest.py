"""What the tests of page stores share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from tbloom.pages import PageStore
from tests.helpers.pagestores import NOON

#: A folder in memory (Linux).
MEMORY = Path("/dev/shm")  # noqa: S108 - the folders in it have names of their own


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is room: on a disk these tests take twice to three times as long, for their syncs."""
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < 1 << 30:
        yield tmp_path
        return
    with TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(path: Path) -> Iterator[PageStore]:
    with PageStore(path) as store:
        yield store


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """It is noon until the test says otherwise."""
    clock = SimpleNamespace(now=NOON)
    monkeypatch.setattr("tbloom.pages.clock.now", lambda: clock.now)
    return clock
