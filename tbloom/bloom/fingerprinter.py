"""The key with the path of the class that made a filter's fingerprints, if a crawler has filled the filter.

With another fingerprinter, everything that such a filter has seen is new. No script compares this key.
"""

from __future__ import annotations

import re

from tbloom.engine.flow import Call, Flow, request, text

#: The path of a class, as in ``module.outer.<locals>.Fingerprinter``.
_PATH = re.compile(r"[\w.<>]{1,200}")


def note(key: str, ours: str, ttl_ms: int | None, *, is_new: bool = False) -> Flow[str]:
    """Return the fingerprinter that has filled the filter. Store ours, unless there is another one.

    :param ttl_ms: How long items that are added now are remembered; None: forever.
    :param is_new: True if the filter is empty.
    """
    [known] = [None] if is_new else (yield from request([Call(("GET", key))]))
    if known is not None and checked(known) not in ("", ours):
        return checked(known)
    yield from request([Call(("SET", key, ours, *(() if ttl_ms is None else ("PX", ttl_ms))))])
    return ours


def checked(known: str | bytes | None) -> str:
    """Return the text if it is the path of a class, else "", so that the log shows no other program's text."""
    path = text(known or "")
    return path if _PATH.fullmatch(path) else ""
