"""An rq job that does its work once for each key within the window, and again after it has failed.

    rq worker --with-scheduler --url redis://localhost:6379/0
    python rq_once.py "order 1" "order 2" "order 1"

A claim takes the place of rq's ``unique=True``, which refuses a key also after its job has failed: for a year (``failure_ttl``).
The job claims its key first, commits it once the work is done, and releases it if the work fails. The claim of a killed worker
ends after ``session_ttl`` seconds; until then the next job of this key waits.
"""

import os
import sys
import time

import redis
from rq import Queue, Retry

from tbloom import Claim, TimeBloom

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
SESSION_TTL = float(os.environ.get("SESSION_TTL", "60"))

bank = redis.Redis.from_url(URL)


def charge(order: str) -> str:
    with TimeBloom.from_url(
        URL, "charged", slices=7, error_rate=1e-9, session_ttl=SESSION_TTL
    ) as charged:
        claim = charged.claim(order)
        if claim is Claim.BUSY:  # another worker has it, or had it when it died
            raise BlockingIOError(f"{order} is in work")  # rq tries again
        if claim is Claim.SEEN:
            return "charged before"
        try:
            pay(order)
        except Exception:
            charged.release(order)
            raise
        charged.commit(order)
        return "charged"


def pay(order: str) -> None:
    bank.rpush("asked", order)
    if bank.exists("closed"):
        raise ConnectionError("the bank is closed")
    time.sleep(1)
    bank.rpush("paid", order)


if __name__ == "__main__":
    jobs = Queue(connection=bank)
    for order in sys.argv[1:]:
        jobs.enqueue("rq_once.charge", order, retry=Retry(max=5, interval=int(SESSION_TTL)))
