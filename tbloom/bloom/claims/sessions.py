"""Sessions: signs of life, and what is done about claims whose session gives none any more.

A session is one process's use of one filter object. What a dead session has claimed is free again;
with a note, it is somebody else's to go on with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tbloom.bloom.claims.holdings import Claim
from tbloom.bloom.claims.protocol import Claims
from tbloom.engine.flow import CALLS_AT_ONCE, Flow, ScriptCall, chunks, deliver, text
from tbloom.engine.scripts import Script

_ABANDONED = Script("bloom/claims/abandoned")
_BEAT = Script("bloom/claims/beat")

#: A look for abandoned claims asks for so many at once, and so many times in one go.
_PAGE, _PAGES = 100, 50


@dataclass(slots=True)
class _Search:
    """How far a shard has been looked through for abandoned claims; ``cursor`` None: all of it.

    ``dead``: the sessions that were dead when it began, and since when.
    """

    prefix: str
    dead: dict[str, int]
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
        mine = self._claims.mine
        return mine.is_busy or bool(mine.shards)

    def beat(self) -> Flow[None]:
        """The session's sign of life. Also clears up after the dead, and makes up for errors."""
        mine = self._claims.mine
        known = yield from self._beat(mine.shards, self._claims.ttl_ms)
        if any(until <= now for now, others in known.values() for until in others.values()):
            yield from self._look_through(known, 0, "")
        yield from self._claims.make_up()

    def others(self) -> Flow[dict[str, int]]:
        """All other living sessions, and until when each counts as alive (ms, by the server's clock)."""
        known = yield from self._beat(range(self._claims.exchange.config.shards), None)
        alive_until: dict[str, int] = {}
        for now, sessions in known.values():
            for session, until in sessions.items():
                if until > now:
                    alive_until[session] = max(until, alive_until.get(session, until))
        alive_until.pop(self._claims.mine.session, None)
        return alive_until

    def rest(self) -> Flow[None]:
        """Nobody need mind a session that claims nothing. Not while other threads or tasks may claim."""
        mine = self._claims.mine
        if not mine.is_busy and not mine.handed_over:
            yield from self._beat(mine.shards, -1)
            mine.shards.clear()

    def end(self) -> Flow[None]:
        """The session is over: what it still claims is as a dead session's."""
        try:
            yield from self._claims.make_up()
        finally:
            mine = self._claims.leave()
        yield from self._beat(
            mine.shards, 0 if mine.is_busy or mine.handed_over else -1, mine.session
        )

    def take_over(self, limit: int, prefix: str) -> Flow[list[str]]:
        """Claims what dead sessions have left with a note, at most so many; returns the notes."""
        known = yield from self._beat(range(self._claims.exchange.config.shards), None)
        return (yield from self._look_through(known, limit, prefix))

    def _look_through(
        self, known: dict[int, tuple[int, dict[str, int]]], limit: int, prefix: str
    ) -> Flow[list[str]]:
        """With a limit of 0, only what has no note is cleared up."""
        mine, taken = self._claims.mine, dict[int, str]()
        try:
            for shard, (now, sessions) in known.items():
                dead = {session: until for session, until in sessions.items() if until <= now}
                # The first time all claims are looked at: their session may be forgotten already.
                search = self._searches.get((shard, limit > 0))
                if search is None or search.prefix != prefix or (search.cursor is None and dead):
                    search = self._searches[shard, limit > 0] = _Search(prefix, dead)
                for _ in range(_PAGES):
                    if search.cursor is None or (limit and len(taken) >= limit):
                        break
                    yield from self._take_page(shard, search, limit, taken)
        except BaseException:  # the flow's end too: nobody was told what was taken
            mine.owe({digest: mine.held[digest] for digest in taken if digest in mine.held})
            raise
        return list(taken.values())

    def _take_page(
        self, shard: int, search: _Search, limit: int, taken: dict[int, str]
    ) -> Flow[None]:
        """Takes over the next page's claims, as far as the limit lets it."""
        next_, left, found = yield from self._abandoned(shard, search, wanted=limit > 0)
        room = limit - len(taken)
        for within in {within for within, _ in found.values()}:
            some = {digest: note for digest, (slices, note) in found.items() if slices == within}
            some = dict(list(some.items())[: max(0, room)])
            answers = yield from self._claims.claim(some, within, some)
            taken |= {digest: some[digest] for digest in some if answers[digest] is Claim.NEW}
            room -= len(some)
            # Seen: its session died between two of its calls, or was taken for dead.
            seen = [digest for digest, answer in answers.items() if answer is Claim.SEEN]
            if seen:
                yield from self._claims.release(seen, "bury")
        if room < 0 or len(found) > limit:
            return  # the page once more
        search.left_some |= left > 0
        search.cursor = None if next_ == "0" else next_
        if search.cursor is None and not search.left_some:
            dead = [word for session in search.dead.items() for word in session]
            yield from self._abandoned(shard, search, dead, wanted=False)

    def _abandoned(
        self, shard: int, search: _Search, forget: Iterable[str | int] = (), *, wanted: bool
    ) -> Flow[tuple[str, int, dict[int, tuple[int, str]]]]:
        """Where to go on, how many claims are left, and those to be taken over: slices and note."""
        keys, cursor = self._claims.hashes(shard), search.cursor or "0"
        words = (cursor, _PAGE, int(wanted), search.prefix, *forget)
        [[_, (next_, left, *found)]] = yield from deliver([ScriptCall(_ABANDONED, keys, words)])
        rows = zip(found[::3], found[1::3], found[2::3], strict=True)
        return (
            text(next_),
            left,
            {int(text(key), 16): (int(text(within), 16), text(note)) for key, within, note in rows},
        )

    def _beat(
        self, shards: Iterable[int], ttl_ms: int | None, session: str | None = None
    ) -> Flow[dict[int, tuple[int, dict[str, int]]]]:
        """Each shard's clock, and its sessions; ``ttl_ms`` None: without a sign of life."""
        name = "" if ttl_ms is None else session or self._claims.mine.session
        plan, shards = self._claims.exchange.current_plan(), list(shards)
        calls = [
            ScriptCall(
                _BEAT,
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
