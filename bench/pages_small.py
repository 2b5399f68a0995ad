"""Many small records, once: ``python bench/pages_small.py 10_000_000``, in about half an hour, and 8 GB of disk.

Writes ``pages_small.json`` beside it, from which the page of benchmarks tells it.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

from machine import machine
from stored import body_bytes, draw, opening, read_once, remembered, taken, timed

from tbloom.pages import PageStore

RESULTS = Path(__file__).with_name("pages_small.json")
BODY_BYTES = 200
GETS, ROUNDS = 10_000, 5
#: Parts whose rates are measured separately.
PARTS = 10


def small(path: Path, pages: int) -> dict[str, Any]:
    """Puts ``pages`` small pages into a new store, and gets some."""
    found: dict[str, Any] = {
        "when": datetime.now(timezone.utc).isoformat(timespec="minutes"),
        "machine": machine(),
        "pages": pages,
        "body_bytes": BODY_BYTES,
        "gets": min(GETS, pages),
        "rounds": ROUNDS,
    }
    with PageStore(path) as store:
        found["part_seconds"] = [
            _fill(store, range(part * pages // PARTS, (part + 1) * pages // PARTS))
            for part in range(PARTS)
        ]
        start = time.perf_counter()
        store.flush()
        found["flush_seconds"] = time.perf_counter() - start
        assert pages == len(store)
        info = store.stats()
        found["index_bytes"] = info.index_bytes
        found["segment_bytes"] = info.bytes - info.index_bytes
        read_once(path)
        found["remembered"] = remembered(path)
        found |= _asked(store, pages)
    found["disk_bytes"] = taken(path)["bytes"]
    found["opening"] = opening(path, 3)
    start = time.perf_counter()
    info = PageStore.rebuild(path)
    found["rebuild_seconds"] = time.perf_counter() - start
    assert pages + 1 == info.pages  # with that of ``opening``
    found["rebuilt_index_bytes"] = info.index_bytes
    return found


def url(number: int) -> str:
    return f"https://www.example.com/records/{number}.json"


def _fill(store: PageStore, numbers: range) -> float:
    rng = random.Random(numbers.start)
    start = time.perf_counter()
    for number in numbers:
        # Digits that do not repeat, or they would compress to nothing.
        store.put(url(number), rng.randbytes(BODY_BYTES // 2).hex().encode())
    elapsed = time.perf_counter() - start
    print(f"{numbers.stop:,} pages: {elapsed / len(numbers) * 1e6:.1f} us each", flush=True)
    return elapsed


def _asked(store: PageStore, pages: int) -> dict[str, float]:
    """Seconds per call, of newly drawn pages each time."""
    rng, costs = random.Random(9), []
    for _ in range(ROUNDS):
        known = [url(number) for number in draw(rng, pages, GETS)]
        others = [address + "?" for address in known]
        costs.append(
            (
                timed(body_bytes(store), known, BODY_BYTES * len(known)),
                timed(store.__contains__, known, len(known)),
                timed(store.__contains__, others, 0),
            )
        )
    return {
        name: median(each)
        for name, each in zip(("get", "in", "not_in"), zip(*costs, strict=True), strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pages", type=int)
    parser.add_argument("--folder", type=Path, help="where the store is kept meanwhile")
    parser.add_argument("--json", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="pages-") as folder:
        found = small(Path(folder) / "store", arguments.pages)
    arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
