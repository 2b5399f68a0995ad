"""The fleet of which a command is asked: of a spider of the project in whose folder it runs, or of a filter that is given."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import redis

from tbloom.claims.fleet import KeptPages, View, queues_of, views_of
from tbloom.claims.queues import arguments_in, options_of, queue_of
from tbloom.cli.commands.project import settings_here, settings_if_here
from tbloom.cli.kit import filters, options
from tbloom.cli.kit.errors import PREFIX, VARIABLES, CommandError
from tbloom.cli.kit.filters import Server
from tbloom.engine.keys import check_prefix
from tbloom.engine.urls import address_of, without_secrets
from tbloom.errors import ConfigError

if TYPE_CHECKING:
    from tbloom.scrapy.extras.pushing import SpiderQueue

#: The settings that need no Scrapy outside a project.
_PLAIN = {"REDIS_URL", "TBLOOM_KEY_PREFIX", "TBLOOM_KEY"}
#: The settings that name a filter, and have no password.
_NAMING = "TBLOOM_KEY", "TBLOOM_KEY_PREFIX", "REDIS_HOST", "REDIS_PORT", "REDIS_DB"
#: The option that names the crawl without arguments.
WITHOUT = "--no-arguments"
#: The priority of Scrapy's settings that the command line gives.
_COMMAND_LINE = 40
#: So many of many are named in a line.
_NAMED = 10


class Target(NamedTuple):
    """What a command is asked of."""

    #: SPIDER, as it was given.
    asked: str
    #: The filter, and its server, without a password.
    seen: Any
    server: str
    #: The queue of the spider's crawl without arguments.
    plain: str
    #: The arguments that the command names; None: any.
    arguments: Mapping[str, str] | None = None
    #: The settings that the command line gives.
    given: Mapping[str, str] = {}
    #: The spider of the project; None: there is no project, or it has no such spider.
    spider: SpiderQueue | None = None

    @property
    def name(self) -> str:
        """The name of the filter."""
        return str(self.seen.config.name)

    @property
    def key(self) -> str:
        """The setting TBLOOM_KEY that names the filter."""
        return self.name.replace("%", "%%")

    @property
    def is_local(self) -> bool:
        """Whether the filter is on no server: then its crawlers tell nothing."""
        return not hasattr(self.seen, "client")

    @property
    def place(self) -> str:
        """The filter, and its server: "'shop:tbloom', redis1:6379/0"."""
        return f"{self.name!r}, {self.server}"

    @property
    def is_filter(self) -> bool:
        """Whether SPIDER is the name of the filter: then all of its queues are meant."""
        is_named = self.asked == self.name and "TBLOOM_KEY" not in self.given
        return is_named and self.spider is None

    def title(self, queues: Sequence[str]) -> str:
        """Return what these queues are called: the spider, with its arguments if there is one queue."""
        # In its project, a spider has its own name, though a filter that projects share has it with the project's.
        # A program's queue may have no name.
        named = {queue.partition("\n")[0] for queue in queues}
        spiders = {self.asked if self.spider else name or self.asked for name in named}
        if len(queues) > 1:
            return spiders.pop() if len(spiders) == 1 else self.asked
        plain = f" {WITHOUT}" * (self.arguments is not None and not self.arguments)
        return words_of("\n".join([*spiders, *queues[0].split("\n", 1)[1:]])) + plain

    def way(self, queue: str = "") -> list[str] | None:
        """Return the words that name the same pages, or those of one of several queues, on a command line.

        None: the arguments of the queue can't be read.
        """
        spider, arguments, given = self.asked, self.arguments, self.given
        if queue:
            arguments = arguments_in(queue)
            if arguments is None:
                return None
            if not self.spider:  # outside its project, a spider may have another filter
                spider, given = queue.partition("\n")[0], {**given, "TBLOOM_KEY": self.key}
        chosen = [] if arguments is None else options_of(arguments) or [WITHOUT]
        return [spider, *chosen, *words_of_settings(given)]

    def known(self) -> list[str]:
        """Return the queues of which the crawlers of the spider, or of the whole filter, have told."""
        known: list[str] = self.seen.queues() if self.is_local else queues_of(self.seen)
        if self.is_filter:
            return known
        spider = self._spider_of({queue.partition("\n")[0] for queue in known})
        return [queue for queue in known if queue.partition("\n")[0] == spider]

    def _spider_of(self, spiders: set[str]) -> str:
        """Return the spider of the filter that is meant: outside its project, one whose name follows a project's.

        Raise CommandError if several projects have such a spider.
        """
        if self.spider or self.plain in spiders:
            return self.plain
        named = sorted(spider for spider in spiders if spider.endswith(f":{self.plain}"))
        if len(named) > 1:
            several = f"spiders of several projects use this filter ({', '.join(named)})"
            raise CommandError(f"{self.name!r}: {several}: name one, with -s TBLOOM_KEY={self.key}")
        return named[0] if named else self.plain

    def queues(self) -> list[str]:
        """Return the queues that are meant; at least one."""
        known = self.known()
        if self.arguments is None:
            # What was pushed, or failed without a take, is kept there, though no crawler has told of it.
            untold = [self.plain, ""] if self.is_filter else [self.plain]
            return [*(queue for queue in untold if queue not in known), *known]
        found = [queue for queue in known if arguments_in(queue) == self.arguments]
        return found or [queue_of(self.plain, self.arguments)]

    def look(self) -> tuple[list[View], int | None]:
        """Return what is known of the queues that are not empty, at least of one, and how many pages were done in the filter.

        Without a server, that is unknown (None). Raise CommandError if no crawl has the arguments that are named, but others are known.
        """
        queues, done = self.queues(), None
        if self.is_local:
            views = [self.seen.fleet(queue).look() for queue in queues]
        else:
            views, done = views_of(self.seen, queues)
        found = [each for each in views if each.crawlers or any(each.pages)]
        if not found and self.arguments and (known := self.known()):
            others = shortened(map(arguments_of, known))
            raise CommandError(f"no crawl of {self.title(queues)!r} is known, but with: {others}")
        return found or views[:1], done

    def fleets(self) -> list[KeptPages]:
        """Return the fleets of the queues that are not empty, at least one."""
        return [self.seen.fleet(view.queue) for view in self.look()[0]]


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
    options.url,
    options.prefix,
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
            given |= named(url, prefix)
            # Others, such as scrapyd's _job, say nothing of the crawl.
            own = {name: value for name, value in arguments.items() if name[:1] != "_"}
            asked = own if arguments or plain else None
            if spider is None:
                if asked is not None:
                    raise click.UsageError(
                        f"-a and {WITHOUT} need a SPIDER, whose crawls have them"
                    )
                assert overview is not None  # noqa: S101 - else SPIDER is required
                settings = _settings(given)
                if settings.get("TBLOOM_STORE") == "local":
                    raise CommandError("expected SPIDER: this project's filters are on no server")
                with _server_of(settings) as server:
                    given.pop("TBLOOM_KEY", None)  # it would name another filter than is shown
                    return overview(server, words_of_settings(given), **more)
            with open_target(spider, asked, given, of_project=of_project) as target:
                return function(target, **more)

        needed = click.argument("spider", type=options.text_of, required=overview is None)
        return options.all_of(needed, _options)(command)

    return with_target


def words_of_settings(given: Mapping[str, str]) -> list[str]:
    """Return options with the settings that name a filter and its server, but for what may have a password."""
    words = [word for name in _NAMING if name in given for word in ("-s", f"{name}={given[name]}")]
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
    """Yield what SPIDER names: a spider of the project, or else a filter, of this name or with a spider's default name.

    Raise TBloomError or CommandError if there is none.
    """
    if of_project:
        settings_here()
    settings = _settings(given)
    spiders = _spiders_of(settings)
    if of_project or spider in spiders:
        from tbloom.scrapy.extras.pushing import open_queue  # noqa: PLC0415 - needs Scrapy

        with open_queue(settings, spider, arguments, has_local=not of_project) as queue:
            plain = queue.queue.partition("\n")[0]
            yield Target(spider, queue.seen, queue.seen.place, plain, arguments, given, queue)
    elif settings.get("TBLOOM_STORE") != "local":
        with _server_of(settings) as server:
            server.others = spiders
            name, plain = _stored(server, given.get("TBLOOM_KEY"), spider)
            place = address_of(server.client)
            yield Target(spider, server.filter(name), place, plain, arguments, given)
    elif spiders:
        expected = f"the name of a spider of this project ({', '.join(spiders)})"
        raise ConfigError("SPIDER", spider, expected)
    else:
        from tbloom.scrapy.extras.pushing import open_local  # noqa: PLC0415 - needs Scrapy

        settings.setdefault("TBLOOM_MARK", "done")
        with open_local(settings, spider) as seen:
            yield Target(spider, seen, seen.place, spider, arguments, given)


def _stored(server: Server, key: str | None, spider: str) -> tuple[str, str]:
    """Return the name of the filter that is meant, and the spider's of its crawls without arguments.

    ``key``: the setting TBLOOM_KEY. Without it, SPIDER is the name of a filter, or of a spider whose filter has the default name.
    """
    names = [spider, f"{spider}:tbloom"]
    if key is not None:
        names = [_expanded(key, spider)]
    kinds, refused = dict[str, str](), None
    for name in names:
        try:
            kind = server.kind(name)
        except redis.exceptions.NoPermissionError as error:
            refused = error  # the user may have rights for the other
        else:
            kinds |= {} if kind is None else {name: kind}
    if not kinds:
        raise refused or server.unknown(*reversed(names))
    name = min(kinds, key=lambda name: kinds[name] != filters.WITH_SLICES)
    return name, spider if name == names[-1] else name.removesuffix(":tbloom")


def _expanded(key: str, spider: str) -> str:
    if _names_no_spider(key):
        return key.replace("%%", "%")
    from tbloom.scrapy.settings import FILTER, expand  # noqa: PLC0415 - needs Scrapy

    return expand(FILTER["name"], key, spider=spider)


def _names_no_spider(key: str) -> bool:
    return "%" not in key.replace("%%", "")


def named(url: str | None, prefix: str | None = None) -> dict[str, str]:
    """Return the settings for which --url and --prefix stand."""
    places = {"REDIS_URL": url, "TBLOOM_KEY_PREFIX": prefix}
    return {name: value for name, value in places.items() if value is not None}


def on_server(function: Callable[..., Any]) -> Any:
    """Give a command --url and --prefix; it gets a ``Server``.

    In the folder of a project, that is the project's, unless the command line names one, and NAME may be a spider.
    """

    @wraps(function)
    def command(*, url: str | None, prefix: str | None, **more: Any) -> Any:
        settings = _settings(named(url, prefix))
        # A counter has a name, too.
        takes_spiders = more.keys() & {"name", "names"} and "mapping" not in more
        spiders, own = _spiders_of(settings) if takes_spiders else [], settings

        def filter_name(name: str) -> str:
            nonlocal own
            if name not in spiders:
                return name
            from tbloom.scrapy.extras.pushing import filter_of  # noqa: PLC0415 - needs Scrapy

            own, found = filter_of(settings, name)
            return found

        if "name" in more:
            more["name"] = filter_name(more["name"])
        if "names" in more:
            more["names"] = (*map(filter_name, more["names"]),)
        with _server_of(own) as server:
            server.others = spiders
            return function(server=server, **more)

    return options.all_of(options.url, options.prefix)(command)


def _settings(given: Mapping[str, str]) -> Any:
    """Return the settings of the project in whose folder this is, with the given ones over them.

    Outside a project, they are a dict if Scrapy is not needed to read them.
    """
    here = settings_if_here()
    is_plain = given.keys() <= _PLAIN and _names_no_spider(given.get("TBLOOM_KEY", ""))
    if here is None and is_plain:
        return dict(given)
    from tbloom.scrapy.extras.project import settings_of  # noqa: PLC0415 - needs Scrapy
    from tbloom.scrapy.settings import check_settings  # noqa: PLC0415 - the same

    check_settings(settings_of(given, None))
    return settings_of(given, here)


def _spiders_of(settings: Any) -> list[str]:
    """Return the names of the project's spiders."""
    if isinstance(settings, dict):
        return []
    from tbloom.scrapy.extras.pushing import spiders_of  # noqa: PLC0415 - needs Scrapy

    return [*spiders_of(settings)]


@contextmanager
def _server_of(settings: Any) -> Iterator[Server]:
    """Yield the server that the settings name, or else the environment."""
    prefix, place = settings.get("TBLOOM_KEY_PREFIX"), "--prefix"
    if prefix is None:
        prefix, place = os.environ.get(PREFIX, ""), PREFIX
    check_prefix(prefix, place)
    if not isinstance(settings, dict):
        from tbloom.scrapy.options import REDIS, make_client, server_settings  # noqa: PLC0415 - needs Scrapy

        if any(settings.get(name) for name in REDIS if name != "REDIS_URL"):
            client, _ = make_client(settings)
            server = Server(server_settings(settings), client, "-s", prefix)
            with closing(client), server.named():
                yield server
            return
    places = {variable: os.environ.get(variable) for variable in VARIABLES}
    url, option = settings.get("REDIS_URL"), "--url"
    if url is None:
        option, url = next(
            ((name, url) for name, url in places.items() if url), (option, options.LOCAL)
        )
    elif not isinstance(settings, dict) and settings.getpriority("REDIS_URL") < _COMMAND_LINE:
        option = "REDIS_URL in the project's settings"
    with filters.connect(url, option, prefix) as server, server.named():
        yield server
