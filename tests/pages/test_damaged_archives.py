"""Damaged WARC files: what can be read is read, the rest is named, and a file that is none holds up no others."""

from __future__ import annotations

import errno
import gzip
import os
import random
import re
import struct
import zipfile
from collections import Counter
from collections.abc import Callable
from io import BytesIO, FileIO
from pathlib import Path

import pytest

from tbloom.pages import PageStore, export_warc, import_warc
from tests.helpers.archives import (
    FORMS,
    MEMBERS,
    PAGES,
    PLAIN,
    ZSTD,
    Form,
    digest,
    exported,
    in_forms,
    in_zip,
    piped,
    response,
    taken,
)
from tests.helpers.making import Child
from tests.helpers.pagestores import bodies, url
from tests.pages.test_import import by_wget


@in_forms("plain", "members", "zstd")
@pytest.mark.parametrize(
    "damage",
    [b"garbage", b"\1" * 100_000, b"\0" * 9 + b"x", 1, 40, 500, *("1", "99", "9999", "99999999", "x", "-1", "9" * 5_000)],
    ids=lambda damage: str(damage)[:9],
)  # fmt: skip
def test_a_file_is_read_on_behind_damage(
    store: PageStore, form: Form, damage: bytes | int | str
) -> None:
    """Curator#2373: its place is named, where a record is cut, has another length, or something else stands between two. The next
    file is read."""
    parts = [form([page]) for page in PAGES]
    if isinstance(damage, str):
        length = re.compile(rb"(?<=Content-Length: )\d+")
        wrong = form([length.sub(damage.encode(), PAGES[3], count=1)])
    else:
        wrong = parts[3][:damage] if isinstance(damage, int) else damage + parts[3]
    done = import_warc(store, BytesIO(b"".join([*parts[:3], wrong, parts[4]])), BytesIO(parts[5]))
    read = {url(n) for n in (0, 1, 4, 5) + (3,) * isinstance(damage, bytes)}
    # In a plain file, the record before foreign bytes may be one with a wrong length.
    assert read <= set(store) <= read | {url(2)}
    assert form is PLAIN or url(2) in store
    *_, where = done.damaged
    ends = [sum(map(len, parts[:n])) for n in range(5)]
    assert re.fullmatch(rf"the file: (behind the record )?at ({ends[2]}|{ends[3]}): .*; read on at \d+", where)  # fmt: skip
    assert {"damaged": 1} == done.skipped


def test_a_page_with_a_right_digest_is_whole(store: PageStore) -> None:
    """Also before foreign bytes in a plain file, where nothing else tells; a record in its body is none of the file's."""
    inner = response(url("inner"), b"forged")
    pages = [response(url(n), inner, WARC_Payload_Digest=digest(inner)) for n in range(2)]
    done = taken(store, pages[0], b"garbage", pages[1], b"other bytes", form=PLAIN)
    assert {url(0): inner, url(1): inner} == bodies(store)
    assert (2, {"damaged": 2}) == (len(done.damaged), done.skipped)


@in_forms("plain", "members", "zstd")
def test_a_length_that_is_one_too_large_costs_nothing(store: PageStore, form: Form) -> None:
    """jwarc#29: some versions of wget count a byte of the line end behind the record."""
    wrong = [one.replace(b"Content-Length: 725", b"Content-Length: 726", 1) for one in PAGES]
    done = taken(store, *wrong, form=form)
    assert (6, {}) == (done.stored, done.skipped)
    assert all(body.endswith(b"\r") for body in bodies(store).values())


#: What is no WARC file, or makes none, and what an import says of it.
OTHERS: list[tuple[bytes | Callable[[Path], object], str]] = [
    (b"", "it has no WARC record"),
    (gzip.compress(b""), "it has no WARC record"),
    (b"WARC", "nothing of it can be read"),
    (random.Random(5).randbytes(100_000), "nothing of it can be read"),
    (b" <!DOCTYPE html>\n", "nothing of it can be read"),
    (PAGES[0][:300], "nothing of it can be read"),
    (FORMS["WACZ"](PAGES)[:-30], "damaged or cut .*: repair it with zip -FF"),
    (in_zip({"datapackage.json": b"{}"}), "a ZIP file without WARC files"),
    (in_zip({"a.warc": b""}), "a.warc: it has no WARC record"),
    (in_zip({"a.warc": PAGES[0]}, zipfile.ZIP_DEFLATED), "a.warc: it is compressed or encrypted: extract it"),
    (Path.exists, "No such file or directory"),
    (Path.mkdir, "it is a folder: give its WARC files; export a page store"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "why"), OTHERS, ids=[why for _, why in OTHERS])
