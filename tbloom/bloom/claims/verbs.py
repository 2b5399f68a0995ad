"""The verbs for claims, as flows without I/O (see ``tbloom.engine.methods``)."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable, Mapping

from tbloom.arguments import Item, check_keep, check_note, check_notes, check_within
from tbloom.bloom.claims.calls import Claim
from tbloom.bloom.verbs import Verbs
from tbloom.engine.client import Client
from tbloom.engine.flow import Flow
from tbloom.engine.methods import verb
from tbloom.errors import ConfigError

logger: logging.Logger = logging.getLogger(__name__)


class ClaimVerbs(Verbs[Client]):
    """The common base of ``TimeBloom`` and ``AsyncTimeBloom``."""

    def _warn_of_taken_over(self) -> None:
        """Log the number of items that were committed after other sessions had taken over their claims."""
        taken_over = self._claims.taken_over
        if count := len(taken_over):
            taken_over.clear()
            message = "%r: other sessions had taken over %d items before they were committed: the work may be done twice"
            logger.warning(message, self.name, count)

    def _warn_of_uncommitted(self) -> None:
        """Log the number of failed commits, which nobody will send again."""
        if failed := len(self._claims.uncommitted):
            message = (
                "%r: the commits of %d items have failed; they are new once their claims expire"
            )
            logger.warning(message, self.name, failed)

    @verb
    def claim(
        self, item: Item, within: int | None = None, note: str = "", previous_owner: str = ""
    ) -> Flow[Claim]:
        """Claim the item, so that no other process works on it.

        ``Claim.NEW``: you work on it; ``commit`` or ``release`` it at the end. ``Claim.SEEN``: it was
        committed, or added, within the window. ``Claim.BUSY``: a living session has claimed it,
        perhaps another thread of yours. An item is new only once if all processes claim it: ``add`` does
        not see claims, and says that a claimed item is new.

        A process that claims items sends heartbeats from a thread of its own, or a task of its event loop. After
        ``session_ttl`` seconds without a heartbeat, other processes may claim its items. A ``note`` (at most 65,536
        characters; the item, for example) is stored with the claim, for ``take_over``. Items that the session
        ``previous_owner`` has claimed and handed over (``hand_over``) are new too.
        """
        self._keep_session()
        within, key = check_within(within, self.config.slices), self.config.digest(item)
        notes = {key: check_note(note)}
        return (yield from self._claim_digests([key], within, notes, previous_owner))[0]

    @verb
    def claim_many(
        self,
        items: Iterable[Item],
        within: int | None = None,
        notes: Iterable[str] | None = None,
        previous_owner: str = "",
    ) -> Flow[list[Claim]]:
        """Claim all new items in one call, and return a Claim for each item, in order: NEW, SEEN or BUSY, as ``claim``.

        A repeat of a new item is busy. ``notes`` has a text for each item, with which another process can take over its
        claim, as ``note`` of ``claim``. Raise ConfigError if there are more or fewer notes than items, or if one is too long.
        """
        self._keep_session()
        within, digests = check_within(within, self.config.slices), self.config.digests_of(items)
        by_digest = check_notes(digests, notes)
        return self._claim_digests(digests, within, by_digest, previous_owner)

    @verb
    def commit(self, item: Item, keep: int | None = None) -> Flow[bool]:
        """Mark the item as seen, because the work on it is done. Return False if another session works on the item.

        It may do so after your process has sent no heartbeat for ``session_ttl`` seconds. The answer is False also if that session
        has committed the item since, unless your first commit has ended in an error: then the item may have been found as you
        committed it. The item is marked in any case, and a WARNING names the number of such items. A commit by the other session
        into an earlier slice is not noticed.

        The item is written into the current slice, even if an older slice holds it. With ``keep``, it is written into the slice
        that leaves the window after that number of slices (see ``add``), unless a newer slice holds it. If this raises one of
        redis-py's errors, each heartbeat repeats the commit, until the filter is closed.
        """
        return (yield from self._commit([self.config.digest(item)], keep))[0]

    @verb
    def commit_many(self, items: Iterable[Item], keep: int | None = None) -> Flow[list[bool]]:
        """Commit each item, and return the answer of ``commit`` for each, in order."""
        return self._commit(self.config.digests_of(items), keep)

    @verb
    def release(self, item: Item) -> Flow[None]:
        """Release the item, because the work on it was not done. Other processes may claim it after that.

        If this raises one of redis-py's errors, the next heartbeat releases it. A claim with a note then waits to be taken over.
        """
        return self._claims.release([self.config.digest(item)])

    @verb
    def release_many(self, items: Iterable[Item]) -> Flow[None]:
        """Release each item; see ``release``."""
        return self._claims.release(self.config.digests_of(items))

    @verb
    def abandon_many(self, items: Iterable[Item]) -> Flow[None]:
        """Release each item, but let items with a note wait for another process to ``take_over``."""
        return self._claims.release(self.config.digests_of(items), "abandon")

    def assume_new(self, items: Iterable[Item]) -> None:
        """Treat the items as new, after a call with them has raised one of redis-py's errors.

        The lost answers of that call, which the next call would get, are dropped. Claims that may have reached the
        server are held.
        """
        digests = self.config.digests_of(items)
        self._dispatcher.pending_answers.forget(digests)
        if self._claims.session.has_claimed:
            self._claims.session.own(digests)

    def hand_over(self, items: Iterable[Item]) -> None:
        """Hand claimed items over to another process, which claims them with this session as ``previous_owner``.

        Until then, this session keeps the claims alive, and asks Redis about them. Don't ask about such an item in two threads at
        once: one of them may get BUSY though nobody works on it.
        """
        self._claims.session.hand_over(self.config.digests_of(items))

    @verb
    def take_over(self, limit: int = 100, prefix: str = "") -> Flow[list[str]]:
        """Claim at most ``limit`` items that dead sessions have left with a note, and return these notes.

        If there are fewer, nothing more is left, except items on which this object itself works. With ``prefix``, only claims whose
        notes begin with it are taken over. Call it at the start and from time to time. Claims without a note simply end.
        """
        self._keep_session()
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise ConfigError("limit", limit, "a whole number from 1 on")
        return (yield from self._claims.take_over(limit, prefix))

    @verb
    def other_sessions(self) -> Flow[dict[str, int]]:
        """Return the other living sessions, and until when each counts as alive (ms, by the server's clock)."""
        alive_until: dict[str, int] = {}
        for sessions in (yield from self._claims.sessions()).values():
            for name, until in sessions.alive_until.items():
                if until > sessions.now:
                    alive_until[name] = max(until, alive_until.get(name, until))
        alive_until.pop(self.session, None)
        return alive_until

    @verb
    def pause_session(self) -> Flow[None]:
        """End this session if it claims nothing, so that no other process waits for it.

        The next claim begins another session. No other thread or task may claim meanwhile.
        """
        return self._claims.pause()

    @verb
    def end_session(self) -> Flow[None]:
        """End this session. Its remaining claims are treated as a dead session's. The next claim begins another session.

        No other thread or task may claim meanwhile: its claim would be this session's, which nobody keeps alive any more.
        """
        return self._claims.end()

    @abstractmethod
    def _keep_session(self) -> None:
        """Start the thread or task that sends heartbeats, unless it runs."""

    @verb
    def _send_heartbeat(self) -> Flow[None]:
        yield from self._claims.heartbeat()
        self._warn_of_taken_over()

    def _beat_seconds(self) -> float:
        """Return the time between two heartbeats (s). A session survives the loss of three."""
        return self.session_ttl / 4

    def _commit(self, digests: list[bytes], keep: int | None) -> Flow[list[bool]]:
        age = check_keep(keep, None, self.config.slices)
        try:
            self._keep_session()
        except BaseException:  # an interrupt
            self._claims.session.commit_again(digests, age)
            raise
        taken_over = {*(yield from self._claims.commit(digests, age))}
        self._warn_of_taken_over()
        return [digest not in taken_over for digest in digests]

    def _claim_digests(
        self, digests: list[bytes], within: int, notes: Mapping[bytes, str], previous_owner: str
    ) -> Flow[list[Claim]]:
        to_send = digests if previous_owner else self._not_cached(digests, within)
        session, view = self._claims.session, self._dispatcher.current_view()
        with session.claiming() as reserved:
            answers = yield from self._claims.claim(
                session, reserved, to_send, within, notes, previous_owner=previous_owner
            )
            if self._cache.size:
                seen = [key for key, answer in answers.items() if answer is Claim.SEEN]
                self._cache_seen(seen, view)
            in_order = []
            for key in digests:
                in_order.append(answers.setdefault(key, Claim.SEEN))
                if answers[key] is Claim.NEW:
                    answers[key] = Claim.BUSY
            return in_order
