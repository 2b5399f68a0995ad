"""Settings of every kind: they work, or the error names them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scrapy.settings import Settings

from tbloom import ConfigError, TimeBloom
from tbloom.bloom.config import configure
from tbloom.scrapy.extras.counts import make_counters
from tbloom.scrapy.options import make_store
from tbloom.scrapy.settings import KNOWN
from tests.helpers.folders import Folder
from tests.helpers.hostile import refused
from tests.helpers.schedulers import (
    ADDON,
    DONE,
    SCHEDULED,
    SCRAPY,
    SCRAPY_REDIS,
    SETTINGS,
    UNREACHABLE,
    refusal,
)
from tests.helpers.servers import Cluster

SECRET = b"a secret of the crawlers, in ASCII"
EXACT = {"TBLOOM_STORE": "exact"}
LOCAL = {"TBLOOM_STORE": "local"}
_FORMAT = "TBLOOM_KEY: expected a str in which only %(spider)s and %(timestamp)s may be"
TAKES = "expected values that redis-py accepts ("
_REDIS = ["REDIS_URL", "REDIS_HOST", "REDIS_PORT", "REDIS_DB", "REDIS_ENCODING", "REDIS_PARAMS"]


def message(wrong: dict[str, Any]) -> str:
    """The error that the settings raise."""
    with pytest.raises(ConfigError) as error:
        [read(Settings(wrong), "spider") for read in (make_store, make_counters)]
    return str(error.value)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"TBLOOM_GRANULARITY": "y"}, "TBLOOM_GRANULARITY: expected 'h', 'd', 'w', 'm'"),
        ({"TBLOOM_SLICES": "many"}, "TBLOOM_SLICES: expected a whole number from 1"),
        ({"TBLOOM_CAPACITY": -1}, "TBLOOM_CAPACITY: expected a whole number from 1"),
        ({"TBLOOM_ERROR_RATE": 1}, "TBLOOM_ERROR_RATE: expected a float from 1e-15"),
        ({"TBLOOM_TIMEZONE": "Mars/Olympus"}, "TBLOOM_TIMEZONE: expected an IANA time zone"),
        ({"TBLOOM_ON_ERROR": "schedule"}, "unknown setting TBLOOM_ON_ERROR"),
        ({"TBLOOM_MARK": "never"}, "TBLOOM_MARK: expected 'scheduled' or 'done', got 'never'"),
        ({"TBLOOM_KEY": "{a}"}, "TBLOOM_KEY: expected a str that is not empty and has no braces"),
        *(({setting: "b\udcff"}, f"{setting}: expected a str that UTF-8 can encode, got 'b\\udcff'")
          for setting in ("TBLOOM_KEY", "TBLOOM_KEY_PREFIX", "TBLOOM_COUNT_KEY")),
        ({"TBLOOM_KEY_PREFIX": "{a}"}, "TBLOOM_KEY_PREFIX: expected a str of printable characters"),
        ({"TBLOOM_GROW": "maybe"}, "TBLOOM_GROW: expected True or False, got 'maybe'"),
        ({"TBLOOM_SECRET": "short"}, "TBLOOM_SECRET: expected 16 to 64 bytes, got '5 bytes'"),
        ({"TBLOOM_SLICE": 4}, "unknown setting TBLOOM_SLICE; did you mean TBLOOM_SLICES?"),
        ({"BLOOMFILTER_BIT": 41}, "BLOOMFILTER_BIT: expected 3 to 40"),
        ({"BLOOMFILTER_BIT": 20, "TBLOOM_CAPACITY": 10**6}, "TBLOOM_CAPACITY: expected 22117 or less"),
        ({"TBLOOM_STORE": "Exact"}, "TBLOOM_STORE: expected 'bloom' or 'exact' or 'local', got 'Ex"),
        ({**EXACT, "TBLOOM_TTL": "soon"}, "TBLOOM_TTL: expected seconds"),
        ({**LOCAL, "TBLOOM_PATH": "%(day)s"}, "TBLOOM_PATH: expected a str in which only %(spider)s"),
        ({"SCHEDULER_FLUSH_ON_START": "x"}, "SCHEDULER_FLUSH_ON_START: expected True or False"),
        ({**EXACT, "TBLOOM_CAPACITY": 9}, "TBLOOM_CAPACITY: expected to be left out with TBLOOM_STORE"),
        ({**EXACT, "TBLOOM_MARK": "done"}, "TBLOOM_MARK: expected 'scheduled', with TBLOOM_STORE = 'ex"),
        ({"TBLOOM_PATH": "seen.tbloom"}, "TBLOOM_PATH: expected to be left out with TBLOOM_STORE = 'bl"),
        *(({"TBLOOM_DONE_STATUSES": wrong}, "TBLOOM_DONE_STATUSES: expected a list of statuses, such")
          for wrong in (404, "gone", ["404"])),
        *(({"TBLOOM_KEY": key}, _FORMAT) for key in ("%", "%(other)s", "%(spider)9999999999s", b"a")),
        ({**EXACT, "TBLOOM_SECRET": SECRET}, "TBLOOM_SECRET: expected to be left out"),
        ({"REDIS_URL": "reddis://crawler:secret@127.0.0.1"}, "REDIS_URL: expected a URL that starts"),
        ({"REDIS_URL": ""}, "REDIS_URL: expected a URL that starts"),
        ({"REDIS_URL": '"redis://:secret@h"'}, "REDIS_URL: expected a URL without quotes, which `docker run"),
        ({"REDIS_URL": "", "REDIS_HOST": "h"}, "REDIS_URL: expected a URL that starts"),
        ({"REDIS_PARAMS": {"url": ""}}, "REDIS_PARAMS: expected a URL that starts"),
        ({"REDIS_URL": "redis://:secret@h:99999/0?password=secret"}, "REDIS_URL: expected a URL that redis-py"),
        ({"REDIS_URL": "redis://:secret/y@h"}, "REDIS_URL: expected the number of a database after"),
        ({"REDIS_URL": "redis://u:secret@h?pasword=secret"}, "REDIS_URL: expected a URL that redis-py accepts"),
        ({"REDIS_URL": "redis://:secret\udcff@h"}, "REDIS_URL: expected a URL that UTF-8 can encode, got 'redis://***@h'"),
        ({"REDIS_PORT": "six", "REDIS_PARAMS": {"password": "secret"}}, f"REDIS_PARAMS, REDIS_PORT: {TAKES}invalid"),
        ({"REDIS_PARAMS": '{"password": "secret"'}, "REDIS_PARAMS: expected a dict, or one as JSON, got <class 'str'>"),
        ({"REDIS_PARAMS": {"pasword": "secret"}}, f"REDIS_PARAMS: {TAKES}Redis.__init__() got an"),
        ({"REDIS_PARAMS": {"pasword": 1}, "REDIS_URL": "redis://:secret@h"}, f"REDIS_PARAMS: {TAKES}Abstract"),
        ({"REDIS_PARAMS": {"url": "redis://:secret/y@h"}}, "REDIS_PARAMS: expected the number of a database after"),
        ({"REDIS_PARAMS": {"redis_cls": "no.such", "password": "secret"}}, f"REDIS_PARAMS: {TAKES}No module"),
        ({"REDIS_PARAMS": {1: 2, "password": "secret"}}, f"REDIS_PARAMS: {TAKES}"),
        # Of the distinct counts:
        ({"TBLOOM_COUNT_KEY": ""}, "TBLOOM_COUNT_KEY: expected a str that is not empty"),
        ({"TBLOOM_COUNT_KEY": "%d"}, "TBLOOM_COUNT_KEY: expected a str in which only"),
        ({"TBLOOM_COUNT_MAX_MEMBERS": "many"}, "TBLOOM_COUNT_MAX_MEMBERS: expected a whole number from"),
        ({"TBLOOM_COUNT_MAX_MEMBERS": 0}, "TBLOOM_COUNT_MAX_MEMBERS: expected a whole number from"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named_without_a_secret(wrong: dict[str, Any], expected: str) -> None:
    """Such as a URL in quotes: cli#3630."""
    assert message(wrong).startswith(expected)
    assert "secret" not in message(wrong)


