"""The fleet of which a command is asked: of a spider of the project in whose folder it runs, or of a filter that is given."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tbloom.bloom.claims.fleet import Fleet, KeptPages, queues_of
from tbloom.bloom.claims.queues import arguments_in, queue_of
from tbloom.cli.commands.project import settings_here, settings_if_here
from tbloom.cli.kit import filters, options
from tbloom.cli.kit.errors import PREFIX, VARIABLES, CommandError
from tbloom.cli.kit.filters import Server
from tbloom.engine.urls import address_of
from tbloom.local.claims import LocalFleet

if TYPE_CHECKING:
    from tbloom.scrapy.extras.pushing import SpiderQueue

#: The settings that an option gives, too.
_PLACES = {"REDIS_URL", "TBLOOM_KEY_PREFIX"}
#: So many queues are named in an error.
_NAMED = 10


class Target(NamedTuple):
    """What a command is asked of."""

    #: The filter, and its server, without a password.
    seen: Any
    server: str
    #: The fleet of the spider, or of each queue of the filter; at least one.
    fleets: Sequence[KeptPages]
    #: The spider of the project; None: there is no project, or it has no such spider.
    spider: SpiderQueue | None = None

    @property
    def name(self) -> str:
        """The name of the filter."""
        return str(self.seen.config.name)

    @property
    def place(self) -> str:
        """The filter, and its server: "'shop:tbloom', redis1:6379/0"."""
        return f"{self.name!r}, {self.server}"

    def title(self, fleet: KeptPages) -> str:
        """Return what names the spider, with its arguments, the filter and the server."""
        return f"{words_of(fleet.queue)} at {self.place}"

    def one(self) -> KeptPages:
        """Return the only fleet, or that of the spider without arguments. Raise CommandError if there are others only."""
        if len(self.fleets) == 1:
            return self.fleets[0]
        named = [words_of(fleet.queue) for fleet in self.fleets]
        if len(plain := [fleet for fleet in self.fleets if "\n" not in fleet.queue]) == 1:
            return plain[0]
        shown = ", ".join(named[:_NAMED]) + ", ..." * (len(named) > _NAMED)
        remedy = "give -a NAME=VALUE, or the spider and -s TBLOOM_KEY=NAME"
        raise CommandError(f"{self.place} has {len(named)} queues ({shown}): {remedy}")


def words_of(queue: str) -> str:
    """Return the spider and the arguments of a queue as words of a command line."""
    words = words_in(queue)
    return queue.replace("\n", " ") if words is None else shlex.join(words)


def words_in(queue: str) -> list[str] | None:
    """Return the spider of a queue, and its arguments as options; None: they can't be read."""
    arguments = arguments_in(queue)
    if arguments is None:
        return None
    return [queue.partition("\n")[0], *options_of(arguments)]


def options_of(arguments: Mapping[str, str]) -> list[str]:
    """Return the arguments of a spider as options."""
    return [word for pair in arguments.items() for word in ("-a", "=".join(pair))]


def _pairs(_context: object, _option: object, words: tuple[str, ...]) -> dict[str, str]:
    """Return the values that an option gives, by name."""
    for word in words:
        if "=" not in word:
            raise click.BadParameter(f"expected NAME=VALUE, got {word!r}")
    return dict(word.split("=", 1) for word in words)


def _named_values(flag: str, name: str, help: str) -> options.Decorator:
    return click.option(
        flag,
        name,
        multiple=True,
        metavar="NAME=VALUE",
        type=options.text_of,
        callback=_pairs,
        help=help,
    )


_options = options.all_of(
    click.argument("spider", type=options.text_of),
    _named_values(
        "-a", "arguments", "an argument of the spider, as of scrapy crawl; may be repeated"
    ),
    _named_values(
        "-s", "given", "a setting, as of scrapy crawl, such as REDIS_URL; may be repeated"
    ),
    click.option("--url", metavar="URL", help="the server, in place of the setting REDIS_URL"),
    click.option(
        "--prefix",
        metavar="PREFIX",
        help="the text with which each key begins, in place of the setting TBLOOM_KEY_PREFIX",
    ),
)


def of_fleet(*, of_project: bool = False) -> options.Decorator:
    """Give a command SPIDER, and the options that say where its fleet is; it gets a ``Target`` as its first argument.

    ``of_project``: it needs the project of the spider, and a filter on a server.
    """

    def with_target(function: Callable[..., Any]) -> Any:
        @wraps(function)
        def command(
            *,
            spider: str,
            arguments: dict[str, str],
            given: dict[str, str],
            url: str | None,
            prefix: str | None,
            **more: Any,
        ) -> Any:
            if url is not None:
                given["REDIS_URL"] = url
            if prefix is not None:
                given["TBLOOM_KEY_PREFIX"] = prefix
            with open_target(spider, arguments, given, of_project=of_project) as target:
                return function(target, **more)

        return _options(command)

    return with_target


