"""New, same or changed: each page is fetched at its own pace, which follows from how often it has changed."""

import hashlib
import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import patch

from tbloom import LocalBloom, TimeBloom

SLICES = 15  # days: a page is fetched every two weeks, or more often
PACE = 2.0  # a page that changes every n days is fetched about every sqrt(n * PACE) days
chance = random.Random(1)  # noqa: S311 - no secret


def revisit(seen: TimeBloom | LocalBloom, url: str, fetch: Callable[[str], bytes]) -> str | None:
    """Fetches the page if it is due: "new", "same" or "changed". None: it is not due yet."""
    if f"kept {url}" in seen:
        return None
    content = f"{url} {hashlib.sha256(fetch(url)).hexdigest()}"
    last, same = seen.last_seen_many([url, content])  # type: Any, Any
    seen.add_many([url, content], within=1)  # into today's slice, though older ones have them
    today: Any = seen.last_seen(url)
    has_changed, days = last != same, float(chance.choice((2, 3, 4)))
    if last:
        days = max(1, (today.start - last.start).days)
        expected = 1 - math.exp(-PACE / days)  # how often a page at the right pace has changed
        days *= math.exp((expected - has_changed) / 2)
    # Rounded by chance, so that the pace may also be 1.3 days.
    keep = max(1, min(int(days + chance.random()), SLICES - 1))
    seen.add(f"kept {url}", keep=keep)
    return "new" if last is None else "changed" if has_changed else "same"


class Figures(NamedTuple):
    """What a way of fetching is worth, per page and day."""

    fetches: float
    fresh: float  # how much of the time a page is stored as it is
    age: float  # how old what is stored has been for, on average (days)
    seen: float  # how many of the changes a fetch has found


def simulate(interval: float | None = None, *, pages: int = 250, days: int = 200) -> Figures:
    """Fetches pages that change every 30 days (median; one in six every five days, or more often), by `revisit` or at one interval.

    The first half of the days does not count.
    """
    random.seed(1)
    rates = [math.exp(random.gauss(-math.log(30), 1.8)) for _ in range(pages)]
    next_change = [random.expovariate(rate) for rate in rates]
    unseen = [math.inf] * pages  # when the page changed first since its last fetch
    versions, found, made = [0] * pages, 0, 0
    fetches, stale, age = 0, 0.0, 0.0
    seen = LocalBloom(slices=SLICES, capacity=3 * pages)
    for day in range(days):
        counts = day >= days / 2
        with patch("time.time_ns", return_value=day * 86_400 * 10**9):  # LocalBloom's clock
            for page in range(pages):
                if interval:
                    is_due = (day + page) % interval < 1
                else:
                    is_due = bool(revisit(seen, str(page), lambda url: b"%d" % versions[int(url)]))
                if is_due:
                    fetches += counts
                    found += counts and unseen[page] < day
                    unseen[page] = math.inf
                while next_change[page] < day + 1:
                    unseen[page] = min(unseen[page], next_change[page])
                    next_change[page] += random.expovariate(rates[page])
                    versions[page] += 1
                    made += counts
                if counts and unseen[page] < day + 1:
                    end, begin = day + 1 - unseen[page], max(day - unseen[page], 0)
                    stale += end - begin
                    age += (end**2 - begin**2) / 2
    each = pages * days / 2
    return Figures(fetches / each, 1 - stale / each, age / each, found / made)


if __name__ == "__main__":
    paced = simulate()
    for name, figures in {"revisit": paced, "one interval": simulate(1 / paced.fetches)}.items():
        fetches, fresh, age, found = figures
        print(f"{name}: {fetches:.3f} fetches, {fresh:.1%} fresh,", end=" ")
        print(f"{age:.2f} days old, {found:.1%} of changes seen")
