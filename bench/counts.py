"""Ways to count distinct ids: DistinctCounter, and those of Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import redis
from idsets import Scenario, bitmap, roaring

from tbloom import DistinctCounter

COUNTER, AGAIN = "DistinctCounter", "DistinctCounter, again"
BITMAP, SET, HYPERLOGLOG = "a bitmap", "a SET", "HyperLogLog"
VERBS = "count", "and", "or", "xor", "andnot"
#: Ids per call when a contender is filled.
AT_ONCE = 10_000
#: Larger SETs are counted only: the other verbs would block the server for seconds.
MOST_IN_SETS = 200_000


class Counts:
    """Two sets of ids, as one contender stores them."""

    name: str
    #: Its verbs; the answers are exact unless said otherwise.
    verbs: dict[str, Callable[[], int]]
    is_exact = True
    #: Whether it stores ids of its own.
    stores = True

    def __init__(self, url: str) -> None:
        self.server = redis.Redis.from_url(url, socket_timeout=None)

    def fill(self, scenario: Scenario) -> None:
        """Stores both sets."""
        raise NotImplementedError

    def add(self, item: int) -> Any:
        """Adds to the first set; answers if the item is new in it."""
        raise NotImplementedError

    def add_many(self, items: Sequence[int]) -> Sequence[Any]:
        raise NotImplementedError

    def own_keys(self) -> list[str]:
        """Those of the first set."""
        return [f"{self.name} a"]

    def close(self) -> None:
        self.server.unlink(f"{self.name} a", f"{self.name} b", f"{self.name} both")
        self.server.close()

    def _pairs(self, scenario: Scenario) -> Iterator[tuple[str, Any]]:
        yield from ((f"{self.name} a", scenario.a), (f"{self.name} b", scenario.b))

    def _all(self, *commands: tuple[Any, ...]) -> list[Any]:
        with self.server.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            return pipeline.execute()


class OurCounts(Counts):
    """What the client has read before is forgotten before each question."""

    name = COUNTER
    keeps = False

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.a, self.b = (DistinctCounter.from_url(url, name, None) for name in "ab")
        self.verbs = {"count": self.a.count, **{verb: self._asking(verb) for verb in VERBS[1:]}}

    def _asking(self, verb: str) -> Callable[[], int]:
        ask, reader = getattr(self.a, f"count_{verb}"), self.a.reader

        def asking() -> int:
            if not self.keeps:
                reader.begin()
            return int(ask(self.b))

        return asking

    def fill(self, scenario: Scenario) -> None:
        for counter, ids in ((self.a, scenario.a), (self.b, scenario.b)):
            counter.from_roaring(roaring(ids).serialize())

    def add(self, item: int) -> bool:
        return self.a.add(item)

    def add_many(self, items: Sequence[int]) -> list[bool]:
        return self.a.add_many(items)

    def own_keys(self) -> list[str]:
        return [self.a.config.keys.piece("a", "all")]

    def close(self) -> None:
        for counter in (self.a, self.b):
            counter.clear()
            counter.close()
        super().close()


class OurCountsAgain(OurCounts):
    """The same counters, asked again."""

    name = AGAIN
    keeps = True
    stores = False

    def __init__(self, url: str) -> None:
        super().__init__(url)
        del self.verbs["count"]

    def fill(self, scenario: Scenario) -> None:
        """They are filled."""

    def close(self) -> None:
        for counter in (self.a, self.b):
            counter.close()
        self.server.close()


class Bitmap(Counts):
    name = BITMAP

    def __init__(self, url: str) -> None:
        super().__init__(url)
        a, b, both = (f"{BITMAP} {name}" for name in ("a", "b", "both"))
        common = [("BITOP", "AND", both, a, b), ("BITCOUNT", both), ("UNLINK", both)]
        self.verbs = {
            "count": lambda: self.server.bitcount(a),
            **{verb: self._operation(verb) for verb in ("and", "or", "xor")},
            "andnot": lambda: self._less(*self._all(("BITCOUNT", a), *common)),
        }

    def _operation(self, verb: str) -> Callable[[], int]:
        a, b, both = (f"{BITMAP} {name}" for name in ("a", "b", "both"))
        commands = [("BITOP", verb, both, a, b), ("BITCOUNT", both), ("UNLINK", both)]
        return lambda: self._all(*commands)[1]

    @staticmethod
    def _less(size: int, _: int, common: int, __: int) -> int:
        return size - common

    def fill(self, scenario: Scenario) -> None:
        for name, ids in self._pairs(scenario):
            self.server.set(name, bitmap(ids))

    def add(self, item: int) -> bool:
        return not self.server.setbit(f"{BITMAP} a", item, 1)

    def add_many(self, items: Sequence[int]) -> list[bool]:
        return [not was for was in self._all(*(("SETBIT", f"{BITMAP} a", i, 1) for i in items))]


class Set(Counts):
    name = SET

    def __init__(self, url: str) -> None:
        super().__init__(url)
        a, b, both = (f"{SET} {name}" for name in ("a", "b", "both"))
        size, common = ("SCARD", a), ("SINTERCARD", 2, a, b)
        self.verbs = {
            "count": lambda: self.server.scard(a),
            "and": lambda: self.server.execute_command(*common),
            "or": lambda: self._all(("SUNIONSTORE", both, a, b), ("UNLINK", both))[0],
            "xor": lambda: self._odd(*self._all(size, ("SCARD", b), common)),
            "andnot": lambda: self._less(*self._all(size, common)),
        }
        try:
            self.verbs["and"]()
        except redis.ResponseError:  # before Redis 7.0
            self.verbs = {verb: self.verbs[verb] for verb in ("count", "or")}

    @staticmethod
    def _odd(a: int, b: int, common: int) -> int:
        return a + b - 2 * common

    @staticmethod
    def _less(size: int, common: int) -> int:
        return size - common

    def fill(self, scenario: Scenario) -> None:
        pairs = [*self._pairs(scenario)]
        if len(scenario.a) > MOST_IN_SETS:
            self.verbs = {"count": self.verbs["count"]}
            pairs = pairs[:1]
        for name, ids in pairs:
            for start in range(0, len(ids), AT_ONCE):
                self.server.sadd(name, *ids[start : start + AT_ONCE].tolist())

    def add(self, item: int) -> int:
        return self.server.sadd(f"{SET} a", item)

    def add_many(self, items: Sequence[int]) -> list[int]:
        return self._all(*(("SADD", f"{SET} a", i) for i in items))


class HyperLogLog(Counts):
    name = HYPERLOGLOG
    is_exact = False

    def __init__(self, url: str) -> None:
        super().__init__(url)
        a, b = (f"{HYPERLOGLOG} {name}" for name in "ab")
        self.verbs = {
            "count": lambda: self.server.pfcount(a),
            "or": lambda: self.server.pfcount(a, b),
        }

    def fill(self, scenario: Scenario) -> None:
        for name, ids in self._pairs(scenario):
            for start in range(0, len(ids), AT_ONCE):
                self.server.pfadd(name, *ids[start : start + AT_ONCE].tolist())

    def add(self, item: int) -> int:
        return self.server.pfadd(f"{HYPERLOGLOG} a", item)

    def add_many(self, items: Sequence[int]) -> list[int]:
        return [self.server.pfadd(f"{HYPERLOGLOG} a", *items)]
