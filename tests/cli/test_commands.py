"""``tbloom list``, ``info``, ``plan``, ``rate``, ``add``, ``check``; tables and numbers; ``tbloom pages`` with bytes that no recorded
session can have. (The rest: recorded/lookup.txt, plan.txt, secret.txt, pages.txt.)"""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import time
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest
import redis

from tbloom import TimeBloom
from tbloom.cli.commands.lookup import interval
from tbloom.cli.commands.plan import classic_rate
from tbloom.cli.kit import filters, output, streams
from tbloom.distinct import DistinctCounter
from tbloom.distinct.keys import MappingKeys
from tbloom.pages import PageStore
from tests.helpers import servers
from tests.helpers.commands import process, refused, started, tbloom, tbloom_bytes
from tests.helpers.proxy import Fault, Proxy


def test_planted_names_are_no_commands_to_a_terminal(
    own: redis.Redis, own_url: str, tmp_path: Path
) -> None:
    """Escapes, also of eight bits, text from right to left, further lines: they are shown escaped. JSON has the name."""
    odd, file = "a\x1b[2J\x9b2J\u202e\r\x07\nb [red]:bug:", tmp_path / "file"
    with TimeBloom(own, odd, capacity=1000) as seen:
        seen.add_many(map(str, range(5000)))
        own.hset(seen.config.keys.state(), odd, "x")
    DistinctCounter(own, odd, f"mapping {odd}").add("a")
    own.set("{bad\x1b[2J}:config", "mine")
    own.hset(MappingKeys(f"mapping {odd}").counters(), b"bad\x1b[2J\xff", "{}")
    shows = ["count", "show", odd, "--mapping", f"mapping {odd}"]
    for words in (
        *(["list"], ["info", odd], ["export", odd, file], ["restore", file, "--replace"]),
        *(["report", odd, "-o", file], ["count", "list"], shows),
    ):
        done = tbloom(*words, "--url", own_url)
        text = done.stdout + done.stderr
        assert text.replace("\n", "").isprintable(), (words, text)
        assert r"a\x1b[2J\x9b2J\u202e\r\x07\nb [red]:bug:" in text, (words, text)
        assert (r"bad\x1b[2J" in done.stderr) is (words[-1] == "list") is (done.returncode == 1)
    for words in (["list"], ["count", "list"]):
        [found] = json.loads(tbloom(*words, "--url", own_url, "--json").stdout)
        assert odd == found["name"]


def test_an_outage_is_waited_for_aloud_and_the_lost_answers_are_counted(
    url: str, filled: TimeBloom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "RETRY_FOR", 0.5)
    monkeypatch.setattr(filters, "_SILENT", 0.05)
    with Proxy(url, lambda _: Fault.LOSE) as proxy:
        done = tbloom("add", "--url", proxy.url, filled.name, stdin="item 1\nnew\n")
    assert (2, "") == (done.returncode, done.stdout)
    waiting, lost = done.stderr.splitlines()
    assert "the server does not answer; waiting up to 0.5 s" in waiting
    assert "the answers to 2 lines could not be printed" in lost


def test_lines_are_answered_as_they_come(url: str, filled: TimeBloom) -> None:
    """``tail -f urls.txt | tbloom add ...``, until Ctrl-C."""
    with started("add", "--url", url, filled.name, text=True, bufsize=1) as running:
        for line in ("new a\n", "new b\n"):
            running.stdin.write(line)
            assert running.stdout.readline() == line
        running.send_signal(signal.SIGINT)
        assert running.wait() == 130
        assert running.stderr.read().endswith("tbloom: interrupted: 2 lines answered\n")


