"""No piece of the password in a Redis URL is shown, wherever it is given; and what SECURITY.md says of attackers."""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scrapy.settings import Settings

from tbloom import AsyncTimeBloom, TimeBloom
from tbloom.bloom.hasher import digest
from tbloom.engine.urls import without_secrets
from tbloom.scrapy.options import make_store
from tests.helpers.commands import tbloom

#: Each piece of a password has it, wherever a URL is cut.
WORD = "hunter"
SHAPES = [
    *("redis://:{}@127.0.0.1:1/0", "redis://{}@127.0.0.1:1", "redis://user:{}@127.0.0.1:1?db=x"),
    *("redis://:{}/y@127.0.0.1:1", "redis://:1/{}@127.0.0.1:1", "redis://:1?{}@127.0.0.1:1"),
    *("redis://127.0.0.1:1?password={}", "redis://127.0.0.1:99999?password={}"),
    *("redis://127.0.0.1:1/news?password={}", "redis://127.0.0.1:1?db=x&password={}"),
    *("redis://127.0.0.1:1?pasword={}", "redis://127.0.0.1:1/0#{}"),
    *("redis://127.0.0.1:1;password={}", "redis://127.0.0.1:1/0;password={}"),
    *("redis+cluster://:{}@127.0.0.1:1", "reddis://:{}@127.0.0.1:1", " redis://:{}@127.0.0.1:1"),
    *("rediss://:{}@127.0.0.1:1", "redis://:{}@[::1", "redis://:{}@127.0.0.1:x"),
    *("unix://:{}@/no/such.sock", "unix:///no/such.sock?password={}"),
    *("unix:///no/such.sock;password={}", "unix://:{}/y@/no/such.sock"),
    *(":{}@127.0.0.1:1", "user:{}@127.0.0.1:1/0", "127.0.0.1:1;password={}", "{}"),
]  # fmt: skip
between = st.lists(
    st.sampled_from([*"/?#@:;%&=+[]'\"\\ \n\té1a", "//", "://", "%2F", "?db=1", "&db="]), max_size=3
).map("".join)
urls = st.builds(
    lambda shape, *pieces: shape.format(WORD.join(pieces)),
    st.sampled_from(SHAPES), between, between, between,
)  # fmt: skip


def shown(error: BaseException) -> Iterator[str]:
    """All that the error shows, and those that led to it."""
    yield from (str(error), repr(error), repr(vars(error)))
    yield from traceback.format_exception(error)
    for other in (error.__cause__, error.__context__):
        if other is not None:
            yield from shown(other)


def crawled(url: Any) -> None:
    """Does what Scrapy's scheduler does at the start of a crawl."""
    make_store(Settings({"REDIS_URL": url, "TBLOOM_RETRY_FOR": 0}), "spider").add("a")


@given(urls)
@example("redis://:a@hunter?db=1@127.0.0.1:1")
@example("redis://127.0.0.1:1;password=a@hunter:1")
@example("redis://127.0.0.1:1?password=a&hunter=1")
@example("redis://127.0.0.1:1?pasword=&hunter=1")
@example("hunter2")
def test_no_error_shows_a_password(url: str) -> None:
    """Nor do its cause and context, of any of the ways to give a URL."""
    assume(not re.match(rf"[a-z]*{WORD}[a-z]*://", url))  # a scheme is no secret
    assert WORD not in without_secrets(url)
    for call in (
        lambda: TimeBloom.from_url(url, "news", retry_for=0).add("a"),
        lambda: TimeBloom.from_url(url.encode(), "news", retry_for=0).add("a"),  # type: ignore[arg-type]
        lambda: asyncio.run(AsyncTimeBloom.from_url(url, "news", retry_for=0).add("a")),
        lambda: TimeBloom(url, "news"),  # type: ignore[arg-type]
        lambda: crawled(url),
        lambda: crawled(url.encode()),
    ):
        with pytest.raises(Exception) as error:  # noqa: PT011 - ours or redis-py's
            call()
        assert not [text for text in shown(error.value) if WORD in text]


#: Where the URL, as U, may stand in a command line; S is that of a server.
LINES = [
    *("U", "list --url U", "list --url=U", "list U", "list --redis U", "list", "info U", "count U"),
    *("check --url U news", "check news U", "metrics --url U news", "watch a --url U", "add news U"),
    *("migrate news --from-set a --from-url U", "migrate U --from-seen U", "import S --url U", "export U f"),
    *("count show a --mapping U", "plan --capacity U", "pages get U U"),
]  # fmt: skip


@settings(max_examples=3)
@given(given_url=urls)
@example(given_url="redis://:a@hunter\"'?db=1@127.0.0.1:1")
@example(given_url="redis://127.0.0.1:1?pasword=hunter")
@pytest.mark.parametrize("line", LINES)
def test_no_command_shows_a_password(line: str, url: str, given_url: str) -> None:
    """With the server in the environment unless the line has the URL itself."""
    # A mere word may be a mistyped one, which the error names.
    assume(any(place in given_url for place in ("127.", "[::1", "no/such")))
    words = {"U": given_url, "S": url}
    done = tbloom(
        *(words.get(word, word.replace("U", given_url)) for word in line.split()),
        TBLOOM_URL=url if "U" in line.split() else given_url,
    )
    assert WORD not in done.stdout + done.stderr
    assert done.returncode


def test_no_url_is_stored_or_sent_and_every_key_expires(own: redis.Redis) -> None:
    """But for the name, what MONITOR shows is numbers, hashes and our own scripts. No hash is stored."""
    own.flushall()
    own.script_flush()
    url = "https://user:secret@hidden.example/path"
    with own.monitor() as monitor:
        seen = TimeBloom(own, "quiet", capacity=1000)
        seen.add(url)
        seen.add_many([url, f"{url}/2"])
        assert url in seen
        own.echo("the end")
        said = ""
        while "the end" not in said:
            said += monitor.next_command()["command"]
    stored = b"".join(own.dump(key) for key in own.scan_iter()).decode("latin-1")
    for text in ("hidden", "secret"):
        assert text not in said
        assert text not in stored
    assert digest(url).decode("latin-1") not in stored
    assert digest(url).hex() not in stored
    assert all(own.ttl(key) > 0 for key in own.scan_iter())
