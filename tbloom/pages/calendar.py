"""The clock of this machine."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """The time. (Tests replace it.)"""
    return datetime.now(UTC)
