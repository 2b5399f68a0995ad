"""A filter's parameters: their defaults, limits, stored text, and the size that follows from them. ``open`` reads the stored
parameters. An error about a misspelt argument names the right one.
"""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from inspect import isawaitable
from typing import Any

import pytest
import redis
import redis.asyncio
from hypothesis import given
from hypothesis import strategies as st

from tbloom import (
    AsyncExactFilter,
    AsyncTimeBloom,
    ConfigError,
    ConfigMismatch,
    ExactFilter,
    LocalBloom,
    TimeBloom,
)
from tbloom.bloom import sizing
from tbloom.bloom.config import configure, from_stored
from tbloom.bloom.layout import Layout
from tbloom.bloom.sizing import (
    bits_of,
    items_at,
    rate_at,
    rate_of_load,
    shards_for,
)
from tbloom.distinct import DistinctCounter


def stored_with(**changes: object) -> str:
    """Return the text that a filter with other parameters would store."""
    values = json.loads(configure("news", capacity=10_000, bits=7 * 2**18, hashes=7).stored)
    return json.dumps(values | changes, separators=(",", ":"))


@pytest.mark.parametrize("bits", [1345, 1535, 1536])
def test_bits_are_rounded_up_to_whole_blocks(bits: int) -> None:
    """They are rounded before a capacity follows from them, so the same number of blocks means the same filter."""
    config = configure("news", bits=bits, hashes=6, error_rate=1e-2)
    assert 1536 == config.bits
    assert configure("news", bits=1536, hashes=6, error_rate=1e-2) == config
    assert 1 < config.capacity


@pytest.mark.parametrize(
    "given",
    [
        {"error_rate": 1e-6},
        {"error_rate": 1e-6, "grow": False, "shards": 3},
        {},
    ],
)
def test_a_capacity_beyond_the_most_bits_is_refused_by_name(given: dict[str, Any]) -> None:
    """The error names the highest capacity with the other parameters."""
    with pytest.raises(
        ConfigError, match=r"^capacity: expected \d+ or less for error_rate 0?"
    ) as e:
        configure("news", capacity=10**12, **given)
    assert 10**12 == e.value.value
    most = int(e.value.expected.split()[0])
    given.pop("shards", None)
    assert 2**42 * 0.999 < configure("news", capacity=most, **given).bits <= 2**42
    with pytest.raises(ConfigError, match="because a slice has at most 4398046511104 bits"):
        configure("news", capacity=most * 1001 // 1000, **given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bits": 6}, "^hashes: expected .* because bits is given"),
        ({"hashes": 6}, "^bits: expected .* because hashes is given"),
        ({"bits": 2**16, "error_rate": 1e-15, "hashes": 1}, "^hashes: expected more, .* got 1$"),
        # Bits that were rounded up beyond the most are refused here, not when they are read.
        ({"bits": 2**42, "hashes": 7}, "^bits: expected .* got 4398046511296"),
    ],
)
def test_sizes_that_do_not_fit_are_named(given: dict[str, Any], said: str) -> None:
    assert configure("news", bits=2**42, hashes=64).shards == 2**14
    with pytest.raises(ConfigError, match=said):
        configure("news", **given)


@pytest.mark.parametrize("more", [1, 10**6])
def test_a_capacity_that_bits_can_not_keep_is_refused(more: int) -> None:
    """At the error rate; the error names the highest capacity that they can keep."""
    size: dict[str, Any] = {"bits": 2**16, "hashes": 6, "slices": 3}
    most = configure("news", **size).capacity
    with pytest.raises(ConfigError, match=rf"^capacity: expected {most} or less, ") as caught:
        configure("news", **size, capacity=most + more, error_rate=1e-4)
    assert most + more == caught.value.value
    assert configure("news", **size, capacity=most, error_rate=1e-4) == configure("news", **size)


@given(
    capacity=st.none() | st.integers(1, 10**7),
    error_rate=st.floats(1e-15, 0.5),
    slices=st.integers(1, 400),
    grow=st.booleans(),
    size=st.none() | st.tuples(st.integers(1, 2**30), st.integers(1, 64)),
    shards=st.none() | st.integers(1, 9),
    granularity=st.sampled_from(["h", "d", "w", "m", "15min", timedelta(hours=6)]),
    tz=st.sampled_from(["UTC", "Europe/Berlin"]),
)
def test_any_parameters_that_are_not_refused_keep_the_error_rate(
    error_rate: float, slices: int, grow: bool, size: tuple[int, int] | None, **others: Any
) -> None:
    """By the formula, in each shard: with all slices at capacity, though they have grown. What is stored is read back."""
    if size:
        others["bits"], others["hashes"] = size
    try:
        config = configure("news", error_rate=error_rate, slices=slices, grow=grow, **others)
    except ConfigError:
        return
    assert error_rate == config.error_rate
    layout = Layout(config)
    for _ in range(5 if grow else 0):
        layout = Layout(config, layout.grown("20190508", ["20190508"]))
    rates = [sizing.rate_at(*part) for part in layout.parts("20190508")]
    kept = error_rate * (1 + 1e-6)
    assert sizing.window_rate(rates * slices) <= kept
    assert from_stored("news", config.stored) == config


