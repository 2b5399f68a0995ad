"""The connections of a client for threads: calls are sent over one of its pool's, several at once.

redis-py takes a connection from its pool, checks it and gives it back for each call, in half the time of a whole ``SADD``.
Where nothing else uses the client, connections are kept from call to call, which skips that. If the server has closed a kept
one, the next call fails, so this needs retries.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from time import monotonic_ns
from typing import Any
from weakref import WeakKeyDictionary

import redis
from redis import ConnectionError as RedisConnectionError
from redis import RedisCluster, ResponseError
from redis.asyncio import RedisCluster as AsyncRedisCluster

from tbloom.engine.flow import CORRECTIONS, Call
from tbloom.engine.forks import BeginsAnew
from tbloom.engine.replicas import reply_of, with_behind
from tbloom.engine.retries import as_redis_error

#: The calls of a connection that are on their way, at most: the server may execute all of them before another client's.
AT_ONCE = 4
#: More than an expected reply has.
_REPLY_BYTES = 64
#: How replies begin that have changed nothing: errors, which scripts raise first, and corrections of what the client knows.
_CHANGED_NOTHING = (b"-", *[b"*2\r\n:%d\r\n" % status for status in CORRECTIONS])
#: How long (ns) connections are used before the address is asked anew: it may lead to a new master by now. A read would
#: never notice, because the old master answers it as a replica.
_RENEWAL_NS = 60_000_000_000
#: What redis-py's errors are made of where another thread closes the connection that it uses.
BROKEN = (OSError, AttributeError, RuntimeError, ValueError, asyncio.TimeoutError)
_BEFORE_5_3 = tuple(map(int, redis.__version__.split(".")[:2])) < (5, 3)
#: What a pool's ``get_connection`` wants: the name of a command, before redis-py 5.3.
ANY: tuple[str, ...] = ("EVALSHA",) if _BEFORE_5_3 else ()


def next_renewal() -> int:
    """When the connections that are open now are closed (ns, by the monotonic clock)."""
    return monotonic_ns() + _RENEWAL_NS


class Connections(BeginsAnew):
    """The connections of one client, for any number of threads; ``keeps``: from call to call."""

    __slots__ = ("_client", "_free", "_opened", "keeps", "renewal")

    def __init__(self, client: redis.Redis | RedisCluster) -> None:
        self._client: Any = client
        self.keeps = False
        super().__init__()

    def begin(self) -> None:
        """Keeps none in a forked child: they are its parent's."""
        self._free: deque[Any] = deque()
        #: At which renewal each was opened. One of an earlier renewal is closed when it is used next.
        self._opened: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        #: When connections are closed, so that the address is asked anew (ns, by the monotonic clock).
        self.renewal = next_renewal()

    def ask(self, request: bytes, expected: Sequence[bytes]) -> bytes | None:
        """The reply to a request, as it came, if it is one of those expected. Empty: the server may have executed the
        request, and the connection is closed. None: nothing was executed."""
        free = self._free
        try:
            connection = free.pop()
        except IndexError:
            return None
        sock, reply = getattr(connection, "_sock", None), b""
        if type(sock) is not socket.socket:  # TLS, a closed one, or another redis-py, which sends
            free.append(connection)
            return None
        try:
            sock.sendall(request)
            reply = sock.recv(_REPLY_BYTES)
        except OSError:
            pass  # the next try tells
        finally:
            if reply in expected and free is self._free:
                free.append(connection)
            else:
                self._give_up(self._client.connection_pool, connection)
        if reply.startswith(_CHANGED_NOTHING):
            return None
        return reply if reply in expected else b""

    def send(self, calls: Sequence[Call], at_once: int = AT_ONCE) -> list[Any]:
        """The reply to each call, or the error; ``at_once``: how many of a node's are on their way."""
        if monotonic_ns() >= self.renewal:
            self.renew()
        requests, replies, lost = [with_behind(call) for call in calls], dict[int, Any](), None

        def send() -> None:
            self._send(calls, requests, replies, at_once)

        retry = None if isinstance(self._client, RedisCluster) else self._client.get_retry()
        try:
            # A caller's client retries as its caller has set it up.
            retry.call_with_retry(send, lambda _: None) if retry else send()
        except Exception as error:  # noqa: BLE001 - Retries raises what is not retried
            lost = as_redis_error(error)
        return [replies.get(place, lost) for place in range(len(calls))]

    def _send(
        self, calls: Sequence[Call], requests: list[bytes], replies: dict[int, Any], at_once: int
    ) -> None:
        talks = []
        for pool, places in by_node(self._client, calls):
            window = in_window([requests[place] for place in places], at_once)
            talks.append(
                self._talk(pool, window, {place: calls[place] for place in places}, replies)
            )
        try:
            for _ in "send to all", "read from all":
                for talk in talks:
                    next(talk)
        finally:
            for talk in talks:
                talk.close()

    def _talk(
        self, pool: Any, window: Iterator[bytes], calls: dict[int, Call], replies: dict[int, Any]
    ) -> Generator[None]:
        """Sends the first requests; then sends the others, and adds the replies."""
        free, connection = self._free, self._take(pool)
        try:
            connection.send_packed_command((next(window),), check_health=False)
            # Not through redis-py, which might reconnect in the middle, and lose replies.
            sock = getattr(connection, "_sock", None)
            send = sock.sendall if sock else connection.send_packed_command
            yield
            for place, call in calls.items():
                came = [_read(connection) for _ in range(1 + len(call.behind))]
                replies[place] = reply_of(call, came)
                if data := next(window, b""):
                    send(data)
        except BaseException as error:
            self._give_up(pool, connection)
            if isinstance(error, BROKEN):
                raise as_disconnected(error) from error
            raise
        if self.keeps and free is self._free:
            free.append(connection)
        else:
            pool.release(connection)
        yield

    def _take(self, pool: Any) -> Any:
        try:
            return self._free.pop()
        except IndexError:
            connection = _connected(pool)
        if self._opened.setdefault(connection, self.renewal) != self.renewal:
            connection.disconnect()  # it connects when it sends
            self._opened[connection] = self.renewal
        return connection

    def _give_up(self, pool: Any, connection: Any) -> None:
        """Closes a connection: the next call would read the rest of its replies."""
        connection.disconnect()
        pool.release(connection)
        self.let_go()  # the others may be closed too; the pool checks them

    def let_go(self) -> None:
        """Gives the free ones back to the pool."""
        self._release(self._free)

    def renew(self) -> None:
        """Has all connections closed before they are used again."""
        self.renewal = next_renewal()
        free, self._free = self._free, deque()
        self._release(free)

    def _release(self, connections: deque[Any]) -> None:
        with suppress(IndexError):  # another thread may have taken the last one
            while True:
                connection = connections.pop()
                self._client.connection_pool.release(connection)


