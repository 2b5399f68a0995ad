"""The examples and the recipes of docs/recipes.md run; those for other libraries with these: Crawlee, Celery, rq, ASGI, streams."""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import redis

from tbloom import AsyncTimeBloom, TBloomError
from tests.helpers.documents import ROOT
from tests.helpers.localredis import LocalRedis, free_port
from tests.helpers.making import needed
from tests.helpers.website import Handler, served

pytestmark = pytest.mark.check
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


#: What a recipe prints: lines, or of a line its beginning and the most that the number at its end may be.
PRINTED: dict[str, list[str | tuple[str, int]]] = {
    "blocklist.py": [
        ("of 2,000 others, blocked: 0; looked up: ", 20),  # 2 are expected
        "bad5.example: True",
        "bad5.example, after it left the list: False",
        "bad5.example, in a process with the last list: True",
        "bad5.example, after this one has refreshed: False",
        "bad50.example: True",
    ],
    "recommendations.py": [
        "user 1: article 1, article 2, article 3",
        "user 1: article 4, article 5, article 6",
        "user 2: article 1, article 2, article 3",
        "user 1: article 7",
    ],
    "webhooks.py": [
        *("order 1 200", "order 1 200", "order 2 500", "order 2 200", "paid: order 1, order 2"),
    ],
    "cache_guard.py": [
        "queries for 500 keys that exist: 500",
        ("queries for 50,000 keys that do not: ", 20),  # 5 are expected
        "a new one: user 7",
    ],
}


@pytest.mark.parametrize("recipe", PRINTED)
def test_a_recipe_prints_what_it_says(own_url: str, recipe: str) -> None:
    """A block list is exact; recommendations do not repeat; an event is handled once, and again after a failure; a guard
    keeps unknown keys from the database."""
    for line, expected in zip(output(start(recipe, url=own_url)), PRINTED[recipe], strict=True):
        if isinstance(expected, str):
            assert line == expected
        else:
            assert line.startswith(expected[0])
            assert int(line.rpartition(" ")[2]) <= expected[1]


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


def test_pages_at_their_own_pace_are_fresher() -> None:
    """With as many fetches, and half as many changes again are seen or nearly so. The simulation's figures are the recipe's."""
    recipe = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    figures = [re.findall(r"\d[\d.]*%?", line) for line in output(start("revisit.py"))]
    paced, fixed = ([float(figure.strip("%")) for figure in each] for each in figures)
    assert paced[0] == fixed[0]
    assert paced[1] > fixed[1]
    assert paced[2] < fixed[2]
    assert paced[3] > 1.3 * fixed[3]
    for fetches, *others in figures:
        assert f"| with {fetches} fetches of a page a day |" in recipe
        assert f" | {' | '.join(others)} |" in recipe


class Pages(Handler):
    """Pages in a folder, with links relative to it; its start is elsewhere, and leads there. All requests are counted.

    A page may be ``broken``.
    """

    def get(self) -> None:
        folder, _, page = self.path.rpartition("/")
        if folder != "/pages":
            self.answer(302, Location="/pages/0")
            return
        self.server.requests.append(int(page))
        if page in self.server.broken:
            self.answer(503)
            return
        sleep(0.02)
        links = {(3 * int(page) + step) % PAGES for step in (1, 2, 3)}
        self.answer(200, "".join(f'<a href="{link}#top">{link}</a>' for link in links).encode())


def test_crawlers_fetch_every_page_though_some_are_ended(own_url: str) -> None:
    requests: list[int] = []
    with served(Pages, requests=requests, broken=()) as server:
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


def shown(command: str, *arguments: str, url: str, tmp_path: Path) -> str:
    """What a command prints on a machine without Scrapy."""
    (tmp_path / "scrapy.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'scrapy'\", name='scrapy')"
    )
    env = {**os.environ, "REDIS_URL": url, "PYTHONPATH": str(tmp_path), "COLUMNS": "200"}
    words = [Path(sys.executable).with_name("tbloom"), command, "crawler", *arguments]
    return subprocess.run(
        words, env=env, check=True, capture_output=True, text=True, cwd=tmp_path
    ).stdout


