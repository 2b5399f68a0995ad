"""Measure and draw docs/memory.svg and docs/memory-dark.svg: ``python -m bench.memory_plot``.

It shows the memory of four ways to remember what was seen, if a crawl finds new URLs every day. A set forgets nothing, the others
forget after seven days. For the filter, a day takes ten seconds. The others don't wait: what would have expired is deleted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import redis

from bench.contenders import SLICES, raw, set_many
from bench.contest import fingerprints
from bench.pictures import Axes, Colors, save
from bench.serving import Server, fresh
from tbloom import TimeBloom
from tbloom.engine.flow import chunks

DAYS, NEW_A_DAY, DAY_SECONDS = 28, 50_000, 10
#: The URLs of one SADD, or of one pipeline.
_CHUNK = 5000
#: The ways. Daily sets have 16 raw bytes of each fingerprint, a set and keys its 40 digits.
SET, KEYS = "a set, for ever", f"SET NX EX, {SLICES} days"
DAILY, FILTER = f"{SLICES} daily sets", f"tbloom, {SLICES} days"
#: The color of each.
LINES = {SET: 1, KEYS: 3, DAILY: 2, FILTER: 0}


def measure(server: Server) -> dict[str, list[float]]:
    """Return the memory (MB) that each way takes at the end of each day."""
    days = [fingerprints(f"day {day}", NEW_A_DAY) for day in range(DAYS)]
    found = {name: list[float]() for name in LINES}
    for name in (SET, KEYS, DAILY):
        for number, new in enumerate(days):
            _add(server.client, name, number, new)
            if name != SET and number >= SLICES:
                old = days[number - SLICES] if name == KEYS else [f"day {number - SLICES}"]
                for some in chunks(old, _CHUNK):
                    server.client.delete(*some)
            found[name].append(server.bytes_of_data() / 1e6)
        server.empty()
    period = f"{DAY_SECONDS}s"
    with TimeBloom.from_url(server.url, "news", granularity=period, slices=SLICES) as seen:
        for new in days:
            seconds, micros = server.client.time()
            time.sleep(DAY_SECONDS - (seconds + micros / 1e6) % DAY_SECONDS)
            key = seen.keys()[-1]
            seen.add_many(new)
            assert key == seen.keys()[-1], "a day was too short for this machine"
            found[FILTER].append(server.bytes_of_keys() / 1e6)
    return found


def _add(client: redis.Redis, name: str, day: int, urls: Sequence[str]) -> None:
    """Add a day's URLs."""
    for some in chunks(urls, _CHUNK):
        if name == KEYS:
            set_many(client, some)
        elif name == DAILY:
            client.sadd(f"day {day}", *map(raw, some))
        else:
            client.sadd("set", *some)


def draw(found: dict[str, list[float]], axes: Axes, colors: Colors) -> None:
    """Draw a line for each way."""
    for name, memory in found.items():
        last = f"{memory[-1]:.{1 if memory[-1] < 10 else 0}f} MB"
        color = colors.lines[LINES[name]]
        axes.plot(range(1, DAYS + 1), memory, color=color, label=f"{name}: {last}")
    axes.set(xlabel=f"days, with {NEW_A_DAY:,} new URLs each", ylabel="memory (MB)")
    axes.set(xlim=(1, DAYS), ylim=(0, None))


if __name__ == "__main__":
    with fresh() as its_server:
        measured = measure(its_server)
    for number, figures in enumerate(zip(*measured.values(), strict=True), 1):
        print(f"day {number}:", *(f"{each:.2f} MB" for each in figures))
    save("memory", 4.4, "", partial(draw, measured))
