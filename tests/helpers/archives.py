"""WARC files as other tools write them: their records, in each form that a file may have."""

from __future__ import annotations

import gzip
import hashlib
import os
import random
import re
import threading
import zipfile
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import cycle
from typing import BinaryIO

import pytest

from tbloom.pages import PagesImported, PageStore, export_warc, import_warc
from tbloom.pages.members import zstd
from tests.helpers.pagestores import url

PROFILE = "http://netpreserve.org/warc/1.0/revisit/identical-payload-digest"
_KNOWN = {"WARC-Record-ID": "<urn:uuid:1>", "WARC-Date": "2019-06-03T04:05:06Z"}


def record(kind: str, target: str, block: bytes, **fields: str) -> bytes:
    """A record with these further fields, whose names have _ for -; empty ones are left out."""
    given = {"WARC-Type": kind, "WARC-Target-URI": target, "Content-Length": f"{len(block)}"}
    given |= _KNOWN | {name.replace("_", "-"): value for name, value in fields.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value)
    return f"WARC/1.0\r\n{head}\r\n".encode() + block + b"\r\n\r\n"


def head(*headers: str, status: str = "200 OK") -> bytes:
    """The HTTP headers of a response."""
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode()


HEAD = head("A: 1")


def response(target: str, body: bytes, head: bytes = HEAD, **fields: str) -> bytes:
    """A response record."""
    return record("response", target, head + body, **fields)


def chunked(body: bytes, digested: bytes | None = None) -> bytes:
    """A response whose header says that its body is chunked, with the digest of something."""
    fields = {} if digested is None else {"WARC_Payload_Digest": digest(digested)}
    return response(url("a"), body, head("Transfer-Encoding: Chunked"), **fields)


def revisit(target: str, to: str, body: bytes, **fields: str) -> bytes:
    """The record of a revisit with this body, which another URL has."""
    given = {"WARC_Payload_Digest": digest(body), "WARC_Profile": PROFILE, **fields}
    again = head("B: 2", status="203 X")
    return record("revisit", target, again, WARC_Refers_To_Target_URI=to, **given)


#: The time of day 0.
START = datetime(2019, 5, 31, 4, 5, 6, tzinfo=UTC)


def at(day: int) -> dict[str, str]:
    """The field with the time of a record."""
    return {"WARC_Date": f"{START + timedelta(day):%FT%TZ}"}


def refers(day: int) -> dict[str, str]:
    """The field with the time of the record that a revisit refers to."""
    return {"WARC_Refers_To_Date": at(day)["WARC_Date"]}


def digest(data: bytes) -> str:
    return f"sha1:{hashlib.sha1(data, usedforsecurity=False).hexdigest()}"


PAGES = [response(url(n), random.Random(n).randbytes(700)) for n in range(6)]


def in_zip(files: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A ZIP file of these files."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


#: Gzip members without content: of gzip, of block gzip, with a name, of a stored block, and of a flush.
EMPTY = [
    gzip.compress(b""),
    bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000"),
    bytes.fromhex("1f8b08080000000000036100 0300 00000000 00000000"),
    bytes.fromhex("1f8b0800000000000003 010000ffff 00000000 00000000"),
    bytes.fromhex("1f8b0800000000000003 000000ffff0300 00000000 00000000"),
]
#: A frame that the program pzstd writes, which is to be skipped.
SKIPPED = bytes.fromhex("502a4d18 03000000 616263")


def _in_pieces(records: Iterable[bytes]) -> bytes:
    """Members of any length, as bgzip makes them, with empty ones between."""
    whole, empty = b"".join(records), b"".join(EMPTY)
    pieces = [whole[at : at + 1_000] for at in range(0, len(whole), 1_000)]
    return empty * 200 + b"".join(gzip.compress(piece) + empty for piece in pieces)


def _in_other_letters(records: Iterable[bytes]) -> bytes:
    """Small or large ones in the names of the fields."""
    changes = cycle([bytes.lower, bytes.upper, bytes.title, bytes])

    def changed(one: bytes, change: Callable[[bytes], bytes]) -> bytes:
        head, blank, block = one.partition(b"\r\n\r\n")
        names = re.compile(rb"(?m)^[\w-]+(?=:)")
        return names.sub(lambda name: change(name[0]), head) + blank + block

    return b"".join(map(changed, records, changes))


Form = Callable[[Iterable[bytes]], bytes]
#: Makes a file of its records.
FORMS: dict[str, Form] = {
    "plain": b"".join,
    "members": lambda records: b"".join(map(gzip.compress, records)),
    "one gzip": lambda records: gzip.compress(b"".join(records)),
    "zstd": lambda records: b"".join(map(zstd.compress, records)),
    "pieces": _in_pieces,
    "WACZ": lambda records: in_zip({"archive/data.warc.gz": MEMBERS(records)}),
    "pzstd": lambda records: b"".join(zstd.compress(one) + SKIPPED for one in [b"", *records]),
    "other letters": _in_other_letters,
    # Zeros are padding, between records and behind the last one.
    "zeros": lambda records: b"".join(one + b"\0" for one in records) + bytes(1 << 20),
    "zeros behind gzip": lambda records: MEMBERS(records) + bytes(9),
    "zeros in WACZ": lambda records: in_zip({"a.warc.gz": MEMBERS(records) + bytes(1)}),
}
PLAIN, MEMBERS, ONE_GZIP, ZSTD, *_ = FORMS.values()


def in_forms(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("form", [pytest.param(FORMS[name], id=name) for name in names])


def taken(store: PageStore, *records: bytes, form: Form = MEMBERS) -> PagesImported:
    """The result of importing a file of these records."""
    return import_warc(store, BytesIO(form(records)))


def exported(store: PageStore) -> bytes:
    out = BytesIO()
    export_warc(store, out)
    return out.getvalue()


def piped(data: bytes) -> BinaryIO:
    """A pipe with these bytes, which has no path."""
    reader, writer = os.pipe()

    def write() -> None:
        with open(writer, "wb") as file:  # noqa: PTH123
            file.write(data)

    threading.Thread(target=write, daemon=True).start()
    return open(reader, "rb")  # noqa: PTH123
