"""The flow of a count, chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence

from tbloom.distinct.config import ALWAYS, STORED_MAPPING
from tbloom.distinct.exchange import CHUNK, CountExchange, refusal
from tbloom.distinct.selection import Selection
from tbloom.engine.exchange import CLOCK_CHANGED, MAX_CORRECTIONS, too_many_corrections
from tbloom.engine.flow import Flow, ScriptCall, Status, deliver, text
from tbloom.engine.scripts import Script

_COUNT = Script("distinct/count")

#: The limit of bitmaps in one call.
_BITMAPS_PER_CALL = 1000


def count(exchange: CountExchange, operation: str, operands: Sequence[Selection]) -> Flow[int]:
    """The number of members in any operand (``or``), in all (``and``), or in an odd number of them (``xor``)."""
    for _ in range(MAX_CORRECTIONS):
        counted = yield from _count_at(exchange, operation, operands)
        if counted is not None:
            return counted
    raise too_many_corrections(exchange.config.name, CLOCK_CHANGED)


def _count_at(
    exchange: CountExchange, operation: str, operands: Sequence[Selection]
) -> Flow[int | None]:
    """The same with the slices that the client believes live; None: others are, or the mapping was cleared."""
    keys, now = exchange.config.keys, exchange.clock.now()
    labels = [operand.labels(now) for operand in operands]
    slices = [
        (operand.config, label)
        for operand, some in zip(operands, labels, strict=True)
        for label in some
    ]
    currents = [current for operand in operands if (current := operand.current(now))]
    begins = max((current.start for current in currents), default=ALWAYS.start)
    ends = min((current.end for current in currents), default=ALWAYS.end)
    counters = [*dict.fromkeys(operand.config for operand in operands)]
    configs = [config for config, _ in slices]
    fixed_keys = (
        keys.config(),
        keys.layout(),
        keys.members(),
        keys.counters(),
        *(keys.directory(config.name, label) for config, label in slices),
        *map(keys.scratch, range(len(operands) + 1)),
    )
    sizes = " ".join(f"{len(some)}" for some in labels)
    total, following, left, generation = 0, 0, list[int](), ""
    while left or following >= 0:
        named = left[: max(1, _BITMAPS_PER_CALL // len(slices))]
        call = ScriptCall(
            _COUNT,
            (
                *fixed_keys,
                *(
                    keys.bitmap(config.name, label, first // CHUNK)
                    for first in named
                    for config, label in slices
                ),
            ),
            (
                STORED_MAPPING,
                operation,
                begins,
                ends,
                sizes,
                len(counters),
                following,
                generation,
                *(
                    word
                    for config in counters
                    for word in (
                        config.name,
                        config.stored,
                        0 if config.window else configs.index(config) + 1,
                    )
                ),
                *named,
            ),
        )
        [[status, payload, *more]] = yield from deliver([call])
        if status == Status.CLOCK:
            exchange.clock.learn(payload)
        if status in (Status.CLOCK, Status.LAYOUT):
            return None
        if status != Status.OK:
            those = configs if status == Status.OTHER_IDS else counters
            raise refusal(those[more[0] if more else 0], status, payload, *more)
        reached, rest, generation = more[0], more[1], text(more[2])
        total += payload
        if named:
            left = [*rest, *left[len(named) :]]
        else:
            following, left = reached, list(rest)
    return total
