"""Which slices are live at an instant: the calendar, clock changes, when a slice leaves."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tbloom.errors import ConfigError
from tbloom.window import Slice, Window, to_ms

MINUTE = 60_000
HOUR = 60 * MINUTE
ZONES = [
    "UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/St_Johns",
    "Pacific/Apia", "Australia/Lord_Howe", "Antarctica/Troll", "Antarctica/Casey",
    "Asia/Kathmandu", "Asia/Kolkata", "Africa/Monrovia",
]  # fmt: skip


def ms(wall_clock: str, tz: str = "UTC") -> int:
    """The instant at which the zone's clocks show this (first)."""
    return to_ms(datetime.fromisoformat(wall_clock).replace(tzinfo=ZoneInfo(tz)))


def run(window: Window, start: int, count: int) -> list[Slice]:
    """So many consecutive slices."""
    slices = [window.slice_at(start)]
    while len(slices) < count:
        slices.append(window.slice_at(slices[-1].end))
    return slices


@pytest.mark.parametrize(
    ("granularity", "at", "labels"),
    [
        ("d", "2019-05-08T13:15", [str(20190502 + day) for day in range(7)]),  # the sources' list
        ("d", "2020-03-01", ["20200228", "20200229", "20200301"]),
        ("d", "2100-03-01", ["21000227", "21000228", "21000301"]),
        ("d", "2020-01-01", ["20191230", "20191231", "20200101"]),
        ("h", "2020-01-01T00:30", ["2019123122", "2019123123", "2020010100"]),
        ("m", "2020-01-31T23:59", ["201911", "201912", "202001"]),
        ("m", "2020-03-31", ["202001", "202002", "202003"]),
        ("w", "2020-12-31", ["2020W51", "2020W52", "2020W53"]),
        ("w", "2021-01-04", ["2020W52", "2020W53", "2021W01"]),
        ("w", "2019-12-30", ["2019W51", "2019W52", "2020W01"]),
    ],
)
def test_live_labels(granularity: str, at: str, labels: list[str]) -> None:
    """The window reaches back over ends of months and years, leap days and weeks 53."""
    live = Window(granularity, len(labels)).live(ms(at))
    assert labels == [slice.label for slice in live]


