"""An error at the start as one line of the log: the setting that it is about, then the remedy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from redis import RedisError
from redis.exceptions import RedisClusterException

from tbloom.engine.urls import without_secrets
from tbloom.errors import ConfigError, ConfigMismatch
from tbloom.scrapy.connection import address_of, make_client
from tbloom.scrapy.settings import FILTER, PAGES, STORE, Setting

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

#: The parameters that `tbloom reconfigure` changes.
_CHANGEABLE = {"slices", "capacity", "error_rate"}
#: The parameters in REDIS_PARAMS that name a server.
_PLACES = {"url", "host", "port", "unix_socket_path", "startup_nodes", "connection_pool"}


def error_line(
    error: Exception, settings: BaseSettings, table: Mapping[str, Setting] = FILTER
) -> str:
    """The error, beginning with the name of a setting; ``table``: the settings of the store."""
    if isinstance(error, ConfigMismatch):
        return _explain_mismatch(error, settings, table)
    if isinstance(error, RedisError | RedisClusterException):
        if str(error).startswith("WRONGTYPE"):
            return f"{table['name'].name}: {error}; take another one"
        return f"{server_setting(settings)}: {error}"
    if isinstance(error, OSError) or (table is PAGES and not isinstance(error, ConfigError)):
        return f"{table.get('path', FILTER['path']).name}: {error}"
    return str(error)


def server_setting(settings: BaseSettings) -> str:
    """The name of the setting that names the server."""
    names = ["REDIS_URL", "REDIS_HOST", "REDIS_PORT"]
    if _PLACES & settings.getdict("REDIS_PARAMS").keys():
        names.append("REDIS_PARAMS")
    return next(filter(settings.get, names), names[0])


def _explain_mismatch(
    error: ConfigMismatch, settings: BaseSettings, table: Mapping[str, Setting]
) -> str:
    store = STORE.value(settings, "bloom") if table is FILTER else ""
    place = table["path" if store == "local" or table is PAGES else "name"].name
    if not error.differences.keys() <= table.keys():  # another kind of store, or another program's
        return f"{place}: {error}"
    sizes = {"bits", "hashes"}  # follow from capacity and error rate, or the other way round
    if any(size in table and table[size].name in settings for size in sizes):
        sizes = {"capacity", "error_rate"}
    differing = {
        name: values
        for name, values in error.differences.items()
        if name not in sizes or table[name].name in settings
    } or error.differences
    given = ", ".join(f"{table[name].name} is {own!r}" for name, (_, own) in differing.items())
    stored = ", ".join(f"{theirs!r}" for theirs, _ in differing.values())
    remedy = f"another {place}, or {stored}"
    if store == "bloom" and differing.keys() <= _CHANGEABLE:
        options = " ".join(
            f"--{name.replace('_', '-')} {own}" for name, (_, own) in differing.items()
        )
        # The command line does not know the settings.
        server = settings.get("REDIS_URL") or address_of(make_client(settings)[0])
        if "://" in server:
            options += f" --url {shlex.quote(without_secrets(server))}"
        remedy = f"`tbloom reconfigure {shlex.quote(error.name)} {options}`, {remedy}"
    kind = "page store" if table is PAGES else "stored filter" if store else "stored counter"
    return f"{given}, the {kind} has {stored}: {remedy}"
