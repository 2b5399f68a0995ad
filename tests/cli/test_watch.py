"""``tbloom queue`` and ``failed`` on terminals of several widths; ``tbloom watch``: a page of a fleet and its filter, as a program gets it, and as a browser shows it."""

from __future__ import annotations

import json
import re
import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from html import escape, unescape
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import redis

from tbloom import TimeBloom
from tbloom.claims.fleet import Fleet
from tbloom.cli.kit import formats
from tests.cli.test_rights import added, rights
from tests.helpers.browser import in_browser
from tests.helpers.commands import Serving, refused, screen, tbloom
from tests.helpers.keptpages import claimed, failed, kill, told
from tests.helpers.localredis import OLDEST, LocalRedis
from tests.helpers.making import needed

HOSTILE = """<img src=x onerror="alert('1')">&amp;"""
SCRIPT = "<script>document.title='changed'</script>"
#: What only the request has, and the page must not show.
SECRET = "hunter2"  # noqa: S105 - it is none


class Page(Serving):
    def __init__(self, *arguments: str) -> None:
        super().__init__("watch", *arguments)

    def ask(self, method: str = "GET", path: str = "/", host: str = "127.0.0.1") -> HTTPResponse:
        """Return the answer, whose body has been read."""
        asking = HTTPConnection("127.0.0.1", self.port)
        asking.request(method, path, headers={"Host": host})
        answer = asking.getresponse()
        answer.text = answer.read().decode()  # type: ignore[attr-defined]
        asking.close()
        return answer

    def html(self, **query: str) -> str:
        answer = self.ask(path=f"/?{urlencode(query)}")
        assert 200 == answer.status
        return str(answer.text)  # type: ignore[attr-defined]


def text_of(html: str) -> str:
    body = html[html.index("<body>") :]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def once(url: str, *words: str) -> str:
    done = tbloom("watch", *words, "--url", url, "--once", "-")
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout


def commands(html: str) -> list[str]:
    """The commands of the page, as one copies them."""
    return [
        unescape(re.sub("<[^>]*>", "", code)) for code in re.findall("<code>(.*?)</code>", html)
    ]


@pytest.fixture
def fleet(url: str, name: str) -> Iterator[TimeBloom]:
    """A crawler at work with failed and given-up pages, whose URLs are hostile, one that waits, and one that was killed."""
    with ExitStack() as stack:
        own: dict[str, Any] = {"capacity": 1000, "session_ttl": 3600}
        works, waits, dies = (
            stack.enter_context(TimeBloom.from_url(url, name, **own)) for _ in range(3)
        )
        for each in (works, waits, dies):  # a heartbeat would leave the dead one's pages
            each._keep_session = lambda: None  # type: ignore[method-assign]
        works.take(0, "shop", idle=False)
        claimed(works, *(f"http://a.example/{n}" for n in range(9)))
        hostile = (
            f"http://user:{SECRET}@x{SCRIPT}.example/?q={SCRIPT}\u202e",
            "http://[::1]:80/a b'$(c)",
        )
        request = {"headers": {"Cookie": [SECRET]}, "cookies": {"a": SECRET}, "body": SECRET}
        claimed(works, *hostile, callback="parse_item", **request)
        now = int(time.time())
        failures = {
            **{f"http://a.example/{n}": failed(at=now - n) for n in range(3)},
            "http://a.example/3": failed("callback/KeyError", failures=3, at=now),
            **{each: failed("status/403", at=now) for each in hostile},
        }
        works.note_history(failures)
        works.leave_many(failures)
        about = {
            "done": 1234,
            "per_minute": 56,
            "failed": {"status/503": 3, "callback/KeyError": 1},
            "oldest_page": "http://a.example/8",
            "oldest_state": "pipeline",
            "oldest_seconds": 700,
        }
        told(works, **about, up=7300, ttl=3600)
        waits.take(1, "shop")
        told(waits, pid=8, ttl=3600)
        dies.take(0, "shop", idle=False)
        claimed(dies, *(f"http://b.example/{n}" for n in range(17)))
        told(dies, pid=9, ttl=2.0)
        kill(dies)
        yield works


# What it shows


