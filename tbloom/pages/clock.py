"""The clock of this machine."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """Return the current time in UTC. Tests replace this function."""
    return datetime.now(UTC)
