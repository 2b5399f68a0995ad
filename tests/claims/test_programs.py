"""Programs without Scrapy that share work: what they tell, what has failed, and what ``TimeBloom.fleet`` shows of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from redis import Redis

from tbloom import AsyncTimeBloom, Claim, Note, TimeBloom
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