def test_the_fleet_is_shown(url: str, fleet: TimeBloom) -> None:
    html = once(url, fleet.name)
    text = text_of(html)
    assert (
        "claimed 5 left 0 of dead crawlers 17 failed 5 given up 1 done in the filter 1,234 pages a minute 56"
        in text
    )
    assert "Crawlers 1 works, 1 waits, 1 dead" in text
    assert re.search(
        r"crawl-01:7 works 2 h \d+ s 5 1,234 56 0 0 4 status/503 3, callback/KeyError 1 12 min \(pipeline\) http://a.example/8 ",
        text,
    ), text
    oldest = "oldest page in work: http://a.example/8, for 12 min (pipeline of crawl-01:7)\n"
    assert oldest in tbloom("queue", fleet.name, "--url", url).stdout
    assert re.search(r"crawl-01:9 dead .* 17 ", text)
    assert "failed status/503 a.example 3 " in text
    assert "given up callback/KeyError a.example 1 " in text
    assert "The newest 6 of 6" in text
    assert "http://[::1]:80/a b'$(c)" in text
    assert f"<title>{fleet.name}: 2 crawlers, 5 failed</title>" in html
    # What is shown from right to left would hide what is copied (CVE-2021-42574).
    assert html.replace("\n", "").isprintable()


def test_all_fleets_of_a_server_are_shown_without_a_name(own: redis.Redis, own_url: str) -> None:
    """What works comes first, on the page and in a terminal; a filter without crawlers is left out. sidekiq#2760: failed pages and
    those that are given up have a number each."""
    own.flushall()
    with ExitStack() as stack:
        for name, about in (
            ("a-ended:tbloom", {"ended": "finished"}),
            ("b 2:tbloom", {"per_minute": 1218}),
            ("b 10:tbloom", {"per_minute": 7}),
        ):
            seen = stack.enter_context(TimeBloom.from_url(own_url, name, session_ttl=3600))
            seen.take(0, "shop", idle=False)
            told(seen, done=1234, ttl=3600, **about)
            claimed(seen, "http://a.example/", "http://b.example/")
            seen.note_history({"http://a.example/": failed()})
            seen.note_history({"http://b.example/": failed(failures=3 if name[0] == "b" else 1)})
        TimeBloom(own, "plain").add("a")
        lines = screen("queue", TBLOOM_URL=own_url)
        expected = [
            "tbloom queue 'b 2:tbloom' works 1 1,234 1 1 1,218",
            "tbloom queue 'b 10:tbloom' works 1 1,234 1 1 7",
            "tbloom queue a-ended:tbloom ended 0 1,234 2 0 0",
        ]
        assert f"3 fleets on {own_url}" == lines[0]
        assert expected == [re.sub(" +", " ", each) for each in lines[3:]]
        found = json.loads(tbloom("queue", "--json", "--url", own_url).stdout)
        assert ["works", "works", "ended"] == [each["state"] for each in found]
        html = tbloom("watch", "--once", "-", "--url", own_url).stdout
        assert "b 2:tbloom works 1 1,234 1 1 1,218 tbloom watch 'b 2:tbloom'" in text_of(html)
        own.config_resetstat()
        with Page("--url", own_url, "--every", "0.001") as page:
            assert "b 10:tbloom" in page.html()
            assert "b 10:tbloom" in page.html()
        assert 1 == own.info("commandstats")["cmdstat_scan"]["calls"]
    own.flushall()
    assert "0 fleets on" in tbloom("queue", "--url", own_url).stdout


def test_the_line_that_shows_a_fleet_opens_it(own: redis.Redis, own_url: str) -> None:
    """bull-board#375: a name that the shell, or another filter's default name, would change. One that can't be read is named."""
    own.flushall()
    fleets = {"shop": 71, "shop:tbloom": 72, "b&c": 73}
    for name, done in {**fleets, "broken": 74}.items():
        with TimeBloom.from_url(own_url, name, prefix="a&b:") as seen:
            told(seen, queue="news", done=done)
            claimed(seen, "http://a.example/")
    own.set("a&b:{broken}:crawlers", "another program's")
    why = "WRONGTYPE Operation against a key holding the wrong kind of value"
    words = "--url", own_url, "--prefix", "a&b:"
    shown, html = tbloom("queue", *words), tbloom("watch", *words, "--once", "-").stdout
    assert (1, 1) == (shown.returncode, shown.stderr.count("\n"))
    for text in shown.stderr, text_of(html):
        assert f"broken: {why}" in text
    refused(tbloom("queue", "broken", *words), why)
    refused(tbloom("watch", "broken", *words), why)
    [more] = re.findall("; each with (.*)", shown.stdout)
    lines = [f"{line} {more}" for line in re.findall("tbloom queue .*?(?=  )", shown.stdout)]
    assert 3 == len(lines) == len(commands(html))
    for opening in map(shlex.split, (*lines, *commands(html))):
        once = ["--once", "-"] * (opening[1] == "watch")
        text = text_of(f"<body>{tbloom(*opening[1:], *once).stdout}")
        done = fleets[opening[2]]
        assert re.search(f"; {done} done in the whole filter|done in the filter {done} ", text)


