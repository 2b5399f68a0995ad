"""What fleets meet, with distinct counters: bad networks, servers that forget, refuse or die."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
import redis

from tbloom.distinct import DistinctCounter
from tests.helpers import servers
from tests.helpers.account import NO_ANSWER, names
from tests.helpers.contents import keys_of
from tests.helpers.flows import flow_of, replies_to, sent
from tests.helpers.ids import check
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import Make
from tests.helpers.proxy import LossyProxy


@pytest.mark.parametrize("mapping", [False, True])
@pytest.mark.parametrize("is_new", [True, False])
def test_a_copy_of_a_call_from_before_a_clear_counts_nothing(
    url: str, name: str, *, is_new: bool, mapping: bool
) -> None:
    """Whether it answered True, or only False, so that the server has noted nothing of it."""
    with redis.Redis.from_url(url) as own, DistinctCounter.from_url(url, "one", name) as counter:
        counter.add_many(names(20))
        calls = sent(own, flow_of(counter, "add_many", names(20, "more" if is_new else "item")))
        other = DistinctCounter(own, "one", name)
        other.clear(mapping=mapping)
        for _ in range(2):
            replies_to(own, calls)
            assert 0 == other.count()
        assert [True] * 20 == other.add_many(names(20))
        replies_to(own, calls)
        assert 20 == other.count()


def test_an_add_to_a_past_day_without_an_answer_is_answered_when_it_is_repeated(
    url: str, name: str
) -> None:
    """For that day: today's answers are others."""
    yesterday = datetime.now(timezone.utc) - timedelta(days=1)
    with (
        LossyProxy(url) as proxy,
        DistinctCounter.from_url(
            proxy.url, "one", name, granularity="d", slices=3, retry_for=0
        ) as counter,
    ):
        counter.add("first")
        proxy.lose(counter.add_many, ["a", "b"], at=yesterday)
        assert DistinctCounter.from_url(url, "one", name, granularity="d", slices=3).add("a")
        assert [False, True] == counter.add_many(["a", "b"])
        for is_new in (True, False):
            assert [is_new] * 2 == counter.add_many(["a", "b"], at=yesterday)
        assert [0, 2, 3] == [one.count for one in counter.info().slices]


@pytest.mark.parametrize("mapping", [False, True])
async def test_a_clear_that_ends_in_an_error_is_done_by_the_next_one(
    make_counter: Make, url: str, name: str, *, mapping: bool
) -> None:
    """Whichever of its calls gets no answer, or is never made: nothing is left, no bucket either."""
    with redis.Redis.from_url(url) as right:
        turn, failed = 0, True
        while failed:
            turn, failed = turn + 1, False
            with DistinctCounter.from_url(url, "one", name) as filling:
                filling.add_many(names(5000))
            with LossyProxy(url, lambda number, turn=turn: number >= turn) as proxy:
                try:
                    await make_counter("one", url=proxy.url, resend=False).clear(mapping=mapping)
                except NO_ANSWER:
                    failed = True
            await make_counter("one").clear(mapping=mapping)
            left = keys_of(right, name)
            assert [] == [key for key in left if mapping or b":chunks:" in key]
        assert turn > 2


def test_a_replica_that_takes_over_has_mapping_and_counters_of_one_moment(
    server: LocalRedis, binary: str, name: str
) -> None:
    """It has missed what came last. The clients, which know of that, go on with it: no id is given twice."""
    one, two = names(5000, "one"), names(5000, "two")
    with (
        servers.replica(binary, server) as replica,
        redis.Redis(port=server.port) as client,
        redis.Redis(port=server.port) as direct,
    ):
        counter, other = DistinctCounter(client, "one", name), DistinctCounter(client, "two", name)
        counter.add_many(one[:3000])
        other.add_many([*two[:100], *one[:200]])
        direct.wait(1, 0)
        replica.replicaof("NO", "ONE")
        assert all(counter.add_many([*one[3000:], *two[:4000]]))
        assert all(other.add_many(two[100:]))
        pool, port = client.connection_pool, replica.connection_pool.connection_kwargs["port"]
        pool.disconnect()
        pool.reset()  # the next connection is made anew
        pool.connection_kwargs["port"] = port
        url = f"redis://127.0.0.1:{port}/0"
        check(url, name, {"one": one[:3000], "two": [*two[:100], *one[:200]]})
        assert [True] * 4900 == other.add_many(two[100:])
        assert [True] * 2000 == counter.add_many(one[3000:])
        assert not any(counter.add_many(one))
        check(url, name, {"one": one, "two": [*two, *one[:200]]})
