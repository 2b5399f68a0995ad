"""Programs without Scrapy that share work: what they tell, what has failed, and what ``TimeBloom.fleet`` shows of it."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from redis import Redis

from tbloom import AsyncTimeBloom, Claim, ConfigError, History, Note, TimeBloom
from tbloom.claims.fleet import ENDED, FAILED, LEFT, WORKS, Pages, numbers_of
from tests.helpers.commands import tbloom

Open = Callable[..., TimeBloom]


def notes(*names: str, queue: str = "") -> list[Note]:
    return [Note(json.dumps({"url": f"http://a/{name}"}), queue) for name in names]


def test_a_program_that_takes_work_tells_of_itself(open_client: Open) -> None:
    ours, looks = open_client(), open_client().fleet()
    open_client().push_many([*"abc"], notes(*"abc"))
    assert 3 == len(ours.take().notes)
    ours.claim_many([*"de"], notes=notes(*"de"))
    ours.commit_many(["a", "b"])
    ours.fail("c", "status/503", "Service Unavailable", where="crawler.py:40")
    ours._send_heartbeat()
    [crawler] = looks.look().crawlers
    record = crawler.record
    assert (WORKS, os.getpid(), 2, 2) == (crawler.state, record.pid, record.claimed, record.done)
    assert (3, {"status/503": 1}) == (record.taken, record.failed)
    assert record.host
    assert record.program
    [page] = looks.kept([FAILED])
    assert ("http://a/c", "status/503", 1) == (page.url, page.reason, page.tries)
    assert ("Service Unavailable", "crawler.py:40") == (page.message, page.where)
    ours.close()
    [ended], pages = looks.look()[1:]
    assert (ENDED, "finished", 2) == (ended.state, ended.record.ended, ended.record.done)
    assert Pages(left=2, failed=1) == pages


def test_a_program_that_takes_no_work_tells_nothing(open_client: Open) -> None:
    """Each request of a web application may be a process: nobody watches these."""
    ours, looks = open_client(), open_client().fleet()
    ours.claim("a")
    ours.close()
    assert [] == looks.look().crawlers


def test_what_has_failed_is_listed_and_freed_without_queues(open_client: Open, url: str) -> None:
    """Nobody has told of a queue. The page would be claimed, or kept, until the filter is forgotten."""
    ours, looks = open_client(), open_client()

    def said(command: str, *words: str) -> str:
        return tbloom(command, ours.name, *words, "--url", url).stdout

    ours.claim("a", note=notes("a")[0])
    ours.fail("a", "status/503")
    ours.close()
    numbers = numbers_of(looks)
    assert numbers
    assert Pages(failed=1) == numbers.pages
    assert "http://a/a" in said("failed")
    assert '"failed": 1' in said("queue", "--json")
    assert "Retried 1 page" in said("retry", "--all", "--yes")
    assert '"left": 1' in said("queue", "--json")
    assert "Dropped 1 page" in said("drop", "--left", "--all", "--yes")
    assert Claim.NEW is looks.claim("a")


def test_what_has_failed_is_taken_by_the_next_crawl(
    open_client: Open,
) -> None:
    first, looks = open_client(), open_client().fleet("news")
    first.take(0, "news")
    first.claim_many([*"ab"], notes=notes(*"ab", queue="news"))
    first.fail("a", "download/ConnectTimeout")
    second = open_client()
    second.take(0, "news")
    assert [] == second.take(10, "news", failed=True).notes  # the first one holds it
    assert Claim.BUSY is second.claim("a", note="{}")
    first.end_session()
    assert not second.take(10, "news").notes[1:]  # only what was not done
    [note] = second.take(10, "news", failed=True).notes
    assert ("http://a/a", 1) == (json.loads(note.text)["url"], note.failures)
    second.fail("a", "download/ConnectTimeout", failures=note.failures + 1)
    second.end_session()
    assert [2] == [page.tries for page in looks.kept([FAILED])]
    assert 1 == looks.retry(looks.kept([FAILED])).moved
    third = open_client()
    third.take(0, "news")
    urls = {json.loads(note.text)["url"] for note in third.take(10, "news").notes}
    assert urls == {"http://a/a", "http://a/b"}
    third.commit_many([*"ab"])
    assert Pages() == looks.look().pages


@pytest.mark.parametrize("joins", [True, False])
def test_loops_over_what_has_failed_end(open_client: Open, joins: bool) -> None:
    """Of workers whose pages fail again, and that hold them: none waits for itself, or for another one that holds some."""
    first = open_client()
    first.claim_many([*"abcdef"], notes=notes(*"abcdef"))
    for item in "abcdef":
        first.fail(item, "status/503")
    first.end_session()
    workers = [open_client() for _ in range(2)]
    for worker in workers:
        if joins:
            worker.take(0)
    found, running = list[int](), deque(workers)
    for _ in range(30):
        if running:
            taken = running[0].take(2, failed=True)
            for note in taken.notes:
                running[0].fail(item_of(note), "status/503", failures=note.failures + 1)
                found.append(note.failures)
            if taken.is_over:
                running.popleft()
            running.rotate()
    assert (deque(), [1] * 6) == (running, found)
    assert workers[0].take().waiting == 1
    assert workers[1].take().is_over
    for worker in workers:
        worker.end_session()
    assert 6 == len(first.take(failed=True).notes)


def item_of(note: Note) -> str:
    return str(json.loads(note.text)["url"]).rpartition("/")[2]


def test_a_failed_page_of_which_programs_have_died_is_taken(
    open_client: Open,
) -> None:
    """Alone, by one that has nothing else to do; or it would stay, and loops would wait for it."""
    first = open_client()
    first.claim_many([*"ab"], notes=notes(*"ab"))
    first.note_history({item: History("\nfailed", 2, 1) for item in "ab"})
    first.end_session()
    ours = open_client()
    assert [] == ours.take(idle=False, failed=True).notes
    assert [[2], [2], []] == [
        [note.deaths for note in ours.take(failed=True).notes] for _ in range(3)
    ]
    assert ours.take(failed=True).is_over


#: A lone surrogate, as JSON's escapes may have it, and what else ends a line.
ODD = "x\ud83d\n\x00"
REFUSED: dict[str, Callable[[Any], Any]] = {
    "item": lambda seen: seen.claim(ODD, note="{}"),
    "note": lambda seen: seen.claim("b", note=ODD),
    "queue of a note": lambda seen: seen.claim_many(["b"], notes=[Note("{}", ODD)]),
    "queue of a pushed note": lambda seen: seen.push("b", Note("{}", ODD)),
    "queue of take": lambda seen: seen.take(0, ODD),
    "no text": lambda seen: seen.take(0, 1),
    "queue of a history": lambda seen: seen.note_history({"a": History(ODD)}),
    "message of a history": lambda seen: seen.note_history({"a": History(message=None)}),  # type: ignore[arg-type]
    "queue of a failure": lambda seen: seen.fail("a", "x", queue=ODD),
    "error in place of its message": lambda seen: seen.fail("a", "x", ValueError()),
    "reason that is nothing else": lambda seen: seen.fail("a", ODD[1:]),
}


@pytest.mark.parametrize("is_async", [False, True])
async def test_odd_texts_end_no_session(
    open_client: Open, url: str, name: str, is_async: bool
) -> None:
    """They are refused where they are given, or cleaned. A heartbeat that could not send them would fail for ever."""
    looks = open_client()
    seen: Any = open_client()
    if is_async:
        seen = AsyncTimeBloom.from_url(url, name, capacity=1000, shards=looks.config.shards)
    answered = partial(in_time, is_async)
    await answered(seen.take(0))
    await answered(seen.claim("a", note=notes("a")[0]))
    for what, call in REFUSED.items():
        with pytest.raises(ConfigError):
            raise AssertionError(what, await answered(call(seen)))
    await answered(seen.fail("a", f"{ODD}/{ODD}", ODD, where=ODD))
    await answered(seen._send_heartbeat())
    [crawler] = looks.fleet().look().crawlers
    assert {"x   /x   ": 1} == crawler.record.failed
    [page] = looks.fleet().kept([FAILED])
    assert ("x   /x   ", "x   ", "x   ") == (page.reason, page.message, page.where)
    assert Claim.BUSY is looks.claim("a")
    if is_async:
        await seen.aclose()


async def in_time(is_async: bool, answer: Any) -> Any:
    return await answer if is_async else answer


@pytest.mark.parametrize("argv", [[], ["bytes that are no UTF-8\udcff.py"]])
def test_a_program_without_a_proper_name_lives(
    open_client: Open, monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    """An embedded Python has none; and a file system, or a host's name, takes any bytes (sidekiq#4666)."""
    monkeypatch.setattr("sys.argv", argv)
    monkeypatch.setattr("socket.gethostname", lambda: "host\udcff")
    ours = open_client()
    ours.take(0)
    ours._send_heartbeat()
    [crawler] = ours.fleet().look().crawlers
    assert "".join(argv).replace("\udcff", "?") == crawler.record.program
    assert "host?" == crawler.record.host


