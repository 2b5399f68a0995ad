"""Claims: leases on items. A claimed item is seen only once the work on it is done.

Each shard has a hash of claims, with an entry for each claimed item, and a hash of sessions
(see ``sessions``).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

from tbloom.bloom import calls
from tbloom.bloom.batch import FilterBatch
from tbloom.bloom.claims.held import Claim, Session
from tbloom.bloom.dispatcher import FilterDispatcher
from tbloom.engine.dispatcher import Agreement
from tbloom.engine.flow import Call, Flow
from tbloom.engine.forks import BeginsAnew
from tbloom.engine.scripts import Script
from tbloom.errors import TBloomError

_CLAIM = Script("bloom/claims/claim")
_RELEASE = Script("bloom/claims/release")

_CLAIMS = {"1": Claim.NEW, "0": Claim.SEEN, "2": Claim.BUSY}


class Claims(BeginsAnew):
    """The claims of one client, as flows (see ``bloom/verbs``). Items are given by their digests."""

    def __init__(self, dispatcher: FilterDispatcher, ttl_ms: int) -> None:
        self.dispatcher = dispatcher
        self.ttl_ms = ttl_ms
        super().__init__()

    def begin(self) -> None:
        """Start a session without claims. A forked child has a session of its own."""
        self.own: Session = Session()

    def claim(
        self,
        session: Session,
        number: str,
        digests: Iterable[bytes],
        within: int,
        notes: Mapping[bytes, str],
        *,
        previous_owner: str = "",
    ) -> Flow[dict[bytes, Claim]]:
        """Claim the new items in the call with this number, and return the answer for each item."""
        answers = dict.fromkeys(
            digests, Claim.BUSY
        )  # for items that another thread or task here claims
        if session.to_release and (given_up := session.given_up(answers)):
            yield from self._release(session, given_up, "abandon")
        reserved = session.reserve(answers, number, handed_over=bool(previous_owner))
        batches = self.dispatcher.batches(reserved, within)
        session.shards.update(batch.shard for batch in batches)
        sent = list[Call]()

        def claim_call(batch: FilterBatch) -> Call:
            """Return a call of ``lua/bloom/claims/claim.lua``."""
            header = batch.header
            config, state, *parts = header.keys
            call = _CLAIM.call(
                (config, state, *self.keys_of(batch.shard), *parts),
                (
                    header.packed,
                    session.name,
                    self.ttl_ms,
                    session.least,
                    f"{within:04x}",
                    previous_owner,
                    header.pack(batch.digests, with_digests=True),
                    number,
                    *([notes.get(key, "") for key in batch.digests] if notes else ()),
                ),
            )
            sent.append(call)
            return call

        yield from self.dispatcher.send(batches, claim_call, Agreement.STORED)
        for digest, answer in _answered(batches):
            answers[digest] = _CLAIMS[answer]
            if answer != "1":
                session.claimed.pop(digest, None)
        if any(call.is_resent for call in sent):
            session.note_late_copies(reserved, number)
        return answers

    def commit(self, digests: Iterable[bytes], age: int) -> Flow[None]:
        """Mark the items as seen, in the slice of this age, because the work on them is done."""
        session, batches = self.own, self.dispatcher.batches(digests, age + 1, age)
        try:
            yield from self.dispatcher.send(
                batches,
                lambda batch: calls.commit(batch, session.name),
                Agreement.STORED,
            )
        except TBloomError:
            raise
        except BaseException:  # also GeneratorExit: the driver met an error
            session.to_commit |= {key: age for batch in batches for key in batch.digests}
            raise
        finally:
            for digest, _ in _answered(batches):
                session.claimed.pop(digest, None)
                session.to_commit.pop(digest, None)

    def release(self, digests: Iterable[bytes], how: str = "release") -> Flow[None]:
        """End claims of items that are not done. For ``how`` see ``lua/bloom/claims/release.lua``."""
        session, numbers = self.own, dict[bytes, str]()
        for digest in digests:
            session.to_commit.pop(digest, None)
            number = session.claimed.get(digest) or session.to_release.get(digest)
            if number or how == "dead":
                numbers[digest] = number or ""
        yield from self._release(session, numbers, how)

    def retry_failed(self) -> Flow[None]:
        """Repeat commits that ended in an error, and release claims whose answers were lost.

        Released claims with a note wait to be taken over. A refused commit is dropped; its error is raised at the end.
        """
        session = self.own
        # Items stay noted until the server answers, so that a claim of one of them meanwhile sends a release of its own first.
        if session.to_release:
            yield from self._release(session, {**session.to_release}, "abandon")
        refused = None
        by_age: dict[int, list[bytes]] = {}
        for digest, age in [*session.to_commit.items()]:
            by_age.setdefault(age, []).append(digest)
        for age, digests in by_age.items():
            # FilterBatch by batch, because a full slice refuses only its own items.
            for batch in self.dispatcher.batches(digests, age + 1, age):
                items = [*batch.digests]
                try:
                    yield from self.commit(items, age)
                except TBloomError as error:  # the next try would fail too
                    refused = error
                    for digest in items:
                        session.to_commit.pop(digest, None)
        if refused is not None:
            raise refused

    def _release(self, session: Session, numbers: dict[bytes, str], how: str) -> Flow[None]:
        def release_call(batch: FilterBatch) -> Call:
            """Return a call of ``lua/bloom/claims/release.lua``."""
            claimed_as = "".join([numbers[digest] for digest in batch.digests])
            words = (session.name, how, b"".join(batch.digests), claimed_as, session.least)
            return _RELEASE.call(self.keys_of(batch.shard), words)

        batches = self.dispatcher.batches(numbers, 1)
        try:
            yield from self.dispatcher.send(batches, release_call, Agreement.NONE)
        finally:
            done = {digest: numbers.pop(digest) for digest, _ in _answered(batches)}
            session.end(done)
            if how != "dead":
                session.release_later(numbers)

    def keys_of(self, shard: int) -> tuple[str, str]:
        """Return the keys of a shard's claims, and of its sessions."""
        keys = self.dispatcher.config.keys
        return keys.claims(shard), keys.sessions(shard)


def _answered(batches: list[FilterBatch]) -> Generator[tuple[bytes, str]]:
    """Yield the items that have an answer, with it. A batch may have fewer answers than items."""
    for batch in batches:
        yield from zip(batch.digests, batch.answers or "", strict=False)
