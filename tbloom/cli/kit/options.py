"""The options and arguments that several commands have."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path
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
#: How long the names are kept for completion (s), because users press Tab several times for one name.
_SECONDS = 30.0
#: The timeout of completion (s). If it took longer, the shell would seem to hang.
_WAIT_SECONDS = 0.5
#: The bytes that are read of a secret's file, more than a secret may have.
_LONGEST_SECRET = 1024


def complete(context: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of the filters on the server that begin so; none if it does not answer."""
    url = context.params.get("server") or next(filter(None, map(os.environ.get, VARIABLES)), LOCAL)
    prefix = context.meta.get("prefix") or os.environ.get(PREFIX, "")
    return [
        name for name in _names(url, prefix) if name.startswith(incomplete) and name.isprintable()
    ]


def _names(url: str, prefix: str) -> list[str]:
    """Return the names of the filters, from a file if it is new enough, otherwise from the server."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tbloom"
    file = (
        folder
        / f"{hashlib.sha256(f'{url} {prefix}'.encode(errors='replace')).hexdigest()[:16]}.json"
    )
    with suppress(OSError, ValueError):
        if time.time() - file.stat().st_mtime < _SECONDS:
            return [str(name) for name in json.loads(file.read_text(encoding="utf-8"))]
    from tbloom.cli.kit.filters import connect  # noqa: PLC0415 - the file is read without redis-py

    limits = f"socket_timeout={_WAIT_SECONDS}&socket_connect_timeout={_WAIT_SECONDS}"
    address = url if "timeout=" in url else f"{url}{'&' if '?' in url else '?'}{limits}"
    with connect(address, "", prefix) as server:
        found = server.names()
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text(json.dumps(found), encoding="utf-8")
    return found


class Shared(click.Option):
    """An option that many commands have; in their help, it comes last."""

    section = "Common options"


class Parameter(click.Option):
    """A parameter of a filter."""

    section = "Parameters of a filter"


def text_of(word: str) -> str:
    """Return a name, in UTF-8 whatever the locale says."""
    try:
        return os.fsencode(word).decode()
    except UnicodeDecodeError:
        raise click.BadParameter(f"expected UTF-8, got {word!r}") from None


def _connected(
    context: click.Context, option: click.Option, url: str | None
) -> Server | str | None:
    """Return the server at the URL, connected until the command ends. While a shell completes a word, return the URL."""
    if url is None or context.resilient_parsing:
        return url
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


def _or_stdin(
    _context: object, _argument: object, files: tuple[BinaryIO, ...]
) -> tuple[BinaryIO, ...]:
    return files or (sys.stdin.buffer,)


_shared = partial(click.option, cls=Shared)
_flag = partial(_shared, is_flag=True, expose_value=False, callback=_note)
_url: Decorator = _shared(
    "--url",
    "server",
    envvar=[*VARIABLES],
    default=LOCAL,
    metavar="URL",
    callback=_connected,
    help="the server, such as redis://host:6379/0 or redis+cluster://host:6379 "
    f"({', else '.join([*VARIABLES, LOCAL])})",
)
_prefix: Decorator = _shared(
    "--prefix",
    envvar=PREFIX,
    default="",
    metavar="PREFIX",
    is_eager=True,
    expose_value=False,
    callback=_note_prefix,
    help=f"the text with which each key begins, such as app1: ({PREFIX}, else none)",
)
#: A filter's name; one that may be left out; and any number of them.
name: Decorator = click.argument("name", type=text_of, shell_complete=complete)
name_or_only: Decorator = click.argument(
    "name", required=False, type=text_of, shell_complete=complete
)
some_names: Decorator = click.argument(
    "names",
    metavar="[NAME]...",
    nargs=-1,
    type=text_of,
    shell_complete=complete,
    callback=lambda _context, _argument, words: tuple(dict.fromkeys(words)),
)
#: Files with an item in each line, opened at once, so that a wrong name changes nothing; ``-`` is standard input.
files: Decorator = click.argument(
    "files", metavar="[FILE]...", nargs=-1, type=click.File("rb"), callback=_or_stdin
)
within: Decorator = _shared(
    "--within", type=int, metavar="N", help="search the newest N slices only (all)"
)
as_json: Decorator = _flag("--json", help="as JSON")
quiet: Decorator = _flag("--quiet", help="no summary")
yes: Decorator = _flag("--yes", help="don't ask")
mapping: Decorator = _shared(
    "--mapping",
    metavar="MAPPING",
    default=DEFAULT_MAPPING,
    type=text_of,
    help=f"the mapping that numbers the members ({DEFAULT_MAPPING})",
)
secret: Decorator = _shared(
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
#: The same for a command that needs no server, and has none without --url.
optional_server: Decorator = all_of(
    click.option(
        "--url",
        "server",
        metavar="URL",
        callback=_connected,
        help="a server, whose speed is measured by a filter that is deleted again",
    ),
    _prefix,
)
_parameter = partial(click.option, cls=Parameter)
#: An option for each parameter of a filter that can change.
changeable: Decorator = all_of(
    _parameter("--slices", type=int, metavar="N", help="number of slices (7)"),
    _parameter(
        "--capacity",
        type=numbers.capacity,
        help="distinct items per slice, such as 5M (auto: what the last slice held)",
    ),
    _parameter(
        "--error-rate", type=numbers.chance, metavar="RATE", help="over the whole window (1e-4)"
    ),
    _parameter("--bits", type=numbers.bits, help="bits per slice, such as 2^30 (by capacity)"),
    _parameter("--hashes", type=int, metavar="N", help="bits that an item sets (by error rate)"),
    _parameter("--grow/--no-grow", default=None, help="a full slice grows (yes), or refuses items"),
)
#: An option for each parameter.
parameters: Decorator = all_of(
    _parameter(
        "--granularity",
        metavar="PERIOD",
        help="length of a slice: h, d, w, m, or 15min, 3d ... (d); none: no window, the filter never forgets",
    ),
    changeable,
    _parameter("--tz", metavar="ZONE", help="time zone, such as Europe/Berlin (UTC)"),
    _parameter("--shards", type=int, metavar="N", help="shards, for a cluster (by size)"),
)
#: --create, and the parameters of the new filter.
creation: Decorator = all_of(
    click.option("--create", is_flag=True, help="create a missing filter, with these parameters"),
    parameters,
)


def slices(what: str, without: str) -> Decorator:
    """Return the options --granularity, --slices and --tz of a new counter or store, which may have no slices."""
    period = f"of a new {what}: length of a slice: h, d, w, m, or 15min, 3d ... ({without})"
    number = f"of a new {what}: number of slices to keep"
    zone = f"of a new {what}: time zone, such as Europe/Berlin (UTC)"
    return all_of(
        click.option("--granularity", metavar="PERIOD", help=period),
        click.option("--slices", type=int, metavar="N", help=number),
        click.option("--tz", metavar="ZONE", help=zone),
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
