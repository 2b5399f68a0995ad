"""The fleet of which a command is asked: of a spider of the project in whose folder it runs, or of a filter that is given."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from tbloom.bloom.claims.fleet import Fleet, KeptPages, View, queues_of, views_of
from tbloom.bloom.claims.queues import arguments_in, queue_of
from tbloom.cli.commands.project import settings_here, settings_if_here
from tbloom.cli.kit import filters, options
from tbloom.cli.kit.errors import PREFIX, VARIABLES, CommandError
from tbloom.cli.kit.filters import Server
from tbloom.engine.urls import address_of, without_secrets
from tbloom.errors import ConfigError
from tbloom.local.claims import CrawlLocal, LocalFleet

if TYPE_CHECKING:
    from tbloom.scrapy.extras.pushing import SpiderQueue

#: The settings that an option gives, too.
_PLACES = {"REDIS_URL", "TBLOOM_KEY_PREFIX"}
#: The settings that name a filter.
_OF_FILTER = "TBLOOM_KEY", "TBLOOM_KEY_PREFIX"
#: The option that names the crawl without arguments.
WITHOUT = "--no-arguments"
#: So many of many are named in a line.
_NAMED = 10


class Target(NamedTuple):
    """What a command is asked of."""

    #: SPIDER, as it was given.
    asked: str
    #: The filter, and its server, without a password.
    seen: Any
    server: str
    #: Returns the queues of which the crawlers of the spider, or of the whole filter, have told.
    known: Callable[[], list[str]]
    #: The queue of the spider's crawl without arguments.
    plain: str
    #: The arguments that the command names; None: any.
    arguments: Mapping[str, str] | None = None
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

    def words(self, queues: Sequence[str]) -> str:
        """Return the words that name these queues on a command line: the spider, with its arguments if there is one queue."""
        # In its project, a spider has its own name, though a filter that projects share has it with the project's.
        spiders = {self.asked if self.spider else queue.partition("\n")[0] for queue in queues}
        if len(queues) > 1:
            return spiders.pop() if len(spiders) == 1 else self.asked
        plain = " --no-arguments" * (self.arguments is not None and not self.arguments)
        return words_of("\n".join([*spiders, *queues[0].split("\n", 1)[1:]])) + plain

    def queues(self) -> list[str]:
        """Return the queues that are meant; at least one."""
        known = self.known()
        if self.arguments is None:
            # What was pushed waits there, though no crawler has told of it.
            return known if self.plain in known else [self.plain, *known]
        found = [queue for queue in known if arguments_in(queue) == self.arguments]
        return found or [queue_of(self.plain, self.arguments)]

    def look(self) -> tuple[list[View], int | None]:
        """Return what is known of the queues that are not empty, at least of one, and how many pages were done in the filter.

        Without a server, that is unknown (None). Raise CommandError if no crawl has the arguments that are named, but others are known.
        """
        queues, done = self.queues(), None
        if isinstance(self.seen, CrawlLocal):
            views = [View(queue, [], LocalFleet(self.seen, queue).pages()) for queue in queues]
        else:
            views, done = views_of(self.seen, queues)
        found = [each for each in views if each.crawlers or any(each.pages)]
        if not found and self.arguments and (known := self.known()):
            others = shortened(map(arguments_of, known))
            raise CommandError(f"no crawl of {self.words(queues)!r} is known, but with: {others}")
        return found or views[:1], done

    def fleets(self) -> list[KeptPages]:
        """Return the fleets of the queues that are not empty, at least one."""
        kind: Any = LocalFleet if isinstance(self.seen, CrawlLocal) else Fleet
        return [kind(self.seen, view.queue) for view in self.look()[0]]


def shortened(words: Iterable[str]) -> str:
    """Return a list of words, the first ones if there are many."""
    found = [*words]
    return ", ".join(found[:_NAMED]) + f", and {len(found) - _NAMED:,} more" * (len(found) > _NAMED)


def words_of(queue: str) -> str:
    """Return the spider and the arguments of a queue as words of a command line."""
    spider, arguments, _ = queue.partition("\n")
    return f"{shlex.join([spider])} {arguments_of(queue)}" if arguments else shlex.join([spider])


def arguments_of(queue: str) -> str:
    """Return what names the arguments of a queue on a command line."""
    arguments = arguments_in(queue)
    if arguments is None:  # they can't be read
        return queue.partition("\n")[2]
    return shlex.join(options_of(arguments)) or WITHOUT


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


given_settings: options.Decorator = _named_values(
    "-s", "given", "a setting, as of scrapy crawl, such as REDIS_URL; may be repeated"
)
_options = options.all_of(
    _named_values(
        "-a",
        "arguments",
        "an argument of the spider, as of scrapy crawl; may be repeated (crawls with any)",
    ),
    click.option(WITHOUT, "plain", is_flag=True, help="only the crawl without arguments"),
    given_settings,
    click.option("--url", metavar="URL", help="the server, in place of the setting REDIS_URL"),
    click.option(
        "--prefix",
        metavar="PREFIX",
        help="the text with which each key begins, in place of the setting TBLOOM_KEY_PREFIX",
    ),
)


def of_fleet(
    *, of_project: bool = False, overview: Callable[..., Any] | None = None
) -> options.Decorator:
    """Give a command SPIDER, and the options that say where its fleet is; it gets a ``Target`` as its first argument.

    ``of_project``: it needs the project of the spider, and a filter on a server. ``overview``: what is called in its place, with the
    server and the words that name it, where no SPIDER is given.
    """

    def with_target(function: Callable[..., Any]) -> Any:
        @wraps(function)
        def command(
            *,
            spider: str | None,
            arguments: dict[str, str],
            plain: bool,
            given: dict[str, str],
            url: str | None,
            prefix: str | None,
            **more: Any,
        ) -> Any:
            if arguments and plain:
                raise CommandError(f"expected one of -a, {WITHOUT}")
            if url is not None:
                given["REDIS_URL"] = url
            if prefix is not None:
                given["TBLOOM_KEY_PREFIX"] = prefix
            # Others, such as scrapyd's _job, say nothing of the crawl.
            own = {name: value for name, value in arguments.items() if name[:1] != "_"}
            asked = own if arguments or plain else None
            if spider is None:
                if asked is not None:
                    raise click.UsageError(
                        "-a and --no-arguments need a SPIDER, whose crawls have them"
                    )
                assert overview is not None  # noqa: S101 - else SPIDER is required
                with open_server(given) as server:
                    return overview(server, words_of_settings(given), **more)
            with open_target(spider, asked, given, of_project=of_project) as target:
                return function(target, **more)

        needed = click.argument("spider", type=options.text_of, required=overview is None)
        return options.all_of(needed, _options)(command)

    return with_target


@contextmanager
def open_server(given: Mapping[str, str]) -> Iterator[Server]:
    """Yield the server that the given settings name, or else those of the project in whose folder this is, or the environment."""
    here = settings_if_here()
    if here is None and given.keys() <= _PLACES:
        with _server_at(given) as server:
            yield server
        return
    from tbloom.scrapy.extras.project import settings_of  # noqa: PLC0415 - needs Scrapy

    settings = settings_of(given, here)
    if settings.get("TBLOOM_STORE") == "local":
        raise CommandError("expected SPIDER, because the filters of this project are on no server")
    with server_of(settings) as server:
        yield server


def words_of_settings(given: Mapping[str, str]) -> list[str]:
    """Return options with the settings that name a filter, but for a URL with a password."""
    words = [
        word for name in _OF_FILTER if name in given for word in ("-s", f"{name}={given[name]}")
    ]
    url = given.get("REDIS_URL", "")
    return [*words, *(("--url", url) if url and without_secrets(url) == url else ())]


@contextmanager
def open_target(
    spider: str,
    arguments: Mapping[str, str] | None,
    given: Mapping[str, str],
    *,
    of_project: bool = False,
) -> Iterator[Target]:
    """Yield what SPIDER names.

    In a project with a spider of this name, it is that spider, with the project's settings and the ``given`` ones over them.
    Otherwise it is a filter with the default name of a spider's, or of this name. ``arguments``: those of the crawls that are meant
    (None: any). ``of_project``: see ``of_fleet``.

    Without Scrapy, it is a filter. Raise TBloomError or CommandError if there is none.
    """
    here = settings_here() if of_project else settings_if_here()
    if here is None and given.keys() <= _PLACES:  # most commands outside a project: without Scrapy
        with _server_at(given) as server:
            yield _stored_target(server, _default_names(spider), spider, arguments)
        return
    from tbloom.scrapy.extras.project import settings_of  # noqa: PLC0415 - needs Scrapy
    from tbloom.scrapy.extras.pushing import open_queue, spider_names  # noqa: PLC0415 - the same

    settings = settings_of(given, here)
    spiders = [] if here is None else spider_names(settings)
    if of_project or spider in spiders:
        with open_queue(settings, spider, arguments, has_local=not of_project) as queue:
            plain, seen = queue.plain, queue.seen
            known = partial(_known, seen, lambda name: name == plain)
            yield Target(spider, seen, queue.place, known, plain, arguments, queue)
        return
    if settings.get("TBLOOM_STORE") == "local" and spiders:
        raise ConfigError(
            "SPIDER", spider, f"the name of a spider of this project ({', '.join(spiders)})"
        )
    if settings.get("TBLOOM_STORE") == "local":
        with _local_target(settings, spider, arguments) as target:
            yield target
    else:
        with server_of(settings) as server:
            # The project's own TBLOOM_KEY is that of its spiders.
            names = _names(settings_of(given, None), spider)
            server.others = spiders
            yield _stored_target(server, names, spider, arguments)


@contextmanager
def _local_target(
    settings: Any, spider: str, arguments: Mapping[str, str] | None
) -> Iterator[Target]:
    """Yield the queues in a file."""
    from tbloom.scrapy.extras.pushing import open_local  # noqa: PLC0415 - needs Scrapy

    settings.setdefault("TBLOOM_MARK", "done")
    with open_local(settings, spider) as seen:
        known = partial(_known, seen, lambda name: name == spider)
        yield Target(spider, seen, str(seen.path), known, spider, arguments)


@contextmanager
def server_of(settings: Any) -> Iterator[Server]:
    """Yield the server that the settings name, or else the environment."""
    from tbloom.scrapy.options import REDIS, make_client, server_settings  # noqa: PLC0415 - needs Scrapy

    if any(settings.get(name) for name in REDIS if name != "REDIS_URL"):
        client, _ = make_client(settings)
        with closing(client):
            server = Server(server_settings(settings), client, "-s", _prefix(settings))
            server.place = server_settings(settings)  # it is no URL, and has no password
            with server.named():
                yield server
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


#: Where a server may be named for all commands about filters.
_GIVEN = ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT


def as_here(function: Callable[..., Any]) -> Any:
    """Let a command about a server, or about a filter on it, know the project in whose folder it runs.

    There, its server is the project's, unless the command line or the environment names one, and NAME may be a spider.
    """

    @wraps(function)
    def command(*, server: Server, **more: Any) -> Any:
        here, context = settings_if_here(), click.get_current_context()
        if here is None:
            return function(server=server, **more)
        from tbloom.scrapy.extras.project import settings_of  # noqa: PLC0415 - needs Scrapy
        from tbloom.scrapy.extras.pushing import filter_of, spider_names  # noqa: PLC0415 - the same

        places = {
            "server": ("REDIS_URL", server.url),
            "prefix": ("TBLOOM_KEY_PREFIX", server.prefix),
        }
        given = dict(
            place
            for option, place in places.items()
            if context.get_parameter_source(option) in _GIVEN
        )
        settings = settings_of(given, here)
        spiders = spider_names(settings) if "name" in more else []
        if more.get("name") in spiders:
            settings, more["name"] = filter_of(settings, more["name"])
        with server_of(settings) as found:
            found.others = spiders
            return function(server=found, **more)

    return command


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
    server: Server, names: list[str], spider: str, arguments: Mapping[str, str] | None
) -> Target:
    """Return the queues of the first of these filters that is stored on the server."""
    name = next((name for name in names if server.kind(name) is not None), None)
    if name is None:
        raise server.unknown(*names)
    seen, is_spiders = server.filter(name), name == names[0]
    plain = spider if is_spiders else name.removesuffix(":tbloom")

    def is_of(known: str) -> bool:
        # A project's name may precede the spider's.
        return not is_spiders or known == spider or known.endswith(f":{spider}")

    def known() -> list[str]:
        found = _known(seen, is_of)
        spiders = {queue.partition("\n")[0] for queue in found}
        if is_spiders and spider in spiders:
            return [queue for queue in found if queue.partition("\n")[0] == spider]
        if not is_spiders or len(spiders) <= 1:
            return found
        several = f"spiders of several projects use this filter ({', '.join(sorted(spiders))})"
        raise CommandError(f"{name!r}: {several}: name one, with -s TBLOOM_KEY={name}")

    place = address_of(server.client)
    return Target(spider if is_spiders else name, seen, place, known, plain, arguments)


def _known(seen: Any, is_of: Callable[[str], bool]) -> list[str]:
    """Return the known queues of a filter whose spider is meant."""
    known = seen.queues() if isinstance(seen, CrawlLocal) else queues_of(seen)
    return [queue for queue in known if is_of(queue.partition("\n")[0])]