def test_a_fleet_of_programs_is_seen_and_freed_without_scrapy(own_url: str, tmp_path: Path) -> None:
    requests: list[int] = []
    look = partial(shown, url=own_url, tmp_path=tmp_path)
    with served(Pages, requests=requests, broken=("7",)) as server:
        address = f"{server.url}/start"
        killed, *others = (start("crawler.py", address, url=own_url) for _ in range(3))
        while len(requests) < PAGES // 3:
            sleep(0.01)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        crawlers: list[dict[str, Any]] = []
        while "dead" not in {crawler["state"] for crawler in crawlers}:
            [queue] = json.loads(look("queue", "--json"))["queues"]
            crawlers = queue["crawlers"]
        dead = next(crawler for crawler in crawlers if crawler["state"] == "dead")
        assert dead["pid"] == killed.pid
        assert dead["program"] == "crawler.py"
        for other in others:
            output(other)
        assert set(range(PAGES)) == {*requests}
        assert "download/HTTPStatusError" in look("failed")
        [failed] = map(json.loads, look("failed", "--json-lines").splitlines())
        assert failed["url"].endswith("/pages/7")
        server.broken = ()
        assert "Retried 1 page of 'crawler'" in look("retry", "--all", "--yes")
        assert [failed["url"]] == output(start("crawler.py", address, url=own_url))
        assert not look("failed", "--json-lines")


def test_the_next_crawl_fetches_all_that_has_failed(own_url: str) -> None:
    """Though there are more than a process takes at a time."""
    requests: list[int] = []
    broken = {str(page) for page in range(4, PAGES, 4)}
    with served(Pages, requests=requests, broken=broken) as server:
        address = f"{server.url}/start"
        output(start("crawler.py", address, url=own_url))
        assert broken < {*map(str, requests)}
        server.broken = ()
        printed = output(start("crawler.py", address, url=own_url))
        assert broken <= {url.rpartition("/")[2] for url in printed}


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


def test_each_article_is_fetched_by_one_crawler(own_url: str, tmp_path: Path) -> None:
    port = str(free_port())
    site = {"PORT": port, "SITE_URL": f"http://127.0.0.1:{port}/", "REDIS_URL": own_url}
    env = {**os.environ, **site}

    def crawler(name: str, articles: int) -> subprocess.Popen[bytes]:
        limit = ["-s", f"CLOSESPIDER_ITEMCOUNT={articles}", "-O", tmp_path / f"{name}.jl"]
        spider = EXAMPLES / "compose" / "spider.py"
        command = [sys.executable, "-m", "scrapy", "runspider", spider, *limit]
        return subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)

    with subprocess.Popen([sys.executable, EXAMPLES / "compose" / "site.py"], env=env) as running:
        try:
            for crawlers in ([crawler("one", 10), crawler("two", 10)], [crawler("three", 1)]):
                assert [0] * len(crawlers) == [one.wait(120) for one in crawlers]
        finally:
            running.kill()
    pages = [
        json.loads(line)["url"] for path in tmp_path.iterdir() for line in path.open(encoding="utf-8")
    ]  # fmt: skip
    assert len({*pages}) == len(pages) > 20


class Flaky(Handler):
    """Pages that link to each other; ``/bad`` has an answer from its fifth request on."""

    def get(self) -> None:
        self.server.asked[self.path] += 1
        is_bad = self.path == "/bad" and self.server.asked["/bad"] < 5
        links = b'<a href="/">home</a> <a href="/a">a</a> <a href="/bad">bad</a>'
        self.answer(500 if is_bad else 200, links)


def test_crawlee_fetches_each_page_once(own_url: str) -> None:
    """In whichever crawl it is met; and again if it could not be fetched."""
    with served(Flaky, asked=Counter[str]()) as server:

        def crawl(page: str) -> set[str]:
            process = start("crawlee_crawler.py", f"{server.url}{page}", url=own_url)
            printed, log = process.communicate()
            assert process.returncode == 0, log
            return {url.removeprefix(server.url) for url in printed.splitlines()}

        assert [{"/", "/a"}, set()] == [crawl("/"), crawl("/")]
        assert {"/": 1, "/a": 1, "/bad": 4} == server.asked
        assert [{"/bad"}, set()] == [crawl("/bad"), crawl("/bad")]
    assert {"/": 1, "/a": 1, "/bad": 5} == server.asked