def test_a_plain_note_is_shown_as_it_is(open_client: Open) -> None:
    ours, looks = open_client(), open_client().fleet()
    ours.claim("a", note="http://a/")
    ours.fail("a", "status/500")  # without a place for the reason
    ours.leave_many(["a"])
    assert [("http://a/", "unknown")] == [(page.url, page.reason) for page in looks.kept([FAILED])]
    assert [] == [*looks.kept([LEFT])]


def test_a_program_keeps_its_name_when_its_server_was_emptied(
    client: Redis, open_client: Open
) -> None:
    ours, looks = open_client(), open_client().fleet("news")
    ours.take(0, "news")
    ours.claim_many([*"ab"], notes=notes(*"ab", queue="news"))
    ours._send_heartbeat()
    [before] = looks.look().crawlers
    client.delete(*client.keys(f"*{ours.name}*"))
    ours._send_heartbeat()
    ours._send_heartbeat()
    after = looks.look().crawlers[0]  # before the session that was lost
    assert (WORKS, before.place) == (after.state, after.place)
    assert "news" == after.record.queue


async def test_a_program_with_asyncio_tells_the_same(own_url: str) -> None:
    async with AsyncTimeBloom.from_url(own_url, "pages", session_ttl=60) as ours:
        await ours.take(0)
        await ours.claim_many([*"abc"], notes=notes(*"abc"))
        await ours.commit("a")
        await ours.fail("b", "status/503")
        await ours._send_heartbeat()
        with TimeBloom.open(own_url, "pages") as looks:
            [crawler] = looks.fleet().look().crawlers
            record = crawler.record
            assert (WORKS, 1, 1) == (crawler.state, record.claimed, record.done)
            assert {"status/503": 1} == record.failed


def test_what_has_failed_stays_in_its_queue(open_client: Open) -> None:
    """Though the program takes items of two queues."""
    ours, other = open_client(), open_client()
    other.push("p", *notes("p", queue="pdf"))
    ours.take(10, "pdf")
    ours.take(10, "html")
    ours.fail("p", "status/503", queue="pdf")
    ours.close()
    assert [1, 0] == [other.fleet(queue).look().pages.failed for queue in ("pdf", "html")]
    assert 1 == len(other.take(5, "pdf", failed=True).notes)


def test_a_failure_of_what_others_have_is_not_counted(open_client: Open) -> None:
    ours, other = open_client(), open_client()
    ours.take(0)
    ours.claim_many([*"ab"], notes=notes(*"ab"))
    ours.fail("a", "status/503")
    assert 1 == other.fleet().drop(other.fleet().kept([FAILED])).moved
    ours.fail("a", "status/503")
    ours.fail("c", "status/503")  # never claimed
    ours._send_heartbeat()
    assert {"status/503": 1} == other.fleet().look().crawlers[0].record.failed