def test_the_command_of_a_group_frees_its_pages(url: str, fleet: TimeBloom) -> None:
    """And no others, whatever the host is: the line is for a shell."""
    looks, words = Fleet(fleet, "shop"), f"tbloom retry {fleet.name} --url {url} --reason"
    fleet.note_history({"http://a.example/4": failed(failures=3)})
    before = {page.url: page.state for page in looks.kept()}
    lines = commands(once(url, fleet.name))
    assert 5 == len(lines)
    [address] = [line for line in lines if "[::1]" in line]
    assert f"{words} status/403 --host '[::1]:80' --failed" == address
    [hostile] = [line for line in lines if "document" in line]
    for line in (address, hostile):
        done = tbloom(*shlex.split(line)[1:], "--yes")
        assert (0, "") == (done.returncode, done.stderr)
        assert done.stdout.startswith("Retried 1 page ")
    freed = {page.url for page in looks.kept() if before[page.url] != page.state}
    assert {each for each in before if "[::1]" in each or "document" in each} == freed
    for number, state in (3, "failed"), (1, "given-up"):  # of one reason and host
        line = f"{words} status/503 --host a.example --{state}"
        assert line in lines
        assert f"Retried {number} page" in tbloom(*shlex.split(line)[1:], "--yes").stdout


def test_the_queues_of_a_filter_are_told_apart(url: str, name: str) -> None:
    name += "%"
    with TimeBloom.from_url(url, name) as seen:
        for queue in ("shop", "shop\n[('country', 'de')]", "project:news"):
            claimed(seen, queue)
            told(seen, queue=queue)
            seen.note_history({queue: failed(queue=queue)})
        html = once(url, name)
        assert "failed 3" in text_of(html)
        for words in ("shop --no-arguments", "shop -a country=de", "project:news --no-arguments"):
            line = f"tbloom retry {words} -s TBLOOM_KEY={name}% --url {url} --reason status/503 --host '?' --failed"
            assert line in commands(html)
            done = tbloom(*shlex.split(line)[1:], "--yes")
            assert (0, "") == (done.returncode, done.stderr)
            assert done.stdout.startswith("Retried 1 page "), words


def test_no_secret_is_shown(own: redis.Redis, own_url: str) -> None:
    """Of no request, and not the server's password."""
    own.execute_command("ACL", "SETUSER", "viewer", "reset", "on", f">{SECRET}", "~*", "+@all")
    url = own_url.replace("//", f"//viewer:{SECRET}@")
    with TimeBloom.from_url(url, "shop:tbloom", capacity=1000) as seen:
        page = f"http://user:{SECRET}@a.example/?b"
        claimed(seen, page, headers={"Cookie": [SECRET]}, cookies={"a": SECRET}, body=SECRET)
        seen.note_history({page: failed()})
        told(seen)
        html = once(url, "shop:tbloom")
        assert SECRET not in html
        assert "http://a.example/?b" in html
        line = "tbloom retry shop:tbloom --reason status/503 --host a.example --failed"
        assert [line] == commands(html)


