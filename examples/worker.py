"""Fetches each URL of a file once among all workers, or twice if one is killed: ``python worker.py urls.txt``."""

import os
import sys
from pathlib import Path
from time import sleep
from urllib.request import urlopen

from tbloom import Claim, TimeBloom


def fetch(fetched: TimeBloom, batch: list[str]) -> list[str]:
    """Fetch the new URLs, and return those that other workers are fetching."""
    claims = dict(zip(batch, fetched.claim_many(batch)))
    new = [url for url in batch if claims[url] is Claim.NEW]
    done = []
    try:
        for url in new:
            try:
                print(url, len(urlopen(url, timeout=30).read()), flush=True)
                done.append(url)
            except Exception as error:  # another worker, or the next run, tries again
                print(url, error, flush=True)
    finally:
        fetched.commit_many(done)
        fetched.release_many({*new} - {*done})
    return [url for url in batch if claims[url] is Claim.BUSY]


if __name__ == "__main__":
    server = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
    ttl = float(os.environ.get("SESSION_TTL", "60"))
    urls = [*dict.fromkeys(Path(sys.argv[1]).read_text().split())]  # a repeat would be BUSY
    with TimeBloom.from_url(server, "fetched", session_ttl=ttl, retry_for=60) as fetched:
        while urls:
            batches = [urls[at : at + 20] for at in range(0, len(urls), 20)]
            urls = [url for batch in batches for url in fetch(fetched, batch)]
            if urls:  # others are fetching these
                sleep(0.5)
