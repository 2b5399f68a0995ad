"""Measures what a link and a done page cost with and without a version, as Scrapy's crawlers ask: in turns, on one filter each."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from statistics import median
from typing import Any

from scrapy import Request
from scrapy.utils.request import RequestFingerprinter

from bench.progress import shown
from bench.serving import Cost, Server, medians
from bench.tables import Table
from tbloom import Claim
from tbloom.scrapy.links import look_of, version_of
from tbloom.scrapy.stores import CrawlBloom

#: So many of 20 links were seen before; links are asked about in batches.
SEEN, BATCH = 19, 1_000
LINK, ADDED, DONE = 'a link, `"done"`', 'a link, `"scheduled"`', "a done page"
Pairs = dict[str, list[Cost]]


class Crawler:
    """A crawler's filter, whose requests have a version or not."""

    def __init__(self, server: Server, capacity: int, *, has_version: bool) -> None:
        own: Any = {"capacity": 4 * capacity, "cache_size": 0}
        client = server.client
        self._claims, self._adds = (
            CrawlBloom(client, f"{kind} {has_version}", **own) for kind in ("claims", "adds")
        )
        self._has_version = has_version
        self._fingerprinter = RequestFingerprinter()

    def request(self, number: int) -> Request:
        """Return the request for a page."""
        meta = {"tbloom_version": f"2026-11-{number % 30:02}T10:00:00Z"}
        url = f"https://example.com/category-{number % 97}/page-{number}.html"
        return Request(url, meta=meta if self._has_version else {})

    def items(self, request: Request) -> list[bytes]:
        """Return what a filter is searched for about a request, and its item, if it has a version: else this alone."""
        item, version = self._fingerprinter.fingerprint(request), version_of(request)
        return [look_of(item, version, self._claims.config), item][not version :]

    def claim(self, requests: Iterable[Request]) -> list[bool]:
        """Ask about links, as with "done"."""
        asked = [self.items(request) for request in requests]
        items, looks = [each[-1] for each in asked], [each[0] for each in asked]
        answers = self._claims.claim_many(items, looks=looks)
        return [answer is Claim.NEW for answer in answers]

    def add(self, requests: Iterable[Request]) -> list[bool]:
        """Ask about links, as with "scheduled"."""
        answers = self._adds.add_many([i for request in requests for i in self.items(request)])
        return answers[:: 1 + self._has_version]  # without those of the URLs

    def commit(self, requests: Iterable[Request]) -> list[bool]:
        """Mark pages that are done."""
        return self._claims.commit_many([i for request in requests for i in self.items(request)])

    def close(self) -> None:
        """Close the filters, but not their client, which is the bench's."""
        self._claims.end_session()


def measure(server: Server, *, pages: int = 200_000, rounds: int = 9) -> Table:
    """Return the medians of the rounds, after ``pages`` have been seen."""
    crawlers = [Crawler(server, pages, has_version=each) for each in (False, True)]
    costs = [Pairs(), Pairs()]
    with server.apart():
        for crawler in crawlers:
            for numbers in batches(range(pages)):
                requests = [*map(crawler.request, numbers)]
                crawler.commit(requests)
                crawler.add(requests)
        new = count(pages)
        for number in shown(range(rounds + 1), "links with and without a version"):
            chance = random.Random(number)
            links = [
                chance.randrange(pages) if chance.randrange(20) < SEEN else next(new)
                for _ in range(10 * BATCH)
            ]
            for which in chance.sample((0, 1), 2):
                found = round_of(server, crawlers[which], links)
                for name, cost in found.items():
                    costs[which].setdefault(name, []).extend([cost] if number else [])
    for crawler in crawlers:
        crawler.close()
    server.empty()
    columns = {"": "", "x": ".2f", "server time (us)": ".2f", "with a version": ".2f"}
    rows = [row(name, costs[0][name], costs[1][name]) for name in (LINK, ADDED, DONE)]
    return Table("calls-versions", {**columns, "x processor time": ".2f"}, rows)


def round_of(server: Server, crawler: Crawler, links: Sequence[int]) -> dict[str, Cost]:
    """Return the costs of one round: the links' answers, and the new pages' commits."""
    requests = [*map(crawler.request, links)]

    def in_batches(ask: Callable[[Iterable[Request]], list[bool]]) -> Any:
        return lambda some: [answer for batch in batches(some) for answer in ask(batch)]

    costs = dict[str, Cost]()
    costs[LINK], are_new = server.measure(in_batches(crawler.claim), requests)
    done = [request for request, is_new in zip(requests, are_new, strict=True) if is_new]
    costs[DONE], _ = server.measure(in_batches(crawler.commit), done)
    costs[ADDED], added = server.measure(in_batches(crawler.add), requests)
    assert are_new == added, "claim and add answer differently"
    return costs


def batches(some: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield the parts of a call each."""
    return (some[start : start + BATCH] for start in range(0, len(some), BATCH))


def row(name: str, without: list[Cost], having: list[Cost]) -> list[Any]:
    """Return the row of a table."""

    def ratio(figure: str) -> float:
        pairs = zip(having, without, strict=True)
        return median(getattr(a, figure) / getattr(b, figure) for a, b in pairs)

    server = [medians(costs).commands for costs in (without, having)]
    return [name, ratio("commands"), *server, ratio("server")]
