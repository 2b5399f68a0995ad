"""The crawlers and the kept pages of a fleet: what can be seen of them, and how pages are freed.

This module owns the states of both. A page is

- *claimed*: a living crawler fetches it, or has it queued;
- *left*: for the next crawler that has nothing to fetch, because a crawler gave it away, has ended or died, or a program pushed it;
- *failed*: for the next crawl that starts. Until the crawl in which it has failed ends, its crawler holds it;
- *given up*: it has failed too often. Only a link leads to it, or a verb here.

A crawler *works*, *waits* for pages, is *silent* (half of its session's TTL without a heartbeat), *dead* (all of it), *lost* (it was
silent for so long that others took its pages; it goes on as another session), or has *ended*.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tbloom.bloom.hasher import shard_of
from tbloom.claims import calls
from tbloom.claims.flows import bury
from tbloom.claims.notes import short
from tbloom.claims.packed import FAILURE, pack, unpack
from tbloom.claims.record import LOST, Record, told
from tbloom.claims.stored import (
    HEAD,
    SUSPECT,
    ClaimHead,
    SessionEntry,
    member_of,
    session_entries,
)
from tbloom.engine.flow import Call, Flow, chunks, pairs, request, request_all, text, together
from tbloom.engine.keys import by_shard
from tbloom.engine.server import server_time

#: The states of kept pages: all but those that are claimed.
LEFT, FAILED, GIVEN_UP = KEPT = "left", "failed", "given up"
#: The state of a page that is kept for another queue: of another spider, or of one with other arguments.
ELSEWHERE = "elsewhere"
#: The states of crawlers, in the order in which they are shown; and those in which a crawler has pages.
WORKS, WAITS, SILENT, DEAD, LOST_ITS_PAGES, ENDED = CRAWLERS = (
    *("works", "waits", "silent", "dead", "lost", "ended"),
)
LIVING = WORKS, WAITS, SILENT
#: So many given-up pages of a queue are kept, the newest; a further tenth may stand until they are counted again.
MOST_GIVEN_UP = 10_000
#: A record is deleted so long after its session has ended, or after it was told, if nobody knows how the session ended (ms).
_ENDED_FOR, _DEAD_FOR = 3_600_000, 86_400_000
#: How many pages one call reads, and how many one call moves: some 2 ms of the server's time.
_READ, _MOVED = 500, 100
_FEW = "LIMIT", "0", str(_READ)


def failed_queue_of(queue: str) -> str:
    """Return the queue of the pages of a queue that have failed."""
    return f"{queue}\nfailed"


def given_up_queue_of(queue: str) -> str:
    """Return the queue of the pages of a queue that are given up: no crawl takes them."""
    return f"{queue}\ngiven up"


def queue_in(name: str) -> str:
    """Return the queue of whose kept pages this is the name, in any state."""
    for suffix in (failed_queue_of(""), given_up_queue_of("")):
        name = name.removesuffix(suffix)
    return name


def queues_by_state(queue: str) -> dict[str, str]:
    """Return the queues of a queue's kept pages, by the states of these."""
    names = queue, failed_queue_of(queue), given_up_queue_of(queue)
    return dict(zip(KEPT, names, strict=True))


class Crawler(NamedTuple):
    """A crawler, or a session of which no record is known."""

    session: str
    state: str
    record: Record
    #: How long ago it has sent a heartbeat, or has ended (s); None: unknown.
    beat: float | None = None
    #: The number of pages that it had when it died, and which nobody has found yet.
    orphaned: int = 0
    #: Whether it is dead, and a living crawler has found it since: its pages are left, or taken.
    is_buried: bool = False

    @property
    def place(self) -> str:
        """Where it runs: "host:pid", or else its session."""
        return f"{self.record.host}:{self.record.pid}" if self.record.host else self.session

    @property
    def claimed(self) -> int:
        """The number of pages that it has, or had when it died."""
        return self.record.claimed if self.state in LIVING else self.orphaned

    @property
    def oldest_for(self) -> float | None:
        """How long the page has been in work of which it has told, by now (s); None: it has told of none, or has none any more."""
        told = self.record
        is_known = told.oldest_page and self.state in LIVING
        return told.oldest_seconds + (self.beat or 0.0) if is_known else None


