"""Numbers and sizes as people type them: ``1e8``, ``2GB``."""

from __future__ import annotations

import argparse
import re

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def count(text: str) -> int:
    """A whole number from 1 on: ``1000000``, ``1_000_000`` or ``1e6``."""
    try:
        number = float(text)
        if number.is_integer() and number >= 1:
            return int(number)
    except (OverflowError, ValueError):
        pass
    raise argparse.ArgumentTypeError(
        f"expected a whole number such as 1000000 or 1e6, got {text!r}"
    )


def memory(text: str) -> int:
    """Bytes: ``2GB``, ``512mb``, ``1.5GiB`` or a plain number. A KB is 1024, as in Redis' settings."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?)i?b?", text.strip().lower())
    if match and (size := int(float(match[1]) * _UNITS[match[2]])) > 0:
        return size
    raise argparse.ArgumentTypeError(f"expected a size such as 512MB or 2GB, got {text!r}")
