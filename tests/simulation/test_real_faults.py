"""What the moves of the player do is what happens on a real network, and at a real server that refuses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import sleep
from typing import Any

import pytest
import redis
from redis import exceptions

from tbloom import TimeBloom
from tbloom.engine.sync import Sender
from tests.helpers.flows import flow_of
from tests.helpers.localredis import LocalRedis
from tests.helpers.proxy import Fault, Proxy


@pytest.fixture
def seen(server: LocalRedis, name: str) -> Iterator[TimeBloom]:
    """A filter that is there, and looked at without faults."""
    with TimeBloom.from_url(server.url, name, capacity=1000) as seen:
        seen.add("first")
        yield seen


def send(url: str, seen: TimeBloom, timeout: float = 600) -> Any:
    """What the driver gets for a call that adds an item: a reply, or redis-py's error."""
    flow = flow_of(seen, "add", "item")
    with redis.Redis.from_url(url, socket_timeout=timeout, retry=None) as client:
        [reply] = Sender(client).send(next(flow))
    flow.close()
    return reply


def is_executed(server: LocalRedis, name: str) -> bool:
    with TimeBloom.from_url(server.url, name, capacity=1000) as other:
        return other.contains("item")


@pytest.mark.parametrize(
    ("fault", "before"),
    [
        (Fault.LOSE, True),
        (Fault.CUT_REPLY, True),
        (Fault.LATE_REPLY, True),
        (Fault.CUT_REQUEST, False),
    ],
)
def test_a_lost_connection(
    seen: TimeBloom, server: LocalRedis, name: str, fault: Fault, *, before: bool
) -> None:
    """The call is executed before, or never."""
    is_late, go_on = fault is Fault.LATE_REPLY, threading.Event()
    with Proxy(server.url, lambda _: fault, late=go_on) as proxy:
        error = send(proxy.url, seen, *[0.3] * is_late)
        assert isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError)
        while is_late and not is_executed(server, name):  # its caller was in a hurry
            sleep(0.02)
        assert before == is_executed(server, name)
        go_on.set()


def test_a_late_call_is_executed_after_its_callers_error(
    seen: TimeBloom, server: LocalRedis, name: str
) -> None:
    """Its caller has an error by then, or has sent it again."""
    go_on = threading.Event()
    with Proxy(server.url, lambda _: Fault.LATE_REQUEST, late=go_on) as proxy:
        error = send(proxy.url, seen, 0.3)
        assert isinstance(error, exceptions.TimeoutError)
        assert not is_executed(server, name)
        go_on.set()
        while not is_executed(server, name):
            sleep(0.02)


@contextmanager
def in_a_script(client: redis.Redis) -> Iterator[None]:
    """While another client's script runs without an end."""
    client.config_set("lua-time-limit", 1)

    def run() -> None:
        with suppress(redis.RedisError):
            client.eval("while true do end", 0)

    thread = threading.Thread(target=run)
    thread.start()
    with suppress(redis.ResponseError):
        while client.ping():  # until it says BUSY
            sleep(0.01)
    yield
    client.script_kill()
    thread.join()


def test_a_busy_server_executes_no_call(seen: TimeBloom, server: LocalRedis, name: str) -> None:
    """The call was not executed. (LOADING is of the same class as a lost connection, and nothing was executed either. The other
    errors of the player are its server's own.)"""
    with redis.Redis.from_url(server.url, retry=None) as client, in_a_script(client):
        reply = send(server.url, seen)
    assert isinstance(reply, exceptions.ResponseError)
    assert str(reply).startswith("BUSY ")
    assert not is_executed(server, name)
