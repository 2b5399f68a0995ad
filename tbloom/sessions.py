"""Sessions: signs of life, and what is done about claims whose session gives none any more.

A session is one process's use of one filter object. What a dead session has claimed is free again;
with a note, it is somebody else's to go on with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tbloom import scripts
from tbloom.calls import CALLS_AT_ONCE, Flow, ScriptCall, chunks, deliver, text
from tbloom.claims import Claims
from tbloom.holdings import Claim

#: A look for abandoned claims asks for so many at once, and so many times in one go.
_PAGE, _PAGES = 500, 20


@dataclass(slots=True)
class _Search:
    """How far a shard has been looked through for abandoned claims; ``cursor`` None: all of it."""

    prefix: str
    dead: list[str]
    cursor: str | None = "0"
    left_some: bool = False


class Sessions:
    """The session of one client, and those of others: flows, as in ``protocol``."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        #: By shard, and by whether claims are taken over: two threads may search at once.
        self._searches: dict[tuple[int, bool], _Search] = {}

    @property
    def are_needed(self) -> bool:
        """Whether there is anything to give signs of life for."""
        return self._claims.mine.is_busy

    def beat(self) -> Flow[None]:
        """The session's sign of life. Also makes up for errors, and clears up after the dead."""
        mine = self._claims.mine
        yield from self._claims.make_up()
        shards = mine.shards if mine.held else set[int]()
        known = yield from self._beat(shards, self._claims.ttl_ms)
        if any(until <= now for now, others in known.values() for until in others.values()):
            yield from self._look_through(known, 0, "")

    def others(self) -> Flow[dict[str, int]]:
        """All other living sessions, and until when each counts as alive (ms, by the server's clock)."""
        known = yield from self._beat(range(self._claims.conversation.config.shards), None)
        alive_until: dict[str, int] = {}
        for now, sessions in known.values():
            for session, until in sessions.items():
                if until <= now:
                    continue
                alive_until[session] = max(until, alive_until.get(session, until))
        alive_until.pop(self._claims.mine.session, None)
        return alive_until

    def rest(self) -> Flow[None]:
        """Nobody need mind a session that claims nothing. Not while other threads or tasks may claim."""
        mine = self._claims.mine
        if not mine.is_busy:
            yield from self._beat(mine.shards, -1)
            mine.shards.clear()

    def end(self) -> Flow[None]:
        """The session is over: what it still claims is as a dead session's."""
        mine = self._claims.leave()
        yield from self._beat(mine.shards, 0 if mine.is_busy else -1, mine.session)

    def take_over(self, limit: int, prefix: str) -> Flow[list[str]]:
        """Claims what dead sessions have left with a note, at most so many; returns the notes."""
        known = yield from self._beat(range(self._claims.conversation.config.shards), None)
        return (yield from self._look_through(known, limit, prefix))

    def _look_through(
        self, known: dict[int, tuple[int, dict[str, int]]], limit: int, prefix: str
    ) -> Flow[list[str]]:
        notes: list[str] = []
        for shard, (now, sessions) in known.items():
            dead = [session for session, until in sessions.items() if until <= now]
            # The first time all claims are looked at: their session may be forgotten already.
            search = self._searches.get((shard, limit > 0))
            if search is None or (search.cursor is None and dead):
                search = self._searches[shard, limit > 0] = _Search(prefix, dead)
            for _ in range(_PAGES):
                if search.cursor is None or (limit and len(notes) >= limit):
                    break
                notes += yield from self._take_page(shard, search, limit and limit - len(notes))
        return notes

    def _take_page(self, shard: int, search: _Search, room: int) -> Flow[list[str]]:
        """The notes of the next page's claims, taken over; with no room, none are."""
        next_, others, found = yield from self._abandoned(shard, search, _PAGE)
        notes = {}
        if room:
            some = dict(list(found.items())[:room])
            slices = self._claims.conversation.config.slices
            answers = yield from self._claims.claim(some, slices, some)
            # Seen: its session died between two of its calls, or was taken for dead.
            seen = [digest for digest, answer in answers.items() if answer is Claim.SEEN]
            if seen:
                yield from self._claims.release(seen)
            notes = {digest: some[digest] for digest in some if answers[digest] is Claim.NEW}
            if len(found) > room:
                return list(notes.values())  # and the page once more
        search.left_some |= others > 0 or (bool(found) and not room)
        search.cursor = None if next_ == "0" else next_
        if search.cursor is None and not search.left_some:
            yield from self._abandoned(shard, search, 1, search.dead)
        return list(notes.values())

    def _abandoned(
        self, shard: int, search: _Search, page: int, forget: Iterable[str] = ()
    ) -> Flow[tuple[str, int, dict[int, str]]]:
        """Where to go on, how many claims others may take over, and the notes of these."""
        keys = self._claims.hashes(shard)
        call = ScriptCall(
            scripts.ABANDONED, keys, (search.cursor or "0", page, search.prefix, *forget)
        )
        [[_, (next_, others, *words)]] = yield from deliver([call])
        found = zip(words[::2], words[1::2], strict=True)
        return (
            text(next_),
            others,
            {int(text(fingerprint), 16): text(note) for fingerprint, note in found},
        )

    def _beat(
        self, shards: Iterable[int], ttl_ms: int | None, session: str | None = None
    ) -> Flow[dict[int, tuple[int, dict[str, int]]]]:
        """Each shard's clock, and its sessions; ``ttl_ms`` None: without a sign of life."""
        name = "" if ttl_ms is None else session or self._claims.mine.session
        plan, shards = self._claims.conversation.current_plan(), list(shards)
        calls = [
            ScriptCall(
                scripts.BEAT,
                self._claims.hashes(shard),
                (name, ttl_ms or 0, plan.expires_at(shard)),
            )
            for shard in shards
        ]
        replies: list[list[Any]] = []
        for some in chunks(calls, CALLS_AT_ONCE):
            replies += [payload for _, payload in (yield from deliver(some))]
        return {
            shard: (now, {text(s): until for s, until in zip(words[::2], words[1::2], strict=True)})
            for shard, (now, *words) in zip(shards, replies, strict=True)
        }
