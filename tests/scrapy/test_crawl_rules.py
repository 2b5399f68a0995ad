"""CrawlSpiders whose rules change between two crawls: a page that has failed goes to the callback of its rule, or to none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from scrapy import Request
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

from tests.helpers.projects import path_of

BOOKS, LISTS = LinkExtractor(allow="/book"), LinkExtractor(allow="/list")
START = b'<a href="/book">A book</a><a href="/list">More</a>'


class Shop(CrawlSpider):
    """Its first crawl follows the links of the start page; a later one does what is left."""

    name = "shop"
    site: str
    number: int
    said: list[Any]
    rules: Sequence[Rule] = (Rule(BOOKS, "parse_book"), Rule(LISTS, "parse_list"))

    async def start(self) -> AsyncIterator[Any]:
        if self.number == 0:
            yield Request(self.site, dont_filter=True)

    def parse_book(self, response: Response) -> None:
        self.said.append(f"book {path_of(response)}")

    def parse_list(self, response: Response) -> None:
        self.said.append(f"list {path_of(response)}")


class Reordered(Shop):
    rules = (Rule(LISTS, "parse_list"), Rule(BOOKS, "parse_book"))


class WithoutBooks(Shop):
    rules = (Rule(LISTS, "parse_list"),)


def test_a_page_of_a_rule_that_has_moved_goes_to_its_callback(done_project: Any) -> None:
    answers = {"/": [START], "/book": [503], "/list": [503]}
    answers = {path: [*given, 200] for path, given in answers.items()}
    ends = done_project(Shop, Reordered, answers=answers)
    assert [[], ["book book", "list list"]] == [sorted(end.said) for end in ends]


def test_a_page_without_a_rule_is_fetched_by_the_version_that_has_it(done_project: Any) -> None:
    """No other callback gets it meanwhile; a warning names the one that is missing."""
    answers = {"/": [START, 200], "/book": [503, 200], "/list": [503, 200]}
    ends = done_project(Shop, WithoutBooks, Shop, answers=answers)
    assert [[], ["list list"], ["book book"]] == [end.said for end in ends]
    assert ["/list"] == ends[1].fetched
    assert 1 == len(ends[1].warnings("(parse_book)"))
