"""WARC files as other tools write them: their records, in each form that a file may have."""

from __future__ import annotations

import gzip
import hashlib
import os
import random
import threading
import zipfile
from collections.abc import Callable, Iterable
from io import BytesIO
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


def in_chunks(body: bytes) -> bytes:
    """The body in chunks, without the last one."""
    pieces = [body[at : at + 99] for at in range(0, len(body), 99)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


def revisit(target: str, to: str, body: bytes, **fields: str) -> bytes:
    """The record of a revisit with this body, which another URL has."""
    given = {"WARC_Payload_Digest": digest(body), "WARC_Profile": PROFILE, **fields}
    again = head("B: 2", status="203 X")
    return record("revisit", target, again, WARC_Refers_To_Target_URI=to, **given)


def at(day: int) -> dict[str, str]:
    """The field with the time of a record."""
    return {"WARC_Date": f"2019-06-{day:02}T04:05:06Z"}


def refers(day: int) -> dict[str, str]:
    """The field with the time of the record that a revisit refers to."""
    return {"WARC_Refers_To_Date": at(day)["WARC_Date"]}


def digest(data: bytes) -> str:
    return f"sha1:{hashlib.sha1(data, usedforsecurity=False).hexdigest()}"


def random_body(number: int) -> bytes:
    """The body of one of PAGES."""
    return random.Random(number).randbytes(700)


PAGES = [response(url(number), random_body(number)) for number in range(6)]


def in_zip(files: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A ZIP file of these files."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def _in_pieces(records: Iterable[bytes]) -> bytes:
    """Members of any length, as bgzip makes them."""
    whole = b"".join(records)
    pieces = [whole[at : at + 1_000] for at in range(0, len(whole), 1_000)]
    return b"".join(map(gzip.compress, [*pieces, b""]))


Form = Callable[[Iterable[bytes]], bytes]
#: Makes a file of its records.
FORMS: dict[str, Form] = {
    "plain": b"".join,
    "members": lambda records: b"".join(map(gzip.compress, records)),
    "one gzip": lambda records: gzip.compress(b"".join(records)),
    "zstd": lambda records: b"".join(map(zstd.compress, records)),
    "pieces": _in_pieces,
    "WACZ": lambda records: in_zip({"archive/data.warc.gz": MEMBERS(records)}),
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
