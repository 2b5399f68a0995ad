"""The contenders: tbloom, and what users choose today, each called as its users call it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import redis
import walrus
import window
from pottery import BloomFilter as PotteryFilter
from scrapy_redis.connection import get_redis
from scrapy_redis_bloomfilter.bloomfilter import BloomFilter as ScrapyRedisFilter
from serving import redisbloom_version
from streams import BATCH, fingerprints

from tbloom import TimeBloom

SLICES = 7
ERROR_RATE = 1e-4
WEEK = 7 * 86_400
SADD = "scrapy-redis: SADD"
SADD_MANY = f"scrapy-redis: SADD, pipelined by {BATCH}"
ADD = "tbloom: add"
ADD_CACHED = f"{ADD}, local cache"
ADD_MANY = f"tbloom: add_many of {BATCH}"
SCRAPY_REDIS_BLOOMFILTER = "scrapy-redis-bloomfilter"
REDISBLOOM_SLICES_MANY = f"RedisBloom, {SLICES} filters, by {BATCH}"

#: The local cache is off where the server is measured.
LOCAL_CACHE_ON: dict[str, Any] = {"cache_size": 100_000}
LOCAL_CACHE_OFF: dict[str, Any] = {"cache_size": 0}

Run = Callable[[Sequence[str]], list[bool]]

#: RedisBloom has no windows: this checks a filter for each slice, the current one last, and adds to that.
ADD_TO_SLICES = """
local answers = {}
for item = 1, #ARGV do
  local seen = 0
  for i = 1, #KEYS - 1 do
    seen = redis.call('BF.EXISTS', KEYS[i], ARGV[item])
    if seen == 1 then break end
  end
  answers[item] = seen == 1 and 0 or redis.call('BF.ADD', KEYS[#KEYS], ARGV[item])
end
return answers
"""


class Contender(NamedTuple):
    """Answers which items are new, and remembers them."""

    name: str
    #: What is called, for the page.
    calls: str
    run: Run
    #: False: an item that is asked twice in one run may get its answers in any order.
    in_order: bool = True


def one_by_one(add: Callable[[str], Any]) -> Run:
    return lambda items: [bool(add(item)) for item in items]


def in_batches(add_many: Callable[[Sequence[str]], Any]) -> Run:
    return lambda items: [
        bool(new)
        for start in range(0, len(items), BATCH)
        for new in add_many(items[start : start + BATCH])
    ]


def arguments(capacity: int, **others: Any) -> dict[str, Any]:
    sizes = {"slices": SLICES, "capacity": capacity, "error_rate": ERROR_RATE}
    return {**sizes, **LOCAL_CACHE_OFF, **others}


def tbloom_filter(url: str, name: str, capacity: int, **others: Any) -> TimeBloom:
    return TimeBloom.from_url(url, name, **arguments(capacity, **others))


def after_a_week(
    url: str, client: redis.Redis, name: str, capacity: int, **arguments: Any
) -> TimeBloom:
    """A filter with ``capacity`` items in each older slice."""
    seen = tbloom_filter(url, name, capacity, **arguments)
    seen.add("the first")
    window.fill(client, seen)
    return seen


@contextmanager
def everybody(url: str, client: redis.Redis, capacity: int) -> Iterator[list[Contender]]:
    """All contenders, each with ``capacity`` items on its server already (tbloom in each of its slices)."""
    stock = fingerprints("stock", capacity)
    with (
        after_a_week(url, client, "one", capacity) as seen,
        after_a_week(url, client, "many", capacity) as many,
        after_a_week(url, client, "cached", capacity, **LOCAL_CACHE_ON) as cached,
    ):
        yield [
            Contender(ADD, "`TimeBloom.add`", one_by_one(seen.add)),
            Contender(ADD_MANY, "`TimeBloom.add_many`", in_batches(many.add_many)),
            Contender(ADD_CACHED, "`TimeBloom.add`", one_by_one(cached.add)),
            *scrapy_redis(url, stock),
            set_nx_ex(url, stock),
            scrapy_redis_bloomfilter(url, "bloomfilter", 30),
            pottery_filter(url, "pottery", capacity),
            walrus_filter(url, "walrus", capacity),
            *(redisbloom(url, client, capacity, stock) if redisbloom_version(client) else ()),
        ]


def scrapy_redis(url: str, stock: list[str]) -> Iterator[Contender]:
    """What ``RFPDupeFilter.request_seen`` does with a fingerprint, and the same in pipelines."""
    server = get_redis(url=url)

    def sadd_many(items: Sequence[str]) -> list[int]:
        with server.pipeline(transaction=False) as pipeline:
            for item in items:
                pipeline.sadd("many:dupefilter", item)
            return pipeline.execute()

    for key in ("one:dupefilter", "many:dupefilter"):
        for start in range(0, len(stock), 1000):
            server.sadd(key, *stock[start : start + 1000])
    yield Contender(SADD, "`SADD`", one_by_one(lambda item: server.sadd("one:dupefilter", item)))
    yield Contender(SADD_MANY, "`SADD` in a pipeline", in_batches(sadd_many))


def set_many(server: redis.Redis, items: Sequence[str], ttl: int = WEEK) -> list[Any]:
    """``SET NX EX`` in a pipeline."""
    with server.pipeline(transaction=False) as pipeline:
        for item in items:
            pipeline.set(item, 1, nx=True, ex=ttl)
        return pipeline.execute()


def set_nx_ex(url: str, stock: list[str]) -> Contender:
    """What an engineer writes by hand today."""
    server = redis.Redis.from_url(url)
    for start in range(0, len(stock), 1000):
        set_many(server, stock[start : start + 1000])
    run = one_by_one(lambda item: server.set(item, 1, nx=True, ex=WEEK))
    return Contender("SET NX EX, a key each", "`SET key 1 NX EX ttl`", run)


def scrapy_redis_bloomfilter(url: str, key: str, bit: int) -> Contender:
    """As its ``RFPDupeFilter.request_seen`` does; ``bit`` is BLOOMFILTER_BIT, by default 30."""
    bloom = ScrapyRedisFilter(get_redis(url=url), key, bit, 6)

    def add(item: str) -> bool:
        if bloom.exists(item):
            return False
        bloom.insert(item)
        return True

    return Contender(SCRAPY_REDIS_BLOOMFILTER, "`exists`, then `insert`", one_by_one(add))


def pottery_filter(url: str, key: str, capacity: int) -> Contender:
    bloom = PotteryFilter(
        num_elements=capacity, false_positives=ERROR_RATE, redis=redis.Redis.from_url(url), key=key
    )
    return Contender("pottery", "`in`, then `add`", one_by_one(lambda item: _add(bloom, item)))


def walrus_bytes(items: int) -> int:
    """What its 4 hashes need for ERROR_RATE."""
    return round(items * 4 / 8 / 0.1054)  # -ln(1 - ERROR_RATE ** (1/4))


def walrus_filter(url: str, key: str, capacity: int) -> Contender:
    address = urlsplit(url)
    database = walrus.Database(address.hostname, address.port)
    bloom = database.bloom_filter(key, size=walrus_bytes(capacity))
    return Contender("walrus", "`in`, then `add`", one_by_one(lambda item: _add(bloom, item)))


def _add(bloom: Any, item: str) -> bool:
    if item in bloom:
        return False
    bloom.add(item)
    return True


def redisbloom(
    url: str, client: redis.Redis, capacity: int, stock: list[str]
) -> Iterator[Contender]:
    """One filter; and one for each slice, with our own script. All hold ``stock`` already."""
    server = redis.Redis.from_url(url)
    script = server.register_script(ADD_TO_SLICES)

    def reserve(key: str, rate: float) -> None:
        # Room for what is added here too; a full one would grow.
        server.execute_command("BF.RESERVE", key, rate, 2 * capacity)

    def filled(key: str, rate: float) -> bytes:
        reserve(key, rate)
        for start in range(0, len(stock), 10_000):
            server.execute_command("BF.MADD", key, *stock[start : start + 10_000])
        content = client.dump(key)
        client.delete(key)
        assert isinstance(content, bytes)
        return content

    def slices(name: str) -> list[str]:
        *older, current = [f"{name}:{i}" for i in range(SLICES)]
        for key in older:
            server.restore(key, 0, full_slice)
        reserve(current, ERROR_RATE / SLICES)
        return [*older, current]

    def add_many(items: Sequence[str]) -> list[int]:
        return server.execute_command("BF.MADD", "bf:many", *items)

    full, full_slice = filled("bf", ERROR_RATE), filled("bf", ERROR_RATE / SLICES)
    server.restore("bf:one", 0, full)
    server.restore("bf:many", 0, full)
    one, many = slices("bf:one"), slices("bf:many")
    add = one_by_one(lambda item: server.execute_command("BF.ADD", "bf:one", item))
    sliced = one_by_one(lambda item: script(keys=one, args=[item])[0])
    sliced_many = in_batches(lambda items: script(keys=many, args=items))
    own = "a script of one's own"
    yield Contender("RedisBloom, one filter", "`BF.ADD`", add)
    yield Contender(f"RedisBloom, one filter, by {BATCH}", "`BF.MADD`", in_batches(add_many))
    yield Contender("RedisBloom, 7 filters", own, sliced)
    yield Contender(REDISBLOOM_SLICES_MANY, own, sliced_many)
