"""All contenders on one server with the same items, half of them seen before."""

from __future__ import annotations

from bench import contenders, contest
from bench.contenders import ADD, ADD_CACHED, ADD_MANY, SADD, after_a_week
from bench.serving import Server
from bench.tables import Table


def measure(server: Server, *, capacity: int, rounds: int, items: int) -> list[Table]:
    """Medians of the rounds, each contender with ``capacity`` items on its server already (tbloom in each of its slices)."""
    stock = contest.fingerprints("stock", capacity)
    with (
        after_a_week(server, "one", capacity) as seen,
        after_a_week(server, "many", capacity) as many,
        after_a_week(server, "cached", capacity, cache_size=100_000) as cached,
    ):
        everybody = [
            contest.Contender(ADD, contest.one_by_one(seen.add)),
            contest.Contender(ADD_MANY, contest.in_batches(many.add_many)),
            contest.Contender(ADD_CACHED, contest.one_by_one(cached.add)),
            *contenders.scrapy_redis(server.url, stock),
            contenders.set_nx_ex(server.url, stock),
            contenders.scrapy_redis_bloomfilter(server.url),
            *(contenders.redisbloom(server.url, capacity, stock) if server.redisbloom else ()),
        ]
        costs = contest.hold(server, everybody, rounds=rounds, items=items)
    server.empty()
    rows = [[each.name, *contest.cells(costs, each.name, SADD)] for each in everybody]
    return [Table("race", {"": "", **contest.COLUMNS}, rows)]
