"""Names, parameters, URLs and settings from outside: they work, or are refused by their name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone, tzinfo
from functools import partial
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from scrapy.settings import Settings

from tbloom import AsyncTimeBloom, ConfigError, TimeBloom
from tbloom.bloom.config import configure
from tbloom.engine.keys import Keys
from tbloom.scrapy.dupefilter.options import read_options
from tbloom.scrapy.settings import KNOWN

_REPORTED = "for base, sync, aio, protocol: "
_FIXED_NAMES = [
    "*",
    "?",
    "[a-z]",
    "a b",
    "a\nb",
    "a\r\nb",
    "a\0b",
    "%s",
    "\\",
    "x" * 65536,
    "é\u0301",
]
_names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{}"), min_size=1)


class _Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError


#: Values of every wrong kind.
_anything = st.one_of(
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers(),
    st.text(max_size=20) | st.binary(max_size=5) | st.lists(st.integers(), max_size=2),
    st.timedeltas() | st.dates() | st.fractions() | st.decimals(),
    st.sampled_from([10**5000, -(10**400), 2**63, "x" * 65536, object, {}, _Unprintable()]),
    st.sampled_from(["..", "/etc/passwd", "a\0b", "Europe", "posixrules", "h\0", "9" * 5000 + "s"]),
)
#: Values of the right kind, up to and beyond what makes sense.
_PARAMETERS: dict[str, st.SearchStrategy[Any]] = {
    "granularity": st.sampled_from(["h", "d", "w", "m", "15min"]) | st.timedeltas(),
    "slices": st.integers(-1, 1025),
    "capacity": st.none() | st.integers(-1, 10**16) | st.integers(1, 10**5),
    "error_rate": st.floats(0, 1) | st.floats(),
    "tz": st.sampled_from(["UTC", "Pacific/Apia", "Europe/Berlin"]),
    "shards": st.none() | st.integers(-1, 20_000) | st.integers(1, 4),
    "grow": st.booleans(),
    "bits": st.none() | st.integers(-1, 2**43) | st.integers(1, 2**20),
    "hashes": st.none() | st.integers(-1, 65),
}
#: Sensible ones, and at most one that is not.
_parameters = st.tuples(
    st.fixed_dictionaries({}, optional=_PARAMETERS),
    st.dictionaries(st.sampled_from(sorted(_PARAMETERS)), _anything, max_size=1),
).map(lambda both: both[0] | both[1])


def _refused(call: Callable[[], object]) -> str | None:
    """The argument that a ConfigError names, whose message has its three parts; None: it works."""
    try:
        call()
    except ConfigError as error:
        refusal = error
    else:
        return None
    assert str(refusal).startswith(f"{refusal.argument}: expected {refusal.expected}, got ")
    assert len(str(refusal)) < 1000
    return refusal.argument


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(_parameters)
@example({"bits": 2**33, "hashes": 6, "capacity": 1})  # a shard of 1 GB
@example({"capacity": 10**5000})
def test_any_parameters_make_a_filter_or_a_config_error(
    own: redis.Redis, parameters: dict[str, Any]
) -> None:
    own.flushall()
    refused = _refused(lambda: TimeBloom(own, "fuzzed", **parameters))
    assert refused in {None, *_PARAMETERS}
    if refused:
        return
    seen = TimeBloom(own, "fuzzed", **parameters)
    assert seen.config.shard_bits < 1 << 31  # Redis has no larger keys than twice that
    if seen.config.shard_bits < 1 << 24:  # 2 MB
        assert [True, False] == [seen.add("a"), seen.add("a")]
        assert all(key.startswith(b"{fuzzed") for key in own.scan_iter())


@given(_anything)
def test_any_name_makes_a_filter_or_a_config_error(name: Any) -> None:
    if _refused(lambda: configure(name)) != "name":
        assert configure(name).name is name


@settings(max_examples=30)
@given(_names)
def test_a_filter_of_any_name_keeps_to_its_keys(own: redis.Redis, name: str) -> None:
    own.flushall()
    seen = TimeBloom(own, name, capacity=100)
    assert [True, False] == [seen.add("a"), seen.add("a")]
    assert 1 == seen.info().items
    assert all(key.startswith(f"{{{name}}}:".encode()) for key in own.scan_iter())
    seen.clear()
    assert "a" not in seen


@pytest.mark.parametrize("name", _FIXED_NAMES, ids=lambda name: ascii(name[:9]))
def test_a_name_that_looks_like_something_else_is_a_name(own: redis.Redis, name: str) -> None:
    """With a neighbour whose name it would match, were it a pattern."""
    own.flushall()
    for shards in (1, 3):
        seen, neighbour = TimeBloom(own, name, shards=shards), TimeBloom(own, "azb")
        assert [True, True] == [seen.add("a"), neighbour.add("a")]
        seen.clear()
        assert ["a" in seen, "a" in neighbour] == [False, True]
        neighbour.clear()


def _all_keys(name: str, shards: int) -> set[str]:
    keys = Keys(name, shards)
    made = {keys.root}
    for shard in range(shards):
        made |= {keys.config(shard), keys.layout(shard), keys.lane("0123456789abcdef", 0, shard)}
        made |= {keys.slice("20190508", shard, part) for part in (0, 1)}
    return made


@given(st.text("ab:.01", min_size=1, max_size=6), st.text("ab:.01", min_size=1, max_size=6))
@example("a", "a:config")
@example("a", "a:layout")
@example("a", "a:lane:0123456789abcdef:0")
@example("a", "a:20190508:1")
@example("a", "a:0")
def test_two_names_share_no_key(one: str, other: str) -> None:
    """Whatever their shards: also where one is called as a shard of the other."""
    assume(one != other)
    for shards in (1, 2, 9):
        for tag in {key[1 : key.index("}")] for key in _all_keys(one, shards)} - {one}:
            with suppress(ConfigError):  # a tag that can't be a name is as good
                assert not _all_keys(tag, 1) & _all_keys(one, shards)
        for others in (1, 2, 9):
            assert not _all_keys(one, shards) & _all_keys(other, others)


@given(_anything)
def test_any_within_is_a_number_of_slices_or_a_config_error(within: Any) -> None:
    assume(within is not None and (type(within) is not int or not 1 <= within <= 7))
    seen = TimeBloom(redis.Redis(port=1), "fuzzed")
    for verb in (seen.add, seen.contains):
        assert "within" == _refused(partial(verb, "a", within=within))


class _NoZone(tzinfo):
    def utcoffset(self, _: datetime | None) -> None:
        return None


@pytest.mark.parametrize(
    "at",
    [
        *(5, "2019-05-08", float("nan"), date(2019, 5, 8), True),
        datetime.max.replace(tzinfo=timezone.utc),
        datetime.min.replace(tzinfo=timezone.utc),
        datetime(2019, 5, 8, tzinfo=_NoZone()),
    ],
)
def test_any_at_is_an_instant_or_a_config_error(own: redis.Redis, at: Any) -> None:
    with pytest.raises(ConfigError, match=r"^at: expected"):
        TimeBloom(own, "fuzzed").keys(at=at)


@pytest.mark.parametrize("items", [None, b"a", [None], [[]]])
def test_items_that_are_none_are_refused(own: redis.Redis, items: Any) -> None:
    with pytest.raises(ConfigError, match=r"^items"):
        TimeBloom(own, "fuzzed").add_many(items)


_BAD_URLS = [
    *("redis://127.0.0.1:abc", "redis://127.0.0.1:99999", "redis://[::1", "redis://127.0.0.1?db=x"),
    *("redis+cluster://127.0.0.1:abc", "redis://127.0.0.1?max_connections=-3"),
    *("redis://127.0.0.1?protocol=x", "redis://127.0.0.1?socket_timeout=x"),
    "redis://127.0.0.1?nonsense=1",
]


@pytest.mark.parametrize(
    "url", ["", "redis:", "redis://h\n", "//", 5, None, b"redis://h", "x" * 9999]
)
@pytest.mark.parametrize("ours", [TimeBloom, AsyncTimeBloom])
def test_what_is_no_url_is_refused(ours: Any, url: Any) -> None:
    assert "url" == _refused(lambda: ours.from_url(url, "fuzzed"))


@pytest.mark.parametrize("url", _BAD_URLS)
@pytest.mark.parametrize("ours", [TimeBloom, AsyncTimeBloom])
def test_a_url_that_redis_py_can_not_read_is_refused(ours: Any, url: str) -> None:
    with pytest.raises(ConfigError, match=r"^url: expected"):
        ours.from_url(url, "fuzzed")


def _refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        call()
    return str(caught.value)


def test_a_refused_url_does_not_show_its_password() -> None:
    url = "reddis://crawler:secret@127.0.0.1"
    assert "secret" not in _refusal(lambda: TimeBloom.from_url(url, "fuzzed"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"REDIS_URL": "reddis://crawler:secret@127.0.0.1"},
        {"REDIS_URL": "redis://:secret@127.0.0.1:99999/0?password=secret"},
        {"REDIS_URL": 5},
        {"REDIS_PARAMS": {"no_such": 1, "password": "secret"}},
        {"REDIS_PARAMS": {"redis_cls": "no.such", "password": "secret"}},
        {"REDIS_PARAMS": {"redis_cls": "redis.NoSuch", "password": "secret"}},
        {"REDIS_PARAMS": '{"password": "secret"'},
    ],
)
def test_a_refused_redis_setting_is_named_without_its_password(wrong: dict[str, Any]) -> None:
    message = _refusal(lambda: read_options(Settings(wrong), "spider"))
    assert message.startswith(f"{next(iter(wrong))}: expected what redis-py takes")
    assert "secret" not in message


_KEYS = [
    "%(spider)9999999999s",
    "%(spider).2s",
    "%(spider)r",
    "%(spider)d",
    "%(other)s",
    "%(spider",
]


@pytest.mark.parametrize(
    "key", [*_KEYS, "%", "%s", "%d", "%c", "%*d", "%(spider)s%", b"a", 5, True]
)
def test_a_key_setting_with_another_format_is_refused(key: Any) -> None:
    message = _refusal(lambda: read_options(Settings({"TBLOOM_KEY": key}), "spider"))
    assert message.startswith("TBLOOM_KEY: expected a str in which only %(spider)s is replaced")


@pytest.mark.parametrize(
    ("key", "name"), [("100%%", "100%"), ("%(spider)s:%(spider)s", "a%s:a%s"), ("a\0b", "a\0b")]
)
def test_a_key_setting_replaces_the_spiders_name_only(key: str, name: str) -> None:
    assert read_options(Settings({"TBLOOM_KEY": key}), "a%s").seen.name == name


@settings(suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from(sorted(KNOWN)), _anything, min_size=1))
@example({"BLOOMFILTER_BIT": 40, "TBLOOM_CAPACITY": 1000})
def test_any_setting_works_or_is_named(given_settings: dict[str, Any]) -> None:
    refused = _refused(lambda: read_options(Settings(given_settings), "spider"))
    assert refused in {None, *given_settings, "BLOOMFILTER_HASH_NUMBER"}


@given(_anything)
def test_any_length_of_a_slice_is_one_or_a_config_error(length: Any) -> None:
    """As a timedelta, where so many seconds are one."""
    with suppress(TypeError, ValueError, OverflowError):
        length = timedelta(seconds=length)
    refused = _refused(lambda: configure("fuzzed", granularity=length, slices=1))
    assert refused in {None, "granularity", "slices"}
