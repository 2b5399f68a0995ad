"""Flows that read a server's time, eviction policy and memory, and stored parameters; the client's copy of the server's clock."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import NamedTuple

from tbloom.engine.flow import Call, Flow, ask_all, request, text
from tbloom.engine.parameters import StoreConfig, mismatch
from tbloom.engine.pending import now_ms
from tbloom.window import from_ms

#: The most buckets whose memory is measured. They are of about one size, because a hash spreads the items over them.
_MEASURED = 100
#: By how much a clock of this machine has to be ahead of the other one before it counts (ms).
_JUMP_MS = 1000
#: What a replica that takes no writes says of itself, in Valkey, too.
_READ_ONLY = {"role": "slave", "slave_read_only": "1"}
#: A server that saves no snapshot for so long (s), though there were changes, saves none.
_DAY = 86_400
_UNKNOWN = "the server refuses MEMORY USAGE: the memory is unknown"


class ServerClock:
    """An estimate of the server's time: its last known time, plus the time that has passed since.

    The first estimate is this machine's time. If that is wrong, the server's reply to the first call corrects it.
    """

    __slots__ = ("_ahead",)

    def __init__(self) -> None:
        wall = _wall_ahead()
        #: How far the server's time, and this machine's, are ahead of the monotonic clock (ms). Both change in one step.
        self._ahead = (wall, wall)

    def now(self) -> int:
        """Return the server's time in milliseconds since the epoch."""
        (server, before), wall = self._ahead, _wall_ahead()
        if abs(wall - before) > _JUMP_MS:
            # The monotonic clock stood still while the machine was suspended. A clock that was set forward looks the same, until
            # the server's next reply; one that was set back says nothing about the server's time.
            server += max(0, wall - before)
            self._ahead = (server, wall)
        return now_ms() + server

    def learn(self, server_ms: int, asked: int | None = None) -> None:
        """Set the clock to the server's time (ms), which the server read after the call was sent at ``asked`` (monotonic, ms).

        Keep an estimate that this time allows: a reply that has come late would set it back. If ``asked`` is None, take the
        time as read just now.
        """
        now, (server, wall) = now_ms(), self._ahead
        self._ahead = (min(max(server, server_ms - now), server_ms - (asked or now)), wall)


def _wall_ahead() -> int:
    """Return how far this machine's time is ahead of its monotonic clock (ms)."""
    return (time.time_ns() - time.monotonic_ns()) // 1_000_000


def server_time(config: StoreConfig) -> Flow[int]:
    """Return the time of the store's server (ms); in a cluster, that of the node with its first key."""
    [[seconds, microseconds]] = yield from request([Call(("TIME",), config.keys.root)])
    return int(seconds) * 1000 + int(microseconds) // 1000


def ask_time(config: StoreConfig, clock: ServerClock) -> Flow[None]:
    """Read the server's time, and set the clock to it."""
    clock.learn((yield from server_time(config)))


def check_stored(config: StoreConfig) -> Flow[None]:
    """Raise ConfigMismatch if the parameters at the root key differ from the client's."""
    [stored] = yield from request([Call(("GET", config.keys.root))])
    if stored is not None and text(stored) != config.stored:
        raise mismatch(config, stored)


class Told(NamedTuple):
    """What servers say of themselves that concerns whoever keeps keys there."""

    #: A warning for each limit and policy by which one evicts keys when its memory is full, and one if one refuses to tell.
    warnings: list[str]
    #: The time (s since the epoch) since which one has written nothing to its disk; None: all do, or say nothing of it.
    unsaved_since: float | None
    #: Whether one is a replica that takes no writes.
    is_read_only: bool


def unsaved(since: float) -> str:
    """Return what a restart of a server would forget that has written nothing to its disk since then, and the remedy."""
    return (
        f"a restart of the server would forget all since {from_ms(int(since * 1000)):%Y-%m-%d %H:%M} UTC, because it has no append-only "
        "file, and has saved nothing since: redis-cli CONFIG SET appendonly yes, then CONFIG REWRITE"
    )