def test_a_query_chooses_failed_pages(url: str, fleet: TimeBloom) -> None:
    """What is not known, or too long, chooses nothing."""
    with Page(fleet.name, "--url", url) as page:
        links = re.findall(r'<a href="([^"]*)"', page.html())
        assert {"?state=failed&amp;reason=status%2F503", "?host=%5B%3A%3A1%5D%3A80"} <= {*links}
        for query, number in (
            ({"host": "[::1]:80"}, 1),
            ({"reason": "status/503"}, 3),
            ({"reason": "status"}, 5),
            ({"state": "given up"}, 1),
            ({"state": "failed", "reason": "callback/KeyError"}, 0),
            ({"host": SCRIPT}, 0),
            ({"state": SCRIPT}, 6),
            ({"other": "a"}, 6),
            ({f"{n}": "a" for n in range(30)}, 6),
            ({"reason": "x" * 9000}, 0),
        ):
            html = page.html(**query)
            assert f"The newest {number} of {number} " in text_of(html), query
            assert SCRIPT not in html
            assert len(html) < 30_000


def test_a_filter_without_a_fleet_has_its_slices(url: str, name: str) -> None:
    """Totals, parameters, a row for each slice, warnings; time, version and server. It loads nothing. Its name can't add HTML."""
    name += HOSTILE
    with TimeBloom.from_url(url, name, capacity=1000, slices=3) as seen:
        seen.add_many(map(str, range(2345)))
        info = seen.info()
    html = once(url, name)
    assert HOSTILE not in html
    text = text_of(html)
    newest = info.slices[-1]
    assert all(f'<th scope="row">{slice.label}' in html for slice in info.slices)
    for part in (
        *(
            f"{name} {name!r}, ",
            "items remembered 2,345",
            f"{formats.rate(info.error_rate)}, at most ",
        ),
        *(f"bits of a slice {info.bits:,}", f"{newest.label} ({newest.parts} parts)"),
        *("2,345 235 %", formats.size(info.bytes), " UTC · tbloom "),
    ):
        assert part in text, part
    assert 'high="1" max="2.345" value="2.345"' in html
    assert not re.search("Crawlers|Failed|claimed|every", text)
    with TimeBloom.from_url(url, f"{name}-2", capacity=100, grow=False) as fixed:
        fixed.add_many(map(str, range(100)))
    assert "100 % full, and doesn't grow" in text_of(once(url, fixed.name))
    assert not re.search(r"<script|<img|href=|url\(|@import|http-equiv=.refresh", html)
    with TimeBloom.from_url(url, f"{name}-3", granularity=None) as endless:
        endless.add("a")
    text = text_of(once(url, endless.name))
    assert "never forgets items remembered 1 " in text
    assert "None" not in text


# How it is served


def test_only_known_hosts_are_answered(url: str, name: str) -> None:
    """A stranger's name may lead here (DNS rebinding; CVE-2022-30034 of flower is of this kind); an address may not."""
    TimeBloom.from_url(url, name).add("a")
    known = ["127.0.0.1", "localhost:9999", "LOCALHOST", "[::1]:80", "10.1.2.3:8140"]
    strangers = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example"]
    strangers += ["", "evil.example@localhost", "localhost:80:80", "[::1", "1", "::1"]
    with Page(name, "--url", url, "--host", "0.0.0.0") as page:  # noqa: S104 - the test is about it
        for host in (*known, *strangers):
            answer = page.ask(host=host)
            assert (200 if host in known else 403) == answer.status, host
            assert (name in answer.text) == (host in known)  # type: ignore[attr-defined]
    with Page(name, "--url", url, "--host", "localhost") as page:
        assert 200 == page.ask(host="localhost").status
        assert 403 == page.ask(host="fleet.example").status
    with Page(name, "--url", url, "--allow-host", "fleet.example") as page:
        assert [200, 403] == [page.ask(host=host).status for host in ("fleet.example", "b.example")]


def test_the_page_is_only_read(url: str, name: str) -> None:
    TimeBloom.from_url(url, name).add("a")
    with Page(name, "--url", url) as page:
        got, head = page.ask(), page.ask("HEAD")
        assert (200, 200, "") == (got.status, head.status, head.text)  # type: ignore[attr-defined]
        assert len(got.text) <= int(head.headers["Content-Length"])  # type: ignore[attr-defined]
        answers = [page.ask(method) for method in ("POST", "PUT", "DELETE", "OPTIONS", "BREW")]
        assert [405] * 5 == [answer.status for answer in answers]
        assert {"GET, HEAD"} == {answer.headers["Allow"] for answer in answers}
        assert 404 == page.ask(path="/favicon.ico").status
        refused = page.ask(host="evil.example"), page.ask(path="/favicon.ico")
        for answer in (got, head, *answers, *refused):
            policy = answer.headers["Content-Security-Policy"]
            assert (
                "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
                "frame-ancestors 'none'"
            ) == policy
            assert ("nosniff", "no-referrer", "no-store") == tuple(
                answer.headers[name]
                for name in ("X-Content-Type-Options", "Referrer-Policy", "Cache-Control")
            )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(number: int, url: str, name: str) -> None:
    """Also while a browser keeps a connection open."""
    TimeBloom.from_url(url, name).add("a")
    with Page(name, "--url", url) as page:
        asking = HTTPConnection("127.0.0.1", page.port)
        asking.connect()
        assert 200 == page.ask().status
        assert (0, []) == page.end(number)
        asking.close()
        with pytest.raises(ConnectionError):
            page.ask()