@contextmanager
def open_target(
    spider: str,
    arguments: Mapping[str, str],
    given: Mapping[str, str],
    *,
    of_project: bool = False,
) -> Iterator[Target]:
    """Yield what SPIDER names.

    In a project with a spider of this name, it is that spider, with the project's settings and the ``given`` ones over them.
    Otherwise it is a filter of this name, or with the default name of a spider's filter, and the queues of which its crawlers have
    told; with ``arguments``, the queues of these. ``of_project``: see ``of_fleet``.

    Without Scrapy, it is a filter of this name. Raise TBloomError or CommandError if there is none.
    """
    if find_spec("scrapy") is None:
        with _server_at(given) as server:
            seen = server.filter(spider)
            fleets = [Fleet(seen, queue) for queue in queues_of(seen) or [spider]]
            yield Target(seen, server.place, fleets)
        return
    here = settings_here() if of_project else settings_if_here()
    if here is None and given.keys() <= _PLACES:  # most commands outside a project: without Scrapy
        with _server_at(given) as server:
            yield _stored_target(server, _default_names(spider), spider, arguments)
        return
    from tbloom.scrapy.extras.project import settings_of  # noqa: PLC0415 - needs Scrapy
    from tbloom.scrapy.extras.pushing import open_queue, spider_names  # noqa: PLC0415 - the same

    is_named = of_project or not given
    if here is not None and (is_named or spider in spider_names(settings_of(given, here))):
        with open_queue(
            settings_of(given, here), spider, arguments, has_local=not of_project
        ) as queue:
            yield Target(queue.seen, queue.place, [queue.fleet], queue)
        return
    settings = settings_of(given, None)
    if settings.get("TBLOOM_STORE") == "local":
        with _local_target(settings, spider, arguments) as target:
            yield target
    else:
        with _server(settings) as server:
            yield _stored_target(server, _names(settings, spider), spider, arguments)


@contextmanager
def _local_target(settings: Any, spider: str, arguments: Mapping[str, str]) -> Iterator[Target]:
    """Yield the queues in a file."""
    from tbloom.scrapy.extras.pushing import open_local  # noqa: PLC0415 - needs Scrapy

    settings.setdefault("TBLOOM_MARK", "done")
    with open_local(settings, spider) as seen:
        queues = _queues_of(seen.queues(), spider, arguments)
        yield Target(seen, str(seen.path), [LocalFleet(seen, queue) for queue in queues])


@contextmanager
def _server(settings: Any) -> Iterator[Server]:
    """Yield the server that the settings name, or else the environment."""
    from tbloom.scrapy.options import REDIS, make_client, server_settings  # noqa: PLC0415 - needs Scrapy

    if any(settings.get(name) for name in REDIS if name != "REDIS_URL"):
        client, _ = make_client(settings)
        with closing(client):
            yield Server(server_settings(settings), client, "-s", _prefix(settings))
        return
    with _server_at(settings) as server:
        yield server


@contextmanager
def _server_at(settings: Any) -> Iterator[Server]:
    """Yield the server at the URL that the settings name, or else the environment."""
    places = {variable: os.environ.get(variable) for variable in VARIABLES}
    known = {"--url": settings.get("REDIS_URL"), **places, "": options.LOCAL}
    option, found = next((option, url) for option, url in known.items() if url)
    with filters.connect(found, option or "--url", _prefix(settings)) as server, server.named():
        yield server


def _prefix(settings: Any) -> str:
    return settings.get("TBLOOM_KEY_PREFIX") or os.environ.get(PREFIX, "")


def _default_names(spider: str) -> list[str]:
    """Return the default name of a spider's filter, and the name of the filter that SPIDER may be."""
    return [f"{spider}:tbloom", spider]


def _names(settings: Any, spider: str) -> list[str]:
    """Return the name of a filter that the settings give, or else those of ``_default_names``."""
    from tbloom.scrapy.settings import FILTER, check_settings, expand  # noqa: PLC0415 - needs Scrapy

    check_settings(settings)
    key = FILTER["name"].value(settings)
    return _default_names(spider) if key is None else [expand(FILTER["name"], key, spider=spider)]


def _stored_target(
    server: Server, names: list[str], spider: str, arguments: Mapping[str, str]
) -> Target:
    """Return the queues of the first of these filters that is stored on the server."""
    name = next((name for name in names if server.kind(name) is not None), None)
    if name is None:
        either = " or ".join(map(repr, names))
        raise CommandError(
            f"no filter {either} on {server.place} ('tbloom list' shows the filters)"
        )
    seen = server.filter(name)
    queues = _queues_of(queues_of(seen), spider if name == names[0] else "", arguments)
    fleets = [Fleet(seen, queue) for queue in queues or [name.removesuffix(":tbloom")]]
    return Target(seen, address_of(server.client), fleets)


def _queues_of(known: list[str], spider: str, arguments: Mapping[str, str]) -> list[str]:
    """Return those of the known queues that are of the spider (all, without a name) and of these arguments (if there are any)."""

    def is_of(queue: str) -> bool:
        name = queue.partition("\n")[0]
        # A project's name may precede the spider's.
        is_spiders = not spider or name == spider or name.endswith(f":{spider}")
        return is_spiders and (not arguments or arguments_in(queue) == arguments)

    found = [queue for queue in known if is_of(queue)]
    return found or ([queue_of(spider, arguments)] if spider else [])
