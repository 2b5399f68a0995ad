"""The options and arguments that several commands have."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import reduce
from typing import Any, BinaryIO, TypeVar

import click

from tbloom.bloom.config import Parameters
from tbloom.bloom.hasher import Secret
from tbloom.cli.kit import names, numbers
from tbloom.cli.kit.errors import VARIABLES, CommandError
from tbloom.engine.keys import DEFAULT_MAPPING

F = TypeVar("F", bound=Callable[..., Any])
#: More than a secret may have: what is read of its file.
_LONGEST_SECRET = 1024


def text_of(word: str) -> str:
    """A name, in UTF-8 whatever the locale says."""
    try:
        return os.fsencode(word).decode()
    except UnicodeDecodeError:
        raise click.BadParameter(f"expected UTF-8, got {word!r}") from None


def _secret_in(_context: object, _option: object, file: BinaryIO | None) -> Secret | None:
    """The secret that is in a file."""
    return None if file is None else Secret(file.read(_LONGEST_SECRET))


def _or_stdin(
    _context: object, _argument: object, files: tuple[BinaryIO, ...]
) -> tuple[BinaryIO, ...]:
    return files or (sys.stdin.buffer,)


url = click.option(
    "--url",
    envvar=[*VARIABLES],
    default=names.LOCAL,
    metavar="URL",
    help="the server, such as redis://host:6379/0 or redis+cluster://host:6379 "
    f"({', else '.join([*VARIABLES, names.LOCAL])})",
)
#: A filter's name, and any number of them.
name = click.argument("name", type=text_of, shell_complete=names.complete)
some_names = click.argument(
    "names",
    metavar="[NAME]...",
    nargs=-1,
    type=text_of,
    shell_complete=names.complete,
    callback=lambda _context, _argument, words: tuple(dict.fromkeys(words)),
)
#: Files with an item in each line, opened at once, so that a wrong name changes nothing; ``-`` is standard input.
files = click.argument(
    "files", metavar="[FILE]...", nargs=-1, type=click.File("rb"), callback=_or_stdin
)
within = click.option(
    "--within", type=int, metavar="N", help="search the newest N slices only (all)"
)
as_json = click.option("--json", "as_json", is_flag=True, help="as JSON")
quiet = click.option("--quiet", is_flag=True, help="no summary")
yes = click.option("--yes", is_flag=True, help="don't ask")
mapping = click.option(
    "--mapping",
    metavar="MAPPING",
    default=DEFAULT_MAPPING,
    type=text_of,
    help=f"the mapping that numbers the members ({DEFAULT_MAPPING})",
)
secret = click.option(
    "--secret-file",
    "secret",
    metavar="FILE",
    type=click.File("rb"),
    callback=_secret_in,
    help="a file with the secret of the filter, all of its bytes",
)

_PARAMETERS = (
    click.option(
        "--granularity",
        metavar="PERIOD",
        help="length of a slice: h, d, w, m, or 15min, 3d ... (d); none: no window, the filter never forgets",
    ),
    click.option("--slices", type=int, metavar="N", help="number of slices (7)"),
    click.option(
        "--capacity",
        type=numbers.capacity,
        metavar="ITEMS",
        help="distinct items per slice, such as 5M (none: what the last slice held)",
    ),
    click.option("--error-rate", type=float, metavar="RATE", help="over the whole window (1e-4)"),
    click.option(
        "--bits",
        type=numbers.bits,
        metavar="BITS",
        help="bits per slice, such as 2^30 (by capacity and error rate)",
    ),
    click.option("--hashes", type=int, metavar="N", help="bits that an item sets (by error rate)"),
    click.option("--tz", metavar="ZONE", help="time zone, such as Europe/Berlin (UTC)"),
    click.option(
        "--shards", type=int, metavar="N", help="number of shards, for a cluster (by size)"
    ),
    click.option(
        "--grow/--no-grow", default=None, help="a slice that is full grows (yes), or refuses items"
    ),
)


def parameters(function: Any) -> Any:
    """An option for each parameter of a filter."""
    return all_of(*_PARAMETERS)(function)


def creation(function: Any) -> Any:
    """--create, and the parameters of the new filter."""
    create = click.option("--create", is_flag=True, help="create a missing filter, with:")
    return all_of(create, *_PARAMETERS)(function)


def slices(what: str, without: str) -> Callable[[F], F]:
    """--granularity, --slices and --tz of a new counter or store, which may have no slices."""
    period = f"of a new {what}: length of a slice: h, d, w, m, or 15min, 3d ... ({without})"
    number = f"of a new {what}: number of slices to keep"
    zone = f"of a new {what}: time zone, such as Europe/Berlin (UTC)"
    return all_of(
        click.option("--granularity", metavar="PERIOD", help=period),
        click.option("--slices", type=int, metavar="N", help=number),
        click.option("--tz", metavar="ZONE", help=zone),
    )


def given(values: dict[str, Any]) -> dict[str, Any]:
    """The parameters that were given, as arguments of ``TimeBloom``."""
    names = [name for name in Parameters.__annotations__ if values.get(name) is not None]
    return {name: None if values[name] == "none" else values[name] for name in names}


def new(values: dict[str, Any], *, create: bool) -> dict[str, Any] | None:
    """The parameters of a new filter; None without --create."""
    if given(values) and not create:
        raise CommandError("--create is missing: parameters are for a new filter only")
    return given(values) if create else None


def all_of(*decorators: Any) -> Callable[[Any], Any]:
    """All of these options, in the order of the help."""
    return lambda function: reduce(
        lambda made, option: option(made), reversed(decorators), function
    )