@pytest.mark.parametrize(
    "stored",
    [
        "", "nonsense", "[1]", "{}",
        *(stored_with(**{name: value}) for name, value in [
            ("layout", "1"), ("hash", "md5"), ("shards", 0), ("growth", True), ("bits", None),
            ("bits", 0), ("bits", -1), ("bits", 7 * 2**18 + 1), ("bits", 2**43), ("hashes", 0), ("hashes", 10**9), ("hashes", "7"),
            ("capacity", 0), ("capacity", 10**7), ("capacity", 10**400), ("error_rate", 1), ("error_rate", None), ("error_rate", "0.0001"), ("slices", 0), ("granularity", 5), ("tz", "x"),
        ]),
    ],
)  # fmt: skip
def test_unreadable_stored_parameters(stored: str) -> None:
    """A text that this version can't have stored is refused as a whole."""
    with pytest.raises(ConfigError) as caught:
        from_stored("news", stored)
    assert ("stored", stored) == (caught.value.argument, caught.value.value)


#: What rounding of floats may do to a promise about rates; bits are whole, so usually nothing.
ROUNDING = 1 + 1e-9

rates = st.floats(1e-9, 0.5)
hash_counts = st.integers(1, 64)


@given(rates, st.integers(1, 10**7), hash_counts)
def test_items_at_is_the_most_that_keep_the_rate(rate: float, blocks: int, hashes: int) -> None:
    """The items keep the rate; a millionth more, and one more item, doesn't."""
    bits = bits_of(blocks, hashes)
    items = items_at(rate, bits, hashes)
    assert rate_at(items, bits, hashes) <= rate * ROUNDING
    more = (items * (1 + 2e-6) + 1) / (1 - rate)  # with those that are not counted
    assert rate < rate_of_load(more / blocks, hashes) * ROUNDING


