"""New, same or changed: a page that stays the same is fetched less and less often, and one that has changed the next day."""

import hashlib
import itertools
import random
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from tbloom import LocalBloom, TimeBloom

SLICES, PAGES, DAYS = 15, 100, 240  # slices are days
# Of each site's pages as many change every so many days, on average.
SITES = {"many rates": (1, 2, 4, 8, 16, 32, 64, 128), "mostly articles": (1, 7, *8 * (90,))}


def revisit(seen: TimeBloom | LocalBloom, url: str, fetch: Callable[[str], bytes]) -> str | None:
    """Fetches the page if it is due: "new", "same" or "changed". None: it is not due yet."""
    if f"kept {url}" in seen:
        return None
    content = f"{url} {hashlib.sha256(fetch(url)).hexdigest()}"
    last, same = seen.last_seen_many([url, content])  # type: Any, Any
    seen.add_many([url, content], within=1)  # into today's slice, though older ones have them
    today: Any = seen.last_seen(url)
    keep = 1
    if last and last == same:  # the last fetch brought this content too
        keep = max(1, min(2 * (today.start - last.start).days, SLICES - 1))
    seen.add(f"kept {url}", keep=keep)
    return "new" if last is None else "same" if last == same else "changed"


def simulate(site: tuple[int, ...], interval: int | None = None) -> tuple[int, float, int]:
    """Fetches, and days from a change to its fetch (mean, longest): at this interval (days), or by `revisit`."""
    chance, seen = random.Random(1), LocalBloom(slices=SLICES, capacity=1000)  # noqa: S311 - it is a simulation
    versions, fetches = [b""] * PAGES, 0
    waiting: list[list[int]] = [[] for _ in range(PAGES)]  # the days of changes not fetched yet
    delays: list[int] = []
    for day, page in itertools.product(range(DAYS), range(PAGES)):
        if chance.random() < 1 / site[page % len(site)]:
            versions[page] += b"."
            waiting[page].append(day)
        if interval:
            due = (day + page // len(site)) % interval == 0
        else:
            with patch("time.time_ns", return_value=day * 86_400 * 10**9):  # LocalBloom's clock
                due = revisit(seen, str(page), lambda url: versions[int(url)]) is not None
        if due:
            fetches += 1
            delays += [day - change for change in waiting[page]]
            waiting[page].clear()
    return fetches, sum(delays) / len(delays), max(delays)


if __name__ == "__main__":
    for name, site in SITES.items():
        fetches, mean, longest = simulate(site)
        print(f"{name}: {fetches} fetches, delay {mean:.2f} days, at most {longest}", end="; ")
        print(f"a fixed interval, same delay: {PAGES * DAYS / (2 * mean + 1):.0f} fetches")
