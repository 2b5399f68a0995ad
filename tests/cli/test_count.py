"""``tbloom count``, and the other commands where a mapping has the filter's name."""

from __future__ import annotations

import csv
import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import redis

from tbloom import TimeBloom
from tbloom.distinct import DistinctCounter
from tbloom.engine.keys import DEFAULT_MAPPING
from tests.helpers import servers
from tests.helpers.commands import refused, tbloom
from tests.helpers.contents import snapshot

pytestmark = pytest.mark.usefixtures("away_from_midnight")
UNKNOWN = "tbloom count list"


def count(*arguments: str, stdin: str = "") -> str:
    """The output of ``tbloom count``, which must succeed."""
    done = tbloom("count", *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def addressed(own_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands ask an empty server, unless they name another one."""
    monkeypatch.setenv("TBLOOM_URL", own_url)


@pytest.fixture
def filled(own: redis.Redis) -> redis.Redis:
    """A server with a filter and counters: members 0..99, members 50..149, and one with slices."""
    DistinctCounter(own, "left").add_many(map(str, range(100)))
    DistinctCounter(own, "right").add_many(map(str, range(50, 150)))
    DistinctCounter(own, "days", granularity="d", slices=3).add_many(map(str, range(10)))
    TimeBloom(own, "bloom").add("a")
    return own


@pytest.fixture
def week(clockwork: servers.Clockwork, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands ask a server with a counter of three days."""
    monkeypatch.setenv("TBLOOM_URL", clockwork.server.url)
    with DistinctCounter.from_url(
        clockwork.server.url, "<pages>", granularity="d", slices=7
    ) as pages:
        for day, members in enumerate([["a", "b", "c", "d"], ["a", "b", "e"], ["d", "f"]], 3):
            clockwork.set(f"2019-06-{day:02} 12:00:00")
            pages.add_many(members)


def test_add_counts_each_member_once(own_url: str, tmp_path: Path) -> None:
    """The members are lines of standard input and of files."""
    printed = count("add", "left", stdin="a\nb\n\na\r\nc")
    assert printed == "4 members read, 3 counted for the first time\n"
    (tmp_path / "one").write_bytes(b"b\n\xff\xfe\n")
    (tmp_path / "two").write_bytes(b"d\n")
    files = [str(tmp_path / name) for name in ("one", "two")]
    printed = count("add", "left", *files, "-", stdin="e\n")
    assert printed == "4 members read, 3 counted for the first time\n"
    with DistinctCounter.from_url(own_url, "left") as left:
        members = ["a", "b", "c", b"\xff\xfe", "d", "e"]
        assert left.count() == len(members)
        assert not any(left.add_many(members))


def test_add_creates_a_counter(own_url: str) -> None:
    """Without parameters, the stored ones are used."""
    like = ["--granularity", "h", "--slices", "48", "--tz", "Europe/Berlin"]
    printed = count("add", "left", *like, "--mapping", "other", stdin="a\n")
    assert printed == "1 member read, 1 counted for the first time\n"
    printed = count("add", "left", "--mapping", "other", stdin="a\nb\n")
    assert printed == "2 members read, 1 counted for the first time\n"
    count("add", "left", *like, "--mapping", "other", stdin="c\n")
    kept = {"granularity": "h", "slices": 48, "tz": "Europe/Berlin"}
    with DistinctCounter.from_url(own_url, "left", "other", **kept) as left:
        assert left.count() == 3
    [listed] = json.loads(count("list", "--json"))
    assert listed == {"mapping": "other", "name": "left", **kept, "count": 3}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["days", "--granularity", "d", "--slices", "4"], ["'days'", "slices is 3 there and 4"]),
        (["days", "--slices", "3"], ["--granularity", "slices is given\n"]),
        (["new", "--granularity", "d"], ["slices", "granularity is given"]),
        (["{new}"], ["NAME", "'{new}'"]),
        (["new", "--mapping", "bloom"], ["'bloom'", "taken by a filter", "--mapping members"]),
    ],
)
def test_add_refuses_wrong_arguments_and_changes_nothing(
    filled: redis.Redis, arguments: list[str], said: list[str]
) -> None:
    before = snapshot(filled)
    refused(tbloom("count", "add", *arguments, stdin="a\n"), *said)
    assert snapshot(filled) == before


