"""Rules of a CrawlSpider that change between two crawls: a page that has failed goes to the callback of its rule, or to none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scrapy import Request
from scrapy.spiders import CrawlSpider, Rule

from tbloom.scrapy.done.serialize import Unreadable, request_from_text, request_to_text

URL = "https://example.com/a"


def parse_elsewhere(response: Any) -> None: ...


def spider_of(*callbacks: Any) -> Any:
    """A CrawlSpider with a rule for each callback."""

    class Rules(CrawlSpider):
        name = "rules"
        rules = tuple(Rule(callback=callback) for callback in callbacks)

        def parse_a(self, response: Any) -> None: ...

        def parse_b(self, response: Any) -> None: ...

    return Rules()


def kept_under(spider: Any, number: int) -> str:
    return request_to_text(spider._build_request(number, LINK), spider)


LINK: Any = type("Link", (), {"url": URL, "text": "A book"})
TWO = (lambda _: None, lambda _: None)
#: The callbacks of the rules when a page was kept under the rule of a number; those when it is read; the number then.
RULES: dict[str, tuple[list[Any], int, list[Any], int | str]] = {
    "the same": (["parse_a", "parse_b"], 1, ["parse_a", "parse_b"], 1),
    "a rule before it": (["parse_a"], 0, ["parse_b", "parse_a"], 1),
    "none any more": (["parse_a"], 0, ["parse_b"], "parse_a"),
    "no rules": (["parse_a"], 0, [], "parse_a"),
    "two with this callback": (["parse_b", "parse_a", "parse_a"], 2, ["parse_a", "parse_a"], 0),
    "its own of two": (["parse_a", "parse_a"], 1, ["parse_a", "parse_a"], 1),
    "one that follows only": ([None], 0, ["parse_a", None], 1),
    "none that follows only": (["parse_b", None], 1, ["parse_b", "parse_a"], "rule"),
    "a function": ([parse_elsewhere], 0, ["parse_a", parse_elsewhere], 1),
    "a function that is gone": ([parse_elsewhere], 0, ["parse_a"], "parse_elsewhere"),
    "a lambda": ([*TWO], 1, [*TWO], 1),
    "another lambda": ([*TWO], 1, ["parse_a", *TWO], 1),  # Python does not say which one it was
    "a lambda at another number": ([*TWO], 1, [TWO[0], "parse_a"], "lambda"),
}  # fmt: skip


@pytest.mark.parametrize(("kept", "number", "read", "expected"), RULES.values(), ids=RULES)
def test_a_page_goes_to_the_rule_with_its_callback(
    kept: list[Any], number: int, read: list[Any], expected: int | str
) -> None:
    text = kept_under(spider_of(*kept), number)
    try:
        found = request_from_text(text, spider_of(*read)).meta["rule"]
    except Unreadable as error:
        found = error.name
    assert expected == found


@pytest.mark.parametrize("meta", [{}, {"rule": "x"}, {"rule": 1}, {"rule": -1}])
def test_what_only_looks_like_a_rule_stays(meta: dict[str, Any]) -> None:
    spider = spider_of("parse_a")
    own = Request(URL, spider.parse_a, meta=meta)
    assert meta == request_from_text(request_to_text(own, spider), spider).meta
    if meta.get("rule") not in (1, -1):
        own = Request(URL, spider._callback, meta=meta)
        assert meta == request_from_text(request_to_text(own, spider), spider).meta


@pytest.mark.parametrize("names", [1, ["parse_a"], [1, 2], [["x"], None], {"a": 1}, "ab"])
def test_names_of_a_rule_that_others_have_written(names: Any) -> None:
    fields = {"url": URL, "callback": "_callback", "meta": {"rule": 0}, "_rule": names}
    with pytest.raises(Unreadable, match="not the text"):
        request_from_text(json.dumps(fields), spider_of("parse_a"))
