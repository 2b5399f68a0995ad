"""``merge``: the items of several filters in one, by OR of their bits."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tbloom import (
    AsyncLocalBloom,
    ConfigError,
    ConfigMismatch,
    FilterFull,
    LocalBloom,
)
from tbloom.window import to_ms

START = datetime(2019, 6, 3, 12, tzinfo=timezone.utc)


def opened(path: Path | None = None, day: int = 0, **given: Any) -> LocalBloom:
    """A filter whose clock stands at a day."""
    seen = LocalBloom(path=path, **{"slices": 3, "capacity": 300, "name": str(path), **given})
    set_day(seen, day)
    return seen


def set_day(seen: LocalBloom, day: int) -> None:
    seen._protocol.clock = lambda: to_ms(START + timedelta(days=day))


def words(machine: str, count: int) -> list[str]:
    return [f"{machine} {i}" for i in range(count)]


@pytest.mark.parametrize("given", [{}, {"shards": 3}, {"granularity": None, "slices": 1}])
def test_a_merged_filter_has_seen_what_any_has(tmp_path: Path, given: dict[str, Any]) -> None:
    """Of one machine that saw little, one whose slices grew, and one that has a newer slice only; in memory and in files.
    Items stay in their slices."""
    little, much = opened(**given), opened(tmp_path / "much", **given)
    little.add_many([*words("both", 50), *words("little", 50)])
    much.add_many([*words("both", 50), *words("much", 2000)])
    newer = opened(tmp_path / "newer", day=1, **given)
    newer.add_many(words("newer", 400))
    for seen in (little, much):
        set_day(seen, 1)
    total = 100 + 2050 + 400
    union = [*words("both", 50), *words("little", 50), *words("much", 2000), *words("newer", 400)]
    rate = sum(seen.info().error_rate for seen in (little, much, newer))
    little.merge(much, newer)
    assert all(little.contains_many(union))
    assert sum(little.contains_many(words("never", 5000))) < 5
    info = little.info()
    assert 0.99 * len(union) < info.items <= total
    assert info.error_rate <= 1.01 * rate
    if "granularity" not in given:
        for label, items in (("20190603", words("much", 2000)), ("20190604", words("newer", 400))):
            assert {label} == {one.label for one in little.last_seen_many(items) if one}
    new = little.add_many([*words("later", 3000), *words("much", 5)])
    assert sum(new) >= 2999
    assert not any(new[-5:])
    assert little.info().error_rate <= 2 * info.promised_error_rate
    assert not any(much.contains_many(words("little", 50)))


def test_of_different_items_the_number_is_estimated() -> None:
    one, other = opened(capacity=10_000), opened(capacity=10_000)
    one.add_many(words("one", 3000))
    other.add_many([*words("one", 1000), *words("other", 3000)])
    one.merge(other)
    [*_, current] = one.info().slices
    assert (1, 6000) == (current.parts, pytest.approx(current.items, rel=0.02))


def test_two_full_filters_keep_the_promised_rate() -> None:
    one, other = opened(capacity=3000), opened(capacity=3000)
    for seen, items in ((one, "one"), (other, "other")):
        for day in range(3):
            set_day(seen, day)
            seen.add_many(words(f"{items} {day}", 2990))
    one.merge(other)
    assert 6 == sum(slice.parts for slice in one.info().slices)
    assert one.info().error_rate <= one.config.error_rate
    assert all(one.contains_many(words("other 0", 2990)))


def test_what_does_not_fit_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    one = opened(tmp_path / "one", grow=False)
    others = [opened(grow=False) for _ in range(2)]
    one.add_many(words("one", 200))
    for number, other in enumerate(others):
        other.add_many(words(f"other {number}", 70))
    before = one.info()
    with pytest.raises(FilterFull):
        one.merge(*others)
    assert before == one.info()
    one.merge(others[0])
    assert all(one.contains_many([*words("one", 200), *words("other 0", 70)]))


def test_other_parameters_are_refused_by_name_and_change_nothing(tmp_path: Path) -> None:
    one, good = opened(tmp_path / "one"), opened()
    good.add("a")
    for bad in (opened(name="bad", capacity=400), opened(name="bad", tz="Europe/Berlin")):
        bad.add("b")
        with pytest.raises(ConfigMismatch, match="'bad' is stored with other parameters"):
            one.merge(good, bad)
    for wrong in (tmp_path / "one", 5, None):
        with pytest.raises(ConfigError, match=r"^others\[1\]: expected a LocalBloom"):
            one.merge(good, wrong)  # type: ignore[arg-type]
    assert [False, False] == one.contains_many(["a", "b"])


async def test_an_asyncio_filter_merges_others() -> None:
    one = opened()
    one.add_many(words("a", 100))
    async with AsyncLocalBloom(slices=3, capacity=300) as seen:
        seen._protocol.clock = one._protocol.clock
        await seen.merge(one)
        assert all(await seen.contains_many(words("a", 100)))