@pytest.mark.usefixtures("filled")
def test_counts_are_combined() -> None:
    """Two counters, one or three; a counter may be given twice."""
    three = ["left", "right", "days"]
    for verb, *numbers in (
        ("and", 100, 50, 0, 100),
        ("or", 100, 150, 150, 100),
        ("xor", 100, 100, 90, 0),
    ):
        operands = (three[:1], three[:2], three, ["left", "left"])
        found = [int(count(verb, *names)) for names in operands]
        assert numbers == found, verb
    assert "40\n" == count("andnot", *three)
    either = count("or", "left", "right", "--json")
    assert {"count": 150} == json.loads(either)
    # As with FILE ..., names may come after an option.
    assert count("and", "left", "--mapping", DEFAULT_MAPPING, "right") == "50\n"


@pytest.mark.usefixtures("week")
def test_slices_are_combined_by_their_labels() -> None:
    """A counter whose name has an @ comes before a slice."""
    monday, tuesday = "<pages>@20190603", "<pages>@20190604"
    assert count("and", monday, tuesday) == "2\n"
    assert count("xor", monday, tuesday) == "3\n"
    assert count("or", monday, tuesday) == "5\n"
    assert count("or", monday) == "4\n"
    assert count("or", "<pages>") == "6\n"
    count("add", tuesday, stdin="a\n")
    count("add", "u@", "--granularity", "d", "--slices", "3", stdin="z\n")
    assert count("and", monday, tuesday) == "1\n"
    assert count("or", "u@@20190605") == "1\n"
    expected = "a slice from 20190530 to 20190605"
    for label in ("20190529", "20190606", "2019-06-05", "x", ""):
        done = tbloom("count", "or", "<pages>", f"<pages>@{label}")
        refused(done, f"'<pages>@{label}'", expected)
    refused(tbloom("count", "or", f"{tuesday}@all"), f"'{tuesday}@all'", "no slices")


@pytest.mark.parametrize("word", ["nosuch", "nosuch@20190603", "@", "@20190603", "bloom"])
@pytest.mark.parametrize("verb", ["show", "clear", "and", "or", "xor"])
def test_unknown_counters_are_refused(filled: redis.Redis, verb: str, word: str) -> None:
    before = snapshot(filled)
    names = ["left", word] if verb in ("and", "or", "xor") else [word]
    refused(tbloom("count", verb, *names), word.partition("@")[0], UNKNOWN)
    refused(tbloom("count", verb, "left", "--mapping", "nosuch"), "'nosuch'", UNKNOWN)
    assert snapshot(filled) == before


def test_show_prints_count_slices_and_mapping(filled: redis.Redis) -> None:
    """The table and the JSON have the same figures."""
    info = DistinctCounter(filled, "days", granularity="d", slices=3).info()
    shown = json.loads(count("show", "days", "--json"))
    assert (shown["count"], shown["members"]) == (10, 150)
    assert (shown["bytes"], shown["mapping_bytes"]) == (info.bytes, info.mapping_bytes)
    labels = [slice.label for slice in info.slices]
    assert [(s["label"], s["count"]) for s in shown["slices"]] == [
        *zip(labels, (0, 0, 10), strict=True)
    ]
    lines = [line.split() for line in count("show", "days").splitlines()]
    assert [[labels[0], "0"], [labels[1], "0"], [labels[2], "10"], ["window", "10"]] == [
        line[:2] for line in lines if len(line) == 4 and line[0] != "slice"
    ]
    assert ["mapping", "'{ids}':", "150", "members,"] in [line[:4] for line in lines]
    text = count("show", "left")
    assert text.startswith("left: 100 distinct members")
    assert "window" not in text


@pytest.mark.usefixtures("week")
def test_show_within_counts_the_newest_slices() -> None:
    shown = json.loads(count("show", "<pages>", "--within", "2", "--json"))
    assert shown["count"] == 5
    assert [slice["label"] for slice in shown["slices"]] == ["20190604", "20190605"]
    assert "20190603" not in count("show", "<pages>", "--within", "2")
    refused(tbloom("count", "show", "<pages>", "--within", "8"), "--within", "8")
    refused(tbloom("count", "show", "<pages>", "--within", "x"), "--within", "'x'")
    count("add", "whole", stdin="a\n")
    refused(tbloom("count", "show", "whole", "--within", "1"), "within", "no slices")


@pytest.mark.usefixtures("filled")
def test_list_shows_the_counters_of_all_mappings() -> None:
    """Or of one mapping."""
    count("add", "left", "--mapping", "other:3", stdin="a\n")
    ours = [
        (DEFAULT_MAPPING, "days", 10),
        (DEFAULT_MAPPING, "left", 100),
        (DEFAULT_MAPPING, "right", 100),
    ]
    other = [("other:3", "left", 1)]
    for of, expected in (([], other + ours), (["--mapping", DEFAULT_MAPPING], ours)):
        listed = json.loads(count("list", *of, "--json"))
        assert [(one["mapping"], one["name"], one["count"]) for one in listed] == expected
        lines = [line.split() for line in count("list", *of).splitlines()[1:]]
        assert [(line[0], line[1], int(line[-1])) for line in lines] == expected
    refused(tbloom("count", "list", "--mapping", "bloom"), "--mapping", "'bloom'")


