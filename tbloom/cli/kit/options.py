"""The options and arguments that several commands have."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, BinaryIO

import click

from tbloom.bloom.config import Parameters
from tbloom.bloom.hasher import Secret
from tbloom.cli.kit import numbers
from tbloom.cli.kit.errors import PREFIX, VARIABLES, CommandError
from tbloom.engine.keys import DEFAULT_MAPPING
from tbloom.errors import ConfigError

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


def _note(context: click.Context, option: click.Parameter, value: object) -> None:
    """Note a flag for ``output``, so that commands need not pass it on."""
    context.meta[option.name or ""] = value


def _secret_in(_context: object, _option: object, file: BinaryIO | None) -> Secret | None:
    """Return the secret in a file."""
    try:
        return None if file is None else Secret(file.read(_LONGEST_SECRET))
    except ConfigError as error:
        raise click.BadParameter(f"expected {error.expected}, got {error.value}") from None


_flag = partial(click.option, is_flag=True, expose_value=False, callback=_note)
#: The server, and the prefix of its keys; None: not given.
url: Decorator = click.option(
    "--url",
    metavar="URL",
    help="the server, such as redis://host:6379/0 or redis+cluster://host:6379 (in a Scrapy project, its REDIS_URL; "
    f"else {', else '.join([*VARIABLES, LOCAL])})",
)
prefix: Decorator = click.option(
    "--prefix",
    metavar="PREFIX",
    help=f"the text with which each key begins, such as app1: (in a Scrapy project, its TBLOOM_KEY_PREFIX; else {PREFIX}, else none)",
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
