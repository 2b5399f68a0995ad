"""Links that were seen cost a look, and no note; links that are new cost one call for many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scrapy import Request, signals
from scrapy.http import Response

from tbloom.scrapy.crawl import crawl_of
from tbloom.scrapy.done import pages
from tests.helpers.projects import LOCAL, Project, path_of


class Links(Project):
    """A start page with the links of LINKS. It counts the notes that are written, and the calls that look for links or claim them."""

    def links(self) -> Iterator[Any]:
        self.said += [0, [], []]
        yield self.request("start", dont_filter=True)

    def parse(self, response: Response) -> Any:
        if path_of(response) != "start":
            yield {"page": path_of(response)}
            return
        self._count()
        for number in self.settings["LINKS"][self.number]:
            yield self.request(f"page-{number}", meta={"nested": {"page": number}})

    def _count(self) -> None:
        seen: Any = crawl_of(self.crawler).seen
        write, look, claim = self._writes, seen.contains_many, seen.claim_many

        def write_note(request: Request, *more: Any, **named: Any) -> Any:
            self.said[0] += 1
            return write(request, *more, **named)

        def contains_many(items: Any, *more: Any, **named: Any) -> Any:
            items = [*items]
            self.said[1].append(len(items))
            return look(items, *more, **named)

        def claim_many(items: Any, **named: Any) -> Any:
            items = [*items]
            self.said[2].append(len(items))
            return claim(items, **named)

        pages.write_note = write_note
        seen.contains_many, seen.claim_many = contains_many, claim_many

    _writes = staticmethod(pages.write_note)


def said(ends: Any) -> list[Any]:
    return [end.said for end in ends]


@pytest.mark.parametrize("mark", ["done", LOCAL])
def test_a_crawl_whose_links_were_all_seen_writes_no_note(project: Any) -> None:
    first, second = project(Links, Links, LINKS=[range(300), range(300)])
    assert (300, 300) == (first.said[0], len(first.items))
    assert [0, []] == [second.said[0], second.said[2]]
    assert ["/start"] == second.fetched


def test_among_seen_links_new_ones_are_claimed_with_notes(project: Any) -> None:
    _, second = project(Links, Links, LINKS=[range(300), range(100, 350)])
    assert (50, 50) == (second.said[0], sum(second.said[2]))
    assert {f"/page-{number}" for number in range(300, 350)} == {*second.fetched} - {"/start"}


class HearsOfDropped(Project):
    """Notes at each request that is dropped how many were seen, as the stats say then."""

    pages = "abc"

    def links(self) -> Iterator[Any]:
        self.crawler.signals.connect(self._dropped, signals.request_dropped)
        yield from super().links()

    def _dropped(self, request: Request) -> None:
        self.said.append((path_of(request), self.crawler.stats.get_value("tbloom/seen")))


@pytest.mark.parametrize("mark", ["done", "scheduled", LOCAL])
def test_who_hears_of_a_dropped_request_reads_right_stats(project: Any) -> None:
    """Though the stats count many at once."""
    _, second = project(HearsOfDropped, HearsOfDropped)
    assert [("a", 1), ("b", 2), ("c", 3)] == second.said