class Pages(NamedTuple):
    """The numbers of pages by state."""

    claimed: int = 0
    left: int = 0
    #: Those that dead crawlers had, and that are left as soon as a living one asks for pages.
    orphaned: int = 0
    failed: int = 0
    #: How many of those that have failed are held by crawlers at work.
    held: int = 0
    given_up: int = 0
    #: How many of those that are left two crawlers or more have died of: each is taken alone.
    suspects: int = 0


class View(NamedTuple):
    """What is known of one queue."""

    queue: str
    crawlers: list[Crawler]
    pages: Pages


class Numbers(NamedTuple):
    """The numbers of a whole filter, of all its queues."""

    #: Those at work first.
    crawlers: list[Crawler]
    #: Claimed is whatever is neither kept nor of a dead crawler: also what sessions without a record have.
    pages: Pages
    #: How many pages were done, and how many have failed, by kind of reason, since the filter began.
    done: int
    failed: Mapping[str, int]

    @property
    def states(self) -> Counter[str]:
        """The number of crawlers by state, without those that have ended, and the dead ones whose pages are left."""
        return Counter(
            each.state for each in self.crawlers if each.state != ENDED and not each.is_buried
        )


class KeptPage(NamedTuple):
    """A page that is left, has failed, or is given up."""

    state: str
    #: Its claim before the note, as the server has it: it says whether the claim has changed since.
    head: bytes
    note: str
    digest: bytes
    shard: int
    #: When, by the server's clock, and why the work has failed (s since the epoch), if it has.
    failed_at: float | None = None
    reason: str = ""
    #: What the error said, and where it was raised; "": unknown.
    message: str = ""
    where: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of its request, as the note has them; none, if the note is no JSON object, perhaps behind a line."""
        note = self.note if self.note.startswith("{") else self.note.partition("\n")[2]
        try:
            found = json.loads(FAILURE.sub("}", note))
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def note_with(self, fields: Mapping[str, Any]) -> str:
        """Return its note with these fields in place of its own, and without its failure."""
        head = self.note.partition("\n")[0]
        return f"{head}\n{json.dumps(fields, ensure_ascii=False)}"

    @property
    def url(self) -> str:
        """Its URL; or its note, if that is a line; else "?"."""
        note = FAILURE.sub("}", self.note)
        return str(self.fields.get("url", "?" if "\n" in note or note.startswith("{") else note))

    @property
    def host(self) -> str:
        """The host of its URL, with the port; "?" if there is none."""
        try:
            return urlsplit(self.url).netloc.rpartition("@")[2] or "?"
        except ValueError:
            return "?"

    @property
    def callback(self) -> str:
        """The name of the method of a spider that gets its response; "": it is no spider's."""
        is_spiders = not self.note.startswith("{")
        return str(self.fields.get("callback") or "parse" * is_spiders)

    @property
    def tries(self) -> int:
        """How often in a row it has failed."""
        return ClaimHead.read(self.head).failures

    @property
    def deaths(self) -> int:
        """The number of crawlers that have died of it."""
        return ClaimHead.read(self.head).deaths


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Which kept pages are meant. A pattern is a text in which * and ? stand for any characters; empty: any."""

    #: The reason, or the kind of reason: "status" is that of "status/503".
    reason: str = ""
    host: str = ""
    url: str = ""
    #: When it has failed, at the latest and at the earliest (s since the epoch); 0: any.
    before: float = 0
    since: float = 0

    def __bool__(self) -> bool:
        return bool(self.reason or self.host or self.url or self.before or self.since)

    def has(self, page: KeptPage) -> bool:
        """Return whether the page is meant."""
        if (self.before or self.since) and page.failed_at is None:
            return False
        at = page.failed_at or 0
        return (
            (not self.before or at <= self.before)
            and at >= self.since
            and (not self.reason or self._has_reason(page.reason))
            and (not self.host or _matches(page.host, self.host))
            and (not self.url or _matches(page.url, self.url))
        )

    def _has_reason(self, reason: str) -> bool:
        is_kind = reason.startswith((f"{self.reason}/", f"{self.reason} "))
        return is_kind or _matches(reason, self.reason)


def _matches(given: str, pattern: str) -> bool:
    # A host may be an address in brackets, which would be a set of characters.
    return fnmatchcase(given, pattern.replace("[", "[[]"))


class Group(NamedTuple):
    """Kept pages of one state, reason and host."""

    state: str
    reason: str
    host: str
    number: int
    #: When the last and the first of them have failed (s since the epoch); None: they have not.
    newest: float | None
    oldest: float | None
    callbacks: tuple[str, ...]


class Moved(NamedTuple):
    """What became of pages."""

    moved: int = 0
    #: The number of pages that were no longer kept as they were read: a link or a crawl came first.
    gone: int = 0


#: Returns the new note of a page; "": it keeps its own.
NewNote = Callable[[KeptPage], str]


def kept_note(_page: KeptPage) -> str:
    """Return "": a page keeps its note."""
    return ""


class KeptPages(ABC):
    """The kept pages of one queue: on a server (``Fleet``), or without one (``local/claims``)."""

    def __init__(self, queue: str) -> None:
        self.queue: str = queue

    @abstractmethod
    def now(self) -> float:
        """Return the time by which its pages have failed (s since the epoch)."""

    def kept(self, states: Sequence[str] = KEPT, most: int | None = None) -> Iterator[KeptPage]:
        """Yield its kept pages, at most so many of each state.

        Pages that change meanwhile may be missing, or come twice.
        """
        for state in states:
            yield from islice(self._in_state(state), most)

    @abstractmethod
    def _in_state(self, state: str) -> Iterator[KeptPage]:
        """Yield the kept pages of one state."""

    def retry(self, pages: Iterable[KeptPage], new_note: NewNote = kept_note) -> Moved:
        """Leave pages to crawlers that wait, or to the next one, as if they had never failed; with other notes, if ``new_note`` says so."""
        return self._move(pages, self.queue, new_note)

    def drop(self, pages: Iterable[KeptPage]) -> Moved:
        """Forget pages: each is new to the next link."""
        return self._move(pages, None, kept_note)

    def _move(self, pages: Iterable[KeptPage], queue: str | None, new_note: NewNote) -> Moved:
        by_shard, moved, known = defaultdict[int, list[KeptPage]](list), 0, set[bytes]()
        for page in pages:
            if page.digest in known:  # it has failed again since
                continue
            known.add(page.digest)
            batch = by_shard[page.shard]
            batch.append(page)
            if len(batch) == _MOVED:
                moved += self._move_some(by_shard.pop(page.shard), queue, new_note)
        moved += sum(self._move_some(batch, queue, new_note) for batch in by_shard.values())
        return Moved(moved, len(known) - moved)

    @abstractmethod
    def _move_some(self, pages: list[KeptPage], queue: str | None, new_note: NewNote) -> int:
        """Leave pages of one shard in a queue, or forget them if it is None. Return how many were still as they were read."""


class Fleet(KeptPages):
    """The crawlers and the kept pages of one queue of a filter. ``store`` is a ``TimeBloom``, which stays yours to close."""

    def __init__(self, store: Any, queue: str) -> None:
        super().__init__(queue)
        self._store = store
        self._hashes = _hashes_of(queue)
        #: Members of the index that no claim has, as they were met, by their shards. Who only looks may not write.
        self._strays = defaultdict[int, set[bytes]](set)

    def look(self) -> View:
        """Return its crawlers, and the numbers of its pages."""
        [view], _ = views_of(self._store, [self.queue])
        return view

    def now(self) -> float:
        """Return the time by which its pages have failed (s since the epoch): the server's."""
        now: int = self._store.run(server_time(self._store.config))
        return now / 1000

    def _in_state(self, state: str) -> Iterator[KeptPage]:
        """Yield the kept pages of one state, those of a host together."""
        queue = self._hashes[state]
        for shard in range(self._store.config.shards):
            claims, _, index = calls.keys_in(self._store.config, shard)
            start: Any = f"[{queue}"
            while members := self._ask("ZRANGEBYLEX", index, start, f"({queue}:", *_FEW):
                start = b"(" + members[-1]
                digests = [member[-16:] for member in members]
                found = self._ask("HMGET", claims, *digests)
                for member, digest, claim in zip(members, digests, found, strict=True):
                    if member_of(claim, digest) == member:
                        yield kept_page(state, shard, digest, claim)
                    else:
                        self._strays[shard].add(member)

    def _ask(self, *command: Any) -> Any:
        [reply] = self._store.run(request([Call(command)]))
        return reply

    def _move(self, pages: Iterable[KeptPage], queue: str | None, new_note: NewNote) -> Moved:
        moved = super()._move(pages, queue, new_note)
        while self._strays:
            shard, strays = self._strays.popitem()
            keys = calls.keys_in(self._store.config, shard)
            for some in chunks([(stray[-16:], stray, b"") for stray in strays], _MOVED):
                self._store.run(request([calls.requeue(keys, None, some)]))
        return moved

    def _move_some(self, pages: list[KeptPage], queue: str | None, new_note: NewNote) -> int:
        moves = [(page.digest, page.head, pack(new_note(page))) for page in pages]
        call = calls.requeue(calls.keys_in(self._store.config, pages[0].shard), queue, moves)
        [[_, answers]] = self._store.run(request([call]))
        return text(answers).count("1")

    def kept_of(self, digests: Iterable[bytes]) -> dict[bytes, KeptPage | None]:
        """Return the items that are kept or claimed, by their digests; None: a crawler has claimed the item."""
        config, found = self._store.config, dict[bytes, KeptPage | None]()
        states = {value: state for state, value in self._hashes.items()}
        for shard, own in by_shard(digests, config.shards, shard_of).items():
            claims, _, index = calls.keys_in(config, shard)
            for some in chunks(own, _READ):
                known = zip(some, self._ask("HMGET", claims, *some), strict=True)
                held = {digest: claim for digest, claim in known if claim}
                members = [member_of(claim, digest) or b"" for digest, claim in held.items()]
                ends = [b"[" + member for member in members]
                counts = [Call(("ZLEXCOUNT", index, end, end)) for end in ends]
                kept = self._store.run(request_all(counts))
                for (digest, claim), is_kept in zip(held.items(), kept, strict=True):
                    state = states.get(ClaimHead.read(claim).queue, ELSEWHERE)
                    found[digest] = kept_page(state, shard, digest, claim) if is_kept else None
        return found

    def bury(self) -> None:
        """Leave the pages of dead crawlers, as the next crawler that asks for pages does."""
        config = self._store.config
        self._store.run(bury(config, range(config.shards)))

    def trim(self) -> int:
        """Drop the oldest given-up pages, if there are a tenth more than ``MOST_GIVEN_UP``; return how many."""
        keys, queue = self._store.config.keys, self._hashes[GIVEN_UP]
        counts = [
            Call(("ZLEXCOUNT", keys.left(shard), f"[{queue}", f"({queue}:"))
            for shard in range(self._store.config.shards)
        ]
        if sum(self._store.run(request_all(counts))) < MOST_GIVEN_UP + MOST_GIVEN_UP // 10:
            return 0
        pages = sorted(self._in_state(GIVEN_UP), key=lambda page: page.failed_at or 0)
        return self.drop(pages[:-MOST_GIVEN_UP]).moved


