"""Fetches the URLs in a file, each once, though several of these run (``python worker.py urls.txt``), and some are killed."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from time import sleep
from urllib.request import urlopen

from tbloom import Claim, TimeBloom


def fetch(fetched: TimeBloom, batch: list[str]) -> list[str]:
    """Fetch those that are new, and return those at which others are at work."""
    claims = [*zip(batch, fetched.claim_many(batch))]
    new, done = [url for url, claim in claims if claim is Claim.NEW], []
    try:
        for url in new:
            with suppress(OSError):  # another worker, or the next run, tries again
                print(url, len(urlopen(url, timeout=30).read()), flush=True)  # noqa: S310
                done.append(url)
    finally:
        fetched.commit_many(done)
        fetched.release_many({*new} - {*done})
    return [url for url, claim in claims if claim is Claim.BUSY]


if __name__ == "__main__":
    server = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
    ttl = float(os.environ.get("SESSION_TTL", "60"))
    urls = [*dict.fromkeys(Path(sys.argv[1]).read_text().split())]  # a repeat would be BUSY
    with TimeBloom.from_url(server, "fetched", session_ttl=ttl) as fetched:
        while urls:
            batches = [urls[at : at + 20] for at in range(0, len(urls), 20)]
            urls = [url for batch in batches for url in fetch(fetched, batch)]
            sleep(0.5 * bool(urls))