@pytest.mark.parametrize("reader", ["pipe", "file", "slow", "closed"])
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        *(pytest.param(each, marks=pytest.mark.check) for each in (signal.SIGTERM, signal.SIGHUP)),
    ],
)
def test_a_signal_leaves_no_line_added_and_unprinted(
    url: str, name: str, tmp_path: Path, number: signal.Signals, reader: str
) -> None:
    """All items that were added before it are printed, or counted; no others are added."""
    file, out = tmp_path / "lines", tmp_path / "out"
    # More than a request asks for, and more than a pipe holds.
    file.write_text("".join(f"item {i}\n" for i in range(500_000)))
    streams = {"stdout": out.open("wb")} if reader == "file" else {}
    with started("add", "--url", url, name, file, "--create", "--quiet", **streams) as running:
        if reader == "file":
            while not out.stat().st_size:
                assert running.poll() is None
        first = running.stdout.readline() if running.stdout else b""
        if reader == "closed":
            running.stdout.close()
        running.send_signal(number)
        running.send_signal(signal.SIGHUP)  # as a shell and the kernel do
        if reader == "slow":
            time.sleep(0.5)
        rest = running.stdout.read() if reader in {"pipe", "slow"} else b""
        code, said = running.wait(), running.stderr.read().decode()
    printed = (first + rest or out.read_bytes()).count(b"\n")
    with TimeBloom.from_url(url, name) as seen:
        added = seen.info().items
    assert added < 500_000
    assert "" != said
    [(answered, lost)] = re.findall(r": ([\d,]+) lines answered|([\d,]+) answers could not", said)
    if lost:
        assert ("closed", 1) == (reader, code)
        assert printed <= added - int(lost.replace(",", ""))
    else:
        assert (130, f"{added:,}") == (code, answered)
        assert reader == "closed" or added == printed