def views_of(store: Any, queues: Sequence[str]) -> tuple[list[View], int]:
    """Return what is known of these queues of a filter, and how many pages of all its queues were done since it began."""
    (records, crawlers), sizes, claims = store.run(_counted(store.config))
    named = defaultdict[str, list[Crawler]](list)
    for each in crawlers:
        named[each.record.queue].append(each)

    def view_of(queue: str) -> View:
        hashes = _hashes_of(queue)
        own = sorted(named[queue] + named[hashes[LEFT]], key=order)
        left, failed, given_up = (sizes[hashes[state]] for state in KEPT)
        pages = Pages(
            claimed=_claimed_by(own),
            left=left.total(),
            orphaned=_orphaned_by(own, sizes, claims),
            failed=failed.total(),
            held=failed["9"],
            given_up=given_up.total(),
            suspects=sum(number for rank, number in left.items() if rank >= f"{SUSPECT}"),
        )
        return View(queue, own, pages)

    return [*map(view_of, queues)], _totals(records).get("done", 0)


def queues_of(store: Any) -> list[str]:
    """Return the queues of which the filter's crawlers have told."""
    [records] = store.run(request([told(store.config)]))
    return sorted(_named("queue:", records).values())


def project_of(store: Any) -> str:
    """Return the project whose crawlers were the first ones of the filter; "": none has told."""
    [project] = store.run(request([Call(("HGET", store.config.keys.crawlers(), "project"))]))
    return text(project or "")


