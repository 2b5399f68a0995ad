"""redis-py's clients, made from URLs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from redis.backoff import NoBackoff

from tbloom.errors import ConfigError

#: So long (s) our clients wait for a reply, or for a connection: no call holds the server nearly as long.
SOCKET_TIMEOUT = 2.0


def without_secrets(url: str) -> str:
    """The URL as a log may have it: its query may have a password too, and a password a question mark."""
    shown, _, query = url.partition("?")
    if "@" in query:
        return shown.partition("//")[0] + "//***"
    return re.sub(r"//.*@", "//***@", shown, flags=re.DOTALL)


def make_client(from_url: Callable[..., Any], retry: Callable[..., Any], url: str) -> Any:
    """redis-py's client for the URL; raises ConfigError where redis-py can't read it."""
    try:
        client = from_url(
            url,
            retry=retry(NoBackoff(), 0),  # sending again is ours to do: we know for how long
            socket_timeout=SOCKET_TIMEOUT,
            socket_connect_timeout=SOCKET_TIMEOUT,
        )
        pool = getattr(client, "connection_pool", None)
        if pool is not None:  # else a cluster's, which has used all options by now
            pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError) as error:
        why = "" if "@" in url else f" ({error})"  # it may have a piece of the password
        raise ConfigError("url", without_secrets(url), f"what redis-py takes{why}") from None
    return client


def parse_url(url: Any) -> tuple[str, bool]:
    """A URL that redis-py can read, and whether it is a cluster's; raises ConfigError."""
    match = (
        re.fullmatch(r"(rediss?|unix)(\+cluster)?(://.*)", url) if isinstance(url, str) else None
    )
    own_path = r"://[^/?#]*/?\d*([?#].*)?"
    if match and match[1] != "unix" and not re.fullmatch(own_path, match[3], re.DOTALL):
        # redis-py would take database 0.
        raise ConfigError("url", without_secrets(url), "the number of a database after the last /")
    if not match:
        expected = "a URL that starts with redis://, rediss://, redis+cluster://, rediss+cluster:// or unix://"
        shown = without_secrets(url) if isinstance(url, str) else url
        raise ConfigError("url", shown, expected)
    return match[1] + match[3], bool(match[2])
