"""What the log and the stats say of a crawl's filter: its size, its warnings, and whose fingerprints have filled it."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Any

from redis import RedisError
from scrapy import Request
from scrapy.http.request import NO_CALLBACK

from tbloom import FilterInfo
from tbloom.bloom.fingerprinter import differing, maker_of
from tbloom.engine.server import unsaved
from tbloom.errors import TBloomError
from tbloom.scrapy.stores import AnyStore


def summarize(seen: AnyStore, fingerprints: str) -> tuple[str, str, list[str]]:
    """Return a line about the filter as it is now; one about what a restart of its server would forget ("": nothing); and warnings.

    Some servers don't let us ask for its size. ``fingerprints``: what ``described`` returns.
    """
    warnings, held, is_new, note = list[str](), "", False, ""
    with suppress(RedisError, TBloomError):
        info = seen.info()
        is_new = not info.items
        held = f", {info.items:,} items"
        if isinstance(info, FilterInfo):
            held += f" ({info.slices[-1].items:,} in the newest)"
        if info.bytes is not None:
            held += f", {info.bytes / 2**20:,.2f} MB"
        held += ", new" if is_new else ", existing"
        warnings += info.warnings
        note = "" if info.unsaved_since is None else unsaved(info.unsaved_since)
    if fingerprints:
        with suppress(RedisError, TBloomError):
            warnings += _other_fingerprints(seen, fingerprints, is_new=is_new)
    return f"filter {seen.name!r}: {seen.kind}{held}, at {seen.place}", note, warnings


def described(fingerprinter: Any) -> str:
    """Return the path of the fingerprinter's class, and hashes of its fingerprints of the sample requests; "" if it can't read these."""
    kind, hashes = type(fingerprinter), list[str]()
    try:
        for sample in _samples():
            made = fingerprinter.fingerprint(sample)
            hashes.append(hashlib.blake2b(made, digest_size=8).hexdigest())
    except Exception:  # noqa: BLE001 - the project's own, which may know its own requests only
        return ""
    return " ".join([f"{kind.__module__}.{kind.__qualname__}", *hashes])


def _samples() -> list[Request]:
    """Return requests of which another fingerprinter, or another setting, changes some or all. Without a callback, they go to ``parse``."""
    return [
        Request("https://example.com/", callback=NO_CALLBACK),
        Request("https://example.com/"),
        Request("https://example.com/?b=2&a=1&utm_source=c#d"),
        Request("https://example.com/", method="POST", body="a=1"),
    ]


def _other_fingerprints(seen: AnyStore, ours: str, *, is_new: bool) -> list[str]:
    """Return a warning if other fingerprints have filled the filter; else store ours."""
    known = seen.fingerprinter(ours, is_new=is_new)
    samples, others = _samples(), differing(known, ours)
    if not others:
        return []
    kind, theirs = maker_of(ours), maker_of(known)
    by = "by the same class" if kind == theirs else f"by {theirs}"
    what = "every page is new"
    if len(others) < len(samples):
        sample = samples[others[0]]
        what = f"requests such as {sample}{'' if sample.callback else ' to parse'} are new"
    text = (
        f"REQUEST_FINGERPRINTER_CLASS is {kind}, but the filter was filled with other fingerprints, {by}: "
        f"to this crawl, {what}. Undo what has changed (that class, an add-on, a setting), or set another TBLOOM_KEY"
    )
    return [text]
