"""An item that goes from process to process through a queue, while calls are lost, sent twice and delayed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count

import redis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tbloom import Claim, TimeBloom
from tbloom.engine.flow import Call
from tests.helpers.flows import flow_of, lose, replies_to, run

#: What may happen to a call: it is answered; it is executed twice; its reply, or the call, is lost.
ANSWERED, TWICE, REPLY_LOST, CALL_LOST = "answered", "twice", "reply lost", "call lost"
ITEMS = count()


class Item:
    """One item, and a model of who has it: at most one process or queue, so that no page is fetched twice."""

    def __init__(self, clients: list[TimeBloom]) -> None:
        self._clients, self._name = clients, f"item {next(ITEMS)}"
        #: The number of the client that works on the item.
        self.worker: int | None = None
        #: The session with which the item is in the queue.
        self.queued = ""
        #: Calls that may reach the server once more.
        self._late: list[tuple[TimeBloom, Call]] = []

    def _claim(self, number: int, fate: str, previous_owner: str) -> Claim | None:
        """The answer; None: the caller got an error."""
        client = self._clients[number]
        flow = flow_of(client, "claim", self._name, None, "", previous_owner)
        try:
            calls = next(flow)
        except StopIteration as end:  # it needs no server
            return end.value
        if fate != ANSWERED:
            self._late += [(client, call) for call in calls]
        if fate != CALL_LOST:
            replies = replies_to(client.client, calls)
        if fate in (CALL_LOST, REPLY_LOST):
            with suppress(redis.ConnectionError):
                flow.throw(redis.ConnectionError())
            return None
        if fate == TWICE:
            replies = replies_to(client.client, calls)
        return run(client.client, flow, replies)[0]

    def link(self, number: int, fate: str) -> None:
        """A page leads to the item."""
        if self._claim(number, fate, "") is Claim.NEW:
            assert self.worker is None, "it is new though a process works on it"
            assert not self.queued, "it is new though it is in the queue"
            self.worker = number

    def push(self, _: int, __: str) -> None:
        """Its process puts it into the queue."""
        if self.worker is not None:
            client = self._clients[self.worker]
            client.hand_over([self._name])
            self.worker, self.queued = None, client.session

    def pop(self, number: int, fate: str) -> None:
        """A process takes it out of the queue. (One that does not learn whether it has the claim ends its session.)"""
        if self.queued:
            answer = self._claim(number, TWICE if fate == TWICE else ANSWERED, self.queued)
            assert answer is Claim.NEW, "it comes out of the queue, and nobody works on it"
            self.worker, self.queued = number, ""

    def stale(self, number: int, fate: str) -> None:
        """A request comes out of the queue that another session has put there long ago."""
        if self._claim(number, fate, "f" * 16) is Claim.NEW:
            assert self.worker is None, "a stale request gets it though a process works on it"
            assert not self.queued, "a stale request gets it though it is in the queue"
            self.worker = number

    def release(self, _: int, __: str) -> None:
        if self.worker is not None:
            self._clients[self.worker].release(self._name)
            self.worker = None

    def beat(self, number: int, _: str) -> None:
        """A heartbeat."""
        self._clients[number]._send_heartbeat()

    def late(self, _: int, __: str) -> None:
        """The oldest call that may come once more does."""
        if self._late:
            client, call = self._late.pop(0)
            replies_to(client.client, [call])

    def is_free_in_the_end(self) -> bool:
        self.release(0, "")
        self.pop(0, ANSWERED)
        self.release(0, "")
        for number in range(len(self._clients)):
            self.beat(number, "")
        return self._claim(0, ANSWERED, "") is Claim.NEW


EVENTS = ("link", "push", "pop", "stale", "release", "beat", "late")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(EVENTS),
            st.integers(0, 1),
            st.sampled_from((ANSWERED, TWICE, REPLY_LOST, CALL_LOST)),
        ),
        max_size=14,
    )
)
@example([("link", 0, ANSWERED), ("push", 0, ""), ("link", 0, TWICE), ("link", 0, ANSWERED)])
@example(
    [
        ("link", 0, ANSWERED),
        ("push", 0, ""),
        ("link", 0, REPLY_LOST),
        ("beat", 0, ""),
        ("link", 1, ANSWERED),
    ]
)
@example(
    [
        ("link", 0, REPLY_LOST),
        ("link", 0, ANSWERED),
        ("push", 0, ""),
        ("pop", 1, ANSWERED),
        ("push", 0, ""),
    ]
)
def test_an_item_is_in_one_place_and_free_in_the_end(
    ours: TimeBloom, theirs: TimeBloom, events: list[tuple[str, int, str]]
) -> None:
    for client in (ours, theirs):
        client.add("b")  # the first call of an object opens the filter
    item = Item([ours, theirs])
    for event, number, fate in events:
        getattr(item, event)(number, fate)
    assert item.is_free_in_the_end()


def link_to_come(ours: TimeBloom) -> Callable[[], Claim]:
    """Hands an item over, and asks about a link to it. The call that is returned brings the answer."""
    assert Claim.NEW is ours.claim("a")
    ours.hand_over(["a"])
    link = flow_of(ours, "claim", "a")
    replies = replies_to(ours.client, next(link))
    return lambda: run(ours.client, link, replies)[0]


def test_a_link_that_is_answered_late_does_not_end_the_work_of_another_thread(
    ours: TimeBloom, theirs: TimeBloom
) -> None:
    """The other thread takes the item out of the queue meanwhile."""
    answer = link_to_come(ours)
    assert Claim.NEW is ours.claim("a", previous_owner=ours.session)
    assert Claim.BUSY is answer()
    assert Claim.BUSY is ours.claim("a")
    ours.release("a")
    assert Claim.NEW is theirs.claim("a")


def test_a_link_that_is_answered_late_does_not_end_what_another_thread_has_handed_over(
    ours: TimeBloom, theirs: TimeBloom
) -> None:
    """The other thread takes the item out of the queue, and puts it back, meanwhile."""
    answer = link_to_come(ours)
    assert Claim.NEW is ours.claim("a", previous_owner=ours.session)
    ours.hand_over(["a"])
    assert Claim.BUSY is answer()
    lose(ours.client, flow_of(ours, "claim", "a"))
    ours._send_heartbeat()
    assert Claim.BUSY is theirs.claim("a")


def test_a_commit_that_is_answered_at_its_second_try_is_not_sent_again(ours: TimeBloom) -> None:
    assert Claim.NEW is ours.claim("a")
    lose(ours.client, flow_of(ours, "commit", "a"))
    assert ours._claims.uncommitted
    ours.commit("a")
    assert not ours._claims.uncommitted
