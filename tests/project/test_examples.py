"""The recipes of docs/recipes.md run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from tests.helpers.documents import ROOT
from tests.helpers.website import served

EXAMPLES = ROOT / "examples"
PAGES = 300


def start(recipe: str, *arguments: str, url: str = "") -> subprocess.Popen[str]:
    """The recipe, running."""
    return subprocess.Popen(
        [sys.executable, EXAMPLES / recipe, *arguments],
        env={**os.environ, "REDIS_URL": url, "SESSION_TTL": "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(process: subprocess.Popen[str]) -> list[str]:
    """What it prints until it ends well."""
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    assert not errors
    return out.splitlines()


@pytest.mark.check
def test_a_block_list_is_exact_and_is_replaced(own_url: str) -> None:
    others, *blocked = output(start("blocklist.py", url=own_url))
    assert others.startswith("of 2,000 others, blocked: 0; looked up: ")
    assert int(others.rpartition(" ")[2]) <= 20  # 2 are expected
    assert blocked == [
        "bad5.example: True",
        "bad5.example, after it left the list: False",
        "bad50.example: True",
    ]


@pytest.mark.check
@pytest.mark.parametrize(
    ("recipe", "printed"),
    [
        (
            "recommendations.py",
            [
                "user 1: article 1, article 2, article 3",
                "user 1: article 4, article 5, article 6",
                "user 2: article 1, article 2, article 3",
                "user 1: article 7",
            ],
        ),
        (
            "webhooks.py",
            ["order 1 200", "order 1 200", "order 2 500", "order 2 200", "paid: order 1, order 2"],
        ),
    ],
)
def test_a_recipe_prints_what_it_says(own_url: str, recipe: str, printed: list[str]) -> None:
    """Recommendations do not repeat; an event is handled once, and again after a failure."""
    assert printed == output(start(recipe, url=own_url))


@pytest.mark.check
def test_a_guard_keeps_unknown_keys_from_the_database() -> None:
    exist, unknown, new = output(start("cache_guard.py"))
    assert exist.endswith(": 500")
    assert int(unknown.rpartition(" ")[2]) <= 20  # 5 of 50,000 are expected
    assert new.endswith(" user 7")


@pytest.mark.check
def test_a_graph_is_traversed_once(own_url: str) -> None:
    [line] = output(start("graph.py", url=own_url))
    visited, pending = {1}, [1]
    while pending:
        node = pending.pop()
        new = {2 * node % 20_000, (3 * node + 1) % 20_000} - visited
        visited |= new
        pending += new
    # At most one of 10,000 is left out, and what is reached only from there.
    assert len(visited) - 20 <= int(line.rpartition(" ")[2]) <= len(visited)


@pytest.mark.check
def test_pages_that_stay_the_same_are_fetched_less_often() -> None:
    """The simulation's figures are the recipe's: fewer fetches, and no change waits for as long as the window (15 days)."""
    recipe = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    lines = output(start("revisit.py"))
    assert len(lines) == 2
    for line in lines:
        fetches, longest, fixed = map(int, re.findall(r"\d+(?= fetches|;)", line))
        assert fetches < fixed
        assert longest < 15
        assert f"{fetches:,}" in recipe
        assert f"{fixed:,}" in recipe


class Pages(BaseHTTPRequestHandler):
    """Pages in a folder, with links relative to it; its start is elsewhere, and leads there. All requests are counted."""

    def do_GET(self) -> None:
        folder, _, page = self.path.rpartition("/")
        if folder != "/pages":
            self.send_response(302)
            self.send_header("Location", "/pages/0")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.server.requests.append(int(page))
        sleep(0.02)
        links = {(3 * int(page) + step) % PAGES for step in (1, 2, 3)}
        body = "".join(f'<a href="{link}#top">{link}</a>' for link in links).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.check
def test_crawlers_fetch_every_page_though_one_is_killed_and_one_is_stopped(own_url: str) -> None:
    requests: list[int] = []
    with served(Pages, requests=requests) as server:
        address = f"{server.url}/start"
        killed, stopped, last = (start("crawler.py", address, url=own_url) for _ in range(3))
        for crawler, pages in ((killed, PAGES // 4), (stopped, PAGES // 2)):
            while len(requests) < pages:
                sleep(0.01)
            crawler.send_signal(signal.SIGKILL if crawler is killed else signal.SIGTERM)
        output(stopped)
        printed = output(last)
        assert set(range(PAGES)) == {*requests}
        # Only what the killed one was fetching, ten pages at most; and the first, which the start and links lead to.
        assert len(requests) <= PAGES + 11
        assert printed
        assert not output(start("crawler.py", address, url=own_url))  # nothing is left
    assert killed.wait() == -signal.SIGKILL
    killed.communicate()


@pytest.mark.check
def test_list_pages_are_read_again_and_articles_are_not(own_url: str, tmp_path: Path) -> None:
    """A slice later, an article that is new on the second list page is found; the others are not fetched."""

    def write(page: str, *links: str) -> None:
        (tmp_path / page).write_text("".join(links), encoding="utf-8")

    def link(page: str, kind: str = "article") -> str:
        return f'<a class="{kind}" href="/{page}.html">{page}</a>'

    def crawl() -> set[str]:
        settings = ["-s", "TBLOOM_GRANULARITY=1s", "-s", f"REDIS_URL={own_url}"]
        subprocess.run(
            [
                *(sys.executable, "-m", "scrapy", "runspider", EXAMPLES / "news.py", *settings),
                *("-a", f"start={address}/list.html", "-O", tmp_path / "found.json"),
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
        return {item["url"].removeprefix(address) for item in found}

    write("list.html", link("a"), link("more", "next"))
    write("more.html", link("b"), link("list", "next"))
    for article in "abc":
        write(f"{article}.html", article)
    with served(partial(SimpleHTTPRequestHandler, directory=tmp_path)) as server:
        address = server.url
        assert {"/a.html", "/b.html"} == crawl()
        write("more.html", link("b"), link("c"), link("list", "next"))
        sleep(1)  # the slice
        assert {"/c.html"} == crawl()
