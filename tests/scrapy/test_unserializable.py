"""Requests with objects that can't be serialised; and those that can, which other crawls take over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from scrapy import FormRequest, Request, Selector
from scrapy.http import JsonRequest, Response

from tests.helpers.projects import Project, path_of, times


class Plain:
    """A class without a constructor for it in a request's text."""

    def __init__(self, first: Any, second: Any) -> None:
        self.pair = first, second


class CanNotBeWritten(Project):
    """Requests with what no queue but that in memory takes."""

    kinds = ("lambda", "partial", "object", "Selector", "generator", "client")
    pages = tuple(f"{kind}-{end}" for kind in kinds for end in ("good", "503", "raises"))

    def request(self, path: str, **more: Any) -> Request:
        kind = path.partition("-")[0]
        callbacks: dict[str, Callable[..., Any]] = {
            "lambda": lambda response: [*self.parse(response)],
            "partial": partial(self.parse, known=Plain(1, 2)),
        }
        known = {
            "object": Plain(1, 2),
            "Selector": Selector(text="<a>"),
            "generator": (number for number in range(3)),
            "client": asyncio,
        }
        more["callback"] = callbacks.get(kind)
        if kind in known:
            more["meta"] = {"known": known[kind]}
        return super().request(path, **more)

    def parse(self, response: Response, known: Any = None) -> Any:  # noqa: ARG002
        yield {"page": path_of(response)}
        if path_of(response).endswith("raises") and not self.number:
            raise ValueError


@pytest.mark.parametrize("queue", ["memory", pytest.param("JOBDIR", marks=pytest.mark.check)])
def test_failed_requests_without_a_text_are_fetched_when_linked_again(
    done_project: Any, tmp_path: Path, queue: str
) -> None:
    """scrapy-redis#68, #138, #178. One that is done is not. The log names the first one."""
    answers = {f"/{kind}-503": [503, 200] for kind in CanNotBeWritten.kinds}
    more = {"JOBDIR": str(tmp_path / "job")} if queue == "JOBDIR" else {}
    crawls = done_project(*[CanNotBeWritten] * 3, answers=answers, **more)
    assert {
        page: [1, 0 if page.endswith("good") else 1, 0] for page in CanNotBeWritten.pages
    } == times(crawls)
    assert len(CanNotBeWritten.pages) == crawls[0].stats["tbloom/unserializable"]
    assert 1 == len(crawls[0].warnings("can't be serialised: "))


# Requests that can: what the documents promise


class Forms(Project):
    """The requests are noted with their bodies; and an item over several pages goes on where it was."""

    def links(self) -> Iterator[Any]:
        if self.number:
            return
        yield FormRequest(f"{self.site}form", formdata={"q": "a b"})
        yield JsonRequest(f"{self.site}json", data={"q": [1]})
        yield self.request("item-1", callback=self.parse_first)

    def parse_first(self, response: Response) -> Any:
        item = {"first": path_of(response)}
        yield self.request("item-2", callback=self.parse_second, cb_kwargs={"item": item})

    def parse_second(self, response: Response, item: dict[str, Any]) -> Any:
        yield {**item, "second": path_of(response)}


def test_forms_and_half_items_are_taken_over_as_they_were(done_project: Any) -> None:
    """By a crawl without a link to them."""
    paths = ["/form q=a+b", '/json {"q": [1]}', "/item-2"]
    crawls = done_project(*[Forms] * 3, answers={path: [503, 200] for path in paths})
    assert sorted([*paths, "/item-1"]) == sorted(crawls[0].fetched)
    assert sorted(paths) == sorted(crawls[1].fetched)
    assert [] == crawls[2].fetched
    assert {"first": "item-1", "second": "item-2"} in crawls[1].items
