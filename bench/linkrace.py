"""The links of real pages, in the order in which a crawler finds them, through SADD and through add."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha1
from typing import Any
from urllib.parse import urldefrag

import redis
from contenders import (
    ADD,
    ADD_CACHED,
    LOCAL_CACHE_ON,
    SADD,
    Contender,
    one_by_one,
    scrapy_redis,
    tbloom_filter,
)
from links import read_pages
from race import compared
from serving import Cost, measure, placed, placements

from tbloom.demo.localredis import LocalRedis


def link_race(
    server: LocalRedis, client: redis.Redis, *, rounds: int, every: int
) -> dict[str, Any]:
    """The cost of a link for each contender, on ``every``-th page, on a server that is empty at first.

    :raises AssertionError: if one calls more than a single new link seen, or the other way round.
    """
    pages = read_pages()[::every]
    links = [urldefrag(link).url for page in pages for link in page]
    items = [sha1(link.encode(), usedforsecurity=False).hexdigest() for link in links]
    met: set[str] = set()
    truth = [not (item in met or met.add(item)) for item in items]  # type: ignore[func-returns-value]
    rows = []
    for placement in placements():
        costs: dict[str, list[Cost]] = {}
        with placed(server, placement):
            for _ in range(rounds):
                with ExitStack() as stack:
                    for contender in _contenders(stack, server.url, len(items)):
                        cost, answers = measure(client, contender.run, items)
                        wrong = sum(one != other for one, other in zip(answers, truth, strict=True))
                        assert wrong <= 1, f"{contender.name}: {wrong} links"
                        costs.setdefault(contender.name, []).append(cost)
                client.flushall()
        rows += [
            {"placement": placement, "name": name, **compared(theirs, costs[SADD])}
            for name, theirs in costs.items()
        ]
    return {"pages": len(pages), "links": len(links), "rows": rows}


def _contenders(stack: ExitStack, url: str, capacity: int) -> Iterator[Contender]:
    yield next(scrapy_redis(url, []))
    for name, cache in ((ADD, {}), (ADD_CACHED, LOCAL_CACHE_ON)):
        seen = stack.enter_context(tbloom_filter(url, name, capacity, **cache))
        yield Contender(name, "`TimeBloom.add`", one_by_one(seen.add))