@pytest.mark.parametrize(
    ("granularity", "tz", "start", "lengths"),
    [
        ("d", "Europe/Berlin", "2019-03-30T23:00", [("20190331", 23 * 60)]),
        ("d", "Europe/Berlin", "2019-10-26T22:00", [("20191027", 25 * 60)]),
        # It begins at one o'clock; its last hour comes twice; its midnight comes twice.
        ("d", "America/Sao_Paulo", "2018-11-04T03:00", [("20181104", 23 * 60)]),
        ("d", "America/Sao_Paulo", "2018-02-17T02:00", [("20180217", 25 * 60)]),
        ("d", "Australia/Lord_Howe", "2019-04-06T13:00", [("20190407", 24 * 60 + 30)]),
        ("d", "Australia/Lord_Howe", "2019-10-05T13:30", [("20191006", 23 * 60 + 30)]),
        ("d", "Antarctica/Troll", "2019-10-26T22:00", [("20191027", 26 * 60)]),
        ("h", "Asia/Kathmandu", "2019-05-08T07:15", [("2019050813", 60), ("2019050814", 60)]),
        ("h", "Europe/Berlin", "2019-03-31T00:00", [("2019033101", 60), ("2019033103", 60)]),
        ("h", "Europe/Berlin", "2019-10-27T00:00",
         [("2019102702", 60), ("2019102702b", 60), ("2019102703", 60)]),
        ("h", "Australia/Lord_Howe", "2019-04-06T14:00",
         [("2019040701", 60), ("2019040701b", 30), ("2019040702", 60)]),
        ("h", "Australia/Lord_Howe", "2019-10-05T14:30",
         [("2019100601", 60), ("2019100602", 30), ("2019100603", 60)]),
        ("h", "Antarctica/Troll", "2019-10-27T00:00",
         [("2019102702", 60), ("2019102702b", 60), ("2019102702c", 60), ("2019102703", 60)]),
        ("h", "America/St_Johns", "2006-10-29T02:30",
         [("2006102900", 1), ("2006102900b", 59), ("2006102900c", 60), ("2006102901", 60)]),
        # From 0:01 to 0:26: no hour comes twice, but the one that is cut needs two labels.
        ("h", "Europe/Athens", "1916-07-27T22:25:08",
         [("1916072800", 1), ("1916072800b", 33), ("1916072801", 60)]),
    ],
)  # fmt: skip
def test_days_and_hours_across_clock_changes(
    granularity: str, tz: str, start: str, lengths: list[tuple[str, int]]
) -> None:
    """In minutes. A day begins at the zone's (first) midnight, and is as long as its clocks make it. An hour is cut where they
    change, and one lived through again has its own label."""
    window = Window(granularity, 1, tz)
    slices = run(window, ms(start), len(lengths))
    assert lengths == [(slice.label, (slice.end - slice.start) // MINUTE) for slice in slices]
    assert ms(start) == slices[0].start
    assert slices == [window.slice_at(one.start + (one.end - one.start) // 50) for one in slices]


windows = st.builds(
    Window,
    st.sampled_from(["h", "d", "w", "m", "90s", "15min", "36h", "7d"]),
    st.integers(1, 12),
    st.sampled_from(ZONES),
)
instants = st.integers(0, ms("2100-01-01"))


@given(windows, instants)
@example(Window("d", 1, "America/Toronto"), ms("1919-03-31T04:45"))  # 23:30 became 0:30
def test_each_instant_is_in_one_slice(window: Window, at: int) -> None:
    """Every instant lies in one slice, and slices leave no gap."""
    slice = window.slice_at(at)
    assert slice.start <= at < slice.end
    assert slice == window.slice_at(slice.start) == window.slice_at(slice.end - 1)
    assert slice.end == window.slice_at(slice.end).start
    assert slice.start == window.slice_at(slice.start - 1).end


@given(windows, instants)
@example(Window("h", 1, "Antarctica/Casey"), ms("2010-03-04T10:00"))  # clocks change by three hours
@example(Window("h", 1, "Pacific/Apia"), ms("2011-12-29T10:00"))  # a day is skipped
def test_labels_sort_by_time(window: Window, at: int) -> None:
    """Labels sort as their slices do, and none comes twice; no hour is longer than one."""
    slices = run(window, at, 40)
    assert sorted({slice.label for slice in slices}) == [slice.label for slice in slices]
    assert window.granularity != "h" or all(each.end - each.start <= HOUR for each in slices)


@given(windows, instants, st.floats(0, 1, exclude_max=True))
@example(Window("36525d", 1), 0, 0.5)  # the longest one
def test_a_slice_is_live_until_it_expires(window: Window, at: int, part: float) -> None:
    """A slice is live from its start until it expires, at the end of the ``slices``-th from it."""
    slice = window.slice_at(at)
    expires = window.expires(slice)
    assert run(window, at, window.slices)[-1].end == expires
    assert run(window, slice.end, window.slices) == window.ahead(at)
    between = slice.start + int(part * (expires - slice.start))
    assert all(slice in window.live(then) for then in (slice.start, between, expires - 1))
    assert not any(slice in window.live(then) for then in (expires, slice.start - 1))


_NO_GRANULARITIES = (
    *("x", "0s", "1.5h", "", "D", "15 min", "-1h", "15m", "٣h", "h\n", "999999999w", 7, None, b"d"),
    *(timedelta(0), timedelta(milliseconds=1500), timedelta(seconds=-60), timedelta.max),
)
_NO_ZONES = "Europe/Bonn", "", "CEST", "Europe", "../UTC", "/etc/passwd", "a\0b", None, 1, b"UTC"


@pytest.mark.parametrize(
    ("argument", "given", "right"),
    [
        *(("granularity", {"granularity": value}, "'h', 'd', 'w', 'm'") for value in _NO_GRANULARITIES),
        *(("tz", {"tz": value}, "'Europe/Berlin'") for value in _NO_ZONES),
        *(("tz", {"tz": value, "granularity": "15min"}, "'Europe/Berlin'") for value in _NO_ZONES),
        *(("slices", {"slices": value}, "from 1 to 1024") for value in (0, -1, 1025, True, 1.5, "7", None)),
        ("slices", {"granularity": "36526d", "slices": 1}, "100 years"),
        ("slices", {"granularity": "400d", "slices": 92}, "100 years"),
        ("slices", {"granularity": timedelta(days=36525, seconds=1), "slices": 1}, "100 years"),
    ],
)  # fmt: skip
def test_an_invalid_window_is_refused(argument: str, given: dict[str, Any], right: str) -> None:
    """It is refused by its name, with what would be right; a time zone for fixed lengths too."""
    with pytest.raises(ConfigError) as caught:
        Window(**{"granularity": "d", "slices": 7, "tz": "UTC", **given})
    assert (argument, given[argument]) == (caught.value.argument, caught.value.value)
    assert repr(given[argument]) in str(caught.value)
    assert right in str(caught.value)


@pytest.mark.parametrize("granularity", ["h", "d", "w", "m", "15min"])
def test_every_label_is_one(granularity: str) -> None:
    """Also those of hours that are lived through twice, and three times; no other granularity's is."""
    window = Window(granularity, 1, "Antarctica/Troll")
    labels = [slice.label for slice in run(window, ms("2019-10-26T22:00"), 8)]
    assert all(map(window.is_label, labels))
    others = {"h", "d", "w", "m", "15min"} - {granularity}
    assert not any(Window(other, 1).is_label(label) for other in others for label in labels)


LEAST = {
    "hour": HOUR,
    "hours": HOUR,
    "days": 24 * HOUR,
    "weeks": 168 * HOUR,
    "months": 730 * HOUR,
}
ROWS = re.findall(
    r'^\| (\d+) (\w+) \| `granularity="(\w+)", slices=(\d+)` \|$',
    (Path(__file__).parents[2] / "docs/python.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
assert len(ROWS) == 6


@pytest.mark.parametrize(("count", "unit", "granularity", "slices"), ROWS)
def test_the_documented_window_keeps_an_item_at_least_so_long(
    count: str, unit: str, granularity: str, slices: str
) -> None:
    """And with a slice less, it would not."""
    window, less = Window(granularity, int(slices)), Window(granularity, int(slices) - 1)
    times = [ms("2019-01-01") + step * 37_037_037 for step in range(1_000)]
    least = int(count) * LEAST[unit]
    assert all(window.live(at)[0].start <= at - least for at in times)
    assert any(less.live(at)[0].start > at - least for at in times)
