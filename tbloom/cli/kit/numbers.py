"""Numbers, sizes and times as users type them: ``1e8``, ``2GB``, ``2026-11-16``."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import click

_MAX = 1e30
_POWERS = {"k": "e3", "m": "e6", "g": "e9"}
_PERIODS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def count(text: str) -> int:
    """Return a whole number from 1 on: ``1000000``, ``1,000,000``, ``1e6`` or ``1M``; a k is 1000."""
    if re.fullmatch(r"\d{1,3}(,\d{3})+", text):  # as tbloom prints it
        text = text.replace(",", "")
    digits, power = text[:-1], _POWERS.get(text[-1:].lower())
    with suppress(ValueError):
        if (number := float(digits + power if power else text)).is_integer() and number >= 1:
            return int(number)
    raise click.BadParameter(
        f"expected a whole number from 1 on, such as 1000000, 1e6, 1M or 2G, got {text!r}"
    )


def age(text: str) -> float:
    """Return a time in seconds: ``45s``, ``30min``, ``2h`` or ``30d``."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d+)?) ?([a-z]+)", text.strip().lower())
    if match and match[2] in _PERIODS:
        return float(match[1]) * _PERIODS[match[2]]
    raise click.BadParameter(f"expected a time such as 45s, 30min, 2h or 30d, got {text!r}")


def chance(text: str) -> float:
    """Return a chance: ``1e-4`` or ``0.01%``. The store checks its range."""
    digits = text.removesuffix("%")
    with suppress(ValueError):
        return float(digits) / (1 if digits == text else 100)
    raise click.BadParameter(f"expected a chance such as 1e-4 or 0.01%, got {text!r}")


def capacity(text: str) -> int | str:
    """Return a whole number from 1 on, or ``"auto"``: each slice is made for what the last one held."""
    return "auto" if text.lower() == "auto" else count(text)


def size(text: str) -> int:
    """Return a number of bytes: ``2GB``, ``512mb``, ``1.5GiB`` or a plain number. A KB is 1024, as in Redis' settings."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?)i?b?", text.strip().lower())
    found = min(float(match[1]), _MAX) * _UNITS[match[2]] if match else 0
    if found >= 1:
        return int(found)
    raise click.BadParameter(f"expected a size such as 512MB or 2GB, got {text!r}")


class Time(click.DateTime):
    """A time with its zone: ``2026-11-16T12:00:00Z``; a date alone is its midnight in UTC."""

    def __init__(self) -> None:
        super().__init__(("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S.%f%z"))

    def convert(self, value: Any, param: Any, ctx: Any) -> datetime:
        """Return the time."""
        at = super().convert(value, param, ctx)
        return at if at.tzinfo else at.replace(tzinfo=UTC)


time: Time = Time()
