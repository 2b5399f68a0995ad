"""``tbloom compare``: what a filter lacks of an exact set, and its error rate."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tbloom.bloom.sizing import interval
from tbloom.cli.kit import filter_info, filters
from tests.helpers.commands import refused, tbloom


@pytest.fixture
def compared(url: str, client: redis.Redis, name: str) -> Any:
    """A filter with 1000 fingerprints, and a set with the same ones, as scrapy-redis keeps them."""
    items = [secrets.token_bytes(20) for _ in range(1000)]
    key = f"{name}:dupefilter"
    client.sadd(key, *(item.hex() for item in items))
    with TimeBloom.from_url(url, name, capacity=2000, slices=3) as seen:
        seen.add_many(items)
        yield seen
    client.delete(key)


def compare(url: str, seen: TimeBloom, *more: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the JSON."""
    with_set = ["--with-set", f"{seen.name}:dupefilter"]
    done = tbloom("compare", "--url", url, seen.name, *with_set, "--json", "--quiet", *more)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def test_compare_finds_all(url: str, compared: TimeBloom) -> None:
    """The filter is not changed."""
    before = compared.info()
    code, found = compare(url, compared, "--random", "2e4")
    assert (0, True, 1000, 0) == (code, found["agrees"], found["items"], found["missing"])
    assert 20_000 == found["random"]
    assert found["seen"] / 20_000 == found["measured_error_rate"] <= found["measured_high"] < 1e-3
    assert found["estimated_error_rate"] == before.error_rate
    assert found["estimated_error_rate"] < found["promised_error_rate"] == 1e-4
    after = compared.info()
    assert (before.items, before.error_rate) == (after.items, after.error_rate)


def test_compare_counts_what_is_missing(url: str, client: redis.Redis, compared: TimeBloom) -> None:
    client.sadd(f"{compared.name}:dupefilter", *(secrets.token_hex(20) for _ in range(5)))
    code, found = compare(url, compared, "--random", "1")
    assert (1, False, 1005, 5) == (code, found["agrees"], found["items"], found["missing"])


def test_compare_knows_fingerprints_of_another_kind(url: str, compared: TimeBloom) -> None:
    """Those of scrapy-redis' dupefilter differ from Scrapy's."""
    key, name = f"{compared.name}:dupefilter", f"{compared.name}-other"
    with TimeBloom.from_url(url, name, capacity=100) as other:
        other.add("a")
        done = tbloom("compare", "--url", url, name, "--with-set", key, "--random", "10")
    assert 1 == done.returncode
    assert "Are they fingerprints of the same kind?" in done.stdout


def test_compare_notices_a_broken_promise(
    url: str, client: redis.Redis, compared: TimeBloom
) -> None:
    """All bits of the slice are set, so every item is called seen."""
    key = compared.keys()[-1]
    size = client.strlen(key)
    client.setrange(key, 8, b"\xff" * (size - 8))
    code, found = compare(url, compared, "--random", "1000")
    assert (1, False, 0, 1000) == (code, found["agrees"], found["missing"], found["seen"])
    assert found["measured_low"] > found["promised_error_rate"]
    assert any("more than the promised" in said for said in filter_info.advice(compared.info()))


def test_compare_with_lines_and_with_a_set_elsewhere(
    url: str, own: redis.Redis, name: str, tmp_path: Path
) -> None:
    """Lines are items as they are; a set's members are fingerprints in hex."""
    (tmp_path / "urls").write_text("https://a/1\n\nhttps://a/2\n")
    elsewhere = f"redis://127.0.0.1:{own.connection_pool.connection_kwargs['port']}"
    own.sadd("seen", "0a" * 20, "0b" * 20, "0c" * 20)
    own.sadd("urls", "https://a/1")
    few = ["--random", "100", "--json"]
    with TimeBloom.from_url(url, name, capacity=100) as seen:
        seen.add_many(["https://a/1", "https://a/2", b"\x0a" * 20, b"\x0b" * 20])
        lines = tbloom("compare", "--url", url, name, "--with-lines", str(tmp_path / "urls"), *few)
        stdin = tbloom(
            "compare", "--url", url, name, "--with-lines", "-", *few, stdin="https://a/4\n"
        )
        there = tbloom(
            "compare", "--url", url, name, "--with-set", "seen", "--from-url", elsewhere, *few[:2]
        )
        other = tbloom(
            "compare", "--url", url, name, "--with-set", "urls", "--from-url", elsewhere, *few[:2]
        )
    assert (0, 2, 0) == (lines.returncode, *_found(lines.stdout))
    assert (1, 1, 1) == (stdin.returncode, *_found(stdin.stdout))
    assert 1 == there.returncode
    assert "missing items would be fetched again" in there.stdout
    assert 2 == other.returncode
    assert "'https://a/1'" in other.stderr


