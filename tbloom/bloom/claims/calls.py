"""The calls of the scripts in ``lua/bloom/claims``, one function for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from tbloom.bloom.batch import FilterBatch
from tbloom.bloom.claims.session import Reserved, Session
from tbloom.engine.flow import Call
from tbloom.engine.scripts import Script

_CLAIM = Script("bloom/claims/claim")
_COMMIT = Script("bloom/claims/commit")
_RELEASE = Script("bloom/claims/release")
_HEARTBEAT = Script("bloom/claims/heartbeat")
_ABANDONED = Script("bloom/claims/abandoned")

#: Return a number in the format of the scripts. It is a bound method, because every claim uses it.
_hex: Callable[[int], str] = "{:08x}".format

#: The keys of a shard's claims, and of its sessions.
Keys = tuple[str, str]


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
    session: Session,
    reserved: Reserved,
    *,
    ttl_ms: int,
    previous_owner: str,
    notes: Mapping[bytes, str],
) -> Call:
    """Return a call that claims the items, with their notes. The batch must have a lane.

    It replaces claims that the session holds already, and on which no caller here works.
    """
    header, keys = batch.header, batch.header.view.config.keys
    config, state, *parts = header.keys
    earlier = reserved.earlier
    return _CLAIM.call(
        (config, state, keys.claims(batch.shard), keys.sessions(batch.shard), *parts),
        (
            batch.lane.token,
            header.packed,
            session.name,
            ttl_ms,
            f"{batch.within:04x}",
            previous_owner,
            header.pack(batch.digests, with_digests=True),
            _hex(reserved.call),
            "".join(_hex(earlier[digest]) for digest in batch.digests)
            if any(earlier.values())
            else "",
            *(map(notes.__getitem__, batch.digests) if notes else ()),
        ),
    )


def commit(batch: FilterBatch, session: str = "") -> Call:
    """Return a call that adds the items, and ends the session's claims on them. The batch must have a lane.

    An import has no session, and ends no claims.
    """
    header = batch.header
    config, state, *parts = header.keys
    keys = config, state, header.view.config.keys.claims(batch.shard), *parts
    items = header.pack(batch.digests, with_digests=True)
    return _COMMIT.call(keys, (batch.lane.token, header.packed, session, items))


def release(
    keys: Keys,
    session: Session,
    how: str,
    digests: Iterable[bytes],
    numbers: Iterable[int] = (),
) -> Call:
    """Return a call that ends claims by calls up to these numbers. ``release.lua`` has the values of ``how``."""
    words = session.name, how, b"".join(digests), "".join(map(_hex, numbers))
    return _RELEASE.call(keys, words)


def heartbeat(keys: Keys, session: str, ttl_ms: int, expires: int) -> Call:
    """Return a call that keeps a session alive, or ends it, and whose reply has all sessions."""
    return _HEARTBEAT.call(keys, (session, ttl_ms, expires))


def abandoned(
    keys: Keys, cursor: str, count: int, prefix: str, handled: Mapping[str, int], *, wanted: bool
) -> Call:
    """Return a call that finds claims of dead sessions on one page, and deletes the ``handled`` sessions."""
    words = [word for session in handled.items() for word in session]
    return _ABANDONED.call(keys, (cursor, count, int(wanted), prefix, *words))
