"""With gevent, whose greenlets are threads to tbloom."""

from __future__ import annotations

import subprocess
import sys

from tests.helpers.localredis import LocalRedis

_PROGRAM = """
from gevent import monkey
monkey.patch_all()
import sys
from collections import Counter
import gevent
import redis
from tbloom.exact import ExactFilter

url, name = sys.argv[1:]
# Without retries, a call beside the others would raise MaxConnectionsError.
seen = ExactFilter(redis.Redis.from_url(f"{url}?max_connections=2"), name)
seen.add("a")
calls = Counter()

def work(number, limit):
    while calls[number] < 40:
        with gevent.Timeout(limit, False):
            assert seen.contains("a")
        gevent.sleep(0)  # a greenlet whose reply is there already gives no other one its turn
        calls[number] += 1
        if calls[number] == 20:
            least.append(min(calls[n] for n in range(20)))

def run(limit):
    calls.clear()
    least.clear()
    gevent.joinall([gevent.spawn(work, number, limit) for number in range(20)], raise_error=True)
    turns = seen._sender.turns
    assert not turns.holders and not turns.waiting

least = []
run(None)
print(least[0] > 10)
with redis.Redis.from_url(url) as other:
    other.client_pause(1500)  # both connections are waited for
run(None)
with redis.Redis.from_url(url) as other:
    other.client_pause(300)
run(0.001)
print(seen.add_many(["a", "b"]))
"""


def test_greenlets_take_turns(own_server: LocalRedis, name: str) -> None:
    """Also while the server hangs, and when the wait is interrupted."""
    words = [sys.executable, "-c", _PROGRAM, own_server.url, name]
    ended = subprocess.run(words, check=False, capture_output=True, text=True)
    assert "True\n[False, True]\n" == ended.stdout, ended.stderr
