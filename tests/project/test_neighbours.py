"""The recipes for other libraries run, with these libraries: Crawlee, Celery, ASGI by httpx, and Redis' streams."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

import httpx
import pytest
import redis

from tbloom import AsyncTimeBloom
from tests.helpers.making import missing
from tests.helpers.website import served
from tests.project.test_examples import EXAMPLES, output, start

pytestmark = pytest.mark.check


def needs(library: str) -> None:
    if importlib.util.find_spec(library) is None:
        missing(library)


class Flaky(BaseHTTPRequestHandler):
    """Pages that link to each other; ``/bad`` has an answer from its fifth request on."""

    requests: ClassVar[Counter[str]] = Counter()

    def do_GET(self) -> None:
        self.requests[self.path] += 1
        is_bad = self.path == "/bad" and self.requests["/bad"] < 5
        self.send_response(500 if is_bad else 200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b'<a href="/">home</a> <a href="/a">a</a> <a href="/bad">bad</a>')

    def log_message(self, *_: Any) -> None:
        pass


def test_crawlee_fetches_each_page_once(own_url: str) -> None:
    """In whichever crawl it is met; and again if it could not be fetched."""
    needs("crawlee")
    with served(Flaky) as server:

        def crawl(page: str) -> set[str]:
            process = start("crawlee_crawler.py", f"{server.url}{page}", url=own_url)
            printed, log = process.communicate()
            assert process.returncode == 0, log
            return {url.removeprefix(server.url) for url in printed.splitlines()}

        assert [{"/", "/a"}, set()] == [crawl("/"), crawl("/")]
        assert {"/": 1, "/a": 1, "/bad": 4} == Flaky.requests
        assert [{"/bad"}, set()] == [crawl("/bad"), crawl("/bad")]
    assert {"/": 1, "/a": 1, "/bad": 5} == Flaky.requests


def worker(url: str) -> subprocess.Popen[bytes]:
    """A Celery worker in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "celery_once", "worker", "--concurrency", "2"],
        cwd=EXAMPLES,
        env={**os.environ, "REDIS_URL": url, "SESSION_TTL": "2"},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_a_celery_task_is_done_once_though_a_worker_is_killed(
    own: redis.Redis, own_url: str
) -> None:
    """In the middle of its tasks. Calls that are made twice, or come later, do nothing."""
    needs("celery")
    own.flushall()
    orders = [f"order {i}" for i in range(4)]
    output(start("celery_once.py", *orders, *orders, url=own_url))
    workers = [worker(own_url)]
    try:
        while not own.llen("asked"):
            time.sleep(0.05)
        os.killpg(workers[0].pid, signal.SIGKILL)
        workers.append(worker(own_url))
        while (
            len({*own.lrange("paid", 0, -1)}) < len(orders)
            or own.llen("celery")
            or own.hlen("unacked")
        ):
            time.sleep(0.2)
        paid = Counter(own.lrange("paid", 0, -1))
    finally:
        for process in workers:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert {order.encode(): 1 for order in orders} == paid
    assert (
        len(orders) < own.llen("asked") <= len(orders) + 2
    )  # the killed one was at work on two at most


class Shop:
    """An application that counts what it handles; ``/broken`` fails at first, once by a status and once by an exception."""

    def __init__(self) -> None:
        self.handled: Counter[str] = Counter()

    async def __call__(self, scope: Any, _: Any, send: Any) -> None:
        path, status = scope["path"], 201
        self.handled[path] += 1
        await asyncio.sleep(0.05)
        if path == "/broken" and self.handled[path] == 1:
            raise RuntimeError("the bank does not answer")
        if path == "/broken" and self.handled[path] == 2:
            status = 503
        await send({"type": "http.response.start", "status": status})
        await send({"type": "http.response.body", "body": b"made"})


async def test_an_idempotency_key_is_handled_once(own: redis.Redis, own_url: str) -> None:
    own.flushall()
    spec = importlib.util.spec_from_file_location(
        "asgi_idempotency", EXAMPLES / "asgi_idempotency.py"
    )
    assert spec is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)  # type: ignore[union-attr]
    shop = Shop()
    async with AsyncTimeBloom.from_url(own_url, "handled", slices=4) as handled:
        transport = httpx.ASGITransport(
            example.Idempotent(shop, handled), raise_app_exceptions=False
        )
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:

            async def post(path: str, key: str | None = None) -> int:
                headers = {} if key is None else {"Idempotency-Key": key}
                return (await client.post(path, headers=headers)).status_code

            statuses = await asyncio.gather(*[post("/order", "1") for _ in range(10)])
            assert Counter({409: 9, 201: 1}) == Counter(statuses)
            assert [208, 201, 201] == [
                await post(*one) for one in (("/order", "1"), ("/order", "2"), ("/other", "1"))
            ]
            assert [500, 503, 201, 208] == [await post("/broken", "3") for _ in range(4)]
            assert [201, 201] == [await post("/free") for _ in range(2)]
            assert 201 == (await client.put("/order", headers={"idempotency-key": "1"})).status_code
    assert {"/order": 3, "/other": 1, "/broken": 3, "/free": 2} == shop.handled


def test_an_event_of_a_stream_is_acted_on_once(own: redis.Redis, own_url: str) -> None:
    """Though each was added twice, and one of three consumers is killed at work."""
    own.flushall()
    events = [f"event {i}" for i in range(2000)]
    own.xgroup_create("events", "workers", "0", mkstream=True)
    for event in [*events, *events[::-1]]:
        own.xadd("events", {"id": event})
    killed, *others = [start("stream_consumer.py", f"{i}", url=own_url) for i in range(3)]
    while own.llen("acted") < 300:
        time.sleep(0.005)
    killed.kill()
    killed.communicate()
    for process in others:
        assert [] == output(process)
    acted = Counter(own.lrange("acted", 0, -1))
    assert {event.encode() for event in events} == acted.keys()
    assert acted.total() <= len(events) + 1  # what the killed one was acting on
    assert 0 == own.xpending("events", "workers")["pending"]
