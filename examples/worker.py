"""Fetches each URL of a file once among all workers, or twice if one is killed: ``python worker.py urls.txt``.

Start it as often as you like, with the same file or others. If a worker is killed, the others take what it had begun. What fails
is tried again by those that end later, and by the next run.
"""

import json
import os
import sys
from pathlib import Path
from time import sleep
from urllib.request import urlopen

from tbloom import Claim, Taken, TimeBloom

BATCH = 20


def fetch(fetched: TimeBloom, claimed: dict[str, int]) -> None:
    """Fetch URLs, each with how often in a row it has failed."""
    done = []
    try:
        for url, failures in claimed.items():
            try:
                print(url, len(urlopen(url, timeout=30).read()), flush=True)
                done.append(url)
            except Exception as error:
                print(url, error, flush=True)
                kind = type(error).__name__
                fetched.fail(url, f"download/{kind}", str(error), failures=failures + 1)
    finally:
        fetched.commit_many(done)


def take(fetched: TimeBloom) -> Taken:
    failed = fetched.take(BATCH, failed=True)  # in workers that have ended
    return failed if failed.notes else fetched.take(BATCH)


def work(fetched: TimeBloom, urls: list[str]) -> None:
    fetched.take(0)  # so that the others wait for what this worker may leave
    for at in range(0, len(urls), BATCH):
        batch = urls[at : at + BATCH]
        notes = [json.dumps({"url": url}) for url in batch]  # what to do: others take it
        claims = fetched.claim_many(batch, notes=notes)
        fetch(fetched, {url: 0 for url, claim in zip(batch, claims) if claim is Claim.NEW})
    while not (taken := take(fetched)).is_over:  # nothing else to do
        fetch(fetched, {json.loads(note.text)["url"]: note.failures for note in taken.notes})
        if not taken.notes:  # others are still at work, and one of them may die
            sleep(0.5)


if __name__ == "__main__":
    server = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
    ttl = float(os.environ.get("SESSION_TTL", "60"))
    urls = Path(sys.argv[1]).read_text().split()
    with TimeBloom.from_url(server, "fetched", session_ttl=ttl, retry_for=60) as fetched:
        work(fetched, urls)