@pytest.mark.parametrize(
    ("bits", "masters", "shards"),
    [
        (2**26 - 2**13, 1, 1),
        (2**26 - 2**12, 1, 2),
        (1, 3, 3),
        (2**30, 3, 18),
        (2**42, 1, 16384),  # of 32 MiB: there are no more shards
        (2**42, 7, 16384),  # of which no multiple of 7 is as large
    ],
)
def test_shards_keep_keys_small_and_masters_even(bits: int, masters: int, shards: int) -> None:
    """As many keys of less than 2^26 bits as it takes, in a multiple of the masters."""
    assert shards == shards_for(1 + bits // 28, bits, 12, masters)


def test_a_large_filter_for_a_few_items_takes_few_shards() -> None:
    """Each shard has room for an uneven share, so more shards would take more memory."""
    for bits, capacity in (2**27, 1), (2**30, 10), (2**32, 1000), (2**36, 1000):
        assert shards_for(capacity, bits, 8) <= 2 * bits // 2**26 + 1


@pytest.mark.parametrize("error_rate", [1e-2, 1e-4, 1e-9])
@pytest.mark.parametrize(
    "capacity", [10**6, 2_350_000, 143 * 10**6, 5 * 10**8, 1_080_000_000, 10**10]
)
def test_a_key_wastes_no_memory_of_the_allocator(capacity: int, error_rate: float) -> None:
    """Redis' allocator rounds each key up: a key of a little more than 8 MiB takes 10. Shards are filled unevenly, so they get
    some room."""
    config = configure("f", capacity=capacity, error_rate=error_rate)
    key = sizing.allocated(sizing.key_bytes(config.shard_bits) + 10)  # of which Redis takes 10
    assert key <= 2**23
    assert config.shards * key < 1.27 * config.bits / 8


SECRET = bytes(range(32))


@pytest.mark.parametrize(
    ("sync", "aio", "parameters"),
    [
        (TimeBloom, AsyncTimeBloom, {}),
        (TimeBloom, AsyncTimeBloom, {"granularity": "2h", "slices": 3, "capacity": 500, "grow": False}),
        (TimeBloom, AsyncTimeBloom, {"shards": 3}),
        (ExactFilter, AsyncExactFilter, {"shards": 3}),
        (TimeBloom, AsyncTimeBloom, {"prefix": "app1:"}),
        (ExactFilter, AsyncExactFilter, {"prefix": "app1:", "shards": 3}),
    ],
)  # fmt: skip
async def test_a_filter_is_opened_with_its_stored_parameters(
    url: str, name: str, sync: Any, aio: Any, parameters: dict[str, Any]
) -> None:
    prefix = {key: value for key, value in parameters.items() if key == "prefix"}
    with sync.from_url(url, name, **parameters) as seen:
        assert seen.add("a")
        config = seen.config
    with sync.open(url, name, **prefix) as seen:
        assert config == seen.config
        assert [False, True] == seen.add_many(["a", "b"])
    with redis.Redis.from_url(url) as client:
        assert not sync.open(client, name, **prefix).add("b")
    async with await aio.open(url, name, **prefix) as opened:
        assert config == opened.config
        assert [False, True] == await opened.add_many(["b", "c"])
    if prefix:
        with pytest.raises(ConfigError, match="name: expected the name of a stored filter"):
            sync.open(url, name)


@pytest.mark.parametrize("kind", [TimeBloom, ExactFilter, AsyncTimeBloom, AsyncExactFilter])
async def test_opening_names_a_filter_that_is_missing_or_another_kind(
    client: redis.Redis, url: str, name: str, kind: Any
) -> None:
    async def open_it() -> None:
        opened = kind.open(url, name)
        await opened  # else it has raised its error

    with pytest.raises(ConfigError, match=f"a stored filter.*{name}"):
        await open_it()
    assert [] == client.keys(f"*{name}*")
    other = TimeBloom if "Exact" in kind.__name__ else ExactFilter
    other(client, name).add("a")
    with pytest.raises((ConfigError, ConfigMismatch), match=r"kind '?exact|kind is"):
        await open_it()


def test_open_checks_the_secret_of_the_filter(url: str, name: str) -> None:
    with TimeBloom.from_url(url, name, secret=SECRET) as seen:
        assert seen.add("a")
    with TimeBloom.open(url, name, secret=SECRET) as seen:
        assert not seen.add("a")
    with pytest.raises(ConfigMismatch, match="secret"):
        TimeBloom.open(url, name, secret=SECRET[::-1])
    with TimeBloom.open(url, name) as seen, pytest.raises(ConfigError, match="secret"):
        seen.add("a")


@pytest.mark.parametrize(
    ("kind", "given", "right"),
    [
        (TimeBloom, "capcity", "did you mean 'capacity'?"),
        (AsyncTimeBloom, "slice", "did you mean 'slices'?"),
        (ExactFilter, "tll", "did you mean 'ttl'?"),
        (ExactFilter, "slices", "it takes client, name, "),
        (TimeBloom, "client_option", "did you mean 'client_options'?"),
        (DistinctCounter, "keep_member", "did you mean 'keep_members'?"),
        (LocalBloom, "capcity", "did you mean 'capacity'?"),
    ],
)
def test_a_misspelt_argument_is_named_with_the_right_one(
    url: str, name: str, kind: Any, given: str, right: str
) -> None:
    make = kind if kind is LocalBloom else partial(kind.from_url, url, name)
    with pytest.raises(TypeError) as raised:
        make(**{given: 3})
    assert f"{kind.__name__} takes no argument {given!r}; {right}" in str(raised.value)


@pytest.mark.parametrize("kind", [TimeBloom, AsyncTimeBloom, ExactFilter, DistinctCounter])
async def test_a_subclass_may_take_more_arguments(url: str, name: str, kind: Any) -> None:
    """Also from ``from_url`` and ``open``. What it passes on is checked."""

    class Mine(kind):  # type: ignore[misc]
        def __init__(self, *args: Any, topic: str = "", **own: Any) -> None:
            super().__init__(*args, **own)
            self.topic = topic

    async def result(made: Any) -> Any:
        return await made if isawaitable(made) else made

    for make in [Mine.from_url, *([Mine.open] if hasattr(kind, "open") else [])]:
        seen = await result(make(url, name, topic="news"))
        assert seen.topic == "news"
        await result(seen.add("a"))
        await result(getattr(seen, "aclose", getattr(seen, "close", None))())
        with pytest.raises(TypeError, match="Mine takes no argument 'topc'; it takes "):
            await result(make(url, name, topc="news"))


async def test_options_are_those_of_the_client_that_is_made(url: str, name: str) -> None:
    options = {"client_name": name}
    with TimeBloom.from_url(url, name, client_options=options) as seen:
        assert seen.add("a")
        assert name in {client["name"] for client in seen.client.client_list()}  # type: ignore[union-attr]
    with ExactFilter.from_url(url, f"{name}-2", client_options=options) as exact:
        assert exact.add("a")
    for kind, stored in (AsyncTimeBloom, name), (AsyncExactFilter, f"{name}-2"):
        async with await kind.open(url, stored, client_options=options) as opened:
            assert not await opened.add("a")
            assert name in {client["name"] for client in await opened.client.client_list()}


@pytest.mark.parametrize(
    ("client", "options", "said"),
    [
        ("redis://", {"socket_tiemout": 5, "password": "open sesame"}, "socket_tiemout"),
        ("redis://", "socket_timeout=5", "a dict"),
        ("redis://", {5: "socket_timeout"}, "a dict"),
        ("redis://", {"port": "open sesame"}, "with the client_options port"),
        ("redis://", {"retry": None}, "see retry_for"),
        (redis.Redis(), {"socket_timeout": 5}, "client_options"),  # a client has its own
    ],
)
def test_options_that_no_client_takes_are_named(client: Any, options: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        TimeBloom.open(client, "news", client_options=options)
    assert "client_options" in str(raised.value)
    assert "sesame" not in str(raised.value)
