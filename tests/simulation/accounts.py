"""What is promised, as small models: what callers were told, and what a store must answer for it.

Each account hears of every question and answer of a schedule (``asks``, ``told``), is checked after each move
(``check``), and closes at the end (``close``), when nothing is in flight and nothing is late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tbloom import Claim
from tests.helpers.flows import flow_of
from tests.simulation.player import Question, run

if TYPE_CHECKING:
    from tests.simulation.server import Server

_ADDS = {"add", "add_many"}
#: The item of a store that is there already.
_FIRST = "first"


class Account:
    """Of a store to which items are added.

    - Of all callers that ask for an item until they have an answer, exactly one is told that it is new, whatever replies were
      lost, and however often they asked.
    - An item of which somebody was told, new or seen, is found.
    - The number of items that the store counts is the number of new ones.
    - Each key leaves by itself; a clear leaves only lanes, by which late copies of calls are known.
    - Nothing is promised for an item that somebody was asking for while another client cleared the store: it may be new again.
    """

    def __init__(self, server: Server, make: Callable[[], Any], name: str, *, counts: bool = True, leaves: bool = True) -> None:  # fmt: skip
        self.server, self.make, self.name = server, make, name
        self._counts, self._leaves = counts, leaves
        #: How often each item was told new since the last clear, and those of which somebody was told.
        self.new, self.told_of = Counter[Any](), set[Any]()
        #: What callers ask for now, and the items for which a clear came between.
        self._asked: dict[Any, tuple[Any, ...]] = {}
        self.forgiven = set[Any]()

    def begins(self, stores: Iterable[Any]) -> None:
        """The store is there, with an item, and these clients know it."""
        run(self.server, flow_of(self.make(), "add", _FIRST))
        self.new[_FIRST] = 1
        self.told_of.add(_FIRST)
        for store in stores:
            run(self.server, flow_of(store, "add", _FIRST))

    def asks(self, caller: Any, question: Question) -> None:
        """A caller asks, perhaps once more."""
        self._asked[caller] = _items(question) if question[0] in _ADDS else ()

    def told(self, caller: Any, question: Question, answer: Any) -> None:
        """A caller has its answer."""
        verb, _ = question
        self._asked.pop(caller, None)
        if verb in _ADDS:
            items = _items(question)
            answers = [answer] if verb == "add" else answer
            self.told_of.update(items)
            self.new.update(item for item, is_new in zip(items, answers, strict=True) if is_new)

    def clears(self) -> None:
        """Another client clears the store, at once."""
        run(self.server, flow_of(self.make(), "clear"))
        left = [key for key in self.server.keys(self.name) if b":lane:" not in key]
        assert not left, f"a clear leaves {left}"
        self.forgiven |= {item for items in self._asked.values() for item in items}
        self.new.clear()
        self.told_of.clear()

    def check(self) -> None:
        """After each move: nobody was told twice that an item is new."""
        twice = [
            item for item, times in self.new.items() if times > 1 and item not in self.forgiven
        ]
        assert not twice, f"new more than once: {twice}"

    def close(self, callers: Iterable[Any]) -> None:  # noqa: ARG002 - a subclass needs them
        """At the end."""
        store = self.make()
        promised = sorted(self.told_of - self.forgiven)
        never = [item for item in promised if not self.new[item]]
        assert not never, f"new to nobody: {never}"
        found = run(self.server, flow_of(store, "contains_many", promised)) if promised else []
        lost = [item for item, is_there in zip(promised, found, strict=True) if not is_there]
        assert not lost, f"lost: {lost}"
        if self._counts and not self.forgiven:
            counted = run(self.server, flow_of(store, "info")).items
            assert counted == len(promised), f"{counted} items are counted, {len(promised)} are new"
        if self._leaves:
            for_ever = self.server.without_ttl(self.name)
            assert not for_ever, f"never leave: {for_ever}"


class ClaimAccount(Account):
    """Of items that sessions claim.

    - At any moment at most one living session has been told that it works on an item.
    - An item is told seen once somebody has begun to commit it, not before; from the end of a commit on it is found, and
      seen to everybody.
    - A claim that was released, or whose session has ended, can be had again: no item is lost.
    """

    def __init__(self, server: Server, make: Callable[[], Any], name: str) -> None:
        super().__init__(server, make, name)
        #: By item, the stores that were told NEW and have not begun to end their claims.
        self.holders: dict[Any, set[Any]] = {}
        self.committing, self.committed = set[Any](), set[Any]()
        #: Stores whose sessions may have ended: others may claim what was theirs.
        self.dead = set[Any]()

    def asks(self, caller: Any, question: Question) -> None:
        verb, (item, *_) = question
        if verb in ("commit", "release", "abandon_many"):
            for each in [item] if isinstance(item, str) else item:
                self.holders.get(each, set()).discard(caller.store)
                if verb == "commit":
                    self.committing.add(each)

    def told(self, caller: Any, question: Question, answer: Any) -> None:
        verb, (item, *_) = question
        if verb == "claim" and answer is Claim.NEW:
            assert item not in self.committed, f"{item} is new after its commit"
            self.holders.setdefault(item, set()).add(caller.store)
        if verb == "claim" and answer is Claim.SEEN:
            assert item in self.committing, f"{item} is seen, and nobody has committed it"
        if verb == "commit":
            self.committed.add(item)

    def dies(self, store: Any) -> None:
        """A session ends without a word: its heartbeats have stopped for longer than its claims last."""
        self.dead.add(store)

    def check(self) -> None:
        for item, holders in self.holders.items():
            assert len(holders - self.dead) <= 1, f"two living sessions work on {item}"

    def close(self, callers: Iterable[Any]) -> None:
        store = self.make()
        for caller in callers:  # what they have not ended themselves ends with their sessions
            run(self.server, flow_of(caller.store, "end_session"))
        for item in sorted({*self.holders, *self.committing}):
            found = run(self.server, flow_of(store, "contains", item))
            assert found or item not in self.committed, f"{item} was committed, and is lost"
            answer = run(self.server, flow_of(store, "claim", item))
            expected = Claim.SEEN if found else Claim.NEW
            assert answer is expected, f"{item} is {answer} at the end, not {expected}"
        for_ever = self.server.without_ttl(self.name)
        assert not for_ever, f"never leave: {for_ever}"


def _items(question: Question) -> tuple[Any, ...]:
    verb, (first, *_) = question
    return (*first,) if verb.endswith("_many") else (first,)