def test_list_names_unreadable_counters(filled: redis.Redis) -> None:
    """It shows the others."""
    filled.hset("{ids}:_:counters", "left", "mine")
    count("add", "some", "--mapping", "theirs", stdin="a\n")
    filled.set("{theirs}:counters", "theirs")
    filled.rpush("{mine}:config", "mine")
    done = tbloom("count", "list", "--json")
    assert done.returncode == 1
    assert ["days", "right"] == [one["name"] for one in json.loads(done.stdout)]
    assert ["tbloom: theirs: ", "tbloom: left: "] == [
        re.match(r"tbloom: \w+: |", line)[0] for line in done.stderr.splitlines()
    ]
    refused(tbloom("count", "show", "left"), "'left' in the counters of '{ids}'", "'mine'")
    assert count("or", "right", "days") == "110\n"


def test_clear_forgets_a_counter(filled: redis.Redis) -> None:
    """Its ids stay, because other counters may use them."""
    done = tbloom("count", "clear", "left", "--yes")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "Cleared the counter 'left'\n")
    assert ["days", "right"] == [one["name"] for one in json.loads(count("list", "--json"))]
    assert [] == [*filled.scan_iter("*:chunks:left:*")]
    assert json.loads(count("show", "right", "--json"))["members"] == 150


def test_clear_all_forgets_a_mapping(filled: redis.Redis) -> None:
    """Other mappings stay."""
    count("add", "left", "--mapping", "other", stdin="a\n")
    refused(tbloom("count", "clear", "--all"), "--yes")
    done = tbloom("count", "clear", "--all", "--yes")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "Cleared the mapping '{ids}'\n")
    assert [] == [key for key in filled.scan_iter("{ids}*") if b":lane:" not in key]
    assert [("other", 1)] == [
        (one["mapping"], one["count"]) for one in json.loads(count("list", "--json"))
    ]
    refused(tbloom("count", "clear", "--all"), "'{ids}'")


