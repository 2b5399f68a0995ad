"""redis-py clients from URLs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tbloom.errors import ConfigError

#: How long (s) these clients wait for a reply, or for a connection; a call takes the server milliseconds.
SOCKET_TIMEOUT = 2.0

#: redis-py's options for a client that a URL leads to, by name.
ClientOptions = Mapping[str, Any] | None

# What a URL without its scheme is, and surely no password.
_PLACE = re.compile(r"(localhost|[0-9]+(\.[0-9]+){3}):[0-9]{1,5}")
# All that a URL may have; what its pieces may be leaves no room for a piece of a password.
_URL = re.compile(
    r"((?:(?P<unix>unix)|(?!unix:)[a-z]+(?P<cluster>\+cluster)?)://)?(?P<user>(?:(?!;password=)[^/?#])*@)?"
    r"(?P<place>(?(unix)/[^?#@;=]*|(?:[\w.%-]*|\[[\w.:%-]+\])(?::[0-9]*)?(?:/[0-9]*)?))"
    r"(?:\?[^#@]*)?"
)


def without_secrets(url: object) -> str:
    """What may be shown of a URL: scheme, host, port and database."""
    if not isinstance(url, str):
        return type(url).__name__
    if _PLACE.fullmatch(url):  # only the scheme is missing
        return url
    # Any other without a scheme may be a password alone.
    if (match := _URL.fullmatch(url)) and match[1]:
        return f"{match[1]}{'***@' if match['user'] else ''}{match['place']}"
    scheme = re.match(r"[a-z]+(\+cluster)?://", url)
    return f"{scheme[0] if scheme else ''}***"


def without_retries(retry: Callable[..., Any]) -> Any:
    """No retries by redis-py: they are tbloom's own, for ``retry_for`` seconds. ``retry``: redis-py's class for them."""
    from redis.backoff import NoBackoff  # noqa: PLC0415 - `tbloom --help` needs no redis-py

    return retry(NoBackoff(), 0)


def make_client(
    from_url: Callable[..., Any],
    retry: Callable[..., Any],
    url: str,
    options: ClientOptions = None,
) -> Any:
    """redis-py's client for the URL; raises ConfigError if redis-py can't read it, or takes no such options."""
    if not isinstance(options, Mapping | None):
        raise ConfigError("client_options", type(options), "a dict of redis-py's options, by name")
    usual = {
        "retry": without_retries(retry),
        "socket_timeout": SOCKET_TIMEOUT,
        "socket_connect_timeout": SOCKET_TIMEOUT,
    }
    try:
        client = from_url(url, **{**usual, **(options or {})})
        pool = getattr(client, "connection_pool", None)
        if pool is not None:  # a cluster's client has checked the options already
            pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError, NameError) as error:  # NameError: a bug of redis-py 5.0
        # Of two options, the second may be a piece of the first one's value.
        why = "" if re.search("[@&]", url) else f" ({error})"
    else:
        return client
    # Here and not above, where the error would have redis-py's as its context.
    if options:  # by their names, because a value may be a password
        raise ConfigError("client_options", sorted(options), f"options that redis-py takes{why}")
    raise ConfigError("url", without_secrets(url), f"what redis-py takes{why}")


def parse_url(url: Any) -> tuple[str, bool]:
    """The URL for redis-py, and whether it is a cluster's; raises ConfigError."""
    if not isinstance(url, str) or not re.match(r"(rediss?(\+cluster)?|unix)://", url):
        expected = "a URL that starts with redis://, rediss://, redis+cluster://, rediss+cluster:// or unix://"
        raise ConfigError("url", without_secrets(url), expected)
    match = _URL.fullmatch(url)
    if not match:  # redis-py would use database 0, or take a piece of a password for the port
        expected = "the number of a database after the last /, and %40 %2F %3F %23 for @ / ? # in a password"
        raise ConfigError("url", without_secrets(url), expected)
    return url.replace("+cluster", "", 1) if match["cluster"] else url, bool(match["cluster"])