def test_a_line_that_is_too_long_is_refused_by_its_number(
    url: str, filled: TimeBloom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_LONGEST", 1 << 20)
    (tmp_path / "long").write_bytes(b"a\n\nb\n" + b"x" * (1 << 21) + b"\nc\n")
    done = tbloom("add", "--url", url, filled.name, str(tmp_path / "long"), "--quiet")
    assert (2, "a\nb\n") == (done.returncode, done.stdout)
    assert f"{tmp_path / 'long'}: line 4: expected at most 64 MB" in done.stderr


def test_answers_that_nobody_gets_are_counted(url: str, name: str) -> None:
    """They were added."""
    words = ["add", "--url", url, name, "--create", "--quiet"]
    with Path("/dev/full").open("wb") as full:
        done = process(*words, input=b"a\nb\n", stdout=full)
    lost = b"tbloom: standard output: No space left on device: 2 answers could not be printed\n"
    assert lost == done.stderr
    with TimeBloom.from_url(url, name) as seen:
        assert [False, False] == seen.add_many(["a", "b"])
    # Nothing is added where no answer can be printed.
    done = process(*words, input=b"c\n", preexec_fn=partial(os.close, 1))
    assert (2, b"tbloom: standard input or output is closed\n") == (done.returncode, done.stderr)
    with TimeBloom.from_url(url, name) as seen:
        assert "c" not in seen


URL = "https://example.com/"
#: Characters that must not reach a terminal.
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


def test_control_characters_of_urls_and_keys_are_not_printed(tmp_path: Path) -> None:
    """Such as escapes of eight bits, or text from right to left; the printed addresses work all the same."""
    addresses: list[tuple[str, str | bytes | None]] = [
        (f"{URL}\x9b2J", None),
        (f"{URL}\u202efdp.exe", None),
        (f"{URL}é/日本", None),
        (URL, "\x1b[2J"),
        (URL, f"{URL}\r\x1b[2J"),
        (URL, b"\xff\xfe"),
        (URL, "--json"),
        (URL, "key:00"),
        (URL, f"{URL}a page"),
        (URL, f"{URL}session"),
    ]
    with PageStore(tmp_path) as store:
        for number, (url, key) in enumerate(addresses):
            store.put(url, b"%d" % number, key=key)
    listed = tbloom("pages", "ls", tmp_path).stdout.splitlines()
    assert [f"{URL}é/日本", f"{URL}session"] == [one for one in listed if one[:4] != "key:"]
    bodies = [tbloom("pages", "get", tmp_path, one).stdout for one in listed]
    assert [f"{number}" for number in range(len(addresses))] == bodies
    for form in ([], ["--long"], ["--json"]):
        text = tbloom("pages", "ls", tmp_path, *form).stdout
        assert (len(addresses), None) == (len(text.splitlines()), CONTROL.search(text))
    refused(tbloom("pages", "put", tmp_path, f"{URL}\x1b[2J"), "URL: ", r"\x1b[2J")
    for verb in ("put", "get", "delete"):
        refused(tbloom("pages", verb, tmp_path, "\udcff"), "URL: ", r"'\udcff'")
    refused(tbloom("pages", "put", tmp_path, URL, "--header", "A: b\nC: d"), "without line breaks")


def test_pages_go_through_pipes(tmp_path: Path) -> None:
    """``tbloom pages export ... -o - | tbloom pages import ... -``; a body is any bytes."""
    body = bytes(range(256))
    put = tbloom_bytes("pages", "put", tmp_path / "here", URL, stdin=body)
    written = tbloom_bytes("pages", "export", tmp_path / "here", "-o", "-")
    assert (0, 0, b"1 page written\n") == (put.returncode, written.returncode, written.stderr)
    tbloom_bytes("pages", "import", tmp_path / "there", "-", stdin=written.stdout)
    get = ["pages", "get", tmp_path / "there", URL]
    assert body == tbloom_bytes(*get).stdout
    assert b"HTTP/1.1 200 OK\r\n\r\n" + body == tbloom_bytes(*get, "--headers").stdout


TABLE = Path(__file__).parents[1] / "data" / "bloom_fpr_table_14_1.csv"


def test_the_table_is_the_sources_table() -> None:
    """Each printed rate and optimum of table 14-1 is in it, to half of its last digit; and is printed with its digits."""
    rows = {
        row["bits_per_item"]: row for row in json.loads(tbloom("plan", "--table", "--json").stdout)
    }
    with TABLE.open(encoding="utf-8") as file:
        cells = list(csv.DictReader(file))
    assert {int(cell["bits_per_item"]) for cell in cells} == rows.keys()
    for cell in cells:
        row = rows[int(cell["bits_per_item"])]
        rate = row["rates"][int(cell["hashes"]) - 1]
        printed = Decimal(cell["false_positive_rate"])
        last_digit = 10.0 ** int(printed.as_tuple().exponent)
        assert float(printed) == pytest.approx(rate, rel=0, abs=last_digit / 2)
        assert float(printed) == pytest.approx(rate, rel=0.005)
        assert abs(float(cell["optimal_hashes"]) - row["best_hashes"]) < 1
        assert rate >= classic_rate(1, row["bits_per_item"], row["best_hashes"])
    printed = tbloom("plan", "--table").stdout.replace("*", "").splitlines()
    cells_of = {line.split()[0]: line.split() for line in printed[1:32]}
    assert (["0.393", "0.400"], "2.50e-05") == (cells_of["2"][1:3], cells_of["32"][6])


@pytest.mark.parametrize("links", ["10", "50"])
@pytest.mark.parametrize("seen", ["99.99%", "99.9999%"])
def test_plan_keeps_each_server_as_idle_as_it_says(links: str, seen: str) -> None:
    """A shard for each server makes more calls of a page, which may need another server."""
    line = ["plan", "--links", "1M/s", "--seen", seen, "--links-per-page", links, "--json"]
    planned = json.loads(tbloom(*line).stdout)
    [cores] = [
        row["cores"]
        for row in planned["by_links_per_call"]
        if row["links_per_call"] == planned["links_per_page"]
    ]
    assert cores <= 0.7 * planned["masters"] <= 0.7 * planned["shards"]


def test_plan_refuses_fewer_shards_than_servers() -> None:
    """A shard is on one server."""
    line = ["plan", "--links", "300k/s", "--seen", "99.99%"]
    refused(tbloom(*line, "--shards", "1"), "--shards", "expected 3 or more", "got 1")


def test_plan_measures_a_server_and_leaves_no_key(own: redis.Redis, own_url: str) -> None:
    """By a filter with the prefix, for a user who may use no other keys. Its time is a factor of all cores, and of no bytes."""
    own.execute_command("ACL", "SETUSER", "app1", "reset", "on", ">pw", "~app1:*", "+@all")
    # So few links that one Redis is enough, even a slow one: with two, the plan would have more shards.
    line = ["plan", "--links", "100/s", "--json"]
    url = own_url.replace("//", "//app1:pw@")
    before = {*own.keys()}
    measured = json.loads(tbloom(*line, "--url", url, "--prefix", "app1:").stdout)
    assert before == {*own.keys()}
    planned = json.loads(tbloom(*line).stdout)
    assert (True, False, 1) == (
        measured["is_measured"],
        planned["is_measured"],
        planned["server_time"],
    )
    assert measured["server_time"] > 0
    for ours, theirs in zip(
        measured["by_links_per_call"], planned["by_links_per_call"], strict=True
    ):
        assert ours["cores"] == pytest.approx(theirs["cores"] * measured["server_time"], rel=0.02)
        assert ours["log_bytes_per_day"] == pytest.approx(theirs["log_bytes_per_day"], rel=0.01)


def test_plan_measures_the_node_of_a_cluster(cluster: servers.Cluster) -> None:
    before = [{*master.keys()} for master in cluster.masters()]
    measured = json.loads(tbloom("plan", "--links", "1k/s", "--url", cluster.url, "--json").stdout)
    assert measured["server_time"] > 0
    assert before == [{*master.keys()} for master in cluster.masters()]


def test_plan_refuses_a_server_that_tells_no_times(own: redis.Redis, own_url: str) -> None:
    own.execute_command("ACL", "SETUSER", "app1", "reset", "on", ">pw", "~*", "+@all", "-info")
    url = own_url.replace("//", "//app1:pw@")
    refused(
        tbloom("plan", "--links", "250k/s", "--url", url),
        "--url",
        "refuses INFO",
        "leave --url out",
    )
    assert [] == own.keys()


def test_wide_characters_keep_columns_aligned() -> None:
    """As a terminal shows them: an ideograph takes two columns, a combining accent none."""
    names = ["news", "ニュース", "新闻🚀", "e\u0301te\u0301"]
    rows = [{"name": name, "next": "x"} for name in names]
    lines = output.table(rows, left=["name"]).splitlines()[1:]
    assert {13} == {output.columns_of(line[:-1]) for line in lines}


@pytest.mark.parametrize(
    ("terminal", "is_styled"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), (None, False)],
)
def test_styles_are_for_terminals_that_take_them(
    terminal: dict[str, str] | None, *, is_styled: bool
) -> None:
    given = {"TERM": "xterm", **(terminal or {})}
    done = tbloom_bytes("plan", is_terminal=terminal is not None, **given)
    assert is_styled is (b"\x1b" in done.stdout)