def _connected(pool: Any) -> Any:
    try:
        return pool.get_connection(*ANY)
    except redis.RedisError:
        raise
    except BaseException:
        # An interrupt: the pool may have a connection to which redis-py has sent a command, and has not read the reply.
        with suppress(
            TypeError
        ):  # older blocking pools take no argument, and check their connections
            pool.disconnect(inuse_connections=False)
        raise


def _read(connection: Any) -> Any:
    """The next reply, or the server's error."""
    try:
        return connection.read_response(disable_decoding=True)
    except ResponseError as error:
        # The traceback would refer to this frame, and so to the store.
        return error.with_traceback(None)


def in_window(requests: list[bytes], at_once: int = AT_ONCE) -> Iterator[bytes]:
    """What is sent first, and what is sent for each reply that has come, so that the server always has its next call."""
    yield b"".join(requests[:at_once])
    yield from requests[at_once:]


def by_node(client: Any, calls: Sequence[Call]) -> Iterable[tuple[Any, Sequence[int]]]:
    """The pools that calls are sent to, with the calls' places; of an asyncio cluster, the nodes."""
    if not isinstance(client, RedisCluster | AsyncRedisCluster):
        return [(client.connection_pool, range(len(calls)))]
    nodes: dict[str, tuple[Any, list[int]]] = {}  # before redis-py 7, a node has no hash
    for place, call in enumerate(calls):
        node: Any = client.get_node_from_key(call.key)
        nodes.setdefault(node.name, (node, []))[1].append(place)
    if isinstance(client, AsyncRedisCluster):
        return nodes.values()
    return [
        (client.get_redis_connection(node).connection_pool, places)
        for node, places in nodes.values()
    ]


def as_disconnected(error: BaseException) -> Exception:
    """redis-py's error where its connection broke."""
    if isinstance(error, TimeoutError | asyncio.TimeoutError):  # two until Python 3.11
        return redis.TimeoutError("no reply in time")
    return RedisConnectionError(f"disconnected while in use ({error})")
