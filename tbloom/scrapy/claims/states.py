"""A page's way through a crawl: its states, the events, and one table of what each event does. No I/O.

docs/scrapy-extensions.md has it.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """Where a page is; its value says it in words."""

    QUEUED = "in a queue, as a token in its request's meta"
    DOWNLOADING = "between the scheduler and what the downloader gives"
    RETURNING = "on its way back to the queue, because a middleware gave another request"
    FOLLOWING = "redirected to a page in work, and ends as that one does"
    PARSING = "its callback or errback runs, or its items are in the pipelines"
    MARKED = "seen from now on"
    FAILED = "tried again later in this crawl, or left to the next one"
    PASSED_ON = "in the queue again, under the same token"


class Event(Enum):
    """What happens to a page; counts such as the items that are left are part of the event."""

    TAKEN = "comes out of the queue"
    REQUEST = "a middleware gives another request"
    RESPONSE = "the downloader gives a response"
    FAILURE_FOR_ERRBACK = "the downloader gives a failure, and there is an errback"
    FAILURE = "the downloader gives a failure, and there is no errback"
    IGNORED = "a middleware drops it on purpose"
    ENQUEUED = "enters the queue"
    TO_SEEN = "leads to a seen page"
    TO_PAGE_IN_WORK = "leads to a page in work"
    REFUSED = "may not enter the queue"
    TARGET_MARKED = "that page is marked"
    TARGET_FAILED = "that page fails"
    ALL_WELL = "output and items have ended well"
    RETRIED = "output and items have ended, and the callback has asked for it again"
    ALL_ENDED = "output and items have ended, and something has failed"
    LEFT_OVER = "the crawl is idle or closed"


#: The states that a page does not leave.
ENDS = (State.MARKED, State.FAILED, State.PASSED_ON)

S, E = State, Event
TABLE: dict[tuple[State, Event], State] = {
    (S.QUEUED, E.TAKEN): S.DOWNLOADING,
    (S.DOWNLOADING, E.REQUEST): S.RETURNING,
    (S.DOWNLOADING, E.RESPONSE): S.PARSING,
    (S.DOWNLOADING, E.FAILURE_FOR_ERRBACK): S.PARSING,
    (S.DOWNLOADING, E.FAILURE): S.FAILED,
    (S.DOWNLOADING, E.IGNORED): S.MARKED,
    (S.RETURNING, E.ENQUEUED): S.PASSED_ON,
    (S.RETURNING, E.TO_SEEN): S.MARKED,
    (S.RETURNING, E.TO_PAGE_IN_WORK): S.FOLLOWING,
    (S.RETURNING, E.IGNORED): S.MARKED,
    (S.RETURNING, E.REFUSED): S.FAILED,
    (S.FOLLOWING, E.TARGET_MARKED): S.MARKED,
    (S.FOLLOWING, E.TARGET_FAILED): S.FAILED,
    (S.PARSING, E.ALL_WELL): S.MARKED,
    (S.PARSING, E.RETRIED): S.PASSED_ON,
    (S.PARSING, E.ALL_ENDED): S.FAILED,
    **{(state, E.LEFT_OVER): S.FAILED for state in S if state not in ENDS},
    # A handler of request_scheduled has dropped its request on purpose.
    (S.RETURNING, E.LEFT_OVER): S.MARKED,
}


def after(state: State, event: Event) -> tuple[State, bool]:
    """The next state, and whether the table has the pair: if not, a page fails, and one that has ended stays as it is."""
    known = TABLE.get((state, event))
    if known is not None:
        return known, True
    return (state if state in ENDS else S.FAILED), False
