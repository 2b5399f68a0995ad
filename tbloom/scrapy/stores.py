"""A crawl's stores, and what it does while a store's server is away, or has no room for writes: it waits.

Whoever asks a store need not know which it is.

====================  ==========================  =====================
TBLOOM_STORE          TBLOOM_MARK = "scheduled"   TBLOOM_MARK = "done"
====================  ==========================  =====================
bloom                 ``CrawlBloom``              ``CrawlBloom``
exact                 ``CrawlExact``
local                 ``CrawlLocal``              ``CrawlLocalClaims``
====================  ==========================  =====================
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from itertools import repeat
from math import inf
from typing import Any, ClassVar, TypeVar

from redis import ConnectionError as RedisConnectionError
from redis import RedisError

from tbloom import Claim, ExactFilter, LocalBloom, Note, TimeBloom
from tbloom.arguments import Item, check_keep, check_ttl, check_within
from tbloom.bloom.config import Config, shard_expiry
from tbloom.bloom.fingerprinter import note
from tbloom.bloom.info import read_overview
from tbloom.claims.calls import Hosts
from tbloom.claims.fleet import MOST_GIVEN_UP, Fleet, forget_old_records, leave_failed
from tbloom.claims.notes import stored_note
from tbloom.claims.record import Record
from tbloom.claims.session import Session
from tbloom.engine.flow import Flow
from tbloom.engine.retries import has_no_room, is_outage
from tbloom.engine.server import Told
from tbloom.engine.sync import SyncDriver
from tbloom.engine.urls import address_of
from tbloom.errors import TBloomError
from tbloom.local.claims import DiskFull, LocalClaims
from tbloom.scrapy.settings import KEEP, TTL, WITHIN

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)

#: The time between two tries of a server that does not answer, and between two lines of the log that say so (s).
PAUSE, _SAID_EVERY = 0.25, 60.0
#: How long a store tries a call before the server counts as away (s).
_NOTICED_AFTER = 1.0
_PERIODS = {"h": "hourly", "d": "daily", "w": "weekly", "m": "monthly"}


def is_awaited(error: BaseException) -> bool:
    """Return True if the error goes away by itself, or once there is room for writes."""
    return _has_no_room(error) or (isinstance(error, RedisError) and is_outage(error))


def _has_no_room(error: BaseException) -> bool:
    return isinstance(error, DiskFull) or (isinstance(error, RedisError) and has_no_room(error))


class Outage:
    """Whether the server is away, or has no room for writes.

    Calls wait until that is over, unless the crawl is told to end, or has waited for too long. A call may be made by any thread; the
    event loop's does not sleep.
    """

    def __init__(
        self,
        place: str,
        limit: float | None,
        is_told_to_end: Callable[[], bool],
        is_back: Callable[[], object],
    ) -> None:
        """``place``: how the log names the server. ``limit``: how long the crawl waits (s). ``is_back`` is called after an outage."""
        self._place, self._limit = place, inf if limit is None else limit
        self._is_told_to_end, self._is_back = is_told_to_end, is_back
        #: When the server has last answered (monotonic): one that never has may be no server.
        self._answered_at = -inf
        #: Whether the last call got no answer; since when that is so (monotonic), and when the log says so again.
        self.is_on: bool = False
        self._began = self._said_next = 0.0
        #: The calls that wait for room. Others may be answered meanwhile, such as those that only read.
        self._refused = set[Callable[[], object]]()
        #: Whether the crawl waits no longer, so that no call is made any more.
        self.is_over: bool = False

    def retry_seconds(self, usual: float) -> float:
        """Return how long a store tries a call (s). ``wait_for`` makes a call again that needs longer."""
        if self.is_on:
            return 0.0
        return min(usual, _NOTICED_AFTER) if self._answered_at > -inf else usual

    def wait_for(self, call: Callable[[], T]) -> T:
        """Return the result of the call, once it has one. Raise its error if nothing is waited for, or the server refuses."""
        while (made := self.attempt(call)) is None:
            time.sleep(PAUSE)
        return made.result()

    def attempt(self, call: Callable[[], T]) -> Future[T] | None:
        """Make a call, and return its result or error; None: it is to be made again after ``PAUSE``."""
        made, began, was_refused = Future[T](), time.monotonic(), call in self._refused
        try:
            made.set_result(call())
        except Exception as error:  # noqa: BLE001 - the caller gets it
            if is_refused := _has_no_room(error):
                self._refused.add(call)
            waits = is_awaited(error) and self._goes_on(began, error)
            if not (is_refused and waits):
                self._refused.discard(call)
            if waits:
                return None
            made.set_exception(error)
        else:
            self._refused.discard(call)
            if was_refused:
                self.answered("there is room again")
        return made

    def answered(self, end: str = "the server answers again") -> None:
        """Note that the server has answered. ``end``: what the log says if it was away."""
        if self._refused:
            return
        self._answered_at = time.monotonic()
        was_on, self.is_on = self.is_on, False
        if was_on:
            logger.info("%s: %s", self._place, end)
            self._is_back()

    def _goes_on(self, began: float, error: Exception) -> bool:
        """Note the error of a try that began then; return whether its call waits.

        A try that began within the limit is never the last one: the process may have been frozen since.
        """
        now, is_away = time.monotonic(), not _has_no_room(error)
        if not self.is_on and (began > self._answered_at or not is_away):
            self._began, self._said_next, self.is_on = began, 0.0, True
        away_since = self._began if self.is_on else now
        is_told = self._is_told_to_end()
        self.is_over |= is_told or max(0.0, began - away_since) >= self._limit
        if is_away and self._answered_at == -inf:
            if is_told:  # Scrapy has ended its event loop, perhaps: nobody gets the error
                message = "%s: the crawl fetched no page, because the server did not answer before it was told to end: %s"
                logger.warning(message, self._place, error)
            return False
        if self.is_over:
            return False
        if self.is_on and now >= self._said_next:
            self._said_next = now + _SAID_EVERY
            away = f"{now - away_since:.0f} s"
            message = "%s: nothing can be written since %s, and the crawl waits for room: %s"
            if is_away:
                message = "%s: the server does not answer since %s, and the crawl waits for it: %s"
            logger.warning(message, self._place, away, error)
        return True


class CrawlStore:
    """What each store of a crawl answers, besides the verbs of its filter."""

    #: Whether it is on a server: threads make its calls, which may have to wait.
    needs_server: ClassVar[bool] = False
    #: The arguments of ``add`` and ``claim`` that a request's meta may have, with their keys.
    meta_keys: ClassVar[dict[str, str]] = {"within": WITHIN, "keep": KEEP}
    config: Any

    @property
    def kind(self) -> str:
        """The store's kind, as the log has it."""
        period = self.config.window.granularity
        period = _PERIODS.get(str(period), period)
        return f"{self.config.slices} {period} slices" if period else "no window"

    def check_arguments(self, arguments: dict[str, Any]) -> None:
        """Raise ConfigError that names an argument of ``meta_keys`` that can't be right."""
        within, slices = arguments.get("within"), self.config.slices
        check_keep(arguments.get("keep"), within, slices)
        check_within(within, slices)

    @property
    def claims(self) -> ClaimStore | None:
        """The store itself, if it has claims."""
        return None

    @property
    def shared(self) -> CrawlBloom | None:
        """The store itself, if other crawlers may have pages in it."""
        return None

    def known(self, item: bytes, look: bytes) -> Claim | None:  # noqa: ARG002 - few know
        """Return the answer for the item that needs no server, if there is one. ``look``: what is searched for."""
        return None

    def fingerprinter(self, ours: str, *, is_new: bool) -> str:  # noqa: ARG002 - a file has none
        """Return what fingerprints have filled the store. If there are none so far, or it is new, store ours."""
        return ours

    def counts(self) -> dict[str, int]:
        """Return what the stats say of the store at the end of the crawl."""
        return {}


