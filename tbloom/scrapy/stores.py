"""The stores of a crawl, which decide by themselves during an outage."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from functools import cache, partial
from typing import Any

from tbloom import Claim, ExactFilter, TimeBloom
from tbloom.bloom.verbs import Verbs
from tbloom.exact.verbs import DEFAULT_TTL
from tbloom.items import Item, check_ttl
from tbloom.scrapy.outage import CrawlStore, now_ms


class CrawlExact(CrawlStore, ExactFilter):
    """A crawl's ``ExactFilter``."""

    def __init__(self, *args: Any, **arguments: Any) -> None:
        super().__init__(*args, **arguments)
        #: How long an item is remembered by default.
        self.ttl = arguments.get("ttl", DEFAULT_TTL)

    def add(self, item: Item, ttl: float | timedelta | None = None) -> bool:
        """See ``ExactFilter.add``."""
        return self._add(super().add, item, ttl, ExactFilter.add_many)

    def add_many(self, items: Iterable[Item], ttl: float | timedelta | None = None) -> list[bool]:
        """See ``ExactFilter.add_many``."""
        return self._add_many(super().add_many, items, ttl, ExactFilter.add_many)

    def contains(self, item: Item) -> bool:
        """See ``ExactFilter.contains``."""
        return self._decide(
            partial(super().contains, item), lambda: not self._is_new(item, self.ttl)
        )

    def _oldest(self, argument: Any) -> int:
        return now_ms() - check_ttl(self.ttl if argument is None else argument)


@cache
def _adding(keep: int | None) -> Any:
    """What gives items to the server after an outage; one object for each ``keep``."""
    return partial(TimeBloom.add_many, keep=keep)


class CrawlBloom(CrawlStore, TimeBloom):
    """A crawl's ``TimeBloom``."""

    def add(self, item: Item, within: int | None = None, keep: int | None = None) -> bool:
        """See ``TimeBloom.add``."""
        verb = self._add_in_flow if self.circuit.is_open else super().add
        return self._add(partial(verb, keep=keep), item, within, _adding(keep))

    def add_many(
        self, items: Iterable[Item], within: int | None = None, keep: int | None = None
    ) -> list[bool]:
        """See ``TimeBloom.add_many``."""
        verb = partial(super().add_many, keep=keep)
        return self._add_many(verb, items, within, _adding(keep))

    def contains(self, item: Item, within: int | None = None) -> bool:
        """See ``TimeBloom.contains``."""
        verb = self._contains_in_flow if self.circuit.is_open else super().contains
        return self._decide(partial(verb, item, within), lambda: not self._is_new(item, within))

    # The usual call of these verbs passes no flow, and so no circuit breaker.

    def _add_in_flow(self, item: Item, within: int | None, keep: int | None) -> bool:
        return self.run(Verbs.add.flow(self, item, within, keep))

    def _contains_in_flow(self, item: Item, within: int | None) -> bool:
        return self.run(Verbs.contains.flow(self, item, within))

    def claim(
        self, item: Item, within: int | None = None, note: str = "", previous_owner: str = ""
    ) -> Claim:
        """See ``TimeBloom.claim``."""
        return self.claim_many([item], within, [note], previous_owner)[0]

    def claim_many(
        self,
        items: Iterable[Item],
        within: int | None = None,
        notes: Iterable[str] | None = None,
        previous_owner: str = "",
    ) -> list[Claim]:
        """See ``TimeBloom.claim_many``."""
        items = list(items)
        notes = [""] * len(items) if notes is None else list(notes)
        verb = super().claim_many

        def ask() -> list[Claim]:
            answers = verb(items, within, notes, previous_owner)
            for item, answer in zip(items, answers, strict=True):
                if answer is not Claim.BUSY:
                    give = None if answer is Claim.NEW else TimeBloom.add_many
                    self._remember(item, within, give)
            return answers

        def otherwise() -> list[Claim]:
            if previous_owner:  # only the server knows if another process has it now
                self._forget(items)
            give = CrawlBloom._claim_again
            are_new = [
                self._schedule(item, within, give, note)
                for item, note in zip(items, notes, strict=True)
            ]
            return [Claim.NEW if is_new else Claim.SEEN for is_new in are_new]

        return self._decide(ask, otherwise)

    def commit_many(self, items: Iterable[Item], keep: int | None = None) -> None:
        """See ``TimeBloom.commit_many``; a heartbeat makes up for it."""
        items = list(items)
        self._decide(partial(super().commit_many, items, keep), lambda: None)
        for item in items:
            self._remember(item, None, _adding(keep))

    def release(self, item: Item) -> None:
        """See ``TimeBloom.release``."""
        self.release_many([item])

    def release_many(self, items: Iterable[Item]) -> None:
        """See ``TimeBloom.release_many``; a heartbeat makes up for it."""
        items = list(items)
        self._forget(items)
        own = self._claims.own
        # Else they would be busy here until the server knows of it.
        self._decide(
            partial(super().release_many, items), lambda: own.give_up(self.config.digests_of(items))
        )

    def _hand_over(self) -> None:
        self._forget_cached()  # the server may have forgotten what the cache has
        super()._hand_over()

    def _oldest(self, argument: Any) -> int:
        oldest: int = self.config.window.live(now_ms(), argument)[0].start
        return oldest

    def _forget(self, items: Iterable[Item]) -> None:
        for item in items:
            self._asked.pop(item, None)

    def _claim_again(self, items: list[Item], within: int | None) -> None:
        """Claims what was scheduled without the server; this process works on it whatever the answer is."""
        notes = [self._asked[item].note for item in items]
        TimeBloom.claim_many(self, items, within, notes, previous_owner=self.session)
        for item in items:
            self._remember(item, within, None)