def test_what_is_no_warc_file_holds_up_no_others(
    store: PageStore, tmp_path: Path, given: bytes | Callable[[Path], object], why: str
) -> None:
    """It is named; the files before and behind it are imported."""
    for name, content in ("1", MEMBERS(PAGES[:3])), ("bad", given), ("2", MEMBERS(PAGES[3:])):
        content(tmp_path / name) if callable(content) else (tmp_path / name).write_bytes(content)
    done = import_warc(store, *(tmp_path / name for name in ("1", "bad", "2")))
    assert {url(n) for n in range(6)} == set(store)
    assert {"unreadable file": 1} == done.skipped
    [where] = done.damaged
    assert re.fullmatch(rf"{tmp_path / 'bad'}: .*{why}.*", where)


class Unreadable(FileIO):
    """A file on a disk that fails after its first bytes."""

    def read(self, _: int | None = -1) -> bytes:
        if self.tell() >= 1 << 13:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(1 << 13)


def test_a_disk_that_fails_holds_up_no_others(store: PageStore, tmp_path: Path) -> None:
    bad = tmp_path / "bad.warc"
    bad.write_bytes(PLAIN([*PAGES, response(url("long"), bytes(100_000))]))
    done = import_warc(store, Unreadable(bad), BytesIO(PLAIN(PAGES)))
    assert (6, 6, {"unreadable file": 1}) == (done.stored, done.present, done.skipped)
    assert (f"{bad}: Input/output error",) == done.damaged


def test_a_pipe_is_read_like_a_file(store: PageStore, tmp_path: Path) -> None:
    """Also behind damage, and one with a path."""
    with piped(MEMBERS(PAGES[:3]) + b"garbage" + MEMBERS(PAGES[3:])) as file:
        done = import_warc(store, file)
    assert (6, {"damaged": 1}) == (done.stored, done.skipped)
    os.mkfifo(tmp_path / "pipe")
    with Child(lambda: (tmp_path / "pipe").write_bytes(MEMBERS(PAGES))):
        assert 6 == import_warc(store, tmp_path / "pipe").present


@pytest.mark.parametrize("is_cut", [False, True])
def test_the_archives_in_a_zip_file_are_imported(
    store: PageStore, tmp_path: Path, *, is_cut: bool
) -> None:
    """A WACZ file, or another one that does not compress them. One that is not where the file says is named."""
    files = {
        "datapackage.json": b"{}",
        "my crawl/archive/1.warc.gz": MEMBERS(PAGES[:2]),
        "2.warc": PLAIN(PAGES[2:4]),
        "archive/3.warc.zst": ZSTD(PAGES[4:]),
        "pages/pages.jsonl": b'{"format": "json-pages-1.0"}',
    }
    data = in_zip(files)
    if is_cut:
        at = data.index(b"2.warc") - 30
        data = data[:at] + bytes(4) + data[at + 4 :]
    (tmp_path / "crawl.wacz").write_bytes(data)
    done = import_warc(store, tmp_path / "crawl.wacz")
    assert {url(n) for n in (0, 1, 4, 5) + (2, 3) * (not is_cut)} == set(store)
    why = f"{tmp_path / 'crawl.wacz'}: 2.warc: it is not where the ZIP file says: repair it with zip -FF FILE --out NEW first"
    assert [why] * is_cut == [*done.damaged]


