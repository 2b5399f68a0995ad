"""Ways to count distinct ids: DistinctCounter, and those of Redis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import redis
from idsets import Dense, Scenario, bitmap, write

from tbloom import DistinctCounter

COUNTER, BITMAP, SET, HYPERLOGLOG = "DistinctCounter", "a bitmap", "a SET", "HyperLogLog"
VERBS = "count", "and", "or", "xor"
#: Ids per call when a contender is filled.
AT_ONCE = 10_000


def operands(
    scenario: Scenario, bits: Dense | None
) -> list[tuple[str, Sequence[int], bytes | None]]:
    """Both sets' names, ids, and bitmaps if there are such."""
    written = bits or (None, None)
    return [("a", scenario.a, written[0]), ("b", scenario.b, written[1])]


class Counts:
    """Two sets of ids, as one contender stores them."""

    name: str
    #: Its verbs; the answers are exact unless said otherwise.
    verbs: dict[str, Callable[[], int]]
    is_exact = True

    def __init__(self, url: str) -> None:
        self.server = redis.Redis.from_url(url)

    def fill(self, scenario: Scenario, bits: Dense | None) -> None:
        """Stores both sets; ``bits``: the same as bitmaps, if there are too many to add."""
        raise NotImplementedError

    def item(self, number: int) -> Any:
        """The item that is added for an id."""
        return number

    def add(self, item: Any) -> Any:
        """Adds to the first set; answers if the item is new in it."""
        raise NotImplementedError

    def add_many(self, items: Sequence[Any]) -> Sequence[Any]:
        raise NotImplementedError

    def own_keys(self) -> list[str]:
        """Those of the first set."""
        return [f"{self.name} a"]

    def close(self) -> None:
        self.server.unlink(f"{self.name} a", f"{self.name} b", f"{self.name} both")
        self.server.close()

    def _both(self, *commands: tuple[Any, ...]) -> list[Any]:
        with self.server.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            return pipeline.execute()


class OurCounts(Counts):
    name = COUNTER

    def __init__(self, url: str, names: dict[int, str]) -> None:
        super().__init__(url)
        self.names = names
        self.a, self.b = (DistinctCounter.from_url(url, name) for name in "ab")
        self.verbs = {
            "count": self.a.count,
            **{verb: self._two(getattr(self.a, f"count_{verb}")) for verb in VERBS[1:]},
        }

    def _two(self, count: Callable[..., int]) -> Callable[[], int]:
        return lambda: count(self.b)

    def fill(self, scenario: Scenario, bits: Dense | None) -> None:
        for name, ids, written in operands(scenario, bits):
            counter = getattr(self, name)
            if written is not None:
                write(self.server, counter, written)
            else:
                assert all(counter.add_many(self.names[number] for number in ids))

    def item(self, number: int) -> str:
        return self.names[number]

    def add(self, item: str) -> bool:
        return self.a.add(item)

    def add_many(self, items: Sequence[str]) -> list[bool]:
        return self.a.add_many(items)

    def own_keys(self) -> list[str]:
        keys = self.a.config.keys
        bitmaps = keys.bitmap("a", "all", 0).removesuffix("0") + "*"
        return [keys.directory("a", "all"), *self.server.scan_iter(bitmaps, count=10_000)]

    def close(self) -> None:
        for counter in (self.a, self.b):
            counter.clear()
            counter.close()
        super().close()


class Bitmap(Counts):
    name = BITMAP

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.verbs = {
            "count": lambda: self.server.bitcount(f"{BITMAP} a"),
            **{verb: self._operation(verb) for verb in VERBS[1:]},
        }

    def _operation(self, verb: str) -> Callable[[], int]:
        a, b, both = (f"{BITMAP} {name}" for name in ("a", "b", "both"))
        commands = [("BITOP", verb, both, a, b), ("BITCOUNT", both), ("UNLINK", both)]
        return lambda: self._both(*commands)[1]

    def fill(self, scenario: Scenario, bits: Dense | None) -> None:
        size = max(map(max, (scenario.a, scenario.b, scenario.spare))) // 8 + 1
        for name, ids, written in operands(scenario, bits):
            self.server.set(f"{BITMAP} {name}", written or bitmap(ids, size))

    def add(self, item: int) -> bool:
        return not self.server.setbit(f"{BITMAP} a", item, 1)

    def add_many(self, items: Sequence[int]) -> list[bool]:
        return [not was for was in self._both(*(("SETBIT", f"{BITMAP} a", i, 1) for i in items))]


class Set(Counts):
    name = SET

    def __init__(self, url: str) -> None:
        super().__init__(url)
        a, b, both = (f"{SET} {name}" for name in ("a", "b", "both"))
        size, common = ("SCARD", a), ("SINTERCARD", 2, a, b)
        self.verbs = {
            "count": lambda: self.server.scard(a),
            "and": lambda: self.server.execute_command(*common),
            "or": lambda: self._both(("SUNIONSTORE", both, a, b), ("UNLINK", both))[0],
            "xor": lambda: self._odd(*self._both(size, ("SCARD", b), common)),
        }
        try:
            self.verbs["and"]()
        except redis.ResponseError:  # before Redis 7.0
            del self.verbs["and"], self.verbs["xor"]

    @staticmethod
    def _odd(a: int, b: int, common: int) -> int:
        return a + b - 2 * common

    def fill(self, scenario: Scenario, bits: Dense | None) -> None:
        if bits:  # millions take a second for each of the other verbs
            self.verbs = {"count": self.verbs["count"]}
        for name, ids, _ in operands(scenario, bits)[: 1 if bits else 2]:
            for start in range(0, len(ids), AT_ONCE):
                self.server.sadd(f"{SET} {name}", *ids[start : start + AT_ONCE])

    def add(self, item: int) -> int:
        return self.server.sadd(f"{SET} a", item)

    def add_many(self, items: Sequence[int]) -> list[int]:
        return self._both(*(("SADD", f"{SET} a", i) for i in items))


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

    def fill(self, scenario: Scenario, bits: Dense | None) -> None:
        for name, ids, _ in operands(scenario, bits):
            for start in range(0, len(ids), AT_ONCE):
                self.server.pfadd(f"{HYPERLOGLOG} {name}", *ids[start : start + AT_ONCE])

    def add(self, item: int) -> int:
        return self.server.pfadd(f"{HYPERLOGLOG} a", item)

    def add_many(self, items: Sequence[int]) -> list[int]:
        return [self.server.pfadd(f"{HYPERLOGLOG} a", *items)]
