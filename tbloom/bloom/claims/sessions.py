"""Sessions: heartbeats, and the claims of sessions that have died.

A session is one process's use of one filter object. When it dies, its claims are free; claims with a
note wait to be taken over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from tbloom.bloom.claims.held import Claim, Session
from tbloom.bloom.claims.protocol import Claims
from tbloom.engine.flow import Flow, deliver, deliver_all, text
from tbloom.engine.scripts import Script

_ABANDONED = Script("bloom/claims/abandoned")
_HEARTBEAT = Script("bloom/claims/heartbeat")

#: A search for abandoned claims looks at about this many in one call, with at most this many calls per shard at a time.
_PAGE, _PAGES = 100, 50


@dataclass(slots=True)
class _Search:
    """A search for abandoned claims in one shard; ``cursor`` is None once it has ended.

    ``dead`` has the sessions that died before the search began, and until when each counted as alive. They are forgotten at
    the end, unless some of their claims are left.
    """

    prefix: str
    dead: dict[str, int]
    cursor: str | None = "0"
    left_some: bool = False


class Sessions:
    """The session of one client, and other clients' sessions, as flows (see ``bloom/verbs``)."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        #: By shard, and by whether the search takes over claims: two threads may search at the same time.
        self._searches: dict[tuple[int, bool], _Search] = {}

    def send_heartbeat(self) -> Flow[None]:
        """Keep the session alive if it is in use, clean up after dead sessions, and repeat calls that ended in an error."""
        session = self._claims.own
        if not session.is_busy and not session.shards:
            return
        known = yield from self.heartbeat(session, self._claims.ttl_ms)
        if any(until <= now for now, others in known.values() for until in others.values()):
            yield from self._search(known, 0, "")
        yield from self._claims.retry_failed()

    def take_over(self, limit: int, prefix: str) -> Flow[list[str]]:
        """Claim at most ``limit`` items that dead sessions have left with a note, and return the notes."""
        return (yield from self._search((yield from self.heartbeat()), limit, prefix))

    def _search(
        self, known: dict[int, tuple[int, dict[str, int]]], limit: int, prefix: str
    ) -> Flow[list[str]]:
        """Take over claims of these sessions that are dead. With a limit of 0, only drop claims without a note."""
        session, taken = self._claims.own, dict[bytes, str]()
        try:
            for shard, (now, sessions) in known.items():
                are_dead = any(until <= now for until in sessions.values())
                # A session that died in this millisecond may still add claims in it, so it is not forgotten yet.
                dead = {name: until for name, until in sessions.items() if until < now}
                # The first search looks at all claims, because their sessions may be forgotten already.
                search = self._searches.get((shard, limit > 0))
                if (
                    search is None
                    or search.prefix != prefix
                    or (search.cursor is None and are_dead)
                ):
                    search = self._searches[shard, limit > 0] = _Search(prefix, dead)
                for _ in range(_PAGES):
                    if search.cursor is None or (limit and len(taken) >= limit):
                        break
                    yield from self._take_page(shard, search, limit, taken)
        except BaseException:  # also GeneratorExit: the client never learns of these claims
            session.give_up(taken)
            raise
        return list(taken.values())

    def _take_page(
        self, shard: int, search: _Search, limit: int, taken: dict[bytes, str]
    ) -> Flow[None]:
        """Take over the next page's claims, up to the limit."""
        next_, left, abandoned = yield from self._abandoned(shard, search, wanted=limit > 0)
        wanted = dict(islice(abandoned.items(), limit - len(taken)))
        for within in {within for within, _ in wanted.values()}:
            notes = {digest: note for digest, (slices, note) in wanted.items() if slices == within}
            session = self._claims.own
            with session.calling(notes) as number:
                answers = yield from self._claims.claim(session, number, notes, within, notes)
                taken |= {digest: notes[digest] for digest in notes if answers[digest] is Claim.NEW}
            # A seen item is done: its session died before it ended the claim, or only seemed dead.
            seen = [digest for digest, answer in answers.items() if answer is Claim.SEEN]
            if seen:
                yield from self._claims.release(seen, "dead")
        if len(wanted) < len(abandoned):
            return  # at the limit: the next call reads this page again
        search.left_some |= left > 0
        search.cursor = None if next_ == "0" else next_
        if search.cursor is None and not search.left_some:
            dead = [word for entry in search.dead.items() for word in entry]
            yield from self._abandoned(shard, search, dead, wanted=False)

    def _abandoned(
        self, shard: int, search: _Search, forget: Iterable[str | int] = (), *, wanted: bool
    ) -> Flow[tuple[str, int, dict[bytes, tuple[int, str]]]]:
        """Return the next cursor, the number of claims left, and the claims to take over, each with its slices and note.

        The server forgets the sessions in ``forget``.
        """
        keys, cursor = self._claims.keys_of(shard), search.cursor or "0"
        arguments = (cursor, _PAGE, int(wanted), search.prefix, *forget)
        [[_, reply]] = yield from deliver([_ABANDONED.call(keys, arguments)])
        next_, left, *words = reply
        slices = self._claims.dispatcher.config.slices
        claims = {
            # The filter may have had more slices when the item was claimed.
            bytes.fromhex(text(key)): (min(int(text(within), 16) or 1, slices), text(note))
            for key, within, note in zip(words[::3], words[1::3], words[2::3], strict=True)
        }
        return text(next_), left, claims

    def heartbeat(
        self, session: Session | None = None, ttl_ms: int = 0, known_to: Iterable[int] = ()
    ) -> Flow[dict[int, tuple[int, dict[str, int]]]]:
        """Send a heartbeat of the session, or without one only ask. Return each shard's clock (ms) and sessions.

        ``known_to`` are the shards that know the session, if it has forgotten them.
        """
        dispatcher = self._claims.dispatcher
        view, shards = dispatcher.current_view(), [*range(dispatcher.config.shards)]
        name, least = "", "0"
        if session is not None:
            name, least, shards = session.name, session.least, [*(known_to or session.shards)]
        calls = [
            _HEARTBEAT.call(
                self._claims.keys_of(shard),
                (name, ttl_ms, view.expires_at(shard), least),
            )
            for shard in shards
        ]
        replies = yield from deliver_all(calls)
        if session is not None:
            session.server_knows(least)
        return {
            shard: (now, {text(s): until for s, until in zip(words[::2], words[1::2], strict=True)})
            for shard, (_, (now, *words)) in zip(shards, replies, strict=True)
        }