@pytest.mark.parametrize("scheme", ["redis", pytest.param("valkey", marks=pytest.mark.check)])
@pytest.mark.parametrize("kind", ["add-on", "exact", "queue"])
def test_a_clusters_url_is_taken(
    cluster: Cluster, crawl: Any, name: str, tmp_path: Path, *, kind: str, scheme: str
) -> None:
    """By crawls, doctor and the commands (scrapy-cluster#97, rq#732); scrapy-redis' queue, which would not end, says why not."""
    more = {
        "add-on": ADDON,
        "exact": {**SCRAPY, **EXACT, "TBLOOM_CAPACITY": None, "TBLOOM_MARK": "scheduled"},
        "queue": {**SHARED, "SCHEDULER_PERSIST": True},
    }[kind]
    given = {**more, "REDIS_URL": cluster.url.replace("redis", scheme), "TBLOOM_KEY": name}
    folder = Folder(tmp_path, "import scrapy\nclass A(scrapy.Spider): name = 'a'\n", **given)
    if kind == "queue":
        expected = (
            "REDIS_URL: expected a single server, because scrapy-redis' queue does not run on a"
        )
        assert refusal(crawl("pages", given, ["a"])).startswith(expected)
        assert folder.doctor()[1][0].startswith(f"✗ {expected}")
        return
    if kind == "add-on":
        assert "1 new" in folder.said("push", "a", stdin="http://a/\n")
        assert name in folder.said("queue")
        assert folder.said("failed", "a")
    else:
        assert ["a"] == crawl("pages", given, ["a"])["fetched"]
        assert [] == crawl("pages", given, ["a"])["fetched"]
    assert name in folder.said("list")
    assert folder.said("info", "a")
    assert 0 == folder.doctor()[0]


