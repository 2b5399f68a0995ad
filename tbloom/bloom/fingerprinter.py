"""The key with the path of the class that made a filter's fingerprints. Only crawlers store it.

With another fingerprinter, every item of the filter would be new. No script reads this key.
"""

from __future__ import annotations

import re

from tbloom.engine.flow import Call, Flow, request, text

#: The path of a class, as in ``module.outer.<locals>.Fingerprinter``.
_PATH = re.compile(r"[\w.<>]{1,200}")


def note(key: str, ours: str, ttl_ms: int | None, *, is_new: bool = False) -> Flow[str]:
    """Return the path of the filter's fingerprinter. If no other one is stored, store ours.

    :param ttl_ms: How long (ms) items that are added now are remembered; None: forever.
    :param is_new: True if the filter is empty.
    """
    [known] = [None] if is_new else (yield from request([Call(("GET", key))]))
    if known is not None and checked(known) not in ("", ours):
        return checked(known)
    yield from request([Call(("SET", key, ours, *(() if ttl_ms is None else ("PX", str(ttl_ms)))))])
    return ours


def checked(known: str | bytes | None) -> str:
    """Return the text if it is the path of a class, otherwise "". So the log shows no text of another program."""
    path = text(known or "")
    return path if _PATH.fullmatch(path) else ""
