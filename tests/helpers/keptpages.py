"""A plain model of the pages that a queue keeps, and steps that change them as crawlers and operators do."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tbloom import Claim, History, Note, TimeBloom
from tbloom.claims.fleet import (
    KEPT,
    WAITS,
    KeptPages,
    Pages,
    View,
    failed_queue_of,
    given_up_queue_of,
    leave_failed,
    queues_by_state,
)
from tbloom.claims.record import Record
from tbloom.claims.session import Session
from tbloom.engine.flow import text

AT = 1_760_000_000

QUEUES = queues_by_state("shop")
MAIN, FAILED, GIVEN_UP = QUEUES.values()
STATES = {queue: state for state, queue in QUEUES.items()}


def view_of(fleet: Any) -> View:
    """What commands show of the queue of a fleet."""
    view: View = fleet.look()
    return view


def waiting(seen: TimeBloom, queue: str) -> int:
    """How many sessions wait for items of the queue."""
    return sum(each.state == WAITS for each in seen.fleet(queue).look().crawlers)


def url_in(note: str) -> str:
    return str(json.loads(note.partition("\n")[2])["url"])


def note_of(url: str, queue: str = MAIN, **fields: Any) -> Note:
    return Note(f"{url.encode().hex()}\n{json.dumps({'url': url, **fields})}", queue)


def claimed(seen: TimeBloom, *urls: str, queue: str = MAIN, **fields: Any) -> None:
    answers = seen.claim_many(urls, notes=[note_of(url, queue, **fields) for url in urls])
    assert [Claim.NEW] * len(urls) == answers


def failed(
    reason: str = "status/503", failures: int = 1, at: float = AT, queue: str = MAIN
) -> History:
    its = given_up_queue_of(queue) if failures > 2 else failed_queue_of(queue)
    return History(its, failures=failures, reason=reason, failed_at=round(at))


def told(seen: TimeBloom, **more: Any) -> None:
    """Lets a client tell of itself."""

    def record(session: Session) -> Record:
        about = {"queue": "shop", "project": "p", "host": "crawl-01", "pid": 7, "ttl": 60}
        return Record(**{**about, "claimed": len(session.claimed), **more})  # type: ignore[arg-type]

    seen._claims.record = record
    seen._send_heartbeat()


def kill(seen: TimeBloom) -> None:
    """Lets the session be dead for the server."""
    seen._stop_heartbeat()
    for shard in range(seen.config.shards):
        key = seen.config.keys.sessions(shard)
        if entry := seen.client.hget(key, seen.session):
            seen.client.hset(key, seen.session, "1" + text(entry)[13:])


class Model:
    """What each page is: its queue, who holds it (None: nobody), and whether it is held because it has failed."""

    def __init__(self, seed: int, item_of: Callable[[str], Any]) -> None:
        self.known = dict[str, tuple[str, Any, bool]]()
        #: Pages that were moved while a crawler held them: it does not claim them again before it has taken them.
        self._moved = set[tuple[str, Any]]()
        #: How often pages have failed: left ones that have stay left to ``take``.
        self._failures = dict[str, int]()
        self._chance, self._item_of = random.Random(seed), item_of
        self._steps: list[Any] = [self._claim, self._fail, self._try_again, self._end_claims]
        self._steps += [self._take, self._leave_failed, self._move, self._commit]
        #: Pages that are done: nobody claims them again.
        self.done = set[str]()

    def step(self, crawler: Any, fleet: KeptPages) -> None:
        """Does one thing with some pages, as this crawler, or an operator."""
        self._chance.choice(self._steps)(crawler, fleet, self.some())

    def some(self) -> list[str]:
        return self._chance.sample([f"http://a/{n}" for n in range(12)], 4)

    def shown(self, *, is_held: bool = True) -> dict[str, str]:
        """The states of the kept pages; with those or without those that crawlers hold."""
        return {
            url: STATES[queue]
            for url, (queue, owner, has_failed) in self.known.items()
            if owner is None or (has_failed and is_held)
        }

    def numbers(self, *, is_held: bool = True) -> Pages:
        kept = self.shown(is_held=is_held)
        number = Counter(kept.values())
        left, failed, given_up = (number[state] for state in KEPT)
        claimed = (len(self.known) - len(kept)) * is_held
        return Pages(claimed=claimed, left=left, failed=failed, given_up=given_up)

    def _own(self, crawler: Any, some: list[str]) -> list[str]:
        return [url for url in some if url in self.known and self.known[url][1] is crawler]

    def _claim(self, crawler: Any, _fleet: Any, some: list[str]) -> None:
        some = [url for url in some if (url, crawler) not in self._moved]
        free = [url for url in some if self.known.get(url, ("", None))[1] is None]
        left = {url for url in self._left_in(MAIN) if self._failures.get(url)}
        free = [url for url in free if url not in self.done | left]
        crawler.claim_many(map(self._item_of, some), notes=map(note_of, some))
        self.known |= dict.fromkeys(free, (MAIN, crawler, False))
        self._failures |= dict.fromkeys(free, 0)

    def _fail(self, crawler: Any, _fleet: Any, some: list[str]) -> None:
        failures = self._chance.randrange(4)
        queue = GIVEN_UP if failures > 2 else FAILED
        self._note(crawler, some, History(queue, failures=failures, reason="status/503"))

    def _try_again(self, crawler: Any, _fleet: Any, some: list[str]) -> None:
        self._note(crawler, some, History(MAIN, failures=self._chance.randrange(3)))

    def _note(self, crawler: Any, some: list[str], history: History) -> None:
        own = self._own(crawler, some)
        crawler.note_history(dict.fromkeys(map(self._item_of, own), history))
        self.known |= dict.fromkeys(own, (history.queue, crawler, bool(history.reason)))
        self._failures |= dict.fromkeys(own, history.failures)

    def _end_claims(self, crawler: Any, _fleet: Any, some: list[str]) -> None:
        own, leaves = self._own(crawler, some), self._chance.random() < 0.7
        (crawler.leave_many if leaves else crawler.release_many)([*map(self._item_of, own)])
        for url in own:
            queue, *_ = self.known.pop(url)
            if leaves:
                self.known[url] = queue, None, False
            else:
                self._failures[url] = 0

    def _commit(self, crawler: Any, _fleet: Any, some: list[str]) -> None:
        """One page, by whoever holds it; or by another one, if it has failed or is left."""
        _, owner, has_failed = self.known.get(some[0], ("", self, False))
        if self._chance.random() < 0.3 and (owner in (crawler, None) or has_failed):
            crawler.commit_many([self._item_of(some[0])])
            self.done.add(some[0])
            del self.known[some[0]]

    def _take(self, crawler: Any, _fleet: Any, _some: Any) -> None:
        notes = crawler.take(100, "shop", idle=False).notes
        left = self._left_in(MAIN)
        assert {url: self._failures.get(url, 0) for url in left} == {
            url_in(note.text): note.failures for note in notes
        }
        self.known |= dict.fromkeys(left, (MAIN, crawler, False))
        self._moved -= {(url, crawler) for url in left}

    def _leave_failed(self, crawler: Any, _fleet: Any, _some: Any) -> None:
        if isinstance(crawler, TimeBloom):
            crawler.run(leave_failed(crawler.config, "shop"))
        else:
            crawler.leave_failed("shop")
        self.known |= dict.fromkeys(self._left_in(FAILED), (MAIN, None, False))

    def _left_in(self, queue: str) -> list[str]:
        return [
            url for url, (its, owner, _) in self.known.items() if its == queue and owner is None
        ]

    def _move(self, _crawler: Any, fleet: KeptPages, some: list[str]) -> None:
        pages = [page for page in fleet.kept(self._chance.sample(KEPT, 2)) if page.url in some]
        is_retry = self._chance.random() < 0.5
        assert (len(pages), 0) == (fleet.retry(pages) if is_retry else fleet.drop(pages))
        for page in pages:
            _, owner, _ = self.known.pop(page.url)
            self._failures[page.url] = 0
            self._moved.add((page.url, owner))
            if is_retry:
                self.known[page.url] = MAIN, None, False