def ask_servers(keys: list[str]) -> Flow[Told]:
    """Return what the servers of these keys say of themselves."""
    warnings, unsaved_since = dict[str, None](), dict[str, float]()
    is_read_only = False
    replies = yield from ask_all([Call(("INFO",), key) for key in keys])
    for key, reply in zip(keys, replies, strict=True):
        if isinstance(reply, Exception):
            warnings["the server refuses INFO: it may drop keys when its memory is full"] = None
            continue
        said = str(reply)  # redis-py makes a dict of it
        limit, policy = _found("maxmemory", said), re.search(r"maxmemory_policy\W+([\w-]+)", said)
        if limit and policy and policy[1] != "noeviction":
            warnings[
                f"the server drops keys once it uses {limit} bytes (maxmemory-policy {policy[1]}); "
                "what they held is forgotten then: set noeviction"
            ] = None
        is_read_only |= all(re.search(rf"\b{n}\W+{value}", said) for n, value in _READ_ONLY.items())
        if since := _unsaved_since(said):
            unsaved_since[key] = since
    # INFO does not have this setting. Where CONFIG is refused, what INFO says counts.
    asked = [Call(("CONFIG", "GET", "save"), key) for key in unsaved_since]
    saves = zip([*unsaved_since], (yield from ask_all(asked)), strict=True)
    for key in [key for key, reply in saves if re.search(r"\d \d", str(reply))]:
        del unsaved_since[key]
    return Told([*warnings], min(unsaved_since.values(), default=None), is_read_only)


def _found(name: str, said: str) -> int | None:
    """Return a number of a server's INFO; None if it is not there."""
    found = re.search(rf"\b{name}\W+?(-?\d+)", said)
    return int(found[1]) if found else None


def _unsaved_since(said: str) -> int | None:
    """Return since when a server without an append-only file has saved nothing, if that is since its start, or for a day."""
    names = "aof_enabled", "rdb_last_save_time", "rdb_last_bgsave_time_sec"
    has_file, saved_at, took = (_found(name, said) for name in names)
    if has_file != 0 or saved_at is None or took is None:
        return None
    saves = _found("rdb_saves", said)
    # Redis 6.2 does not count them. The time is also of what was only sent to a replica.
    is_saved = took >= 0 if saves is None else saves > 0
    now = (_found("server_time_usec", said) or 0) / 1e6
    is_old = _found("rdb_changes_since_last_save", said) and now - saved_at > _DAY
    return saved_at if is_old or not is_saved else None


def memory(keys: Iterable[str], warnings: list[str]) -> Flow[list[int | None]]:
    """Return the memory of each key (bytes), overhead included; 0 for a missing key.

    It is None if the server refuses to tell, which is also added to the warnings, once.
    """
    # By all fields of a hash, because some are much longer than others.
    calls = [Call(("MEMORY", "USAGE", key, "SAMPLES", "0"), key) for key in keys]
    replies = yield from ask_all(calls)
    sizes = [None if isinstance(reply, Exception) else int(reply or 0) for reply in replies]
    if None in sizes and _UNKNOWN not in warnings:
        warnings.append(_UNKNOWN)
    return sizes


def memory_of_buckets(keys: list[str], warnings: list[str]) -> Flow[int | None]:
    """Return the memory of all these keys together (see ``memory``). Of more than 100 keys, measure at most 100."""
    measured = keys[:: -(-len(keys) // _MEASURED) or 1]
    taken = total((yield from memory(measured, warnings)))
    return taken and taken * len(keys) // len(measured)


def total(figures: Iterable[int | None]) -> int | None:
    """Return the sum of the figures, or None if one of them is None."""
    known = [*figures]
    return None if None in known else sum(filter(None, known))
