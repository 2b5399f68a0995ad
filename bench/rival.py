"""Measures one Bloom filter of Python on Redis: ``python bench/rival.py NAME URL ITEMS`` prints its figures as JSON.

It runs in an environment that has the rival's packages, so it imports nothing else: neither the bench, nor, for others, tbloom.
Each is called as its documents call it.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from hashlib import sha1
from multiprocessing.queues import Queue
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import redis

#: The rate that is asked for, of a library that lets one ask.
RATE = 0.001
#: URLs that two processes add at once, and URLs in a call that fills.
RACED, CHUNK = 2_000, 1_000
#: Rounds of single adds, and URLs in each.
ROUNDS, IN_A_ROUND = 10, 100
#: Bits for an item that the rate takes, where a library asks for a size instead. scrapy-redis-bloomfilter takes the next power of two.
BITS = 14.4
_PATTERNS = (
    "https://shop.example.com/product/{0}?color={1}&size={2}",
    "https://news.example.org/2026/{1:02}/{2:02}/story-{0}.html",
    "https://forum.example.net/viewtopic.php?f={1}&t={0}&start={2}0",
)


class Rival(NamedTuple):
    """A filter, as its users call it."""

    #: Add a URL. Return whether it was new.
    add: Callable[[str], bool]
    #: Add URLs.
    fill: Callable[[Sequence[str]], Any]
    #: Return for each URL whether the filter has it.
    ask: Callable[[Sequence[str]], list[bool]]


def check_then_add(has: Callable[[str], Any], add: Callable[[str], Any]) -> Callable[[str], bool]:
    """Return a way with two calls, where a library has none that answers and adds."""

    def new(url: str) -> bool:
        if has(url):
            return False
        add(url)
        return True

    return new


def one_by_one(call: Callable[[str], Any]) -> Callable[[Sequence[str]], list[Any]]:
    """Return a way to call for each of many URLs, where a library has no batches."""
    return lambda urls: [call(url) for url in urls]


def feapder(url: str, key: str, items: int) -> Rival:
    from feapder.dedup import Dedup  # noqa: PLC0415 - each is in one environment only

    bloom = Dedup(
        Dedup.BloomFilter, name=key, initial_capacity=items, error_rate=RATE, redis_url=url
    )
    return Rival(
        lambda one: bool(bloom.add(one)),
        lambda urls: bloom.add(list(urls)),
        lambda urls: [*map(bool, bloom.get(list(urls)))],
    )


def larkspur(url: str, key: str, items: int) -> Rival:
    from larkspur import BloomFilter  # noqa: PLC0415

    bloom = BloomFilter(redis.Redis.from_url(url), key, items, RATE)
    return Rival(
        lambda one: not bloom.add(one), bloom.bulk_add, one_by_one(lambda one: one in bloom)
    )


def walrus(url: str, key: str, items: int) -> Rival:
    import walrus  # noqa: PLC0415

    where = urlsplit(url)
    # The number of hashes is fixed at 4.
    bloom = walrus.Database(where.hostname, where.port).bloom_filter(
        key, size=round(BITS * items / 8)
    )
    add = check_then_add(bloom.__contains__, bloom.add)
    return Rival(add, one_by_one(bloom.add), one_by_one(bloom.__contains__))


def pottery(url: str, key: str, items: int) -> Rival:
    from pottery import BloomFilter  # noqa: PLC0415

    client = redis.Redis.from_url(url)
    bloom = BloomFilter(num_elements=items, false_positives=RATE, redis=client, key=key)
    add = check_then_add(bloom.__contains__, bloom.add)
    return Rival(add, bloom.update, lambda urls: list(bloom.contains_many(*urls)))


def valbloom(url: str, key: str, items: int) -> Rival:
    import redis.asyncio  # noqa: PLC0415
    from valbloom import BloomFilter  # noqa: PLC0415

    run = asyncio.new_event_loop().run_until_complete
    bloom = BloomFilter(redis.asyncio.Redis.from_url(url), key, items, RATE)
    return Rival(
        check_then_add(lambda one: run(bloom.exists(one)), lambda one: run(bloom.add(one))),
        lambda urls: run(bloom.add_many(list(urls))),
        lambda urls: list(run(bloom.exists_many(list(urls))).values()),
    )


def redis_bloom_filter(url: str, key: str, items: int) -> Rival:
    from redisbloomfilter import RedisBloomFilter  # noqa: PLC0415

    bloom = RedisBloomFilter(key, items, RATE, redis.Redis.from_url(url))
    bloom.initialize()
    add = check_then_add(bloom.__contains__, bloom.put)
    return Rival(add, one_by_one(bloom.put), one_by_one(bloom.__contains__))


def pyfilters(url: str, key: str, items: int) -> Rival:
    from pyfilters import RedisBloomFilter  # noqa: PLC0415

    bloom = RedisBloomFilter(redis.Redis.from_url(url), key, items, RATE)
    return Rival(bloom.add, one_by_one(bloom.add), one_by_one(bloom.__contains__))


def scrapy_redis_bloomfilter(url: str, key: str, items: int) -> Rival:
    from scrapy_redis_bloomfilter.bloomfilter import BloomFilter  # noqa: PLC0415

    bit = (round(BITS * items) - 1).bit_length()
    bloom = BloomFilter(redis.Redis.from_url(url), key, bit, 6)
    return Rival(
        check_then_add(bloom.exists, bloom.insert),
        one_by_one(bloom.insert),
        one_by_one(lambda one: bool(bloom.exists(one))),
    )


def tbloom(url: str, key: str, items: int, slices: int = 1) -> Rival:
    from tbloom import TimeBloom  # noqa: PLC0415

    # One more, because a full slice grows.
    bloom = TimeBloom.from_url(url, key, slices=slices, capacity=items + 1, error_rate=RATE)
    return Rival(bloom.add, bloom.add_many, bloom.contains_many)


def tbloom_week(url: str, key: str, items: int) -> Rival:
    return tbloom(url, key, items, slices=7)


def scrapy_redis(url: str, key: str, _items: int) -> Rival:
    """Return a set of fingerprints with 40 hex digits."""
    client = redis.Redis.from_url(url)

    def fingerprint(one: str) -> str:
        return sha1(one.encode(), usedforsecurity=False).hexdigest()

    return Rival(
        lambda one: client.sadd(key, fingerprint(one)) == 1,
        lambda some: client.sadd(key, *map(fingerprint, some)),
        lambda some: [*map(bool, client.smismember(key, [*map(fingerprint, some)]))],
    )


RIVALS = {
    each.__name__: each
    for each in (
        *(feapder, larkspur, walrus, pottery, valbloom, redis_bloom_filter, pyfilters),
        *(scrapy_redis_bloomfilter, scrapy_redis, tbloom, tbloom_week),
    )
}


def urls(first: int, count: int) -> list[str]:
    """Return URLs of a shop, of news and of a forum."""
    numbers = range(first, first + count)
    return [_PATTERNS[n % 3].format(n, n % 12 + 1, n % 28 + 1) for n in numbers]


def race(name: str, url: str, items: int, start: float, told: Queue[Any]) -> None:
    """Add the URLs from a time on, as another process does. Put which were new, and how many calls raised an error."""
    add, found, errors = RIVALS[name](url, "race", items).add, set[str](), 0
    add("https://warm.example.com/")
    time.sleep(max(0, start - time.time()))
    for one in urls(50_000_000, RACED):
        try:
            if add(one):
                found.add(one)
        except Exception:  # noqa: BLE001 - whatever the library raises; it is counted
            errors += 1
    told.put((found, errors))


def raced(name: str, url: str, items: int) -> dict[str, int]:
    """Return how many URLs both processes were told are new, and how many calls raised an error."""
    spawn = multiprocessing.get_context("spawn")
    told, start = spawn.Queue(), time.time() + 8
    racers = [spawn.Process(target=race, args=(name, url, items, start, told)) for _ in range(2)]
    for racer in racers:
        racer.start()
    (one, some), (other, more) = (told.get(timeout=300) for _ in racers)
    for racer in racers:
        racer.join()
    return {"twice": len(one & other), "errors": some + more}


def measure(name: str, url: str, items: int) -> dict[str, Any]:
    """Fill the filter, the last URLs one by one, beside as many SADDs; then ask for others, and race."""
    client, rival = redis.Redis.from_url(url), RIVALS[name](url, "rival", items)
    ones = ROUNDS * IN_A_ROUND
    for start in range(0, items - ones, CHUNK):
        rival.fill(urls(start, min(CHUNK, items - ones - start)))
    rounds, reads, commands = list[tuple[float, float]](), 0, 0
    for start in range(items - ones, items, IN_A_ROUND):
        some, before = urls(start, IN_A_ROUND), client.info("stats")
        begun = time.perf_counter()
        for one in some:
            rival.add(one)
        spent, after = time.perf_counter() - begun, client.info("stats")
        reads += after["total_reads_processed"] - before["total_reads_processed"] - 1
        commands += after["total_commands_processed"] - before["total_commands_processed"] - 1
        begun = time.perf_counter()
        for one in some:
            client.sadd("beside", one)
        rounds.append((spent, time.perf_counter() - begun))
    client.delete("beside")
    held = sum(client.memory_usage(key, samples=0) or 0 for key in client.scan_iter())
    others = [urls(10_000_000 + start, CHUNK) for start in range(0, 2 * items, CHUNK)]
    wrong = sum(sum(rival.ask(some)) for some in others) / (2 * items)
    return {
        "wrong": wrong,
        "bytes": held / items,
        "calls": reads / ones,
        "commands": commands / ones,
        "per_s": IN_A_ROUND / median(spent for spent, _ in rounds),
        "x": median(sadd / spent for spent, sadd in rounds),
        **raced(name, url, items),
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
