"""The options and arguments that several commands have."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from click.core import ParameterSource

from tbloom.bloom.config import Parameters
from tbloom.bloom.hasher import Secret
from tbloom.cli.kit import numbers
from tbloom.cli.kit.errors import PREFIX, VARIABLES, CommandError
from tbloom.engine.keys import DEFAULT_MAPPING, check_prefix
from tbloom.errors import ConfigError

if TYPE_CHECKING:
    from tbloom.cli.kit.filters import Server

#: What adds options or arguments to a command.
Decorator = Callable[[Any], Any]
LOCAL = "redis://localhost:6379/0"
#: The bytes that are read of a secret's file, more than a secret may have.
_LONGEST_SECRET = 1024


def text_of(word: str) -> str:
    """Return a name, in UTF-8 whatever the locale says."""
    try:
        return os.fsencode(word).decode()
    except UnicodeDecodeError:
        raise click.BadParameter(f"expected UTF-8, got {word!r}") from None


def _connected(context: click.Context, option: click.Option, url: str) -> Server | None:
    """Return the server at the URL, connected until the command ends; None while a shell completes a word."""
    if context.resilient_parsing:
        return None
    from tbloom.cli.kit.filters import connect  # noqa: PLC0415 - the help does without redis-py

    place = option.opts[0]
    if context.get_parameter_source("server") is ParameterSource.ENVIRONMENT:
        place = next(filter(os.environ.get, VARIABLES))
    return context.with_resource(connect(url, place, context.meta["prefix"]))


def _note(context: click.Context, option: click.Parameter, value: object) -> None:
    """Note a flag for ``output``, so that commands need not pass it on."""
    context.meta[option.name or ""] = value


def _note_prefix(context: click.Context, option: click.Parameter, value: str) -> None:
    """Note the prefix for the option ``--url``."""
    is_set = context.get_parameter_source("prefix") is ParameterSource.ENVIRONMENT
    context.meta["prefix"] = check_prefix(value, PREFIX if is_set else option.opts[0])


def _secret_in(_context: object, _option: object, file: BinaryIO | None) -> Secret | None:
    """Return the secret in a file."""
    try:
        return None if file is None else Secret(file.read(_LONGEST_SECRET))
    except ConfigError as error:
        raise click.BadParameter(f"expected {error.expected}, got {error.value}") from None


_flag = partial(click.option, is_flag=True, expose_value=False, callback=_note)
_url: Decorator = click.option(
    "--url",
    "server",
    envvar=[*VARIABLES],
    default=LOCAL,
    metavar="URL",
    callback=_connected,
    help="the server, such as redis://host:6379/0 or redis+cluster://host:6379 "
    f"({', else '.join([*VARIABLES, LOCAL])})",
)
_prefix: Decorator = click.option(
    "--prefix",
    envvar=PREFIX,
    default="",
    metavar="PREFIX",
    is_eager=True,
    expose_value=False,
    callback=_note_prefix,
    help=f"the text with which each key begins, such as app1: ({PREFIX}, else none)",
)
#: A filter's name.
name: Decorator = click.argument("name", type=text_of)
#: Several names of filters, each of which counts once; none: all filters.
names: Decorator = click.argument(
    "names",
    metavar="[NAME]...",
    nargs=-1,
    type=text_of,
    callback=lambda _context, _argument, words: tuple(dict.fromkeys(words)),
)
#: Files with an item in each line; ``-`` is standard input.
files: Decorator = click.argument(
    "files",
    metavar="[FILE]...",
    nargs=-1,
    type=click.Path(allow_dash=True),
    callback=lambda _context, _argument, words: words or ("-",),
)
as_json: Decorator = _flag("--json", help="as JSON")
quiet: Decorator = _flag("--quiet", help="no summary")
yes: Decorator = _flag("--yes", help="don't ask")
mapping: Decorator = click.option(
    "--mapping",
    metavar="MAPPING",
    default=DEFAULT_MAPPING,
    type=text_of,
    help=f"the mapping that numbers the members ({DEFAULT_MAPPING})",
)
secret: Decorator = click.option(
    "--secret-file",
    "secret",
    type=click.File("rb"),
    callback=_secret_in,
    help="a file with the secret of the filter, all of its bytes",
)


def all_of(*decorators: Any) -> Decorator:
    """Return all of these options, in the order of the help."""
    return lambda function: reduce(
        lambda made, option: option(made), reversed(decorators), function
    )


#: --url and --prefix.
server: Decorator = all_of(_url, _prefix)
#: An option for each parameter.
parameters: Decorator = all_of(
    click.option(
        "--granularity",
        metavar="PERIOD",
        help="length of a slice: h, d, w, m, or 15min, 3d ... (d); none: no window, the filter never forgets",
    ),
    click.option("--slices", type=int, metavar="N", help="number of slices (7)"),
    click.option(
        "--capacity",
        type=numbers.capacity,
        help="distinct items per slice, such as 5M (auto: what the last slice held)",
    ),
    click.option(
        "--error-rate", type=numbers.chance, metavar="RATE", help="over the whole window (1e-4)"
    ),
    click.option(
        "--grow/--no-grow", default=None, help="a full slice grows (yes), or refuses items"
    ),
    click.option("--tz", metavar="ZONE", help="time zone, such as Europe/Berlin (UTC)"),
    click.option("--shards", type=int, metavar="N", help="shards, for a cluster (by size)"),
)
#: --create, and the parameters of the new filter.
creation: Decorator = all_of(
    click.option("--create", is_flag=True, help="create a missing filter, with these parameters"),
    parameters,
)


def given(values: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that were given, as arguments of ``TimeBloom``."""
    names = [name for name in Parameters.__annotations__ if values.get(name) is not None]
    # In Python, both are None: --granularity none, --capacity auto.
    return {name: None if values[name] in ("none", "auto") else values[name] for name in names}


def creation_parameters(values: dict[str, Any]) -> dict[str, Any] | None:
    """Return the parameters of the new filter; None without --create."""
    found, create = given(values), values["create"]
    if found and not create:
        raise CommandError("--create is missing: parameters are for a new filter only")
    return found if create else None
