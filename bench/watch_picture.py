"""Draw docs/watch.png, the page of ``tbloom watch`` about a made-up fleet, with Chromium: ``python -m bench.watch_picture``."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import which
from typing import NamedTuple

from tbloom import History, Note, TimeBloom
from tbloom.claims.fleet import failed_queue_of, given_up_queue_of
from tbloom.claims.record import Record
from tbloom.cli import main as tbloom
from tbloom.engine.flow import text
from tests.helpers.localredis import BINARIES, MAIN, LocalRedis

PICTURE = Path(__file__).parents[1] / "docs" / "watch.png"
NAME, QUEUE = "shop:tbloom", "shop"
SIZE = (1160, 1010)
_record = partial(Record, queue=QUEUE, host="crawl-01", ttl=60)
#: What the crawlers tell.
CRAWLERS = [
    _record(
        pid=2213, up=7300, claimed=412, done=25_110, per_minute=218, taken=840, given=9_120,
        failed={"status/503": 136, "callback/KeyError": 21},
        oldest_page="https://shop.example.com/p", oldest_state="downloader", oldest_seconds=2,
    ),
    _record(
        pid=2214, up=7280, claimed=51, done=23_987, per_minute=201, taken=6_240, given=310,
        failed={"status/503": 40, "download/TimeoutError": 12},
        oldest_page="https://img.example.com/7", oldest_state="callback", oldest_seconds=660,
    ),
    _record(host="crawl-02", pid=912, up=1800, done=6_120, taken=6_105),
    _record(
        host="crawl-03", pid=41, up=7250, claimed=29, done=21_870, taken=5_870, given=150,
        failed={"status/503": 12},
    ),
    _record(
        pid=2190, up=3100, done=9_480, taken=3_100, given=2_980, failed={"status/503": 3},
        ended="shutdown",
    ),
]  # fmt: skip


class Failed(NamedTuple):
    """Pages that have failed."""

    url: str
    number: int
    reason: str
    callback: str
    #: How long ago the newest one has failed (s), and how often each has.
    ago: int
    tries: int = 1


FAILED = [
    Failed("https://shop.example.com/p/{}?page=2", 124, "status/503", "parse_article", 67),
    Failed("https://shop.example.com/b/{}", 21, "callback/KeyError", "parse_item", 90_000, 3),
    Failed("https://img.example.com/{}.jpg", 12, "download/TimeoutError", "parse_image", 120),
    Failed("https://shop.example.com/c/{}", 7, "unreadable/parse_old", "parse_old", 100_000, 3),
]


@contextmanager
def fleet(url: str) -> Iterator[None]:
    """Make the fleet, whose crawlers live as long as the context."""
    stores = [TimeBloom.from_url(url, NAME, capacity=40_000) for _ in CRAWLERS]
    try:
        stores[0].add_many(map(str, range(86_567)))
        for seen, record in zip(stores, CRAWLERS, strict=True):
            _crawl(seen, record)
        for failed in FAILED:
            _fail(stores[0], failed)
        stores[2].take(1, QUEUE)
        stores[4].end_session()
        _kill(stores[3])
        yield
    finally:
        for seen in stores:
            seen.close()


def _crawl(seen: TimeBloom, record: Record) -> None:
    seen.take(0, QUEUE, idle=False)
    urls = [f"https://shop.example.com/{record.pid}/{n}" for n in range(record.claimed)]
    seen.claim_many(urls, notes=[_note(url) for url in urls])
    seen._claims.record = lambda _session: record
    seen._send_heartbeat()


def _note(url: str, callback: str = "parse") -> Note:
    return Note(f"0\n{json.dumps({'url': url, 'callback': callback})}", QUEUE)


def _fail(seen: TimeBloom, failed: Failed) -> None:
    urls = [failed.url.format(n) for n in range(failed.number)]
    seen.claim_many(urls, notes=[_note(url, failed.callback) for url in urls])
    queue = given_up_queue_of(QUEUE) if failed.tries == 3 else failed_queue_of(QUEUE)
    first = int(time.time()) - failed.ago
    history = History(queue, failures=failed.tries, reason=failed.reason)
    seen.note_history(
        {url: history._replace(failed_at=first - 7 * n) for n, url in enumerate(urls)}
    )
    seen.leave_many(urls)


def _kill(seen: TimeBloom) -> None:
    """Let the session be dead for the server."""
    seen._stop_heartbeat()
    key = seen.config.keys.sessions()
    entry = text(seen.client.hget(key, seen.session) or "")
    seen.client.hset(key, seen.session, "1" + entry[13:])


def main() -> None:
    """Draw the picture."""
    chromium = which("chromium")
    if chromium is None:
        raise SystemExit("expected chromium on PATH (apt-get install chromium)")
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalRedis(BINARIES[MAIN]) as server,
        fleet(server.url),
    ):
        page = Path(folder, "page.html")
        tbloom(["watch", NAME, "--url", server.url, "--once", str(page)])
        html, place = page.read_text(encoding="utf-8"), server.url[len("redis://") : -len("/0")]
        page.write_text(html.replace(place, "redis1:6379"), encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        options += [f"--user-data-dir={folder}/profile", f"--window-size={SIZE[0]},{SIZE[1]}"]
        subprocess.run(
            [chromium, *options, f"--screenshot={PICTURE}", page.as_uri()],
            check=True,
            capture_output=True,
        )


if __name__ == "__main__":
    main()