def killed_once(url: str, *words: str, ends: Callable[[], Any]) -> None:
    """Run a worker until something is so, and kill it with its children."""
    with subprocess.Popen(
        [sys.executable, "-m", *words], cwd=EXAMPLES, start_new_session=True,
        env={**os.environ, "REDIS_URL": url, "SESSION_TTL": "2"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as worker:  # fmt: skip
        while not ends():
            sleep(0.05)
        os.killpg(worker.pid, signal.SIGKILL)


def test_a_celery_task_is_done_once_though_workers_die(own: redis.Redis, own_url: str) -> None:
    """In the middle of its tasks. Calls that are made twice, or come later, do nothing."""
    own.flushall()
    orders = [f"order {i}" for i in range(4)]
    output(start("celery_once.py", *orders, *orders, url=own_url))
    words = ("celery", "-A", "celery_once", "worker", "--concurrency", "2")
    killed_once(own_url, *words, ends=lambda: own.llen("asked"))
    killed_once(
        own_url,
        *words,
        ends=lambda: (
            not (own.llen("paid") < len(orders) or own.llen("celery") or own.hlen("unacked"))
        ),
    )
    assert sorted(map(str.encode, orders)) == sorted(own.lrange("paid", 0, -1))
    # The killed one was at work on two at most.
    assert len(orders) < own.llen("asked") <= len(orders) + 2


def test_an_rq_job_is_done_once_though_workers_die(own: redis.Redis, own_url: str) -> None:
    """django-rq#517, arq#167. Enqueued twice, and once more after each of the two; a failure does not refuse its key, as ``unique=True`` does."""
    from rq import Queue  # noqa: PLC0415 - as below
    from rq.exceptions import DuplicateJobError  # noqa: PLC0415

    own.flushall()
    enqueue = partial(start, "rq_once.py", url=own_url)
    work = partial(killed_once, own_url, "rq.cli", "worker", "--with-scheduler", "--url", own_url)
    orders = [f"order {i}" for i in range(3)]
    own.set("closed", "")
    output(enqueue(*orders, *orders))

    def has_paid() -> bool:
        if own.llen("asked") >= len(orders):
            own.delete("closed")
        return bool(own.llen("paid"))

    work(ends=has_paid)
    output(enqueue(*orders))
    work(ends=lambda: own.llen("paid") >= len(orders) and not own.llen("rq:queue:default"))
    assert sorted(map(str.encode, orders)) == sorted(own.lrange("paid", 0, -1))
    own.set("closed", "")
    jobs = Queue(connection=own)
    unique = partial(jobs.enqueue, "rq_once.charge", "other", job_id="other", unique=True)
    unique()
    work(ends=lambda: own.zscore("rq:failed:default", "other") is not None)
    with pytest.raises(DuplicateJobError):
        unique()


async def test_an_idempotency_key_is_handled_once(own: redis.Redis, own_url: str) -> None:
    """/broken fails at first, once by an exception and once by a status."""
    import httpx  # noqa: PLC0415 - slow, and only needed here

    own.flushall()
    handled = Counter[str]()

    async def shop(scope: Any, _: Any, send: Any) -> None:
        handled[scope["path"]] += 1
        tries = handled[scope["path"]] if scope["path"] == "/broken" else 3
        await asyncio.sleep(0.05)
        if tries == 1:
            raise RuntimeError("the bank does not answer")
        await send({"type": "http.response.start", "status": 503 if tries == 2 else 201})
        await send({"type": "http.response.body", "body": b"made"})

    middleware = runpy.run_path(str(EXAMPLES / "asgi_idempotency.py"))["Idempotent"]
    seen = AsyncTimeBloom.from_url(own_url, "handled", slices=4)
    transport = httpx.ASGITransport(middleware(shop, seen), raise_app_exceptions=False)
    async with seen, httpx.AsyncClient(transport=transport, base_url="http://shop") as client:

        async def post(path: str, key: str = "") -> int:
            headers = {"Idempotency-Key": key} if key else {}
            return (await client.post(path, headers=headers)).status_code

        statuses = await asyncio.gather(*[post("/order", "1") for _ in range(10)])
        assert Counter({409: 9, 201: 1}) == Counter(statuses)
        assert [208, 201] == [await post("/order", key) for key in "12"]
        assert [201, 208] == [await post("/other", "1") for _ in range(2)]
        assert [500, 503, 201, 208] == [await post("/broken", "3") for _ in range(4)]
        assert [201, 201] == [await post("/free") for _ in range(2)]
    assert {"/order": 2, "/other": 1, "/broken": 3, "/free": 2} == handled


@pytest.mark.filterwarnings("ignore:Using `httpx` with")
def test_an_application_makes_its_filter_in_its_event_loop(
    own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each TestClient has an event loop of its own; a filter that two use refuses the second one, and says why."""
    from fastapi import FastAPI  # noqa: PLC0415 - as below
    from fastapi.testclient import TestClient  # noqa: PLC0415 - it warns of its HTTP client

    monkeypatch.setenv("REDIS_URL", own_url)
    app = runpy.run_path(str(EXAMPLES / "fastapi_app.py"))["app"]
    for is_new in (True, False):
        with TestClient(app) as client:
            assert client.post("/links", params={"url": "https://example.com/"}).json() is is_new
    shared, wrong = AsyncTimeBloom.from_url(own_url, "links"), FastAPI()
    wrong.post("/{item}")(shared.add)
    with TestClient(wrong) as client:
        assert client.post("/a").json()
    with TestClient(wrong) as client, pytest.raises(TBloomError, match="lifespan"):
        client.post("/a")


def test_a_web_application_says_when_redis_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """And answers again once it is back."""
    from fastapi.testclient import TestClient  # noqa: PLC0415 - it warns of its HTTP client

    server = LocalRedis(needed())
    monkeypatch.setenv("REDIS_URL", server.url)
    app = runpy.run_path(str(EXAMPLES / "fastapi_app.py"))["app"]
    with TestClient(app) as client:
        away = client.post("/links", params={"url": "https://example.com/"})
        assert (503, "5") == (away.status_code, away.headers["Retry-After"])
        with server:
            assert client.post("/links", params={"url": "https://example.com/"}).json() is True


def test_an_event_of_a_stream_is_acted_on_once(own: redis.Redis, own_url: str) -> None:
    """Though each was added twice, and one of three consumers is killed at work."""
    own.flushall()
    events = [f"event {i}" for i in range(2000)]
    own.xgroup_create("events", "workers", "0", mkstream=True)
    for event in [*events, *events[::-1]]:
        own.xadd("events", {"id": event})
    killed, *others = [start("stream_consumer.py", f"{i}", url=own_url) for i in range(3)]
    while own.llen("acted") < 300:
        sleep(0.005)
    killed.kill()
    killed.communicate()
    for process in others:
        assert [] == output(process)
    acted = Counter(own.lrange("acted", 0, -1))
    assert {event.encode() for event in events} == acted.keys()
    assert acted.total() <= len(events) + 1  # what the killed one was acting on
    assert 0 == own.xpending("events", "workers")["pending"]


class FailsOnce(Handler):
    """Pages of which ``/bad`` fails at first, ``/cut`` is cut in the middle, and ``/only/...`` take long."""

    def get(self) -> None:
        self.server.asked[self.path] += 1
        sleep(0.2 * self.path.startswith("/only/"))
        is_first = self.server.asked[self.path] == 1
        more = {"Content_Length": 20} if is_first and self.path == "/cut" else {}
        self.answer(500 if is_first and self.path == "/bad" else 200, b"page", **more)


def test_workers_fetch_every_page_though_one_is_killed(own_url: str, tmp_path: Path) -> None:
    """Its batch at most is fetched twice (sidekiq#6829), by others, whose file does not have it. What fails is fetched by the
    next run."""
    asked = Counter[str]()
    with served(FailsOnce, asked=asked) as server:
        urls = [f"{server.url}/{path}" for path in [*range(300), "bad", "cut"]]
        file, other = tmp_path / "urls.txt", tmp_path / "other.txt"
        file.write_text("\n".join([*urls, *urls[:50], "no/url"]), encoding="utf-8")
        only = [f"{server.url}/only/{number}" for number in range(20)]
        other.write_text("\n".join(only), encoding="utf-8")
        killed = start("worker.py", str(other), url=own_url)
        others = [start("worker.py", str(file), url=own_url) for _ in range(2)]
        while not {"/only/3", "/99"} <= asked.keys():
            sleep(0.005)
        killed.kill()
        killed.communicate()
        for worker in others:
            output(worker)
        for _ in range(2):
            last = output(start("worker.py", str(file), url=own_url))
        assert ["no/url unknown url type: 'no/url'"] == last
    assert {url.removeprefix(server.url) for url in urls + only} == asked.keys()
    assert [2, 2] == [asked["/bad"], asked["/cut"]]
    assert asked.total() <= 324 + 20