def test_rate_measures_what_is_predicted(url: str, name: str, client: redis.Redis) -> None:
    """Beside the promise, with an interval; it changes nothing."""
    with TimeBloom.from_url(url, name, capacity=1000, error_rate=0.05, slices=1) as seen:
        seen.add_many(map(str, range(1000)))
        before, stored = seen.info(), [*map(client.dump, seen.keys())]
        found = json.loads(tbloom("rate", name, "--url", url, "--sample", "50k", "--json").stdout)
        assert stored == [*map(client.dump, seen.keys())]
    low, high = found["interval"]
    assert (50_000, 0.05) == (found["sample"], found["promised"])
    assert found["predicted"] == before.error_rate
    assert 0 < low < found["rate"] == found["false_positives"] / 50_000 < high < 0.07
    assert found["rate"] == pytest.approx(found["predicted"], rel=0.25)
    text = tbloom("rate", name, "--url", url, "--sample", "1k").stdout
    assert re.search(r"measured +\S+  \S+ to \S+ \(95 %\)\n", text)


def test_the_interval_is_wilsons() -> None:
    """Newcombe 1998 (Statistics in Medicine 17), table I."""
    rows = {(81, 263): (0.2553, 0.3662), (0, 20): (0, 0.1611), (1, 29): (0.0061, 0.1718)}
    for counts, expected in rows.items():
        assert expected == pytest.approx(interval(*counts), abs=0.0001)


@pytest.mark.parametrize("missing", [["fchmod", "fchown", "chown"], ["O_CLOEXEC"]], ids=str)
def test_files_are_written_where_the_system_lacks_a_call_of_unix(
    url: str,
    filled: TimeBloom,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    missing: list[str],
) -> None:
    """As Windows does. A file that is replaced keeps its permissions."""
    for call in missing:
        monkeypatch.delattr(os, call)
    for words in ["export", filled.name], ["report", filled.name, "-o"]:
        file = tmp_path / words[0]
        for mode in (0o640, 0o600):
            done = tbloom(*words, file, "--url", url)
            assert (0, 1) == (done.returncode, done.stderr.count("\n")), done.stderr
            file.chmod(mode)
        assert 0 == tbloom(*words, file, "--url", url).returncode
        assert 0o600 == file.stat().st_mode & 0o777
    assert {"export", "report"} == {file.name for file in tmp_path.iterdir()}
    with PageStore(tmp_path / "pages") as store:
        store.put("https://example.com/", b"page")
    assert (
        b"page" == tbloom_bytes("pages", "get", tmp_path / "pages", "https://example.com/").stdout
    )
