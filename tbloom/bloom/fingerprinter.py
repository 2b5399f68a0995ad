"""What has made the fingerprints in a filter, where a crawler has filled it: the path of a class.

Under another fingerprinter all that such a filter has seen is new. No script compares this key.
"""

from __future__ import annotations

import re

from tbloom.engine.flow import Call, Flow, deliver, text

#: The path of a class, as in ``module.outer.<locals>.Fingerprinter``.
_PATH = re.compile(r"[\w.<>]{1,200}")


def note(key: str, ours: str, ttl_ms: int | None, *, is_new: bool = False) -> Flow[str]:
    """The fingerprinter that has filled the filter; notes ours, unless there is another one.

    :param ttl_ms: How long what is added now is remembered; None: for ever.
    :param is_new: The filter is empty.
    """
    [known] = [None] if is_new else (yield from deliver([Call(("GET", key))]))
    if known is not None and checked(known) not in ("", ours):
        return checked(known)
    yield from deliver([Call(("SET", key, ours, *(() if ttl_ms is None else ("PX", ttl_ms))))])
    return ours


def checked(known: str | bytes | None) -> str:
    """The path of a class, or nothing: the log shows no other program's text."""
    path = text(known or "")
    return path if _PATH.fullmatch(path) else ""
