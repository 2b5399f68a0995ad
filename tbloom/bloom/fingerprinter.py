"""The key that says whose fingerprints a filter has: the class that made them, and hashes of those of some sample requests.

With other fingerprints, every item of the filter would be new. Only crawlers store the key, and no script reads it.
"""

from __future__ import annotations

import re

from tbloom.engine.flow import Call, Flow, request, text

#: The path of a class, as in ``module.outer.<locals>.Fingerprinter``, and hashes.
_TEXT = re.compile(r"[\w.<>]{1,200}(?: [0-9a-f]{16})*")


def note(key: str, ours: str, ttl_ms: int | None, *, is_new: bool = False) -> Flow[str]:
    """Return what is stored of the filter's fingerprints. Unless they are others than ours, store ours.

    :param ttl_ms: How long (ms) items that are added now are remembered; None: forever.
    :param is_new: True if the filter is empty.
    """
    [stored] = [None] if is_new else (yield from request([Call(("GET", key))]))
    if differing(known := checked(stored), ours):
        return known
    yield from request([Call(("SET", key, ours, *(() if ttl_ms is None else ("PX", str(ttl_ms)))))])
    return ours


def differing(known: str, ours: str) -> list[int]:
    """Return the numbers of the sample requests that have other fingerprints; the same class may make others."""
    pairs = zip(known.split(" ")[1:], ours.split(" ")[1:], strict=False)
    return [number for number, (theirs, own) in enumerate(pairs) if theirs != own]


def maker_of(known: str | bytes | None) -> str:
    """Return the path of the class; "" if none is known."""
    return checked(known).partition(" ")[0]


def checked(known: str | bytes | None) -> str:
    """Return the text if it is a class with hashes, otherwise "". So the log shows no text of another program."""
    found = text(known or "")
    return found if _TEXT.fullmatch(found) else ""
