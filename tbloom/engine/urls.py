"""redis-py clients from URLs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from redis.backoff import NoBackoff

from tbloom.errors import ConfigError

#: How long (s) these clients wait for a reply, or for a connection; a call takes the server milliseconds.
SOCKET_TIMEOUT = 2.0


def without_secrets(url: str) -> str:
    """The URL for a log: without a password, which may also be in the query, and may contain a question mark."""
    shown, _, query = url.partition("?")
    if "@" in query:
        return shown.partition("//")[0] + "//***"
    return re.sub(r"//.*@", "//***@", shown, flags=re.DOTALL)


def make_client(from_url: Callable[..., Any], retry: Callable[..., Any], url: str) -> Any:
    """redis-py's client for the URL; raises ConfigError if redis-py can't read it."""
    try:
        client = from_url(
            url,
            retry=retry(NoBackoff(), 0),  # retries are tbloom's own, for `retry_for` seconds
            socket_timeout=SOCKET_TIMEOUT,
            socket_connect_timeout=SOCKET_TIMEOUT,
        )
        pool = getattr(client, "connection_pool", None)
        if pool is not None:  # a cluster's client has checked the options already
            pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError) as error:
        why = "" if "@" in url else f" ({error})"  # the error may contain a piece of the password
        raise ConfigError("url", without_secrets(url), f"what redis-py takes{why}") from None
    return client


def parse_url(url: Any) -> tuple[str, bool]:
    """The URL for redis-py, and whether it is a cluster's; raises ConfigError."""
    match = (
        re.fullmatch(r"(rediss?|unix)(\+cluster)?(://.*)", url) if isinstance(url, str) else None
    )
    own_path = r"://[^/?#]*/?\d*([?#].*)?"
    if match and match[1] != "unix" and not re.fullmatch(own_path, match[3], re.DOTALL):
        # redis-py would silently use database 0.
        raise ConfigError("url", without_secrets(url), "the number of a database after the last /")
    if not match:
        expected = "a URL that starts with redis://, rediss://, redis+cluster://, rediss+cluster:// or unix://"
        shown = without_secrets(url) if isinstance(url, str) else url
        raise ConfigError("url", shown, expected)
    return match[1] + match[3], bool(match[2])
