"""Verify compares each record with its digests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tbloom.pages import PageStore, members, record, segments

URL = "https://example.com/a"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (rb"WARC/1.1", b"WORC/1.1", "it is no WARC record"),
        (rb"Content-Length: \d+", b"Content-Length: +9", "its lengths contradict each other"),
        (rb"Content-Length: \d+", b"Content-Length: 9", "its lengths contradict each other"),
        (rb"\r\n\r\n\Z", b"\r\n\r\n ", "its lengths contradict each other"),
        (rb"Payload-Digest: sha1:..", b"Payload-Digest: sha1:??", "its digest is not sha1:??"),
        (rb"Payload-Digest: sha1:", b"Payload-Digest: ", "its digest is not "),
        (rb"Payload-Digest: sha1:", b"Payload-Digest: md55:", "its digest is not "),
        (rb"WARC-Payload-Digest", b"Digest", "it has no digest"),
        (rb"body", b"BODY", "its digest is not sha1:"),
    ],
)
def test_verify_names_a_record_that_is_not_what_it_was(
    path: Path, old: bytes, new: bytes, why: str
) -> None:
    """Its gzip member is whole, with all fields for the index."""
    with PageStore(path) as store:
        store.put(URL, b"body")
    [segment] = path.glob("*.warc.gz")
    data = segment.read_bytes()
    _, found = segments.records(segment, 0, len(data))
    block = re.sub(old, new, record.block_of(data[found.offset :]))
    segment.write_bytes(data[: found.offset] + members.member("gzip", block))
    PageStore.rebuild(path)
    with PageStore(path, readonly=True) as store:
        [problem] = store.verify().problems
    assert problem.startswith(f"{segment}: the record at {found.offset} is damaged: {why}")