def test_viewers_share_a_look(own: redis.Redis, own_url: str) -> None:
    """Redis is asked at most once in --every seconds."""
    TimeBloom(own, "news").add("a")
    with Page("news", "--url", own_url, "--every", "3600") as page:
        assert "items remembered 1" in text_of(page.html())
        own.config_resetstat()
        assert "every 3600 s" in text_of(page.html())
        assert {"cmdstat_config|resetstat", "cmdstat_info"} >= own.info("commandstats").keys()


def test_a_redis_that_is_away_is_said() -> None:
    with LocalRedis(needed(OLDEST)) as server:
        TimeBloom.from_url(server.url, "news").add("a")
        with Page("news", "--url", server.url, "--every", "0.001") as page:
            assert 200 == page.ask().status
            server.stop()
            for _ in range(2):
                answer = page.ask()
                assert 503 == answer.status
                assert "Connection refused" in text_of(answer.text)  # type: ignore[attr-defined]
                assert 'http-equiv="refresh"' in answer.text  # type: ignore[attr-defined]
            server.start()
            assert 200 == page.ask().status
            assert (0, []) == page.end(signal.SIGINT)


def test_what_can_t_be_served_is_an_error_at_once(own: redis.Redis, own_url: str) -> None:
    TimeBloom(own, "news").add("a")
    own.set("{news}:crawlers", "another program's")
    refused(tbloom("watch", "news", "--url", own_url), "another program has written to a key")
    own.delete("{news}:crawlers")
    with Page("news", "--url", own_url) as page:
        words = "--url", own_url, "--port", str(page.port)
        refused(tbloom("watch", "news", *words), f"--port {page.port}: Address already in use")
    words = "--url", own_url, "--host", "no.such.host.invalid"
    refused(tbloom("watch", "news", *words), "--host no.such.host.invalid --port 8140: ")


def test_a_user_that_may_only_read_suffices(own: redis.Redis) -> None:
    """The ACL SETUSER line of docs/operating.md for the exporter, with what the page says that this one needs too."""
    own.flushall()
    page = "docs/operating.md"
    url = rights(own, "metrics", added("`tbloom watch`", page), page)
    with TimeBloom(own, "news", capacity=1000, shards=3) as seen:
        claimed(seen, *(f"http://a/{n}" for n in range(20)))
        seen.note_history({f"http://a/{n}": failed() for n in range(10)})
        told(seen)
        assert "The newest 10 of 10" in text_of(once(url, "news"))


# In a browser


@pytest.mark.check
def test_a_browser_runs_no_strangers_text(url: str, fleet: TimeBloom, tmp_path: Path) -> None:
    with Page(fleet.name, "--url", url, "--every", "3600") as page:
        html = in_browser(f"http://127.0.0.1:{page.port}/", tmp_path, scripts=False)
    assert f"<title>{fleet.name}: 2 crawlers, 5 failed</title>" in html
    assert escape(f"http://x{SCRIPT}.example/?q={SCRIPT}", quote=False) in html


# In a terminal

LONG = "http://a-host-with-a-long-name.example.com/" + "a/path/of/many/words/" * 9
REASONS = {
    "download/DownloadConnectionRefusedError": 4120,
    "callback/KeyError": 13,
    "status/503": 7,
}
ENDS = ["finished", "shutdown", "closespider_errorcount", "tbloom_error", "cancelled"]


