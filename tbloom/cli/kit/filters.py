"""The filters on a server, opened with their stored parameters."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import redis
from redis.exceptions import OutOfMemoryError
from redis.retry import Retry

from tbloom import TimeBloom
from tbloom.bloom.config import Config, Parameters, from_stored
from tbloom.bloom.dispatcher import FilterDispatcher
from tbloom.bloom.info import FilterInfo
from tbloom.cli.kit.errors import VARIABLES, CommandError
from tbloom.engine.flow import text
from tbloom.engine.keys import name_of, root_of, roots
from tbloom.engine.parameters import read_stored
from tbloom.engine.retries import NODE, is_redirection
from tbloom.engine.sending import is_cluster
from tbloom.engine.urls import make_client, parse_url, without_secrets
from tbloom.errors import ConfigError, ConfigMismatch, FilterFull, TBloomError

if TYPE_CHECKING:
    from tbloom.exact import ExactFilter, ExactInfo

    Info = FilterInfo | ExactInfo

T = TypeVar("T")
#: The errors of a server that does not answer.
OUTAGES = (redis.ConnectionError, redis.TimeoutError, redis.exceptions.RedisClusterException)
#: What a server says to the number of a database that it lacks; the second one as a node of a cluster.
_NO_DATABASE = re.compile("DB index|SELECT is not allowed")
#: The errors of a server or a filter that takes no more items.
FULL: tuple[type[Exception], ...] = (OutOfMemoryError, FilterFull)
#: The least time between two searches for filters, which look at all keys of the server (s).
SEARCH_EVERY = 60.0
#: How long commands with many items retry a request (s). Commands that only read do not retry.
RETRY_FOR = 30.0
#: The kinds of stores that are no filters (docs/format.md): mappings of counters, and counters of integers.
COUNTERS = ("mapping", "integers")
#: The kind of a ``TimeBloom``, which has none stored.
WITH_SLICES = ""


@contextmanager
def connect(url: str, option: str, prefix: str = "") -> Iterator[Server]:
    """Yield the server, with a client that does not retry. ``option``, which gave the URL, is named in errors."""
    try:
        address, cluster = parse_url(url)
    except ConfigError as error:
        raise ConfigError(option, error.value, error.expected) from None
    # Commands expect replies in bytes.
    address = re.sub(r"(?<=[?&])(decode_responses|encoding\w*)=[^&]*&?", "", address)
    kind = redis.RedisCluster if cluster else redis.Redis
    with ExitStack() as stack:
        with _named(without_secrets(url), option, has_user="@" in url):
            client = stack.enter_context(make_client(kind.from_url, Retry, address))
        yield Server(without_secrets(url), client, option, prefix, has_user="@" in url)


@contextmanager
def until_full(done: Callable[[], str]) -> Iterator[None]:
    """Add what a command has done until then, the text of ``done``, to the error of a store that is full."""
    try:
        yield
    except FULL as error:
        raise CommandError(f"{error}; before that: {done()}") from None


@contextmanager
def _named(place: str, option: str, *, has_user: bool) -> Iterator[None]:
    names = f"{option}, or {VARIABLES[0]}," if option == "--url" else option
    try:
        yield
    except redis.AuthenticationError as error:
        has = f"refuses the password ({error})" if has_user else "wants a password"
        raise CommandError(
            f"{place} {has}; {names} may have one: "
            "redis://:PASSWORD@host:6379/0, or redis://USER:PASSWORD@host:6379/0"
        ) from None
    except OUTAGES as error:
        raise CommandError(f"{place}: {error} ({names} names the server)") from None
    except redis.ReadOnlyError:
        what = f"is a replica, which takes no writes; let {names} name its master"
        raise CommandError(f"{place} {what}") from None
    except redis.ResponseError as error:
        if not _NO_DATABASE.search(str(error)):
            raise
        raise CommandError(
            f"{place}: {error} ({names} has the number of the database at its end: redis://host:6379/0)"
        ) from None


class Server:
    """A server and its client, whose replies are bytes."""

    def __init__(
        self, place: str, client: Any, option: str, prefix: str, *, has_user: bool = False
    ) -> None:
        self.client = client
        #: What else a command takes in place of a filter's name: the spiders of a project.
        self.others: Sequence[str] = ()
        #: The text with which each key of the stores begins.
        self.prefix = prefix
        self._found, self._search_at = dict[str, str | None](), 0.0
        self._searched = list[str]()
        #: For messages: the URL without a password, or what else names the server, and the prefix.
        self.place: str = place
        #: Turns an outage within the block into a CommandError that names the server.
        self.named: Callable[[], AbstractContextManager[None]] = partial(
            _named, place, option, has_user=has_user
        )
        if prefix:
            self.place += f" with the prefix {prefix!r}"

    def stored(self, name: str) -> str | None:
        """Return the stored parameters of the store with this name."""
        try:
            found = self.client.get(root_of(name, self.prefix))
        except redis.ResponseError as error:
            if not is_redirection(error):
                raise
            raise CommandError(f"{self.place}: {NODE}") from None
        return None if found is None else text(found)

    def kind(self, name: str) -> str | None:
        """Return the kind of store that has this name; "": a ``TimeBloom``, or another program's key; None: there is none."""
        try:
            stored = self.stored(name)
        except redis.exceptions.NoPermissionError:
            raise
        except redis.ResponseError:  # the key belongs to another program
            return WITH_SLICES
        return None if stored is None else _kind(stored)

    def filter(self, name: str, **own: Any) -> TimeBloom:
        """Return the stored filter of this name; ``own`` are further arguments of ``TimeBloom``."""
        found = self.any_filter(name, **own)
        if not isinstance(found, TimeBloom):
            needed = "is an exact filter; this command needs one with slices"
            raise CommandError(f"{name!r} on {self.place} {needed}")
        return found

    def open_or_create(self, name: str, given: dict[str, Any] | None, **own: Any) -> TimeBloom:
        """Return the filter of this name. Create it with the ``given`` parameters if it is missing (None: don't).

        Raise CommandError if it is stored with other parameters.
        """
        kind = self.kind(name)
        if given is None and kind is None:
            raise self.unknown(name, remedy="--create makes it; 'tbloom list' shows the others")
        if not (given or kind is None) or kind not in (None, WITH_SLICES):
            return self.filter(name, **own)
        seen = TimeBloom(self.client, name, prefix=self.prefix, **given or {}, **own)
        try:
            seen.keys()
        except ConfigMismatch as error:
            error.remedy = "leave --create and its parameters out, or take another name"
            raise CommandError(f"{error}") from None
        return seen

    def any_filter(self, name: str, **own: Any) -> TimeBloom | ExactFilter:
        """Return the stored filter of this name. An exact one does not take the ``own`` arguments."""
        stored = self.stored(name)
        if stored is None:
            raise self.unknown(name)
        if (kind := _kind(stored)) in COUNTERS:
            raise CommandError(
                f"{name!r} on {self.place} is a mapping of distinct counters, which a filter of this name can't share: "
                "take another name, or see 'tbloom count'"
            )
        if kind != WITH_SLICES:
            from tbloom.exact import ExactFilter  # noqa: PLC0415 - most filters have slices
            from tbloom.exact.config import from_stored as exact_from_stored  # noqa: PLC0415 - same

            if config := exact_from_stored(name, stored, self.prefix):
                return ExactFilter(self.client, name, shards=config.shards, prefix=self.prefix)
        return of_config(self.client, from_stored(name, stored, prefix=self.prefix), **own)

    def each(
        self, names: Iterable[str], read: Callable[[Any], T], *, also_exact: bool = False
    ) -> Iterator[tuple[str, T | Exception]]:
        """Yield what is read of each filter, or the error that it raises. Raise redis-py's error if the server does not answer."""
        for name in names:
            try:
                # The parameters may have changed since the last time.
                seen = self.any_filter(name) if also_exact else self.filter(name)
                found = read(seen)
            except (TBloomError, CommandError, redis.ResponseError) as error:
                yield name, error
            else:
                yield name, found

    def names(self, *kinds: str) -> list[str]:
        """Return the names of the stores of these kinds (all filters), sorted. They are searched by SCAN, at most once a minute.

        Raise CommandError if the server has only some, because it is one of a cluster's nodes.
        """
        if time.monotonic() >= self._search_at:
            self._found = self._search()
            self._search_at = time.monotonic() + SEARCH_EVERY
        if kinds:
            return [name for name, kind in self._found.items() if kind in kinds]
        return [name for name, kind in self._found.items() if kind not in COUNTERS]

    def _search(self) -> dict[str, str | None]:
        """Return the kinds of all stores by their names."""
        if not is_cluster(self.client):
            with suppress(redis.ResponseError):  # it is no node, or does not say so
                if int(self.client.cluster("INFO")["cluster_size"]) > 1:
                    raise CommandError(f"{self.place}: {NODE}")
        keys = self.client.scan_iter(roots(self.prefix), count=1000)
        every = (name_of(text(key), self.prefix) for key in keys)
        found = dict[str, str | None]()
        for name in sorted({name for name in every if name}):
            found[name] = WITH_SLICES
            with suppress(redis.exceptions.NoPermissionError):  # whoever reads it is refused, too
                found[name] = self.kind(name)
        return found

    def searched(self) -> list[str]:
        """Return the names of all filters with slices, in the same list each time; they are searched again once a minute."""
        self._searched[:] = self.names(WITH_SLICES)
        return self._searched

    def unknown(self, *names: str, remedy: str = "'tbloom list' shows the filters") -> CommandError:
        """Return the error about a filter that is not stored, with the nearest name that is known."""
        known = [*self.others]
        with suppress(redis.RedisError, CommandError):  # to search may not be allowed
            known += self.names()
        *_, name = names
        known = [each for each in known if each not in names]  # it was there a minute ago
        near = [each for each in known if each.removesuffix(":tbloom") == name]
        near = near or get_close_matches(name, known, 1, 0.7)
        hint = f"did you mean {near[0]!r}?" if near else remedy
        return CommandError(f"no filter {' or '.join(map(repr, names))} on {self.place} ({hint})")


def _kind(stored: str) -> str:
    return str(read_stored(stored).get("kind", WITH_SLICES))


def of_config(client: Any, config: Config, **own: Any) -> TimeBloom:
    """Return the filter with these parameters.

    ``own`` are further arguments of ``TimeBloom``. They have a ``secret`` (or None) only if the command needs the filter's.
    """
    secret = own.get("secret", config.secret)
    if (secret and secret.check) != (config.secret and config.secret.check):
        has = ("another" if secret else "a") if config.secret else "no"
        raise CommandError(f"--secret-file: {config.name!r} has {has} secret")
    return TimeBloom(client, config.name, prefix=config.prefix, **{**parameters_of(config), **own})


def begin(seen: TimeBloom) -> None:
    """Store the parameters of a filter to which nothing was added, unless they are stored."""
    seen.run(FilterDispatcher(seen.config).begin())


def parameters_of(config: Config) -> Parameters:
    """Return the parameters as arguments of ``TimeBloom``."""
    found = {name: getattr(config, name) for name in Parameters.__annotations__}
    if config.capacity is None:  # else it would follow from bits and hashes
        found["bits"] = found["hashes"] = None
    return cast("Parameters", found)