def test_no_archive_in_a_zip_file_is_passed_over(store: PageStore) -> None:
    """Whatever follows in its name: crawlers that were killed leave ``.open``, and a second download ``.1``. What the directory of
    two files in one (by ``cat``) leaves out is named, and so is a file of files."""
    files = {f"archive/{n}.warc.gz{end}": MEMBERS([PAGES[n]]) for n, end in enumerate(["", ".open", ".1", ".part"])}  # fmt: skip
    first = in_zip({"a.warc.gz": MEMBERS(PAGES)})
    last = in_zip({**files, "pages.jsonl": b"", "warc.txt": b"", "b.wacz": first})
    done = import_warc(store, BytesIO(first + last))
    assert (4, {"unreadable file": 2}) == (done.stored, done.skipped)
    left_out, of_files = done.damaged
    assert f"its directory leaves out what stands before offset {len(first)}: " in left_out
    assert "b.wacz: it is a file of files: extract it first" in of_files


def test_files_that_overlap_in_a_zip_file_are_read_once(store: PageStore) -> None:
    """As in a ZIP bomb: each of its names means the same bytes."""
    files = bytearray(in_zip({"1.warc": PLAIN(PAGES), "2.warc": b""}))
    directory = files.index(b"PK\x01\x02")
    entry = files[directory : files.index(b"PK\x01\x02", directory + 1)]
    end = files[files.index(b"PK\x05\x06") :]
    end[8:12] = struct.pack("<HH", 1_000, 1_000)
    end[12:16] = struct.pack("<L", 1_000 * len(entry))
    done = import_warc(store, BytesIO(files[:directory] + entry * 1_000 + end))
    assert (6, 0) == (done.stored, done.present)


def of_tbloom(path: Path) -> bytes:
    """What an export has written."""
    bodies = [b"", b"<html>page</html>\r\n\r\n" * 30, random.Random(1).randbytes(3_000)]
    with PageStore(path / "tbloom") as store:
        for n, body in enumerate(bodies):
            store.put(url(n), body, headers={"Content-Type": "text/html"}, key=b"key"[n:] or None)
        return gzip.decompress(exported(store))


def of_wget(path: Path) -> bytes:
    names = ("/plain", "/chunked/gzip", "/repeated")
    return by_wget(path, names, "--no-warc-compression")[1].read_bytes()


def changed(chance: random.Random, data: bytes) -> bytes:
    """The data with some changes: a bit, a number, a piece that is left out or comes twice, a long run of one, or a cut."""
    for _ in range(chance.randint(1, 4)):
        at, other, size = chance.randrange(len(data)), chance.randrange(len(data)), chance.choice([1, 30, 1_000])  # fmt: skip
        run = chance.choice([b"0", b"\0", b"A:\n", b"\r\n", b"1\r\na\r\n", b"HTTP/1.1 100\n"])
        number = b"%d" % chance.choice([0, 7, 1 << 26, 1 << 40, 1 << 70])
        before, behind = data[:at], data[at:]
        data = chance.choice(
            [
                before + bytes([data[at] ^ 1 << size % 8]) + behind[1:],
                before + re.sub(rb"\d+", number, behind, count=1),
                before + behind[size:],
                before + data[other : other + size] + behind,
                before + run * chance.randrange(1 << 16) + behind,
                before or data,
            ]
        )
    return data


@pytest.mark.parametrize(
    "count", [pytest.param(500, marks=pytest.mark.check), pytest.param(25, id="few")]
)
@pytest.mark.parametrize("writer", [of_tbloom, of_wget])
def test_a_changed_archive_is_read_or_refused(
    tmp_path: Path, store: PageStore, writer: Callable[[Path], bytes], count: int
) -> None:
    """In every form, changed before or after it was compressed, or cut (warcio#138): nothing else is raised, and all end."""
    data, chance, fates = writer(tmp_path), random.Random(writer.__name__), Counter[str]()
    records = re.split(rb"(?=WARC/1\.\d\r\n)", data)[1:]
    for _ in range(count):
        form, is_inside = chance.choice([*FORMS.values()]), chance.random() < 0.7
        file = form([changed(chance, data)]) if is_inside else changed(chance, form(records))
        done = import_warc(store, BytesIO(file))
        fates["damaged"] += bool(done.damaged)
        fates["pages"] += done.stored + done.present
    assert min(fates["damaged"], fates["pages"]) > 0
    with Path("/dev/null").open("wb") as null:
        assert export_warc(store, null).pages == len(store) > 0
    assert () == store.verify().problems
