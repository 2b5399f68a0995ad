"""A Celery task that runs once for each key within the window, also if a worker is killed in the middle.

    celery -A celery_once worker
    python celery_once.py "order 1" "order 2" "order 1"

Celery delivers a task again whose worker was lost, and a caller may send one twice. The task claims its key first, and
commits it once the work is done. The claim of a killed worker ends after ``session_ttl`` seconds; until then the next
delivery waits.
"""

import os
import sys
import time

import redis
from celery import Celery, Task

from tbloom import Claim, TimeBloom

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
SESSION_TTL = float(os.environ.get("SESSION_TTL", "60"))

app = Celery("celery_once", broker=URL)
app.conf.task_acks_late = app.conf.task_reject_on_worker_lost = True
app.conf.broker_transport_options = {
    "visibility_timeout": 5
    * SESSION_TTL,  # longer than the longest task (s); then its worker counts as lost
    "unacked_restore_interval": SESSION_TTL,  # how often Celery looks for such tasks (s)
    "unacked_restore_throttle": 1,
}

charged = TimeBloom.from_url(URL, "charged", slices=7, error_rate=1e-9, session_ttl=SESSION_TTL)
bank = redis.Redis.from_url(URL)


@app.task(bind=True, max_retries=None)
def charge(self: Task, order: str) -> str:
    claim = charged.claim(order)
    if claim is Claim.BUSY:  # another worker has it, or had it when it died
        raise self.retry(countdown=SESSION_TTL)
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
    time.sleep(1)
    bank.rpush("paid", order)


if __name__ == "__main__":
    for order in sys.argv[1:]:
        charge.delay(order)
