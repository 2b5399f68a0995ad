"""What the tests of page stores share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbloom.pages import calendar
from tests.helpers.pagestores import Clock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """It is noon until the test says otherwise."""
    clock = Clock()
    monkeypatch.setattr(calendar, "now", clock)
    return clock
