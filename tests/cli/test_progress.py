"""Progress of a command."""

from __future__ import annotations

import time

import pytest

from tbloom.cli.kit.progress import Reporter


@pytest.mark.parametrize("seconds", [0.2, 1.2])
def test_a_wait_ends_at_its_time_and_not_before(seconds: float) -> None:
    """Also one of less than half a second: the demo's first run begins with a slice."""
    end = time.monotonic() + seconds
    Reporter(stderr=True).wait("Waiting", lambda: end - time.monotonic())
    assert time.monotonic() >= end