@pytest.mark.parametrize(("store", "secret"), [("bloom", SECRET), ("local", SECRET.decode())])
def test_crawlers_share_a_secret(url: str, name: str, store: str, secret: Any) -> None:
    """Bytes in the settings and a text of the command line are the same one."""
    known = {"REDIS_URL": url, "TBLOOM_KEY": name, "TBLOOM_STORE": store, "TBLOOM_SECRET": secret}
    with make_store(Settings(known), "spider") as seen:
        assert seen.add("a")
        assert seen.config.digest("a") == configure(name, secret=SECRET).digest("a")


SHARED = SETTINGS["add-on, scrapy-redis"]
DEAD = {"REDIS_URL": UNREACHABLE, "REDIS_PARAMS": {"retry": None}}
_DEAD = f"REDIS_URL is {UNREACHABLE}: "


_ASKS = "SCHEDULER: expected a scheduler that opens and asks the DUPEFILTER_CLASS, got 'tests.helpers.schedulers."


def schedulers(kind: str) -> dict[str, str]:
    return {"SCHEDULER": f"tests.helpers.schedulers.{kind}"}


#: `make test` has the first four: one without the add-on, one of scrapy-redis', one of both, one that would filter nothing.
STOPS: list[tuple[dict[str, Any], str]] = [
    ({**SCRAPY, "TBLOOM_SLICES": "many"}, "TBLOOM_SLICES: expected a whole number from 1 to 1024, got 'many'"),
    ({**SHARED, "SCHEDULER_FLUSH_ON_START": "s3"}, "SCHEDULER_FLUSH_ON_START: expected True or False"),
    ({**SHARED, "TBLOOM_MARK": None}, "TBLOOM_MARK: expected 'scheduled' with scrapy-redis' SCHEDULER; or remove SCHEDULER: with 'done', the add-on's default, crawlers"),
    ({**DONE, **schedulers("HasOne")}, f"{_ASKS}HasOne'"),
    ({**SCRAPY, "REDIS_PARAMS": {"socket_timeout": "soon"}}, f"REDIS_PARAMS: {TAKES}"),
    ({**SCRAPY, **DEAD}, f"{_DEAD}Error 111 connecting to 127"),
    # It needs the add-on: scrapy-redis asks Redis before other code of tbloom's runs.
    ({**SHARED, **DEAD}, f"{_DEAD}Error 111 connecting to 127"),
    ({**SCRAPY, "TBLOOM_MARK": "done"}, "TBLOOM_MARK: expected 'scheduled', or tbloom's add-on"),
    ({**ADDON, **EXACT}, "TBLOOM_MARK: expected 'scheduled', with TBLOOM_STORE = 'exact' (the add-on's default is 'done')"),
    ({**SCRAPY_REDIS, "TBLOOM_MARK": "done"}, "TBLOOM_MARK: expected 'scheduled' with scrapy-redis' SCHEDULER; or remove"),
    ({**SCHEDULED, **schedulers("Plain")}, f"{_ASKS}Plain'"), ({**DONE, **schedulers("Bare")}, f"{_ASKS}Bare'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [*STOPS[:4], *(pytest.param(*stop, marks=pytest.mark.check) for stop in STOPS[4:])],
)
def test_a_wrong_setting_stops_the_crawl_at_the_start(
    crawl: Any, wrong: dict[str, Any], expected: str
) -> None:
    assert refusal(crawl("pages", wrong, ["a"])).startswith(expected)


COUNTS = {**ADDON, "EXTENSIONS": {"tbloom.scrapy.DistinctCounts": 500}}


@pytest.mark.parametrize(
    ("settings", "other", "expected"),
    [
        *((each, {"TBLOOM_SLICES": 3}, "TBLOOM_SLICES is 3, the stored filter has 7: another TBLOOM_KEY, ")
          for each in (ADDON, SCHEDULED)),
        (COUNTS, {"TBLOOM_TIMEZONE": "Asia/Tokyo"}, "TBLOOM_TIMEZONE is 'Asia/Tokyo', the stored one has 'UTC'"),
    ],
)  # fmt: skip
def test_other_parameters_than_the_stored_stop_the_crawl(
    crawl: Any, name: str, settings: dict[str, Any], other: dict[str, Any], expected: str
) -> None:
    own = {**settings, "TBLOOM_COUNT_KEY": name}
    crawl("pages", own, ["a"])
    assert refusal(crawl("pages", {**own, **other}, ["b"])).startswith(expected)


@pytest.mark.parametrize(
    ("key", "name"), [("100%%", "100%"), ("%(spider)s:%(spider)s", "a%s:a%s"), ("a\0b", "a\0b")]
)
def test_a_key_has_the_spiders_name(key: str, name: str) -> None:
    assert make_store(Settings({"TBLOOM_KEY": key}), "a%s").name == name


class _Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError


#: Values of every wrong kind.
_ANYTHING = st.one_of(
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers(),
    st.text(max_size=20) | st.binary(max_size=5) | st.lists(st.integers(), max_size=2),
    st.timedeltas() | st.dates() | st.fractions() | st.decimals(),
    st.sampled_from([10**5000, -(10**400), 2**63, "x" * 65536, object, {}, _Unprintable()]),
    st.sampled_from(["..", "/etc/passwd", "a\0b", "Europe", "posixrules", "h\0", "9" * 5000 + "s"]),
)


@pytest.mark.check
@settings(suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from([*_REDIS, *sorted(KNOWN)]), _ANYTHING, min_size=1))
@example({"BLOOMFILTER_BIT": 40, "TBLOOM_CAPACITY": 1000})
@example({"TBLOOM_GROW": Decimal("sNaN")})
@example({"TBLOOM_GROW": False})
def test_any_setting_works_or_is_named(values: dict[str, Any]) -> None:
    """Or the error names a setting that it needs."""
    argument = refused(lambda: make_store(Settings(values), "spider"))
    needed = {"BLOOMFILTER_BIT": "BLOOMFILTER_HASH_NUMBER", "TBLOOM_GROW": "TBLOOM_CAPACITY"}
    named = {*(argument or "").split(", ")} - {""}
    assert named <= {*values, *(needed[value] for value in values if value in needed)}