def oldest_page(crawlers: Iterable[Crawler]) -> Crawler | None:
    """Return the one of these crawlers that has a page in work for the longest time; None: none has."""
    busy = [each for each in crawlers if each.oldest_for is not None]
    return max(busy, key=lambda each: each.oldest_for or 0.0, default=None)


def oldest_of(store: Any, queue: str) -> Crawler | None:
    """Return the crawler of a queue that has a page in work for the longest time; None: none has."""
    _, crawlers = store.run(_told(store.config))
    return oldest_page(each for each in crawlers if each.record.queue == queue)


def numbers_of(store: Any) -> Numbers | None:
    """Return the numbers of a filter; None: nothing of it is claimed or left, and it has no crawlers."""
    (records, crawlers), sizes, claims = store.run(_counted(store.config))
    if not (records or claims or crawlers):
        return None
    state_of = {
        hash: state
        # Programs whose queue has no name may tell of none.
        for queue in ("", *_named("queue:", records).values())
        for state, hash in _hashes_of(queue).items()
    }
    kept, totals = Counter[str](), _totals(records)
    for hash, by_rank in sizes.items():
        kept[state_of.get(hash, LEFT)] += by_rank.total()
    orphaned = _orphaned_by(crawlers, sizes, claims)
    claimed = max(0, claims - kept.total() - orphaned)
    if any(each.record.owns_hosts for each in crawlers):  # the owners stand among the claims
        claimed = _claimed_by(crawlers)
    return Numbers(
        crawlers,
        Pages(claimed, kept[LEFT], orphaned, kept[FAILED], given_up=kept[GIVEN_UP]),
        done=totals.pop("done", 0),
        failed={name.removeprefix("failed:"): number for name, number in totals.items()},
    )


