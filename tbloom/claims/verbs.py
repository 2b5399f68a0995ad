"""The verbs for claims, as flows without I/O (see ``tbloom.engine.methods``)."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TypeVar

from tbloom.arguments import Item, check_keep, check_text, check_within
from tbloom.bloom.batch import NO_LOOKS
from tbloom.bloom.config import Config
from tbloom.bloom.verbs import Verbs
from tbloom.claims.calls import Claim
from tbloom.claims.fleet import failed_queue_of, forget_old_records
from tbloom.claims.flows import Claims
from tbloom.claims.notes import (
    History,
    Note,
    Taken,
    check_history,
    plain,
    stored_note,
    stored_notes,
)
from tbloom.engine.batcher import SharedCall
from tbloom.engine.client import Client
from tbloom.engine.flow import Flow
from tbloom.engine.methods import removing, verb
from tbloom.errors import ConfigError

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)


def _by_digest(digests: Iterable[bytes], flow: Flow[list[T]]) -> Flow[dict[bytes, T]]:
    """Return the answers of a flow by its distinct items."""
    return dict(zip(digests, (yield from flow), strict=True))


class ClaimVerbs(Verbs[Client]):
    """The common base of ``TimeBloom`` and ``AsyncTimeBloom``."""

    #: Whether the log tells what is not committed. Of a crawl's filter, the crawl's report does.
    _warns: bool = True

    def _set_up_driver(self) -> None:
        # Before the driver, which on a cluster may choose another number of shards (``_use``).
        self._claims = Claims(self._dispatcher, round(self.session_ttl * 1000))
        super()._set_up_driver()

    def _use(self, config: Config) -> None:
        super()._use(config)
        self._claims.use(self._dispatcher)

    def _forget(self) -> None:
        super()._forget()
        self._claims.forget()

    @property
    def session(self) -> str:
        """The name under which this process claims items."""
        return self._claims.session.name

    def _warn_of_taken_over(self) -> None:
        """Log the number of items that were committed after other sessions had taken over their claims."""
        taken_over = self._claims.taken_over
        if count := len(taken_over):
            taken_over.clear()
            message = "%r: other sessions had taken over %d items before they were committed: the work may be done twice"
            logger.warning(message, self.name, count)

    def _warn_of_uncommitted(self) -> None:
        """Log the number of failed commits, which nobody will send again."""
        failed = sum(map(len, self._claims.session.to_commit().values()))
        if self._warns and failed:
            message = (
                "%r: the commits of %d items have failed; they are new once their claims expire"
            )
            logger.warning(message, self.name, failed)

    @verb
    def claim(self, item: Item, within: int | None = None, note: str | Note = "") -> Flow[Claim]:
        """Claim the item, so that no other process works on it.

        ``Claim.NEW``: you work on it; ``commit``, ``release`` or ``leave_many`` it at the end. ``Claim.SEEN``: it was
        committed, or added, within the window. ``Claim.BUSY``: a living session has claimed it, perhaps another thread of
        yours; or it is left to a session that takes it. ``add`` does not see claims, and says that a claimed item is new.

        A process that claims items sends heartbeats from a thread of its own, or a task of its event loop. After
        ``session_ttl`` seconds without a heartbeat, other processes may claim its items, or ``take`` them. A ``note`` (a text of
        at most 65,536 characters) is stored with the claim, for ``take``.
        """
        self._keep_session()
        within, key = check_within(within, self.config.slices), self.config.digest(item)
        return (yield from self._claim_digests([key], within, {key: stored_note(note)}))[0]

    @claim.shared
    def _shared_claim(
        self, item: Item, within: int | None = None, note: str | Note = ""
    ) -> tuple[SharedCall, bytes]:
        self._keep_session()
        slices = check_within(within, self.config.slices)

        def claim(notes: dict[bytes, bytes]) -> Flow[dict[bytes, Claim]]:
            return _by_digest(notes, self._claim_digests(notes, slices, notes))

        call = SharedCall(
            ("claim", slices),
            self.run,
            claim,
            self._keep_claim,
            next_answer=lambda claimed: Claim.BUSY if claimed is Claim.NEW else claimed,
            result=Claim,
            value=stored_note(note),
        )
        return call, self.config.digest(item)

    def _keep_claim(self, digest: bytes, claimed: Claim | None) -> None:
        """Mark an item to be released whose task was cancelled, if it is new."""
        if claimed is Claim.NEW:
            self._claims.session.release([digest])

    @verb
    def claim_many(
        self,
        items: Iterable[Item],
        within: int | None = None,
        notes: Iterable[str | Note] | None = None,
    ) -> Flow[list[Claim]]:
        """Claim all new items in one call, and return a Claim for each item, in order: NEW, SEEN or BUSY, as ``claim``.

        A repeat of a new item is busy. ``notes`` has a note for each item, as ``note`` of ``claim``. Raise ConfigError if there are
        more or fewer notes than items, or if one is too long.
        """
        self._keep_session()
        within, digests = check_within(within, self.config.slices), self.config.digests_of(items)
        return self._claim_digests(digests, within, stored_notes(digests, notes))

    @claim_many.adds
    def _keys_to_claim(self, items: Iterable[Item]) -> tuple[list[bytes], list[bytes]]:
        return self._keys_of(items)

    @verb
    def push(self, item: Item, note: str | Note, within: int | None = None) -> Flow[bool]:
        """Leave the item, with its note, to the next session that takes it. See ``push_many``."""
        digests = [self.config.digest(item)]
        return (yield from self._push(digests, stored_notes(digests, [note]), within))[0]

    @verb
    def push_many(
        self,
        items: Iterable[Item],
        notes: Iterable[str | Note],
        within: int | None = None,
    ) -> Flow[list[bool]]:
        """Leave the items that are new to any session, which takes them with ``take``. Return for each item whether it was new.

        An item is not new if it was seen within the window, if a session has claimed it, or if it is left already. After an error,
        push again: then what has reached the server is not new.
        """
        digests = self.config.digests_of(items)
        return self._push(digests, stored_notes(digests, notes), within)

    @verb
    def commit(self, item: Item, keep: int | None = None) -> Flow[bool]:
        """Mark the item as seen, because the work on it is done. Return False if another session works on the item.

        It may do so after your process has sent no heartbeat for ``session_ttl`` seconds. The answer is False also if that session
        has committed the item since. The item is marked in any case, and a WARNING names the number of such items.

        The item is written into the current slice, even if an older slice holds it. With ``keep``, it is written into the slice
        that leaves the window after that number of slices (see ``add``), unless a newer slice holds it. If this raises one of
        redis-py's errors, each heartbeat repeats the commit, until the filter is closed.
        """
        return (yield from self._commit([self.config.digest(item)], keep))[0]

    @commit.shared
    def _shared_commit(self, item: Item, keep: int | None = None) -> tuple[SharedCall, bytes]:
        age = check_keep(keep, None, self.config.slices)

        def commit(digests: dict[bytes, None]) -> Flow[dict[bytes, bool]]:
            return _by_digest(digests, self._commit([*digests], keep))

        def keep_commit(digest: bytes, answer: object) -> None:
            """Let heartbeats commit an item whose task was cancelled before it was sent."""
            if answer is None:
                self._claims.session.commit_again([digest], age)

        some = partial(self._unless_full, add=commit, within=age + 1)
        return SharedCall(("commit", age), self.run, some, keep_commit), self.config.digest(item)

    @verb
    def commit_many(self, items: Iterable[Item], keep: int | None = None) -> Flow[list[bool]]:
        """Commit each item, and return the answer of ``commit`` for each, in order."""
        return self._commit(self.config.digests_of(items), keep)

    @verb
    def release(self, item: Item) -> Flow[None]:
        """Release the item, because the work on it was not done. Other processes may claim it after that.

        If this raises one of redis-py's errors, the next heartbeat releases it. An item with a note is left then.
        """
        return self._claims.release([self.config.digest(item)])

    @verb
    def release_many(self, items: Iterable[Item]) -> Flow[None]:
        """Release each item; see ``release``."""
        return self._claims.release(self.config.digests_of(items))

    @verb
    def leave_many(self, items: Iterable[Item]) -> Flow[None]:
        """Leave each item with a note to the next session that takes it (see ``take``), and release the others."""
        return self._claims.release(self.config.digests_of(items), leaves=True)

    @verb
    def note_history(
        self, histories: Mapping[str, History] | Mapping[bytes, History] | Mapping[int, History]
    ) -> Flow[None]:
        """Change the queue, the deaths and the failures that are kept with claims of this session, by their items. The notes stay.

        Do so when work begins that may kill the process: with the deaths that ``take`` has told of, a further one is counted if it
        does. Nothing changes for an item that this session has not claimed, or has claimed without a note. If this raises one of
        redis-py's errors, call again.
        """
        if wrong := [each for each in histories.values() if not isinstance(each, History)]:
            raise ConfigError("histories", wrong[0], "a History for each item")
        digests = self.config.digests_of(histories)
        checked = map(check_history, histories.values())
        return self._claims.note_history(dict(zip(digests, checked, strict=True)))

    @verb
    def fail(
        self,
        item: Item,
        reason: str,
        message: str = "",
        *,
        failures: int = 1,
        where: str = "",
        queue: str | None = None,
    ) -> Flow[None]:
        """Say that the work on a claimed item has failed, and so often in a row (``Note.failures`` of what was taken, and one).

        This session holds it until it ends. Then it is kept for ``take`` with ``failed``, for a person (``Fleet``, ``tbloom retry``), or
        until it is claimed. Failures are counted and listed by ``reason``, of a word or two, such as "status/503"; ``message`` is what the
        error said, and ``where`` the place (see ``History``). The note must be a JSON object to have them, and its "url" is
        shown in lists. An item without a note is as any other claimed one. ``queue`` is that of the item (None: the one that
        this session takes items of).
        """
        if not (isinstance(reason, str) and (reason := plain(reason, 80)).strip()):
            raise ConfigError("reason", reason, 'a text that says why, such as "status/503"')
        if not isinstance(failures, int) or isinstance(failures, bool) or failures < 1:
            raise ConfigError("failures", failures, "a whole number from 1 on")
        queue = self._claims.session.queue_name if queue is None else check_text(queue, "queue")
        queue = failed_queue_of(queue)
        history = check_history(History(queue, 0, failures, reason, message=message, where=where))
        return self._claims.fail(self.config.digest(item), history)

    @verb
    def take(
        self,
        limit: int = 100,
        queue: str = "",
        *,
        idle: bool = True,
        failed: bool = False,
    ) -> Flow[Taken]:
        """Claim at most ``limit`` left items whose notes are for the queue, and return the notes.

        An item is left by ``leave_many`` and ``push``, and when its session ends or dies. Those come first of which the fewest
        sessions have died. An item of which two have died may kill the next one, too: it is taken alone, and only by a session
        that is ``idle``, which has nothing else to do.

        If nothing is left, an idle session waits for items: call again after some time. (Each shard gives at most its share, and
        400.) All work is done if the answer ``is_over``: no session of the queue is at work any more. A session is of the queue
        that it named last: call ``take(0)`` before the work begins, so that the others wait for what you leave.

        With ``failed``, it claims instead those on which the work of sessions that have ended has failed (see ``fail``). The
        session stays of its queue, and waits for nothing: the answer ``is_over`` once none of them is left. What living sessions
        hold does not count, nor does what this one holds.
        """
        self._keep_session()
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
            raise ConfigError("limit", limit, "a whole number from 0 on")
        check_text(queue, "queue")
        if not (failed or self._claims.session.queue or self._claims.record):
            # A crawl does so beside its first pages.
            yield from forget_old_records(self.config, self._dispatcher.clock.now())
        joins = None if failed and self._claims.session.queue else queue
        queue = failed_queue_of(queue) if failed else queue
        return (yield from self._claims.take(limit, queue, idle=idle, joins=joins))

    @removing
    @verb
    def end_session(self) -> Flow[None]:
        """End this session. Claimed items with a note are left to any session. The next claim begins another session.

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

    def _push(
        self, digests: list[bytes], notes: Mapping[bytes, bytes], within: int | None
    ) -> Flow[list[bool]]:
        if b"" in notes.values():
            raise ConfigError("notes", "", "a text that says what to do with the item")
        within = check_within(within, self.config.slices)
        answers = yield from self._claims.push(digests, within, notes)
        # A repeat is not new.
        return [answers.pop(digest, None) is Claim.NEW for digest in digests]

    def _claim_digests(
        self,
        digests: Iterable[bytes],
        within: int,
        notes: Mapping[bytes, bytes],
        looks: Mapping[bytes, bytes] = NO_LOOKS,
    ) -> Flow[list[Claim]]:
        while True:
            to_send = self._not_cached(digests, within, looks)
            session, view = self._claims.session, self._dispatcher.current_view()
            with session.claiming() as reserved:
                answers = yield from self._claims.claim(
                    session, reserved, to_send, within, notes, looks=looks
                )
                if answers is not None:
                    if self._cache.size:
                        seen = [
                            looks.get(key, key)
                            for key, answer in answers.items()
                            if answer is Claim.SEEN
                        ]
                        self._cache_seen(seen, view)
                    in_order = []
                    for key in digests:
                        in_order.append(answers.setdefault(key, Claim.SEEN))
                        if answers[key] is Claim.NEW:
                            answers[key] = Claim.BUSY
                    return in_order
            yield from self._claims.begin_anew(session)