def test_settings_of_the_command_line_are_strings(url: str, name: str) -> None:
    texts = {
        "TBLOOM_GROW": "False", "TBLOOM_SHARDS": "2", "TBLOOM_SLICES": "3",
        "TBLOOM_CAPACITY": "500", "TBLOOM_ERROR_RATE": "0.001", "TBLOOM_GRANULARITY": "h",
    }  # fmt: skip
    more = {"granularity": "h", "slices": 3, "capacity": 500, "error_rate": 1e-3}
    with TimeBloom.from_url(url, name, grow=False, shards=2, **more) as seen:
        given_ = make_store(Settings({"REDIS_URL": url, "TBLOOM_KEY": name, **texts}), "spider")
        assert seen.config == given_.config


@pytest.mark.parametrize(("store", "none"), [("bloom", None), ("bloom", "None"), ("local", "")])
def test_a_crawl_may_never_forget(url: str, name: str, store: str, none: str | None) -> None:
    own = {"REDIS_URL": url, "TBLOOM_KEY": name, "TBLOOM_STORE": store, "TBLOOM_GRANULARITY": none}
    seen = make_store(Settings(own), "spider")
    assert (None, 1) == (seen.config.granularity, seen.config.slices)
    assert message({**own, "TBLOOM_SLICES": 7}).startswith("TBLOOM_SLICES: ")


def test_scrapy_redis_bloomfilters_size_settings_are_understood(url: str, name: str) -> None:
    sizes = {"BLOOMFILTER_BIT": 16, "BLOOMFILTER_HASH_NUMBER": 5}
    with TimeBloom.from_url(url, name, bits=1 << 16, hashes=5) as seen:
        assert seen.config == make_store(Settings({"TBLOOM_KEY": name, **sizes}), "a").config


@pytest.mark.parametrize(("share", "shards"), [(True, 2), ("hosts", 1)])
def test_a_host_is_known_in_one_shard(url: str, name: str, share: Any, shards: int) -> None:
    """Else each shard has its own owner of the host, and the fleet keeps no delay."""
    given = {"REDIS_URL": url, "TBLOOM_KEY": name, "TBLOOM_SHARE": share}
    with make_store(Settings({**given, "TBLOOM_CAPACITY": 3_000_000}), "news") as seen:
        assert shards == seen.config.shards