def _found(printed: str) -> tuple[int, int]:
    values = json.loads(printed)
    return values["items"], values["missing"]


def test_compare_refuses_wrong_arguments(
    url: str, client: redis.Redis, compared: TimeBloom
) -> None:
    name = compared.name
    refused(tbloom("compare", "--url", url, name), "--with-set", "--with-lines")
    refused(
        tbloom("compare", "--url", url, name, "--with-set", f"{name}:no"),
        f"{name}:no",
        "there is no key",
    )
    client.set(f"{name}:text", "a", ex=60)
    refused(
        tbloom("compare", "--url", url, name, "--with-set", f"{name}:text"),
        f"{name}:text",
        "string",
    )
    refused(tbloom("compare", "--url", url, name, "--with-lines", "/no/such"), "/no/such")
    given = ["--with-lines", "-", "--from-url", url]
    refused(tbloom("compare", "--url", url, name, *given), "--from-url", "--with-set")
    refused(
        tbloom("compare", "--url", url, name, "--with-lines", "-", "--random", "0"),
        "--random",
        "'0'",
    )


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [
        (81, 263, 0.2535, 0.3682),
        (15, 148, 0.0598, 0.1644),
        (0, 20, 0.0, 0.2005),
        (1, 29, 0.0018, 0.1963),
        (20, 20, 0.7995, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)
def test_the_interval_is_the_published_one(hits: int, of: int, low: float, high: float) -> None:
    """Newcombe 1998, "Two-sided confidence intervals for the single proportion", method 4."""
    assert (low, high) == pytest.approx(interval(hits, of), abs=1e-4)


@pytest.mark.parametrize("grow", [False, True])
@pytest.mark.parametrize("capacity", [1, 10, 35, 100, 1000])
def test_a_filter_that_keeps_its_promise_gets_no_warning_of_it(
    url: str, name: str, *, capacity: int, grow: bool
) -> None:
    """Small ones are full: by chance, their items may set more bits than those of others."""
    with TimeBloom.from_url(
        url, name, capacity=capacity, error_rate=0.01, slices=1, grow=grow
    ) as seen:
        seen.add_many(map(str, range(10 * capacity if grow else capacity)))
    with filters.open_filter(url, name) as stored:
        assert stored.config == seen.config
        assert not [said for said in filter_info.advice(stored.info()) if "error rate" in said]


def test_a_broken_promise_is_told_though_the_slice_has_grown(url: str, name: str) -> None:
    """The slice was filled under another error rate, and its parts are kept."""
    old: Any = {"capacity": 1000, "slices": 1, "error_rate": 0.5}
    with TimeBloom.from_url(url, name, **old) as seen:
        seen.add_many(map(str, range(1000)))
    with TimeBloom.from_url(url, name, **{**old, "error_rate": 0.01}) as seen:
        seen.reconfigure()
        info = seen.info()
        assert (2, 0.01) == (info.slices[-1].parts, info.promised_error_rate)
        printed = tbloom("info", "--url", url, name, "--json").stdout
        assert any(
            "more than the promised 1.0e-02" in said for said in json.loads(printed)["warnings"]
        )
        given = ["--with-lines", "-", "--random", "1000"]
        done = tbloom("compare", "--url", url, name, *given, stdin="1\n2\n")
    assert 1 == done.returncode
    assert "missing items" not in done.stdout
    assert "the error rate is higher than promised" in done.stdout
