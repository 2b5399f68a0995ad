"""WARC files as other tools write them, and ways to damage them."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

INFO = "<urn:uuid:11111111-2222-3333-4444-555555555555>"
DATE = "2019-06-03T04:05:06Z"
HEAD = b"HTTP/1.1 200 OK\r\nA: 1\r\n\r\n"


def record(kind: str, target: str, block: bytes, length: int | None = None, **fields: str) -> bytes:
    """A record with these further fields, whose names have _ for -."""
    known = {
        "WARC-Type": kind,
        "WARC-Record-ID": INFO,
        "WARC-Target-URI": target,
        "WARC-Date": DATE,
        "Content-Length": f"{len(block) if length is None else length}",
        **{name.replace("_", "-"): value for name, value in fields.items()},
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in known.items() if value)
    return f"WARC/1.0\r\n{head}\r\n".encode() + block + b"\r\n\r\n"


def response(target: str, body: bytes, head: bytes = HEAD, **fields: str) -> bytes:
    """A response record."""
    return record("response", target, head + body, **fields)


class Form(NamedTuple):
    """A form of WARC files."""

    name: str
    #: Makes a file of its records.
    packed: Callable[[Iterable[bytes]], bytes]

    def __str__(self) -> str:
        return self.name


def _in_pieces(records: Iterable[bytes]) -> bytes:
    """Members of any length, as bgzip makes them."""
    whole = b"".join(records)
    return b"".join(
        gzip.compress(whole[at : at + 1_000]) for at in range(0, len(whole), 1_000)
    ) + gzip.compress(b"")


PLAIN = Form("plain", b"".join)
MEMBERS = Form("members", lambda records: b"".join(gzip.compress(one) for one in records))
ONE_GZIP = Form("one gzip", lambda records: gzip.compress(b"".join(records)))
ZSTD = Form("zstd", lambda records: b"".join(zstd.compress(one) for one in records))
FORMS = [PLAIN, MEMBERS, ONE_GZIP, ZSTD, Form("pieces", _in_pieces)]
