"""The calls of the scripts in ``lua/claims``, one function for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from itertools import chain
from typing import Any, NamedTuple

from tbloom.bloom.batch import FilterBatch
from tbloom.claims.notes import History, short
from tbloom.claims.record import Record
from tbloom.claims.session import Reserved, Session
from tbloom.claims.stored import SUSPECT
from tbloom.engine.flow import Call
from tbloom.engine.scripts import Script

_CLAIM = Script("claims/claim")
_RELEASE = Script("claims/release")
_HISTORY = Script("claims/history")
_HEARTBEAT = Script("claims/heartbeat")
_TAKE = Script("claims/take")
_BURY = Script("claims/bury")
_LEAVE_FAILED = Script("claims/leave_failed")
_REQUEUE = Script("claims/requeue")
_TELL = Script("claims/tell")

#: Return a number in the format of the scripts. It is a bound method, because every claim uses it.
_hex: Callable[[int], str] = "{:08x}".format

#: The keys of a shard's claims, of its sessions, and of the index of left items.
Keys = tuple[str, str, str]
#: About how many claims one call of ``bury`` looks at: it takes some 1 ms.
_BURIED = 100
#: The most failed items that one call leaves: it takes some 3 ms.
_LEFT_AGAIN = 300


class Hosts(NamedTuple):
    """Hosts that have one owner at a time, as scripts have them."""

    #: The session parts with these: its links to them are left from now on.
    parted: list[str]
    #: It has parted with these before, and has nothing of them any more: any session may own them.
    freed: list[str]


class Claim(Enum):
    """The answer of ``claim``."""

    #: New, and now claimed by you.
    NEW = "new"
    #: Seen within the window.
    SEEN = "seen"
    #: Claimed by a living session, perhaps by another thread of yours, which may yet commit or release it.
    BUSY = "busy"


#: The answers in the reply of ``claim``.
CLAIMS = {"1": Claim.NEW, "0": Claim.SEEN, "2": Claim.BUSY}


def claim(
    batch: FilterBatch,
    owner: str,
    *,
    ttl_ms: int,
    notes: Mapping[bytes, bytes],
    looks: Mapping[bytes, bytes],
    reserved: Reserved,
    again: bool = False,
) -> Call:
    """Return a call that claims the items that are new for a session, or for LEFT leaves them to any session, with their notes.

    The batch must have a lane. ``looks``: what the filter is searched for in place of some items. The call replaces earlier claims of
    the session on which no caller here works. ``again``: items that were seen are left, too.
    """
    header, digests, earlier = batch.header, batch.digests, reserved.earlier
    config, state, *parts = header.keys
    if looks:
        items = b"".join(header.pack([looks.get(each, each)]) + each for each in digests)
    else:
        items = header.pack(digests, with_digests=True)
    replaced = "*" if again else ""
    if any(earlier.values()):
        replaced = "".join(_hex(earlier[each]) for each in digests)
    return _CLAIM.call(
        (config, state, *keys_of(batch), *parts),
        (
            batch.lane.token,
            header.packed,
            owner,
            ttl_ms,
            items,
            _hex(reserved.call),
            replaced,
            *(map(notes.__getitem__, digests) if notes else ()),
        ),
    )


def take(
    batch: FilterBatch,
    session: Session,
    call: int,
    *,
    ttl_ms: int,
    limit: int,
    queue: str,
    waits_ms: int,
) -> Call:
    """Return a call that claims left items of the queue. The batch must have a lane, and no items."""
    header = batch.header
    words = (
        batch.lane.token,
        header.packed,
        session.called_in(batch.shard),
        ttl_ms,
        _hex(call),
        limit,
        queue,
        waits_ms,
        session.queue,
        short(f"{session.name}{call}", 4)[:3],
        SUSPECT,
    )
    return _TAKE.call((*header.keys[:2], *keys_of(batch)), words)


def release(
    keys: Keys,
    session: Session,
    numbers: Mapping[bytes, int],
    digests: Iterable[bytes],
    *,
    leaves: bool,
    hosts: Hosts | None = None,
) -> Call:
    """Return a call that ends claims by calls up to these numbers. If it ``leaves`` items, those with a note are left to any session.

    With ``hosts``, the session parts with some, and frees others.
    """
    digests = [*digests]
    last = "".join(_hex(numbers[digest]) for digest in digests)
    words = (session.name, int(leaves), b"".join(digests), last)
    return _RELEASE.call(keys, (*words, *map("".join, hosts or ())))


def note_history(
    keys: Keys,
    session: Session,
    call: int,
    digests: Iterable[bytes],
    histories: Mapping[bytes, History],
) -> Call:
    """Return a call that changes the histories of items that the session has claimed."""
    given = [(digest, histories[digest]) for digest in digests]
    changes = b"".join(digest + history.stored.encode() for digest, history in given)
    failures = [history.failure for _, history in given]
    return _HISTORY.call(keys, (session.name, _hex(call), changes, *failures))


def requeue(keys: Keys, queue: str | None, moves: Sequence[tuple[bytes, bytes, bytes]]) -> Call:
    """Return a call that gives kept items to another queue as if they were left for the first time, or for None ends their claims.

    A move has the item's digest, what was read of its claim before the note, and its new note (b"": as before). In place of the
    claim, it may have a member of the index that no claim seems to have.
    """
    claims, _, left = keys
    return _REQUEUE.call((claims, left), ("" if queue is None else short(queue, 8), *chain(*moves)))


def tell(key: str, session: str, record: Record, expires: int) -> Call:
    """Return a call that stores what a session tells of itself. The reply has the project that was stored first."""
    counters = (str(word) for pair in record.counters.items() for word in pair)
    words = session, record.text, expires, short(record.queue, 8), record.queue, record.project
    return _TELL.call((key,), (*words, *counters))


def heartbeat(keys: Keys, session: str, ttl_ms: int, expires: int) -> Call:
    """Return a call that keeps a session alive, or ends it. Its reply says whether sessions are dead, and whether this one lives."""
    return _HEARTBEAT.call(keys, (session, ttl_ms, expires))


def bury(keys: Keys) -> Call:
    """Return a call that leaves some claims of dead sessions to any session, and whose reply says whether more calls are needed."""
    return _BURY.call(keys, (_BURIED,))


def leave_failed(keys: Keys, failed: str, queue: str) -> Call:
    """Return a call that leaves some items of the queue ``failed`` to another queue, and whose reply says whether more calls are needed."""
    claims, _, left = keys
    return _LEAVE_FAILED.call((claims, left), (short(failed, 8), short(queue, 8), _LEFT_AGAIN))


def keys_of(batch: FilterBatch) -> Keys:
    """Return the keys of the claims in a batch's shard."""
    return keys_in(batch.header.view.config, batch.shard)


def keys_in(config: Any, shard: int) -> Keys:
    """Return the keys of the claims in a shard of a filter with these parameters."""
    keys = config.keys
    return keys.claims(shard), keys.sessions(shard), keys.left(shard)
