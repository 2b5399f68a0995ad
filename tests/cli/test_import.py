"""``tbloom import``: from every source, into every slice; and crawls that change over to tbloom."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tests.helpers.commands import refused, tbloom

SMALL = ["--create", "--capacity", "1000"]


def fingerprint(number: int) -> bytes:
    return sha1(b"page %d" % number, usedforsecurity=False).digest()


@pytest.fixture
def stored_set(client: redis.Redis, name: str) -> Iterator[str]:
    """The key of a set of 3000 fingerprints, as scrapy-redis keeps them."""
    key = f"{name}:dupefilter"
    client.sadd(key, *(fingerprint(i).hex() for i in range(3000)))
    yield key
    client.delete(key)


def labels(seen: TimeBloom) -> list[str]:
    """The labels of the live slices, oldest first."""
    return [slice.label for slice in seen.info().slices]


def held(seen: TimeBloom) -> dict[str, int]:
    """The number of items of each slice that has some."""
    return {slice.label: slice.items for slice in seen.info().slices if slice.items}


# Crawls that change over.


@pytest.mark.parametrize("source", ["scrapy-redis", "JOBDIR"])
def test_a_crawl_moves_over(
    crawl: Any, url: str, name: str, client: redis.Redis, tmp_path: Path, *, source: str
) -> None:
    """A crawl of 40 pages is interrupted, changed over by one import, and continued: each page is fetched once.

    Of scrapy-redis, the requests in the old crawl's queue are fetched too. The source stays as it is.
    """
    key, pages = f"{name}:dupefilter", [str(i) for i in range(40)]
    old: dict[str, Any] = {"JOBDIR": str(tmp_path)}
    new = {"DUPEFILTER_CLASS": "tbloom.scrapy.DupeFilter"}
    option, read = ["--from-seen", str(tmp_path)], (tmp_path / "requests.seen").read_bytes
    if source == "scrapy-redis":
        old = {
            "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
            "SCHEDULER_PERSIST": True,
            "SCHEDULER_DUPEFILTER_KEY": key,
            "MAX_IDLE_TIME_BEFORE_CLOSE": 1,
            "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        }
        new["REQUEST_FINGERPRINTER_CLASS"] = "tbloom.scrapy.ScrapyRedisFingerprinter"
        option, read = ["--from-set", key], partial(client.smembers, key)
    halt = {"CLOSESPIDER_PAGECOUNT": 15, "CONCURRENT_REQUESTS": 2}
    first = crawl("pages", {**old, **halt}, pages)["fetched"]
    left = read()
    done = tbloom("import", "--url", url, name, *SMALL, *option)
    assert done.returncode == 0, done.stderr
    second = crawl("pages", {**old, **new}, pages)["fetched"]
    assert 15 <= len(first) < 40
    assert sorted(first + second) == sorted(pages)
    assert left
    assert left == read()
    client.delete(key)


# Sources.


def test_a_set_is_imported(url: str, name: str, stored_set: str) -> None:
    """As bytes, as the dupefilter adds them; a second import adds nothing."""
    done = tbloom("import", "--url", url, name, "--create", "--from-set", stored_set)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "3,000 items read, 3,000 new, 0 already seen" in done.stderr
    with TimeBloom.from_url(url, name) as seen:
        assert all(seen.contains_many(fingerprint(i) for i in range(3000)))
        assert held(seen) == {labels(seen)[-1]: 3000}
        again = tbloom("import", "--url", url, name, "--from-set", stored_set, "--json")
        assert "3,000 items read, 0 new, 3,000 already seen" in again.stderr
        assert "Warning" not in again.stderr
        assert {"read": 3000, "new": 0, "seen": 3000} == json.loads(again.stdout)
        assert held(seen) == {labels(seen)[-1]: 3000}
    quiet = tbloom("import", "--url", url, name, "--from-set", stored_set, "--quiet")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")


def test_an_import_into_a_filter_of_other_fingerprints_warns(
    url: str, name: str, client: redis.Redis, stored_set: str
) -> None:
    with TimeBloom.from_url(url, name, capacity=10_000) as seen:
        seen.add("one")
        client.set(seen.config.keys.fingerprinter(), "a.Fingerprinter", ex=60)
    done = tbloom("import", "--url", url, name, "--from-set", stored_set)
    assert 0 == done.returncode
    assert f"Warning: {name!r} was filled with the fingerprints of a.F" in done.stderr


def test_a_set_of_another_server_is_imported(
    url: str, name: str, own: redis.Redis, own_url: str, client: redis.Redis
) -> None:
    """The filter's own server is not asked for the set."""
    own.sadd("old", fingerprint(1).hex())
    command = ["import", "--url", url, name, *SMALL, "--from-set", "old"]
    refused(tbloom(*command), "'old'", "no key", "SCHEDULER_PERSIST")
    assert tbloom(*command, "--from-url", own_url).returncode == 0
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        assert fingerprint(1) in seen
    assert not client.exists("old")


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_requests_seen_in_hex_is_imported(url: str, name: str, tmp_path: Path, end: bytes) -> None:
    """The format before Scrapy 2.19; a last line that was cut off is left out."""
    seen_file = tmp_path / "requests.seen"
    lines = b"".join(fingerprint(i).hex().encode() + end for i in range(500))
    seen_file.write_bytes(lines + fingerprint(500).hex()[:21].encode())
    done = tbloom("import", "--url", url, name, *SMALL, "--from-seen", str(tmp_path))
    assert "500 items read, 500 new" in done.stderr
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        assert all(seen.contains_many(fingerprint(i) for i in range(500)))