class _OnServer(CrawlStore, SyncDriver):
    """A store on a server."""

    needs_server = True

    def __init__(self, *given: Any, outage: Outage | None = None, **arguments: Any) -> None:
        """``outage``: how long a call is tried, and what hears of the answers; None: the event loop waits, for the usual time."""
        self._outage = outage
        super().__init__(*given, **arguments)

    @property
    def place(self) -> str:
        """The server, without a password."""
        return address_of(self.client)

    def run(self, flow: Flow[T]) -> T:
        """See ``SyncDriver.run``; raise ConnectionError if the crawl no longer waits for the server."""
        if self._outage and self._outage.is_over:
            flow.close()
            raise RedisConnectionError("the server did not answer, and is not asked any more")
        return super().run(self._watched(flow, self._outage) if self._outage else flow)

    @staticmethod
    def _watched(flow: Flow[T], outage: Outage) -> Flow[T]:
        """Run the flow, and tell the outage when the server answers: some flows need no server."""
        try:
            calls = next(flow)
            while True:
                replies = yield calls
                for reply in replies:
                    if isinstance(reply, Exception) and is_awaited(reply):
                        break
                else:
                    outage.answered()
                calls = flow.send(replies)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            flow.close()  # after an error, it stores the lost answers

    def retry_seconds(self) -> float:
        """Return how long a call is retried (s)."""
        usual = super().retry_seconds()
        return self._outage.retry_seconds(usual) if self._outage else usual

    def close(self) -> None:
        """Close the store and its client."""
        super().close()
        self.client.close()


