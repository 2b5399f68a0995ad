"""Fleets by size: what a page that is taken and done, and a poll of a session that waits, cost the server."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import cycle

from bench.progress import shown
from bench.serving import fresh
from bench.tables import Table
from tbloom import TimeBloom

#: So many pages are left, taken or done in one call.
_CALL = 100
#: What follows the page in its note, which is as long as it usually is.
_MORE = " " + "x" * 250


def measure(
    *,
    fleets: Sequence[tuple[int, int]] = ((8, 20_000), (40, 20_000), (200, 20_000), (40, 1_000_000)),
    taken: int = 10_000,
    polls: int = 2_000,
) -> Table:
    """Return the server's time for each fleet: the number of its sessions, and of the pages that wait."""
    columns = {
        "sessions": "d",
        "waiting pages": ",d",
        "server, a page (us)": ".0f",
        "server, a poll (us)": ".0f",
    }
    rows = [[*fleet, *_costs(*fleet, taken, polls)] for fleet in shown(fleets, "sizes of fleets")]
    return Table("fleet-sizes", columns, rows)


def _costs(sessions: int, waiting: int, taken: int, polls: int) -> list[float]:
    """Return what a page and a poll cost (us in commands). A session waits for pages of a queue that has none."""
    with fresh() as server, ExitStack() as opened:
        name = "shop:tbloom"
        fleet = [
            opened.enter_context(TimeBloom.from_url(server.url, name)) for _ in range(sessions)
        ]
        for at in range(0, waiting, _CALL):
            pages = [*map(str, range(at, at + _CALL))]
            fleet[0].push_many(pages, [page + _MORE for page in pages])
        for session in fleet:  # each has sent its first heartbeat
            session.take(0, "empty")
        turns = cycle(fleet)

        def take(calls: Sequence[int]) -> None:
            for session, _ in zip(turns, calls[::_CALL], strict=False):
                notes = session.take(_CALL).notes
                session.commit_many(note.text.removesuffix(_MORE) for note in notes)

        def poll(calls: Sequence[int]) -> None:
            for session, _ in zip(turns, calls, strict=False):
                session.take(_CALL, "empty")

        return [
            server.measure(run, range(n))[0].commands for run, n in ((take, taken), (poll, polls))
        ]
