"""The search for claims of dead sessions.

A session is one process's use of one filter object. When a session dies, its claims are free: a search deletes claims without a
note, and another session takes over claims with a note.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from tbloom.bloom.claims import calls
from tbloom.bloom.config import Config
from tbloom.engine.flow import Flow, request, text

#: The approximate number of claims that one call looks at, and the most calls to a shard in one turn of a clean-up.
_PAGE, _PAGES = 100, 50


class Sessions(NamedTuple):
    """The sessions that a shard knows."""

    #: The server's clock (ms).
    now: int
    #: Until when each session counts as alive (ms).
    alive_until: dict[str, int]

    @property
    def any_dead(self) -> bool:
        """True if one of the sessions is dead."""
        return any(until <= self.now for until in self.alive_until.values())


class Abandoned(NamedTuple):
    """A dead session's claim of an item."""

    slices: int
    note: str


#: Claim these items, and return how many of them were new.
Claimer = Callable[[dict[bytes, Abandoned]], Flow[int]]


@dataclass(slots=True)
class _Search:
    """A search in one shard; ``cursor`` is None once it has ended."""

    shard: int
    prefix: str
    #: The sessions that died before the search began, and until when each counted as alive. They are deleted at the end of the
    #: search, unless some of their claims remain.
    dead: dict[str, int]
    cursor: str | None = "0"
    #: Whether claims with a note may remain.
    some_remain: bool = False


class Searches:
    """One client's searches in the shards of a filter."""

    def __init__(self, config: Config) -> None:
        self._config = config
        #: By shard, and by the prefix of the notes; None: clean-ups.
        self._searches: dict[tuple[int, str | None], _Search] = {}

    def clean_up(self, sessions: dict[int, Sessions]) -> Flow[None]:
        """Delete claims without a note. If there are very many claims, look at some of them; the next call continues."""
        for shard, of_shard in sessions.items():
            search = self._searches.get((shard, None))
            if search is None or (search.cursor is None and of_shard.any_dead):
                search = self._begin(shard, None, of_shard)
            for _ in range(_PAGES):
                if search.cursor is None:
                    break
                yield from self._next_page(search)

    def take_over(
        self, sessions: dict[int, Sessions], claim: Claimer, limit: int, prefix: str
    ) -> Flow[None]:
        """``claim`` at most ``limit`` items whose notes begin with ``prefix``. Stop earlier only if no more are left."""
        for shard, of_shard in sessions.items():
            search = self._searches.get((shard, prefix))
            if search:  # it may have stopped at its limit
                limit = yield from self._finish(search, claim, limit)
            # The first search looks at all claims, because their sessions may have been deleted.
            if limit and (search is None or of_shard.any_dead):
                search = self._begin(shard, prefix, of_shard)
                limit = yield from self._finish(search, claim, limit)

    def _begin(self, shard: int, prefix: str | None, sessions: Sessions) -> _Search:
        # A session that dies in this millisecond may still claim items that the search has passed, so it is not deleted yet.
        dead = {name: end for name, end in sessions.alive_until.items() if end < sessions.now}
        search = self._searches[shard, prefix] = _Search(shard, prefix or "", dead)
        return search

    def _finish(self, search: _Search, claim: Claimer, limit: int) -> Flow[int]:
        """Continue a search until it ends or reaches the limit. Return how many more items may be claimed."""
        while search.cursor and limit:
            limit -= yield from self._next_page(search, claim, limit)
        return limit

    def _next_page(
        self, search: _Search, claim: Claimer | None = None, limit: int = 0
    ) -> Flow[int]:
        """Look at the next page of a search. ``claim`` up to ``limit`` of its items, and return how many were new."""
        cursor, remaining, found = yield from self._page(search, wanted=claim is not None)
        claimed = 0
        # The page is not read again after each call: if none of its items is new, that would never end.
        while claim and found:
            if claimed == limit:
                return claimed  # the next call reads this page again
            some = dict(islice(found.items(), limit - claimed))
            new = yield from claim(some)
            if new < len(some):  # this process may be busy with the others
                search.some_remain = True
            claimed += new
            for digest in some:
                del found[digest]
        if remaining:
            search.some_remain = True
        search.cursor = None if cursor == "0" else cursor
        if search.cursor is None and not search.some_remain:
            yield from self._page(search, wanted=False, handled=search.dead)
        return claimed

    def _page(
        self, search: _Search, *, wanted: bool, handled: dict[str, int] | None = None
    ) -> Flow[tuple[str, int, dict[bytes, Abandoned]]]:
        """Return the next cursor, the number of claims that remain, and the claims to take over.

        The server deletes the ``handled`` sessions.
        """
        keys = self._config.keys.claims(search.shard), self._config.keys.sessions(search.shard)
        call = calls.abandoned(
            keys, search.cursor or "0", _PAGE, search.prefix, handled or {}, wanted=wanted
        )
        [[_, reply]] = yield from request([call])
        cursor, remaining, *words = reply
        found = {
            # The filter may have had more slices when the item was claimed.
            bytes.fromhex(text(digest)): Abandoned(
                min(int(text(slices), 16) or 1, self._config.slices), text(note)
            )
            for digest, slices, note in zip(words[::3], words[1::3], words[2::3], strict=True)
        }
        return text(cursor), remaining, found