class CrawlExact(_OnServer, ExactFilter):
    """A crawl's ``ExactFilter``."""

    kind = "exact"
    meta_keys: ClassVar[dict[str, str]] = {"ttl": TTL}

    def check_arguments(self, arguments: dict[str, Any]) -> None:
        """Raise ConfigError if the TTL can't be right."""
        check_ttl(arguments["ttl"])

    def told(self) -> tuple[Told, list[str]]:
        """See ``CrawlBloom.told``."""
        return self.run(self._told()), []

    def fingerprinter(self, ours: str, *, is_new: bool) -> str:
        """See ``CrawlStore``. Ours are kept for as long as an item is by default."""
        return self.run(note(self.config.keys.fingerprinter(), ours, self._ttl, is_new=is_new))


class CrawlBloom(_OnServer, TimeBloom):
    """A crawl's ``TimeBloom``."""

    config: Config
    #: Claims can be kept with a note, from which another process takes the work over.
    keeps_notes = True
    _warns = False

    @property
    def claims(self) -> ClaimStore:
        """See ``CrawlStore``."""
        return self

    @property
    def shared(self) -> CrawlBloom:
        """See ``CrawlStore``."""
        return self

    def open_claims(self, look_of: Callable[[bytes, str], bytes]) -> None:
        """Do nothing: each session has claims of its own. See ``LocalClaims.open_claims``."""

    def told(self) -> tuple[Told, list[str]]:
        """Return what the servers say of themselves, and what they have lost or dropped of the filter."""
        seen = self.run(read_overview(self.config, self._dispatcher.clock))
        return seen.told, seen.damage

    def fingerprinter(self, ours: str, *, is_new: bool) -> str:
        """See ``CrawlStore``. Ours are kept for as long as an item that is added now."""
        lasts, config = None, self.config
        if config.granularity is not None:
            now = time.time_ns() // 1_000_000
            current = config.window.slice_at(now)
            lasts = shard_expiry(config, config.window.expires(current), None) - now
        return self.run(note(config.keys.fingerprinter(), ours, lasts, is_new=is_new))

    def counts(self) -> dict[str, int]:
        """Return the hits of the local cache, and how many shards of the filter the server has lost meanwhile."""
        return {"cache_hits": self.cache_hits, "lost": self._dispatcher.lost}

    def known(self, item: bytes, look: bytes) -> Claim | None:
        """Return the answer for the item that needs no server, if there is one. ``look``: what is searched for.

        While the item is asked about in one version, which may be seen, there is none about another one.
        """
        digest, session = self.config.digest(look), self._claims.session
        if self._is_cached(digest, self.config.slices):
            return Claim.SEEN
        if look != item:
            digest = self.config.digest(item)
            if session.is_asking(digest):
                return None
        return Claim.BUSY if session.owns(digest) else None

    def claim_many(
        self,
        items: Iterable[Item],
        within: int | None = None,
        notes: Iterable[str | Note] | None = None,
        looks: Iterable[Item] | None = None,
    ) -> list[Claim]:
        """See ``TimeBloom.claim_many``. ``looks``: what the filter is searched for in place of the items, in their shards."""
        items, looks = [*items], [*(looks or ())]
        if looks in ([], items):
            return super().claim_many(items, within, notes)
        digests, asked = self.config.digests_of(items), self.config.digests_of(looks)
        stored = [stored_note(note) for note in notes or repeat("", len(items))]
        slices = check_within(within, self.config.slices)
        self._keep_session()

        def claim(notes: dict[bytes, bytes], looks: dict[bytes, bytes]) -> dict[bytes, Claim]:
            claims = self.run(self._claim_digests([*looks], slices, notes, looks))
            return dict(zip(looks, claims, strict=True))

        return _in_turn(digests, asked, stored, claim)

    def owns(self, item: Item) -> bool:
        """Return whether this session has claimed the item, and has not released or committed it."""
        return self._claims.session.owns(self.config.digest(item))

    @property
    def is_new(self) -> bool:
        """Whether the filter had no items when it was asked last."""
        return not self._dispatcher.has_items

    @property
    def claimed(self) -> int:
        """The number of items that this session has claimed, and neither committed nor released."""
        return len(self._claims.session.claimed)

    @property
    def is_silent(self) -> bool:
        """Whether others may have taken this crawler for dead: ``live`` finds out."""
        return self._claims.is_silent

    def live(self) -> None:
        """Send a heartbeat now."""
        self.run(self._claims.live())

    def commit_many(self, items: Iterable[Item], keep: int | None = None) -> list[bool]:
        """See ``TimeBloom.commit_many``. The items go into the local cache, so links to them need no server."""
        items, view = list(items), self._dispatcher.current_view()
        answers = super().commit_many(items, keep)
        self._cache_seen(self.config.digests_of(items), view)
        return answers

    def give(self, items: list[bytes], hosts: Hosts | None) -> None:
        """Leave items to any session, part with hosts, and free others; see ``GivingHosts``."""
        self.run(self._claims.release(self.config.digests_of(items), leaves=True, hosts=hosts))

    def push_answered(
        self,
        items: Iterable[Item],
        looks: Iterable[Item],
        notes: Iterable[Note],
        within: int | None = None,
        *,
        again: bool,
    ) -> dict[bytes, Claim]:
        """Do what ``push_many`` does, if ``again`` also with items that were seen; return the answers by the digests of ``looks``.

        These are searched for in place of the items.
        """
        digests, asked = self.config.digests_of(items), self.config.digests_of(looks)
        slices = check_within(within, self.config.slices)

        def push(notes: dict[bytes, bytes], looks: dict[bytes, bytes]) -> dict[bytes, Claim]:
            return self.run(self._claims.push([*looks], slices, notes, looks=looks, again=again))

        answers = _in_turn(digests, asked, [note.stored for note in notes], push)
        return dict(zip(reversed(asked), reversed(answers), strict=True))

    def join(
        self, record: Callable[[Session], Record], when_lost: Callable[[bool], object]
    ) -> None:
        """Let each heartbeat tell what ``record`` returns of the session.

        ``when_lost``: a thread calls it when another session goes on in place of one that the server does not know any more. Its
        argument says whether the server has lost the filter, too.
        """
        self._claims.record, self._claims.when_lost = record, when_lost

    def first_project(self, project: str) -> str:
        """Return the project whose crawlers were the first ones of the filter; this one, if there were none."""
        return self.run(self._claims.first_project(project))

    def forget_old_records(self) -> None:
        """Delete what crawlers have told that ended long ago. If the server does not answer, or is a proxy, the next crawl does."""
        try:
            self.run(forget_old_records(self.config, self._dispatcher.clock.now()))
        except (RedisError, TBloomError) as error:
            logger.debug("old records of crawlers stay: %s", error)

    def leave_failed(self, queue: str) -> None:
        """Leave the pages that have failed in earlier crawls to any session of the queue, with their failures."""
        self.run(leave_failed(self.config, queue))

    def trim_given_up(self, queue: str) -> None:
        """Keep the newest of the queue's pages that are given up."""
        if dropped := Fleet(self, queue).trim():
            message = "%d pages that were given up longest ago are forgotten, because there are more than %d"
            logger.warning(message, dropped, MOST_GIVEN_UP)

    def pop_waiting(self) -> int:
        """Return how many sessions of this crawl's queue waited at the last commit; 0: that was asked since."""
        waiting, self._dispatcher.waiting = self._dispatcher.waiting, 0
        return waiting