def test_requests_seen_in_binary_is_imported(url: str, name: str, tmp_path: Path) -> None:
    """The format of Scrapy 2.19; a last fingerprint that was cut off is left out, as by Scrapy."""
    records = b"".join(b"\0\x14" + fingerprint(i) for i in range(5000))
    for cut, number in ((0, 5000), (1, 4999), (20, 4999), (21, 4999)):
        seen_file = tmp_path / f"cut {cut}"
        seen_file.write_bytes(records[: len(records) - cut])
        command = ["import", "--url", url, f"{name} {cut}", "--create", "--from-seen"]
        assert f"{number:,} items read, {number:,} new" in tbloom(*command, seen_file).stderr
    with TimeBloom.from_url(url, f"{name} 0") as seen:
        assert all(seen.contains_many(fingerprint(i) for i in range(5000)))


def test_lines_are_imported(url: str, name: str, tmp_path: Path) -> None:
    """From a file or from standard input; empty lines are left out."""
    file = tmp_path / "urls.txt"
    file.write_text("a\r\n\nb\na\nc")
    command = ["import", "--url", url, name, *SMALL, "--from-lines"]
    assert "4 items read, 3 new, 1 already seen" in tbloom(*command, str(file)).stderr
    assert "2 items read, 1 new" in tbloom(*command, "-", stdin="c\nd\n").stderr
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        assert all(seen.contains_many(list("abcd")))


def test_wrong_sources_are_refused(
    url: str, name: str, client: redis.Redis, tmp_path: Path
) -> None:
    """No filter is created."""
    command = ["import", "--url", url, name, "--create"]
    refused(tbloom(*command), "--from-set")
    refused(tbloom(*command, "--from-seen", str(tmp_path)), "requests.seen", "No such file")
    refused(tbloom(*command, "--from-lines", "/no/such"), "/no/such")
    other = ("--from-url", "redis://localhost:1")
    refused(tbloom(*command, "--from-set", "a", *other), "(--from-url names the server)")
    refused(tbloom(*command, "--from-set", "a", "--from-url", "ftp://a"), "--from-url: ")
    client.rpush(f"{name}:list", "a")
    refused(tbloom(*command, "--from-set", f"{name}:list"), f"'{name}:list'", "a list")
    client.delete(f"{name}:list")
    hexless = tmp_path / "hexless"
    hexless.write_text("abc\nhttps://example.com/\n")
    refused(tbloom(*command, "--quiet", "--from-seen", str(hexless)), "hexless", "'abc'", "in hex")
    assert name not in tbloom("list", "--url", url).stdout


# Slices.


def test_an_older_slice_takes_them(url: str, name: str, stored_set: str) -> None:
    """One that is not live is refused."""
    with TimeBloom.from_url(url, name, capacity=5000) as seen:
        first, _, old, *_ = labels(seen)
        create = ["import", "--url", url, name, "--create", "--capacity", "5000"]
        command = [*create, "--from-set", stored_set, "--slice"]
        refused(tbloom(*command, "20190508"), "slice", "'20190508'", first)
        assert name not in tbloom("list", "--url", url).stdout
        assert "3,000 new" in tbloom(*command, old).stderr
        assert held(seen) == {old: 3000}
        assert all(seen.contains_many(fingerprint(i) for i in range(3000)))
        assert not any(seen.contains_many((fingerprint(i) for i in range(3000)), within=4))
