"""Idempotency keys: a webhook that is delivered twice is handled once, and again if the handler failed.

A claim is exact about its own failures: if the process dies in the middle, the next delivery is handled after ``session_ttl``
seconds. The error rate is the chance that an event is dropped as a repeat; 1 in 10^9 takes 5 to 6 bytes for each event.
"""

import os
from collections.abc import Callable
from http import HTTPStatus

from tbloom import Claim, TimeBloom


def receive(handled: TimeBloom, key: str, handle: Callable[[], None]) -> HTTPStatus:
    """The status to answer with, after handling the event with this idempotency key if it is new."""
    claim = handled.claim(key)
    if claim is Claim.SEEN:
        return HTTPStatus.OK
    if claim is Claim.BUSY:
        return HTTPStatus.CONFLICT  # the sender asks again later
    try:
        handle()
    except Exception:  # whatever it is, the sender tries again
        handled.release(key)
        return HTTPStatus.INTERNAL_SERVER_ERROR  # the next delivery is handled
    handled.commit(key)
    return HTTPStatus.OK


def main() -> None:
    url = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
    paid: list[str] = []

    def fail() -> None:
        raise RuntimeError("the bank does not answer")

    with TimeBloom.from_url(
        url, "webhooks", granularity="d", slices=4, capacity=100_000, error_rate=1e-9
    ) as handled:
        for key, handle in [
            ("order 1", lambda: paid.append("order 1")),
            ("order 1", lambda: paid.append("order 1")),
            ("order 2", fail),
            ("order 2", lambda: paid.append("order 2")),
        ]:
            print(key, receive(handled, key, handle).value)
    print("paid:", ", ".join(paid))


if __name__ == "__main__":
    main()