def _in_turn(
    digests: list[bytes],
    looks: list[bytes],
    notes: list[bytes],
    ask: Callable[[dict[bytes, bytes], dict[bytes, bytes]], dict[bytes, Claim]],
) -> list[Claim]:
    """Return the answers for items of which some are asked for in several versions.

    Each round asks about one version of each item. An item goes on to its next one only if this one was seen.
    """
    answers, rest = [Claim.SEEN] * len(digests), [*range(len(digests))]
    while rest:
        first = {digests[place]: place for place in reversed(rest)}
        found = ask(*({key: of[place] for key, place in first.items()} for of in (notes, looks)))
        for place in rest:
            claim, is_first = found[digests[place]], place == first[digests[place]]
            answers[place] = claim if is_first or claim is not Claim.NEW else Claim.BUSY
        rest = [
            place
            for place in rest
            if answers[place] is Claim.SEEN and looks[place] != looks[first[digests[place]]]
        ]
    return answers


class CrawlLocal(CrawlStore, LocalBloom):
    """A crawl's ``LocalBloom``, which always answers."""

    config: Config

    @property
    def place(self) -> str:
        """The file."""
        return self.path or "memory"


class CrawlLocalClaims(LocalClaims, CrawlLocal):
    """A crawl's ``LocalBloom``, with claims."""

    @property
    def claims(self) -> ClaimStore:
        """See ``CrawlStore``."""
        return self


#: Any store of a crawl.
AnyStore = CrawlBloom | CrawlExact | CrawlLocal | CrawlLocalClaims
#: A store with claims.
ClaimStore = CrawlBloom | CrawlLocalClaims
