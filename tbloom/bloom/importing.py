"""The flow of ``import_many``: remembers items that were seen elsewhere in a chosen slice."""

from __future__ import annotations

from tbloom.bloom.claims.commit import commit_call
from tbloom.bloom.exchange import FilterExchange
from tbloom.bloom.info import ask_time
from tbloom.engine.flow import Flow


def import_many(exchange: FilterExchange, digests: list[bytes], label: str | None) -> Flow[int]:
    """Remembers the items in the slice with that label, or with None in the current one.

    Items that this slice or a newer one holds are not written: they stay at least as long. Returns
    how many were written. A repeated call writes nothing twice, so items that were written by a call
    whose reply got lost are not counted.
    """
    if label is not None and label not in exchange.current_calls().labels:
        # The client's clock may be wrong.
        yield from ask_time(exchange.config, exchange.clock)
        exchange.current_calls().check_live(label)
    batches = exchange.batches(digests, label)
    yield from exchange.ask(batches, lambda batch: commit_call(batch.known, batch), store=True)
    return sum((batch.answers or "").count("1") for batch in batches)