@pytest.mark.parametrize(
    "words",
    [
        ["info"], ["add"], ["add", "--create"], ["check"], ["report"], ["export", "-"], ["metrics"],
        ["import", "--from-lines", "-", "--create"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_the_other_commands_say_that_it_is_a_mapping(filled: redis.Redis, words: list[str]) -> None:
    """The one without a name, or one that has the name of a new filter."""
    count("add", "urls", "--mapping", "news", stdin="a\n")
    before = snapshot(filled)
    for mapping in (DEFAULT_MAPPING, "news"):
        done = tbloom(words[0], mapping, *words[1:], stdin="a\n")
        said = "is a mapping of distinct counters, which a filter of this name can't share"
        refused(done, repr(mapping), said, "take another name", "tbloom count")
    assert snapshot(filled) == before


@pytest.mark.usefixtures("week")
def test_retention_is_a_table(tmp_path: Path) -> None:
    assert [
        line.split() for line in count("retention", "<pages>", "--within", "3").splitlines()[:-1]
    ] == [
        ["new", "in", "members", "1", "2"],
        ["20190603", "4", "50", "25+"],
        ["20190604", "1", "0+"],
        ["20190605", "1"],
    ]
    found = json.loads(count("retention", "<pages>", "--within", "2", "--json"))
    assert found == {
        "name": "<pages>",
        "granularity": "d",
        "cohorts": [
            {"label": "20190604", "size": 3, "returned": [0]},
            {"label": "20190605", "size": 2, "returned": []},
        ],
    }
    page = tmp_path / "page.html"
    assert count("retention", "<pages>", "--html", str(page)) == ""
    html = page.read_text(encoding="utf-8")
    assert "&lt;pages&gt;" in html
    assert "<pages>" not in html
    assert 'style="--share: 30.0%" title="2 of 4">50<span class="unit"> %</span></td>' in html
    assert 'class="running" style="--share: 15.0%" title="1 of 4 so far">25+<' in html
    assert count("retention", "<pages>", "--html", "-") == html


def test_counters_of_integers_and_of_kept_members(own_url: str) -> None:
    with DistinctCounter.from_url(own_url, "numbers", None) as numbers:
        numbers.add_many(range(7))
    count("add", "kept", "--keep-members", stdin="a\nb\n")
    count("add", "more", stdin="b\n")
    found = json.loads(count("list", "--json"))
    assert [(None, "numbers", 7), (DEFAULT_MAPPING, "kept", 2), (DEFAULT_MAPPING, "more", 1)] == [
        (one["mapping"], one["name"], one["count"]) for one in found
    ]
    assert "(integers)" in count("list")
    assert "numbers: 7 distinct members" in count("show", "numbers")
    assert count("and", "kept", "more") == "1\n"
    refused(tbloom("info", "numbers"), "'numbers'", "tbloom count")
    with DistinctCounter.from_url(own_url, "kept", keep_members=True) as kept:
        assert {"a", "b"} == {*kept.members()}
    other = ("clear", "numbers", "--mapping", "other", "--yes")
    refused(tbloom("count", *other), "no counter 'numbers' of the mapping 'other'")
    count("clear", "numbers", "--yes")
    assert "numbers" not in count("list")


def test_a_log_of_yesterday_is_counted_then() -> None:
    """By a day or an instant, which is in the counter's time zone, or a label."""
    days = ["--granularity", "d", "--slices", "3", "--tz", "America/New_York"]
    now = datetime.now(ZoneInfo("America/New_York"))
    yesterday = now - timedelta(days=1)
    count("add", "urls", *days, stdin="today\n")
    for number, at in enumerate(
        (f"{yesterday:%Y-%m-%d}", f"{yesterday:%Y-%m-%dT12:00}", yesterday.isoformat(" ", "seconds"),
         f"{yesterday.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}", f"{yesterday:%Y%m%d}")
    ):  # fmt: skip
        printed = count("add", "urls", "--at", at, stdin=f"a\n{number}\n")
        assert f"{1 + (number == 0)} counted for the first time" in printed, at
    shown = json.loads(count("show", "urls", "--json"))
    assert [0, 6, 1] == [slice["count"] for slice in shown["slices"]]
    for wrong in ("yesterday", "2019-13-45", "2019-01-01", "20190101", "", "9999-12-31T00:00"):
        done = tbloom("count", "add", "urls", "--at", wrong, stdin="b\n")
        refused(done, "--at: expected ")
    count("add", "ever", stdin="a\n")
    done = tbloom("count", "add", "ever", "--at", "2019-01-01", stdin="b\n")
    refused(done, "--at: expected none: the counter has no slices")


def test_ids_and_members_are_a_table(own_url: str, tmp_path: Path) -> None:
    """As CSV, and by pyarrow."""
    from pyarrow import ipc, parquet  # noqa: PLC0415 - slow, and only needed here

    members = ["plain", "ü", 'a "quoted", one', "two words", *(f"{i}" for i in range(20_000))]
    with DistinctCounter.from_url(own_url, "pages", keep_members=True) as pages:
        pages.add_many(members)
        expected = [(str(id), member) for id, member in sorted(pages.members().pairs())]
    assert sorted(members) == sorted(member for _, member in expected)
    table = tmp_path / "pages.csv"
    count("export", "pages", "--members", str(table))
    for text in (table.read_bytes().decode(), count("export", "pages", "--members", "-")):
        assert "\r" not in text
        head, *rows = csv.reader(text.splitlines())
        assert ["id", "member"] == head
        assert sorted(expected) == sorted(map(tuple, rows))
    for suffix, read in (
        ("parquet", parquet.read_table),
        ("arrow", lambda file: ipc.open_file(file).read_all()),
    ):
        table = tmp_path / f"pages.{suffix}"
        count("export", "pages", "--members", str(table))
        found = read(str(table))
        assert ["uint32", "string"] == [str(field.type) for field in found.schema]
        assert expected == sorted(
            zip(map(str, found["id"].to_pylist()), found["member"].to_pylist(), strict=True),
            key=lambda row: int(row[0]),
        )


def test_a_table_that_can_t_be_written_is_not_begun(own_url: str, tmp_path: Path) -> None:
    """Members are not kept, or are not UTF-8; pyarrow is missing. The file of before stays."""
    count("add", "urls", stdin="a\n")
    with DistinctCounter.from_url(own_url, "pages", "kept", keep_members=True) as pages:
        pages.add_many(["a", b"\xff"])
    for words, file, expected in (
        (["urls"], "urls.csv", "keep_members: expected True"),
        (["pages", "--mapping", "kept"], "pages.parquet", "is not UTF-8; only CSV can have it"),
    ):
        (tmp_path / "pages.parquet").write_text("before")
        done = tbloom("count", "export", *words, "--members", str(tmp_path / file))
        refused(done, expected)
        assert ["pages.parquet"] == [path.name for path in tmp_path.iterdir()]
        assert "before" == (tmp_path / "pages.parquet").read_text()
    count("export", "pages", "--mapping", "kept", "--members", str(tmp_path / "x"))
    assert {b"id,member", b"0,a", b"1,\xff"} == {*(tmp_path / "x").read_bytes().split()}
