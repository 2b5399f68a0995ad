"""redis-py clients from URLs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tbloom.errors import ConfigError

#: How long (s) these clients wait for a reply, or for a connection. The server needs milliseconds for a call.
SOCKET_TIMEOUT = 2.0

#: The redis-py options of a client that is made for a URL, by name.
ClientOptions = Mapping[str, Any] | None

# A host and port without a scheme. It is too simple to be a password.
_HOST_AND_PORT = re.compile(r"(localhost|[0-9]+(\.[0-9]+){3}):[0-9]{1,5}")
# A whole URL. Its groups are so strict that none can match a piece of a password.
_URL = re.compile(
    r"((?:(?P<unix>unix)|(?!unix:)[a-z]+(?P<cluster>\+cluster)?)://)?(?P<user>(?:(?!;password=)[^/?#])*@)?"
    r"(?P<place>(?(unix)/[^?#@;=]*|(?:[\w.%-]*|\[[\w.:%-]+\])(?::[0-9]*)?(?:/[0-9]*)?))"
    r"(?:\?[^#@]*)?"
)


_USERINFO = re.compile(r"\A([^/?#]*//)[^/?#]*@")
_QUOTED = re.compile(r"""(["'])(?!\1).*\1""")


def without_secrets(url: object) -> str:
    """Return the URL without its user, password and options."""
    if not isinstance(url, str):
        return type(url).__name__
    url = url.strip()
    if _QUOTED.fullmatch(url):
        return f"{url[0]}{without_secrets(url[1:-1])}{url[0]}"
    if not url or _HOST_AND_PORT.fullmatch(url):  # nothing, or only the scheme is missing
        return url
    # Any other text without a scheme may be a password.
    if (match := _URL.fullmatch(url)) and match[1]:
        return f"{match[1]}{'***@' if match['user'] else ''}{match['place']}"
    scheme = re.match(r"[a-z]+(\+cluster)?://", url)
    return f"{scheme[0] if scheme else ''}***"


def without_userinfo(url: str) -> str:
    """Return a page's URL without a user and a password."""
    return _USERINFO.sub(r"\1", url)


def without_retries(retry: Callable[..., Any]) -> Any:
    """Return an object of redis-py's class ``retry`` that never retries, because tbloom itself retries calls."""
    from redis.backoff import NoBackoff  # noqa: PLC0415 - `tbloom --help` needs no redis-py

    return retry(NoBackoff(), 0)


def make_client(
    from_url: Callable[..., Any],
    retry: Callable[..., Any],
    url: str,
    options: ClientOptions = None,
) -> Any:
    """Return redis-py's client for the URL.

    Raise ConfigError if redis-py can't read the URL, or does not know an option. (Its cluster client ignores unknown options.)
    """
    given = check_options(options)
    usual = {
        "retry": without_retries(retry),
        "socket_timeout": SOCKET_TIMEOUT,
        "socket_connect_timeout": SOCKET_TIMEOUT,
    }
    try:
        client = from_url(url, **{**usual, **given})
        pool = getattr(client, "connection_pool", None)
        if pool is not None:  # a cluster's client has connected already
            pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError, NameError) as error:  # NameError: a bug of redis-py 5.0
        # What looks like a second option may belong to the value of the first, which may be a password.
        why = "" if given or re.search("[@&]", url) else f" ({error})"
        unknown = [name for name in given if isinstance(error, TypeError) and name in str(error)]
    else:
        return client
    # The error is raised here, so that redis-py's error is not its context. Values are not shown, because they may be passwords.
    if unknown:
        raise ConfigError("client_options", unknown, "options that redis-py accepts")
    if given:
        why = f" with the client_options {', '.join(given)}"
    raise ConfigError("url", without_secrets(url), f"a URL that redis-py accepts{why}")


def check_options(options: ClientOptions) -> Mapping[str, Any]:
    """Return the options, or an empty dict for None. Raise ConfigError, without showing a value, if they can't be right."""
    if not isinstance(options, Mapping | None) or not all(
        isinstance(name, str) for name in options or ()
    ):
        raise ConfigError("client_options", type(options), "a dict of redis-py's options, by name")
    if "retry" in (options or ()):
        raise ConfigError("client_options", ["retry"], "options without retry (see retry_for)")
    return options or {}


def parse_url(url: Any) -> tuple[str, bool]:
    """Return the URL for redis-py, and whether it is a cluster's. Raise ConfigError if the URL is not valid.

    White space at its ends does not count, such as the newline of a file with a secret, nor does a slash behind the database.
    """
    url = re.sub(r"(/[0-9]+)/\Z", r"\1", url.strip()) if isinstance(url, str) else url
    if isinstance(url, str) and _QUOTED.fullmatch(url):
        expected = "a URL without quotes, which `docker run --env-file` does not remove"
        raise ConfigError("url", without_secrets(url), expected)
    if not isinstance(url, str) or not re.match(r"((redis|valkey)s?(\+cluster)?|unix)://", url):
        expected = (
            "a URL that starts with redis://, rediss://, redis+cluster://, rediss+cluster:// or unix://, "
            "or with valkey in place of redis, such as redis://localhost:6379/0"
        )
        raise ConfigError("url", None if url is None else without_secrets(url), expected)
    # Bytes of an environment that are no UTF-8 become lone surrogates.
    if url != url.encode(errors="ignore").decode():
        raise ConfigError("url", without_secrets(url), "a URL that UTF-8 can encode")
    match = _URL.fullmatch(url)
    if not match:  # redis-py would use database 0, or mistake a piece of a password for the port
        expected = "the number of a database after the last /, and %40 %2F %3F %23 for @ / ? # in a password"
        raise ConfigError("url", without_secrets(url), expected)
    # redis-py knows its own schemes only.
    return re.sub(r"\A(redis|valkey)(s?)(\+cluster)?:", r"redis\2:", url), bool(match["cluster"])


def address_of(client: Any) -> str:
    """Return where the client's server is, without a password."""
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        return "a cluster"
    known = pool.connection_kwargs
    host = f"{known.get('host', 'localhost')}:{known.get('port', 6379)}"
    place: str = getattr(pool, "service_name", None) or known.get("path") or host
    return f"{place}/{known.get('db') or 0}"
