"""How threads share a filter with few connections: ``python -m bench.threads`` prints the longest wait, and calls by thread."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from time import monotonic

from tbloom import TimeBloom
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import needed

SECONDS = 3.0


def row(url: str, most: int, threads: int) -> str:
    """Return a row of the table, for threads that ask as often as they can."""
    calls, waits, errors = Counter[int](), Counter[int](), Counter[str]()
    begin = threading.Barrier(threads)

    with TimeBloom.from_url(f"{url}?max_connections={most}", "threads") as seen:
        seen.add("a")

        def ask(thread: int) -> None:
            begin.wait()
            now = monotonic()
            end = now + SECONDS
            while now < end:
                before = now
                try:
                    seen.contains("a")
                except Exception as error:  # noqa: BLE001 - counted
                    errors[type(error).__name__] += 1
                now = monotonic()
                calls[thread] += 1
                waits[thread] = max(waits[thread], round(1000 * (now - before)))

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(ask, range(threads)))
    figures = (
        calls.total() / SECONDS,
        min(calls.values()),
        max(calls.values()),
        max(waits.values()),
    )
    cells = [most, threads, *(f"{figure:,.0f}" for figure in figures), errors.total()]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print the table."""
    print("| max_connections | threads | calls/s | fewest | most | longest wait (ms) | errors |")
    print("|---|---|---|---|---|---|---|")
    with LocalRedis(needed()) as server:
        for most, threads in product((2, 10, 50), (1, 20, 30)):
            print(row(server.url, most, threads), flush=True)


if __name__ == "__main__":
    main()