def forget_old_records(config: Any, now: int) -> Flow[None]:
    """Delete what crawlers have told that ended long ago, and the names of queues that have neither crawlers nor pages.

    ``now``: the server's time (ms), as far as the client knows it.
    """
    [records] = yield from request([told(config)])
    old, queues, named = list[Any](), dict[str, Any](), set[str]()
    for name, value in pairs(records).items():
        if known := Record.read(value):
            at, record = known
            if at < now - (_ENDED_FOR if record.ended else _DEAD_FOR):
                old.append(name)
            else:
                named.add(record.queue)
        elif text(name).startswith("queue:"):
            queues[text(value)] = name
    if unused := queues.keys() - named:
        sizes = yield from _sizes(config)
        old += [
            queues[each] for each in unused if sizes.keys().isdisjoint(_hashes_of(each).values())
        ]
    if old:
        yield from request([Call(("HDEL", config.keys.crawlers(), *old))])


def leave_failed(config: Any, queue: str) -> Flow[None]:
    """Leave what has failed in crawls of the queue that have ended to the sessions of the queue. Failures are counted on."""
    for shard in range(config.shards):
        keys, more = calls.keys_in(config, shard), True
        while more:
            [[_, more]] = yield from request(
                [calls.leave_failed(keys, failed_queue_of(queue), queue)]
            )


def grouped(pages: Iterable[KeptPage]) -> list[Group]:
    """Return the pages by state, reason and host, the largest groups first."""
    groups = defaultdict[tuple[str, str, str], list[KeptPage]](list)
    for page in pages:
        groups[page.state, page.reason, page.host].append(page)
    found = list[Group]()
    for key, some in sorted(groups.items(), key=lambda each: (-len(each[1]), each[0])):
        times = [page.failed_at for page in some if page.failed_at is not None]
        newest, oldest = max(times, default=None), min(times, default=None)
        callbacks = sorted({page.callback for page in some})
        found.append(Group(*key, len(some), newest, oldest, (*callbacks,)))
    return found


def _named(prefix: str, records: Any) -> dict[str, str]:
    """Return what is stored beside the records under names with this prefix, by the rest of the name."""
    named = {text(name): text(value) for name, value in pairs(records).items()}
    return {
        name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)
    }


def _totals(records: Any) -> dict[str, int]:
    """Return the numbers that only grow. Ignore what is no number: it is not tbloom's."""
    named = _named("total:", records).items()
    return {name: int(value) for name, value in named if value.isdecimal()}


def _told(config: Any) -> Flow[tuple[Any, list[Crawler]]]:
    """Return all that crawlers have told, and the crawlers."""
    shards = range(config.shards)
    sessions_of = [Call(("HGETALL", config.keys.sessions(shard))) for shard in shards]
    now, (records, *of_shards) = yield from together(
        server_time(config), request_all([told(config), *sessions_of])
    )
    sessions = session_entries(of_shards)
    found = []
    for name, stored in pairs(records).items():
        if known := Record.read(stored):
            found.append(_crawler(text(name), *known, sessions.pop(text(name), None), now))
    # Before its first heartbeat, and once its record is forgotten, only the hash of a session's queue is known.
    for name, session in sessions.items():
        if session.queue:
            found.append(_crawler(name, 0, Record(queue=session.queue), session, now))
    return records, sorted(found, key=order)


