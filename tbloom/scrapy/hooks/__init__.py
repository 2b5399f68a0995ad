"""Undocumented parts of Scrapy that tbloom needs, by what they hook, a function for each, with what happens without it.

They are tested with the oldest and the newest Scrapy. ``untested_versions`` names installed versions that the tests do not know.
"""

from __future__ import annotations

import re

import redis
import scrapy

from tbloom.version import NEWEST_TESTED


def untested_versions() -> list[str]:
    """Return a line for each of Scrapy and redis-py that is newer than tbloom's tests know."""
    lines = []
    for name, library in {"Scrapy": scrapy, "redis-py": redis}.items():
        newest, version = NEWEST_TESTED[library.__name__], library.__version__
        if (*map(int, re.findall(r"\d+", version)[:2]),) > newest:  # of 2.20rc1: 2 and 20
            seen = f"{newest[0]}.{newest[1]}, the newest that tbloom's tests have seen"
            lines.append(f"{name} {version} is newer than {seen}")
    return lines
