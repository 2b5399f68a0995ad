"""``tbloom import``: crawls that change over to tbloom. (Its sources: recorded/import.txt.)"""

from __future__ import annotations

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
    # The server that does not answer is the one that is named.
    away = "redis://127.0.0.1:1"
    for to, source, named in ((away, own_url, "(--url, or"), (url, away, "(--from-url names")):
        refused(tbloom("import", "--url", to, name, *command[4:], "--from-url", source), named)