def order(crawler: Crawler) -> Any:
    """Return what crawlers are sorted by: what works first, and what has ended last before what ended earlier."""
    ended_for = crawler.beat or 0 if crawler.state == ENDED else 0
    return CRAWLERS.index(crawler.state), ended_for, natural(crawler.place)


def natural(text: str) -> list[tuple[str, int]]:
    """Return what a text is sorted by if its numbers are to be sorted as numbers."""
    return [(word, int(digits or 0)) for word, digits in re.findall("([^0-9]*)([0-9]*)", text)]


def _sizes(config: Any) -> Flow[dict[str, Counter[str]]]:
    """Return the number of kept pages by the hash of their queue, and by the character that follows it in the index.

    The index is read, because there may be thousands of queues. Of those with many pages, the rest is counted.
    """
    sizes = defaultdict[str, Counter[str]](Counter)
    for shard in range(config.shards):
        index, start, members = config.keys.left(shard), b"-", [b""]
        while members:
            [members] = yield from request([Call(("ZRANGEBYLEX", index, start, "+", *_FEW))])
            for member in members:
                sizes[text(member[:8])][text(member[8:9])] += 1
            if members:
                start, run = b"(" + members[-1], members[-1][:9]
            if len(members) == _READ and members[0][:9] == run:
                end = b"[" + run[:8] + bytes([run[8] + 1])
                [rest] = yield from request([Call(("ZLEXCOUNT", index, start, end))])
                sizes[text(run[:8])][text(run[8:])] += rest
                start = end
    return sizes


def _counted(config: Any) -> Flow[Any]:
    """Return what ``_told`` and ``_sizes`` return, and the number of claims, with those of kept pages."""
    claims_of = [Call(("HLEN", config.keys.claims(shard))) for shard in range(config.shards)]
    *others, claims = yield from together(_told(config), _sizes(config), request_all(claims_of))
    return *others, sum(claims)


def _crawler(name: str, at: int, record: Record, session: SessionEntry | None, now: int) -> Crawler:
    """Return the crawler that told this at a time (ms; 0: it has told nothing)."""
    age = max(0.0, (now - at) / 1000) if at else None
    if record.ended:
        return Crawler(name, LOST_ITS_PAGES if record.ended == LOST else ENDED, record, age)
    if session is None:
        return Crawler(name, DEAD, record, age, is_buried=True)
    if session.until <= now:
        return Crawler(name, DEAD, record, age, record.claimed)
    state = WAITS if session.waits_until > now else WORKS
    if age is not None:
        # A heartbeat that could tell nothing has prolonged the session all the same.
        age = min(age, max(0.0, (now - session.until) / 1000 + record.ttl))
        state = SILENT if age > record.ttl / 2 else state
    return Crawler(name, state, record, age)


def per_minute(crawlers: Iterable[Crawler]) -> int:
    """Return how many pages a minute these crawlers finish now."""
    return sum(each.record.per_minute for each in crawlers if each.state == WORKS)


def _claimed_by(crawlers: Iterable[Crawler]) -> int:
    """Return how many pages living ones of these crawlers have."""
    return sum(each.claimed for each in crawlers if each.state in LIVING)


def _orphaned_by(
    crawlers: Iterable[Crawler], sizes: Mapping[str, Counter[str]], claims: int
) -> int:
    """Return how many pages dead ones of these crawlers have. Some may be left already, and are counted as such."""
    not_kept = claims - sum(each.total() for each in sizes.values())
    return max(0, min(not_kept, sum(each.orphaned for each in crawlers)))


def _hashes_of(queue: str) -> dict[str, str]:
    """Return the hashes of the queues of a queue's kept pages, by the states of these."""
    return {state: short(name, 8) for state, name in queues_by_state(queue).items()}


def kept_page(state: str, shard: int, digest: bytes, claim: bytes) -> KeptPage:
    """Return the page of a claim."""
    note = unpack(claim[HEAD:])
    page = KeptPage(state, claim[:HEAD], note, digest, shard)
    if failure := FAILURE.search(note):
        with suppress(ValueError):  # of another program
            match json.loads(failure[1]):
                case [int() | float() as at, str() as reason, *more]:
                    message, where = [*map(str, more), "", ""][:2]
                    about: Any = {"reason": reason, "message": message, "where": where}
                    return page._replace(failed_at=at, **about)
    # A note that is no JSON object has no room for a failure.
    unknown = "" if state == LEFT else "unknown"
    return page._replace(reason="deaths" if page.deaths else unknown)
