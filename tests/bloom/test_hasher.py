"""From an item to its bit offsets: fixed for ever, uniform, independent."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbloom.bloom.hasher import Hasher
from tbloom.bloom.sizing import best_hashes, bits_for, rate_at
from tbloom.errors import ConfigError
from tbloom.items import HASH_NAME, digest, encode

ITEMS = 20_000
BUCKETS = 256
#: Chi-square over 256 buckets has a mean of 255 and a standard deviation of sqrt(2 * 255) = 22.6.
BOUND = 255 + 6 * math.sqrt(2 * 255)


def offsets(item: str | bytes, hasher: Hasher) -> list[int]:
    """The bit offsets of an item."""
    return list(hasher.offsets(digest(encode(item))))


def chi_square(buckets: list[int]) -> float:
    """How far counts over 256 buckets are from being equal."""
    expected, counts = len(buckets) / BUCKETS, Counter(buckets)
    return sum((counts[bucket] - expected) ** 2 / expected for bucket in range(BUCKETS))


@pytest.mark.parametrize(
    ("data", "expected"),
    [  # computed with mmh3 5.3.1, seed 0
        (b"", 0),
        (b"hello", 0x5B1E906A48AE1D19_CBD8A7B341BD9B02),
        (b"The quick brown fox jumps over the lazy dog", 0x7A433CA9C49A9347_E34BBC7BBC071B6C),
    ],
)
def test_digest(data: bytes, expected: int) -> None:
    """The digest is the 128-bit mmh3 that everybody else computes."""
    assert (HASH_NAME, expected) == ("mmh3_x64_128", digest(data))


@pytest.mark.parametrize(
    ("item", "bits", "expected"),
    [
        ("hello", 1_000_003, [14280, 443631, 302774, 762184, 765821]),
        ("hello", 64, [0, 28, 19, 48, 63, 44, 8, 22]),
        ("https://example.com/", 2**32 - 64, [3948594604, 947414751, 2793016208]),
        (b"\x00", 2**33, [7681352035, 1413512429, 8417922721]),
    ],
)
def test_layout_never_changes(item: str | bytes, bits: int, expected: list[int]) -> None:
    """An item's offsets are those it had in the first version: stored filters depend on it."""
    assert expected == offsets(item, Hasher(bits, len(expected)))


@given(st.text(min_size=1))
def test_text_is_its_utf8(text: str) -> None:
    """Str and bytes of the same text are the same item."""
    assert text.encode() == encode(text) == encode(text.encode())


@given(st.binary(min_size=1), st.integers(1, 2**40), st.integers(1, 64))
def test_offsets_lie_in_the_filter(item: bytes, bits: int, hashes: int) -> None:
    """There is an offset for each hash, in 0 .. bits-1, whatever number of bits that is."""
    positions = offsets(item, Hasher(bits, hashes))
    assert hashes == len(positions)
    assert all(0 <= position < bits for position in positions)


def coarse(bits: int) -> Callable[[int], int]:
    """Buckets of neighbouring offsets."""
    return lambda offset: offset * BUCKETS // bits


def fine(_bits: int) -> Callable[[int], int]:
    """Buckets by the offset's lowest bits."""
    return lambda offset: offset % BUCKETS


@pytest.mark.parametrize("buckets", [coarse, fine])
@pytest.mark.parametrize("bits", [1_000_003, 2**32 - 64, 2**33])
def test_offsets_are_uniform(bits: int, buckets: Callable[[int], Callable[[int], int]]) -> None:
    """Each of an item's offsets is anywhere in the filter with equal chance."""
    hasher, bucket = Hasher(bits, 7), buckets(bits)
    rows = [offsets(f"https://example.com/{number}", hasher) for number in range(ITEMS)]
    for column in zip(*rows, strict=True):
        assert chi_square([bucket(offset) for offset in column]) < BOUND


@pytest.mark.parametrize("bits", [1_000_003, 2**33])
def test_offsets_are_independent(bits: int) -> None:
    """Where one of an item's offsets lies says nothing about its others."""
    hasher = Hasher(bits, 7)
    rows = [offsets(f"https://example.com/{number}", hasher) for number in range(ITEMS)]
    sixteenths = [[offset * 16 // bits for offset in column] for column in zip(*rows, strict=True)]
    for one, other in [*pairwise(sixteenths), (sixteenths[0], sixteenths[-1])]:
        assert chi_square([16 * a + b for a, b in zip(one, other, strict=True)]) < BOUND


@pytest.mark.parametrize(
    ("capacity", "filters", "others"), [(50, 400, 300), (300, 100, 1000), (3000, 30, 3000)]
)
def test_measured_rate_is_the_textbook_s(capacity: int, filters: int, others: int) -> None:
    """At capacity small filters, too, call as many unknown items seen as Bloom's formula says."""
    bits = bits_for(capacity, 0.01)
    hashes = best_hashes(bits, capacity)
    hasher, rates = Hasher(bits, hashes), []
    for number in range(filters):
        added = (offsets(f"{number}/page/{item}", hasher) for item in range(capacity))
        bitmap = {offset for item in added for offset in item}
        asked = (offsets(f"{number}/other/{item}", hasher) for item in range(others))
        rates.append(sum(bitmap.issuperset(item) for item in asked) / others)
    sigma = stdev(rates) / math.sqrt(filters)
    assert rate_at(capacity, bits, hashes) == pytest.approx(mean(rates), rel=0, abs=4 * sigma)


@pytest.mark.parametrize(
    ("item", "right"),
    [
        ("", "not empty"),
        (b"", "not empty"),
        ("\ud800", "UTF-8"),
        *((item, "str or bytes") for item in (None, 5, True, 1.5, bytearray(b"x"), ["x"])),
    ],
)
def test_what_is_no_item(item: str | bytes, right: str) -> None:
    """The error for something that is no item has the argument's name."""
    with pytest.raises(ConfigError) as caught:
        encode(item, "items[3]")
    assert ("items[3]", item) == (caught.value.argument, caught.value.value)
    assert str(caught.value).startswith("items[3]: ")
    assert right in str(caught.value)
    assert repr(item) in str(caught.value)


def test_an_item_alone_is_called_item() -> None:
    """Outside a batch the argument's name is ``item``."""
    with pytest.raises(ConfigError, match=r"^item: expected an item that is not empty, got b''$"):
        encode(b"")