@pytest.fixture
def large(url: str, name: str) -> Iterator[TimeBloom]:
    """Twelve crawlers that work, with other arguments each, two that wait, and five that have ended, two of them by errors."""
    with ExitStack() as stack:
        own: dict[str, Any] = {"capacity": 1000, "session_ttl": 3600}
        for n in range(19):
            seen = stack.enter_context(TimeBloom.from_url(url, f"{name}:tbloom", **own))
            seen._keep_session = lambda: None  # type: ignore[method-assign]
            queue = f"{name}\n[('country', 'c{n % 12}')]"
            waits = 12 <= n < 14
            seen.take(1 if waits else 0, queue, idle=waits)
            if n < 12:
                claimed(seen, page := f"{LONG}{n}")
                why = "download/DownloadConnectionRefusedError"
                seen.note_history({page: failed(why, at=time.time(), queue=queue)})
            about: dict[str, Any] = {"queue": queue, "host": "crawl-a.example.com", "pid": 9990 + n}
            about |= {"done": 123_456, "per_minute": 1218, "taken": 84_000, "given": 91_200}
            if n >= 14:
                about["ended"] = ENDS[n - 14]
            told(seen, **about, up=7300, ttl=3600, failed=REASONS)
        yield seen


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    ("width", "headings"),
    [(100, 8), *(pytest.param(*each, marks=pytest.mark.check) for each in ((80, 6), (140, 10)))],
)
def test_no_line_is_longer_than_the_terminal(
    url: str, name: str, width: int, headings: int
) -> None:
    """Each line is one of those in a pipe, less some columns, and no word is folded; what is cut off says so. A wide terminal loses nothing that fits."""
    for words in ["queue"], ["queue", "--all"], ["failed"]:
        wide = {*re.findall(r"\S+", tbloom(words[0], name, *words[1:], "--url", url).stdout)}
        lines = screen(*words, name, "--url", url, width=width)
        assert max(map(len, lines)) <= width
        # (Ages differ.)
        words_of = (word for line in lines for word in line.split() if not word.isdigit())
        assert [] == [word for word in words_of if word not in wide and word[-1] != "…"]
        crawlers = [line.split() for line in lines if line.startswith("crawl-a")]
        assert len(crawlers) == {"queue": 14, "queue --all": 19}.get(" ".join(words), 0)
    assert any(re.search("  URL *$", line) for line in lines)
    lines = screen("queue", name, "--url", url, width=width)
    [heading] = [line for line in lines if "crawler " in line]
    assert headings <= len(re.split("  +", heading))


@pytest.mark.usefixtures("large")
def test_what_works_comes_first_then_what_has_ended_last(url: str, name: str) -> None:
    """Each as it has told, and numbers are sorted as numbers. Of those that have ended, a line says how many, and how many by errors."""
    shown = tbloom("queue", name, "--url", url).stdout
    [row] = re.findall("^crawl-a.example.com:9990 .*", shown, re.MULTILINE)
    figures = "1 123,456 1,218 84,000 91,200 4,140 download/DownloadConnectionRefusedError 4,120, callback/KeyError 13,"
    assert figures in " ".join(row.split())
    found = json.loads(tbloom("queue", name, "--json", "--url", url).stdout)["queues"]
    [one] = [each for queue in found for each in queue["crawlers"] if each["ended"] == "shutdown"]
    about = {"host": "crawl-a.example.com", "state": "ended", "failed": REASONS, "done": 123_456}
    assert {**one, **about} == one
    assert shown.endswith("\n\n5 ended, 2 of them by errors (--all shows them)\n")
    assert "1,234 done" not in shown
    done = f"{12 * 1218:,} done a minute; {19 * 123_456:,} done in the whole filter"
    assert f"\n12 claimed or left, {done}\n" in shown
    pids = [int(pid) for pid in re.findall(r"^crawl-a\S+:(\d+)", shown, re.MULTILINE)]
    assert [*range(9990, 10_004)] == pids
    shown = tbloom("queue", name, "--all", "--url", url).stdout
    assert "ended (shutdown)" in shown
    pids = [int(pid) for pid in re.findall(r"^crawl-a\S+:(\d+)", shown, re.MULTILINE)]
    assert [*range(9990, 10_004), *range(10_008, 10_003, -1)] == pids
    sets = re.findall(r"^-a country=c(\d+) ", shown, re.MULTILINE)
    assert [*map(str, range(12))] == sorted(sets, key=int)
