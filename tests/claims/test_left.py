"""Items that are left to any session: given, pushed, or of a session that has ended or died. Each is taken exactly once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
import redis

from tbloom import Claim, History, Note, TimeBloom
from tbloom.claims import calls
from tbloom.claims.flows import bury
from tbloom.claims.notes import Taken, owned_host
from tbloom.engine.flow import text
from tests.helpers.clock import Clockwork
from tests.helpers.flows import flow_of, lose, replies_to, until

NEW, SEEN, BUSY = Claim.NEW, Claim.SEEN, Claim.BUSY
LIFE = 1.0  # seconds: the shortest that a session may have
ITEMS = [f"item {i}" for i in range(500)]


def texts(taken: Taken) -> list[str]:
    return [note.text for note in taken.notes]


def of(queue: str, items: Iterable[str], **more: Any) -> list[Note]:
    """Notes for the queue."""
    return [Note(item, queue, **more) for item in items]


def index_of(seen: TimeBloom, client: redis.Redis) -> int:
    """The size of the index of left items."""
    return client.zcard(f"{{{seen.name}}}:left")


def sessions_of(seen: TimeBloom, client: redis.Redis) -> set[str]:
    fields = map(text, client.hkeys(f"{{{seen.name}}}:sessions"))
    return {field for field in fields if len(field) == 16}


@pytest.fixture(autouse=True)
def _silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients send no heartbeats but the test's."""
    monkeypatch.setattr(TimeBloom, "_keep_session", lambda _: None)


@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.check), 3])
@pytest.mark.parametrize("how", ["left", "pushed", "ended", "left and claimed before"])
async def test_what_is_left_is_taken_once_by_several_takers(
    make: Any, client: redis.Redis, name: str, *, how: str, shards: int
) -> None:
    """Of two queues, each gets its own."""
    giver, *takers = (make(shards=shards) for _ in range(5))
    others, notes = [f"other {item}" for item in ITEMS], of("q", ITEMS)
    assert all(await giver.push_many(others, of("r", others)))
    if how == "pushed":
        assert all(await giver.push_many(ITEMS, notes))
    else:
        assert {NEW} == {*await giver.claim_many(ITEMS, notes=notes)}
    if how == "ended":
        await giver.end_session()
    elif how != "pushed":
        await giver.leave_many(ITEMS)
    if how == "left and claimed before":
        assert {NEW} == {*await takers[0].claim_many(ITEMS, notes=notes)}
        assert [] == texts(await takers[1].take(10, "q"))
        await takers[0].leave_many(ITEMS)
    taken = list[str]()
    while len(taken) < len(ITEMS):
        for taker in takers:
            some = texts(await taker.take(70, "q"))
            assert len(some) <= 70 + shards
            taken += some
    assert sorted(ITEMS) == sorted(taken)
    assert {BUSY} == {*await giver.claim_many(ITEMS)}
    assert [] == texts(await giver.take(100, "q"))
    for taker in takers:
        assert {True, False} >= {*await taker.commit_many(ITEMS)}
    assert {SEEN} == {*await giver.claim_many(ITEMS)}
    rest = list[str]()
    while len(rest) < len(others):
        rest += texts(await takers[0].take(100, "r"))
    assert sorted(others) == sorted(rest)
    left = [client.zcard(key) for key in client.scan_iter(f"{{{name}*:left")]
    assert 0 == sum(left)


def test_items_of_one_host_are_taken_together(ours: TimeBloom, theirs: TimeBloom) -> None:
    items = [(f"{i} of {host}", host) for i in range(5) for host in ("a", "b", "c")]
    theirs.push_many([item for item, _ in items], [Note(item, "", host) for item, host in items])
    for _ in range(3):
        assert 1 == len({text[-1] for text in texts(ours.take(5, idle=False))})


@pytest.mark.parametrize("how", ["pushed", "left", "ended"])
def test_sessions_that_wait_get_equal_shares(clockwork: Clockwork, open_one: Any, how: str) -> None:
    """One that is not idle takes what it asks for."""
    giver, *waiting = (open_one() for _ in range(5))
    busy, first = giver.take(1, "q", idle=False), of("q", ITEMS[:100])
    if how != "pushed":
        giver.claim_many(ITEMS[:100], notes=first)
    for _ in range(2):
        for seen in waiting:
            assert [] == busy.notes == seen.take(queue="q").notes
        clockwork.go_on(1)
    if how == "pushed":
        giver.push_many(ITEMS[:100], first)
    elif how == "left":
        giver.leave_many(ITEMS[:100])
    else:
        giver.end_session()
    shares = [len(seen.take(queue="q").notes) for seen in waiting]
    assert [100, 0, 0, 0] == shares if how == "ended" else [25] * 4 == shares
    assert not waiting[0].take(queue="q").notes
    giver.push_many(ITEMS[100:], of("q", ITEMS[100:]))
    assert 90 == len(waiting[0].take(90, "q", idle=False).notes)


def test_a_history_changes_ones_own_claims_with_a_note(ours: TimeBloom, theirs: TimeBloom) -> None:
    """Their notes and hosts stay, and so does what another session has claimed."""
    assert NEW is ours.claim("a", note=Note("the work", "q", host="h", deaths=1))
    assert NEW is ours.claim("without a note")
    assert NEW is theirs.claim("b", note=Note("theirs", "q"))
    changes = dict.fromkeys(["a", "b", "without a note", "nobody's"], History("r", 0, 2))
    for _ in range(2):
        ours.note_history(changes)
    assert [BUSY] * 3 == theirs.claim_many(["a", "b", "without a note"])
    ours.leave_many(["a", "b", "without a note"])
    assert NEW is theirs.claim("without a note")
    assert [Note("the work", "r", failures=2)] == theirs.take(queue="r").notes
    theirs.leave_many(["a", "b"])
    assert [Note("theirs", "q")] == ours.take(queue="q").notes
    assert [Note("the work", "r", failures=2)] == ours.take(queue="r").notes


def test_a_note_is_taken_as_it_was_left(ours: TimeBloom, theirs: TimeBloom) -> None:
    """With its queue, its deaths and its failures, which whoever has the item counts, up to nine."""
    assert theirs.push("a", Note("the work\n\xe4\u20ac", "q", "example.com", 1))
    assert [Note("the work\n\xe4\u20ac", "q", deaths=1)] == ours.take(queue="q").notes
    for n, (failures, kept) in enumerate([(-1, 0), (0, 0), (3, 3), (9, 9), (12, 9)]):
        assert theirs.push(f"{n}", Note("plain", failures=failures))
        assert [Note("plain", failures=kept)] == ours.take().notes
        ours.note_history({f"{n}": History(failures=kept + 1)})
        ours.leave_many([f"{n}"])
        assert [min(kept + 1, 9)] == [each.failures for each in theirs.take().notes]


async def test_a_push_says_what_is_new(make: Any) -> None:
    ours, theirs = make(), make()
    await theirs.commit("seen")
    assert NEW is await theirs.claim("busy")
    assert await theirs.push("left before", "its first note")
    items = ["new", "seen", "new", "busy", "left before", "other"]
    assert [True, False, False, False, False, True] == await ours.push_many(items, items)
    assert [False] * 6 == await ours.push_many(items, items)
    assert False is await ours.push("new", "again")
    taken = texts(await theirs.take())
    assert ["its first note", "new", "other"] == sorted(taken)
    assert [False] * 6 == await ours.push_many(items, items)


@pytest.mark.parametrize("executed", [False, True])
def test_a_push_after_a_lost_one_leaves_items_once(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis, *, executed: bool
) -> None:
    ours.add("the filter is open")
    push = flow_of(ours, "push_many", ["a", "b"], ["a", "b"])
    late = until(client, push, "claims/claim")
    if executed:
        replies_to(client, late)
    with pytest.raises(redis.ConnectionError):
        push.throw(redis.ConnectionError())
    assert [not executed] * 2 == ours.push_many(["a", "b"], ["a", "b"])
    assert ["a", "b"] == sorted(texts(theirs.take()))
    replies_to(client, late)
    assert [] == texts(theirs.take())
    theirs.commit_many(["a", "b"])
    replies_to(client, late)
    assert [] == texts(theirs.take())


def test_those_come_first_of_which_fewest_sessions_have_died(
    ours: TimeBloom, theirs: TimeBloom
) -> None:
    for deaths in (3, 1, 2, 0):
        assert theirs.push(f"{deaths}", Note(f"{deaths}", deaths=deaths))
    assert ["0"] == texts(ours.take(1))
    assert ["1"] == texts(ours.take(10, idle=False))
    assert [] == texts(ours.take(10, idle=False))
    for suspect in "23":
        [note] = ours.take(10).notes
        assert (suspect, int(suspect)) == (note.text, note.deaths)
    assert [] == texts(ours.take(10))


@pytest.mark.parametrize("buried", [False, True])
def test_a_claim_does_not_get_what_killed_a_session(
    clockwork: Clockwork, open_one: Any, *, buried: bool
) -> None:
    """Its deaths would be forgotten. Who takes no items of the queue gets it."""
    first, ours, other = (open_one(session_ttl=LIFE) for _ in range(3))
    assert {NEW} == {*first.claim_many(["a", "b"], notes=of("q", ["a", "b"]))}
    assert [] == texts(ours.take(queue="q"))
    clockwork.go_on(0.6)
    ours._send_heartbeat()
    clockwork.go_on(0.6)
    if buried:
        other.take(queue="other")
    assert ours.claim("a", note=Note("a", "q")) is BUSY
    assert other.claim("b", note=Note("b", "other")) is NEW
    assert [Note("a", "q", deaths=1)] == ours.take(queue="q").notes


def test_a_claim_does_not_get_what_killed_earlier_sessions(open_one: Any) -> None:
    """It has ended, but not yet left what it had. That says nothing against its other items."""
    first, ours = open_one(), open_one()
    assert first.push_many(["a", "b"], [Note("a", "q", deaths=1), Note("b", "q")])
    assert ["a", "b"] == sorted(texts(first.take(queue="q")))
    assert [] == texts(ours.take(queue="q"))
    first.run(first._claims._beat(first._claims.session, 0))
    assert ours.claim("a", note=Note("a", "q")) is BUSY
    assert ours.claim("b", note=Note("b", "q")) is NEW
    ours.run(bury(ours.config, [0]))
    assert [Note("a", "q", deaths=1)] == ours.take(queue="q").notes


@pytest.mark.parametrize("shards", [1, 3])
def test_a_suspect_is_taken_alone_though_several_shards_give_items(
    url: str, name: str, shards: int
) -> None:
    own: dict[str, Any] = {"capacity": 1000, "shards": shards}
    with TimeBloom.from_url(url, name, **own) as ours, TimeBloom.from_url(url, name, **own) as them:
        them.push_many(ITEMS[:10], of("", ITEMS[:10], deaths=2))
        them.push_many(ITEMS[10:15], ITEMS[10:15])
        found = [ours.take().notes for _ in range(16)]
    assert [] == found[-1]
    assert sorted(ITEMS[:15]) == sorted(note.text for notes in found for note in notes)
    for notes in found:
        assert 1 == len(notes) or not any(note.deaths for note in notes)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_suspect_stays_one_until_its_work_has_begun(
    clockwork: Clockwork, open_one: Any, shards: int
) -> None:
    """mongoqueue#11: to take an item resets its count. Several shards give suspects, all but one of which are given back; and a
    session may end before it has begun."""
    own = {"session_ttl": LIFE, "shards": shards}
    assert open_one(**own).push_many(ITEMS[:12], of("", ITEMS[:12], deaths=1))
    first = open_one(**own)
    first.note_history({note.text: History(deaths=1) for note in first.take().notes})
    clockwork.go_on(2)
    for _ in range(2):
        taker = open_one(**own)
        found = [taker.take().notes for _ in range(13)]
        assert [[2]] * 12 + [[]] == [[note.deaths for note in notes] for notes in found]
        taker.end_session()


def test_all_is_done_once_all_sessions_of_the_queue_wait(
    clockwork: Clockwork, open_one: Any
) -> None:
    """Those of another queue, and processes that only claim, do not count. A session that gets work waits no longer."""
    own: dict[str, Any] = {"session_ttl": 86_400.0}
    first, second, other = (open_one(**own) for _ in range(3))
    first.take(10, "q", idle=False)
    other.take(10, "r", idle=False)
    open_one(**own).claim("a")
    assert (False, 1, 1) == said(second.take(10, "q"))
    assert NEW is first.claim("b", note=Note("b", "q"))
    assert (True, 2, 0) == said(first.take(10, "q"))
    assert (True, 2, 0) == said(second.take(10, "q"))
    assert NEW is first.claim("c")
    assert (False, 1, 1) == said(second.take(10, "q"))
    assert (True, 2, 0) == said(first.take(10, "q"))
    other.push("d", Note("d", "q"))
    assert not first.take(10, "q").is_over  # it has got something
    assert (False, 1, 1) == said(second.take(10, "q"))
    first.commit_many(["b", "c", "d"])
    first.end_session()
    clockwork.go_on(1)
    assert (True, 1, 0) == said(second.take(10, "q"))
    assert (True, 1, 0) == said(other.take(10, "r"))
    # A look into another queue changes none, as for the pages that have failed in an earlier crawl.
    second.take(10, "q", idle=False)
    second.take(10, "other", failed=True)
    assert (False, 1, 1) == said(open_one(**own).take(10, "q"))


def said(taken: Taken) -> tuple[bool, int, int]:
    assert not taken.notes
    return taken.is_over, taken.waiting, taken.others


@pytest.mark.parametrize("seen", ["imported while it is left", "added while it is claimed"])
async def test_an_item_that_others_call_seen_is_taken(make: Any, *, seen: str) -> None:
    """Or its failure would be lost: another queue may get it so."""
    works, other = make(), make()
    await other.push("a", Note("a", "q"))
    if seen.startswith("imported"):
        assert 1 == await other.import_many(["a"])
    assert ["a"] == texts(await works.take(10, "q"))
    if seen.startswith("added"):
        assert await other.add("a")
    await works.note_history({"a": History("r", failures=1)})
    assert SEEN is await other.claim("a")
    await works.end_session()
    assert [Note("a", "r", failures=1)] == (await other.take(10, "r")).notes
    assert await other.commit("a")


def waiting_after_commit(seen: TimeBloom, item: str) -> int:
    seen._dispatcher.waiting = 0
    seen.commit(item)
    return seen._dispatcher.waiting


def test_a_commit_or_failure_says_how_many_sessions_wait(
    ours: TimeBloom, theirs: TimeBloom, url: str, name: str
) -> None:
    """Not of another queue, and not once something is left for them."""
    with (
        TimeBloom.from_url(url, name, capacity=1000) as third,
        TimeBloom.from_url(url, name, capacity=1000) as other,
    ):
        assert 0 == waiting_after_commit(ours, "before it has named a queue")
        ours.take(10, "q", idle=False)
        other.take(10, "r", idle=False)
        assert 0 == waiting_after_commit(ours, "nobody waits")
        for waits in (theirs, third):
            assert [] == waits.take(10, "q").notes
        assert 2 == waiting_after_commit(ours, "both wait")
        assert 0 == waiting_after_commit(other, "for another queue")
        assert other.push("a", Note("a", "r"))
        assert 2 == waiting_after_commit(ours, "what is left is for others")
        assert other.push("b", Note("b", "q"))
        assert 0 == waiting_after_commit(ours, "something is left")
        assert ["b"] == texts(theirs.take(10, "q"))
        assert 1 == waiting_after_commit(ours, "the other one waits still")
        assert [] == third.take(10, "q").notes
        assert 1 == waiting_after_commit(ours, "one waits")
        assert NEW is ours.claim("c", note="{}")
        ours._dispatcher.waiting = 0
        ours.fail("c", "status/503")
        assert 1 == ours._dispatcher.waiting


def test_a_dead_session_holds_nobody_up(clockwork: Clockwork, open_one: Any) -> None:
    """Nor does one that has said that it waits, and has died since; no commit counts it."""
    ours, waits, dies = (open_one(session_ttl=life) for life in (86_400.0, LIFE, LIFE))
    ours.take(10, "q", idle=False)
    dies.take(10, "q", idle=False)
    waits.take(10, "q")
    assert 1 == waiting_after_commit(ours, "one waits")
    assert (False, 2, 1) == said(ours.take(10, "q"))
    clockwork.go_on(10)
    assert 0 == waiting_after_commit(ours, "it has died")
    assert (True, 1, 0) == said(ours.take(10, "q"))


def test_many_claims_of_the_dead_are_left_in_steps(clockwork: Clockwork, open_one: Any) -> None:
    """By several clients in turn. Each call looks at some claims only, and none is left out, or left twice."""
    items = [f"item {i}" for i in range(3000)]
    dead = open_one(session_ttl=LIFE)
    dead.claim_many(items, notes=items)
    gone = open_one(session_ttl=LIFE)
    gone.claim_many([f"gone {i}" for i in range(3000)])  # without notes
    clients = [open_one(session_ttl=86_400.0) for _ in range(3)]
    living = [f"mine {i}" for i in range(1000)]
    assert {NEW} == {*clients[0].claim_many(living, notes=living)}
    clockwork.go_on(2)
    claims, _, index = keys = calls.keys_in(clients[0].config, 0)
    calls_made, more, left = 0, 1, 0
    with redis.Redis.from_url(clockwork.server.url) as raw:
        while more:
            before = raw.hlen(claims)
            [[_, more]] = replies_to(raw, [calls.bury(keys)])
            calls_made += 1
            now = raw.zcard(index)
            assert now - left + before - raw.hlen(claims) <= 1000
            left = now
        assert calls_made > 12
        assert {clients[0].session} == sessions_of(dead, raw)
        assert (4000, 3000) == (raw.hlen(claims), left)
        assert all(raw.pttl(key) > 0 for key in keys)
    taken = Counter[str]()
    while sum(taken.values()) < len(items):
        for client in clients:
            notes = client.take(10**6).notes  # only the most that the caller wants
            assert len(notes) <= 1000
            assert {1} == {note.deaths for note in notes} or not notes
            taken.update(note.text for note in notes)
    assert Counter(items) == taken
    assert {BUSY} == {*clients[1].claim_many(living)}


def test_a_dead_session_does_not_come_back_during_its_burial(
    clockwork: Clockwork, open_one: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It would do again what others have taken of it. Another session goes on in its place."""
    items = [f"item {i}" for i in range(3000)]
    late, ours = open_one(session_ttl=LIFE), open_one(session_ttl=86_400.0)
    late.claim_many(items, notes=items)
    ours.claim("a")
    clockwork.go_on(2)
    keys, before = calls.keys_in(ours.config, 0), late.session
    with redis.Redis.from_url(clockwork.server.url) as raw:
        for _ in range(3):
            assert [[0, 1]] == replies_to(raw, [calls.bury(keys)])
        assert [[0, 1, 0]] == replies_to(raw, [calls.heartbeat(keys, before, 1000, 0)])
        late._send_heartbeat()
        assert {ours.session} == sessions_of(late, raw)
    assert before != late.session
    assert [f"place of session {before}, whose 3000 claims are free"] == [
        message.partition(" in ")[2].partition(" for ")[0] for message in caplog.messages
    ]
    taken = list[str]()
    while some := texts(ours.take(1000)):
        taken += some
    assert sorted(items) == sorted(taken)
    assert not any(late.commit_many(items))


def test_a_session_that_dies_during_a_burial_stays_dead(
    clockwork: Clockwork, open_one: Any
) -> None:
    """Some of its claims are left already, and the next round leaves the others."""
    items = [f"item {i}" for i in range(3000)]
    first, late, ours = open_one(session_ttl=LIFE), open_one(session_ttl=LIFE), open_one()
    first.claim("a", note="a")
    clockwork.go_on(0.5)
    late.claim_many(items, notes=items)
    clockwork.go_on(0.7)
    keys = calls.keys_in(ours.config, 0)
    with redis.Redis.from_url(clockwork.server.url) as raw:
        replies_to(raw, [calls.bury(keys)])
        clockwork.go_on(1)
        left = -1
        while raw.hget(keys[1], first.session):
            left = raw.zcard(keys[2])
            assert [[0, 1]] == replies_to(raw, [calls.bury(keys)])
        assert left > 0
        assert [[0, 1, 0]] == replies_to(raw, [calls.heartbeat(keys, late.session, 1000, 0)])


def test_a_burial_enters_what_the_index_has_lost(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis
) -> None:
    """As where the server has evicted the key."""
    assert theirs.push("a", "the work")
    client.delete(f"{{{ours.name}}}:left")
    assert ["the work"] == texts(ours.take())


class Fleet:
    """Sessions that share items of some hosts, each of which has one owner at a time. Each is asked at random."""

    def __init__(self, clockwork: Clockwork, open_one: Any, seed: int) -> None:
        self.random = random.Random(seed)
        self.clockwork = clockwork
        self.open = partial(open_one, session_ttl=LIFE)
        self.members = [self.join() for _ in range(3)]
        self.claimed = 0

    def join(self) -> tuple[TimeBloom, dict[str, str], set[str]]:
        """A session, what it has claimed with the hosts, and the hosts with which it has parted."""
        seen = self.open()
        notes = seen.take(queue="q", idle=False).notes
        return seen, dict(note.text.split(" of ") for note in notes), set()

    def claim(self, seen: TimeBloom, own: dict[str, str], _: set[str]) -> None:
        items = {f"{self.claimed + i}": f"host {self.random.randrange(5)}" for i in range(3)}
        self.claimed += 3
        notes = [Note(f"{i} of {host}", "q", host, one_owner=True) for i, host in items.items()]
        answers = seen.claim_many([*items], notes=notes)
        own |= {
            i: host for (i, host), new in zip(items.items(), answers, strict=True) if new is NEW
        }

    def take(self, seen: TimeBloom, own: dict[str, str], parted: set[str]) -> None:
        notes = seen.take(self.random.choice([1, 3, 100]), "q", idle=bool(not own)).notes
        got = dict(note.text.split(" of ") for note in notes)
        own |= got
        parted -= {*got.values()}

    def commit(self, seen: TimeBloom, own: dict[str, str], _: set[str]) -> None:
        done = [item for item in own if self.random.random() < 0.5]
        assert {True} >= {*seen.commit_many(done)}
        for item in done:
            del own[item]

    def part(self, seen: TimeBloom, own: dict[str, str], parted: set[str]) -> None:
        """It keeps some items of the host, which it works on."""
        host = f"host {self.random.randrange(5)}"
        given = [i for i, of_host in own.items() if of_host == host and self.random.random() < 0.7]
        freed = parted - {*own.values()}
        hosts = calls.Hosts([owned_host(host)], [*map(owned_host, freed)])
        digests = seen.config.digests_of(given)
        seen.run(seen._claims.release(digests, leaves=True, hosts=hosts))
        for item in given:
            del own[item]
        parted -= freed
        parted.add(host)

    def die(self, seen: TimeBloom, own: dict[str, str], parted: set[str]) -> None:
        if self.random.random() < 0.1:
            self.members.remove((seen, own, parted))
            for _ in range(3):
                self.clockwork.go_on(LIFE / 2)
                for other, *_rest in self.members:
                    other._send_heartbeat()
            self.members.append(self.join())

    def move(self) -> None:
        do = self.random.choice(
            [self.claim, self.take, self.take, self.commit, self.part, self.die]
        )
        do(*self.random.choice(self.members))
        hosts = [host for _, own, _ in self.members for host in {*own.values()}]
        assert sorted({*hosts}) == sorted(hosts), "two sessions have items of one host"


def test_an_item_is_left_to_the_owner_of_its_host(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis
) -> None:
    """Nobody may take items of that queue any more."""
    ours.take(queue="q")
    theirs.take(queue="q")
    assert ours.push("a", Note("a", "other", "host"))
    assert NEW is ours.claim("b", note=Note("b", "q", "host", one_owner=True))
    assert BUSY is theirs.claim("a", note=Note("a again", "q", "host", one_owner=True))
    assert BUSY is theirs.claim("a", note=Note("a once more", "q", "host", one_owner=True))
    assert 1 == index_of(ours, client)
    assert [] == texts(theirs.take(queue="q"))
    assert ["a again"] == texts(ours.take(queue="q"))


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.check) for seed in range(2, 20))]
)
def test_a_host_has_one_owner_whatever_the_sessions_do(
    clockwork: Clockwork, open_one: Any, seed: int
) -> None:
    """And in the end, each item is taken."""
    fleet = Fleet(clockwork, open_one, seed)
    for _ in range(200):
        fleet.move()
    first, *others = fleet.members
    for seen, *_ in others:
        seen.end_session()
    seen, own, _ = first
    while not (taken := seen.take(100, "q")).is_over:
        own |= dict(note.text.split(" of ") for note in taken.notes)
    assert seen.commit_many(own) == [True] * len(own)
    assert all(seen.contains_many([f"{i}" for i in range(fleet.claimed)]))


def test_lost_claims_that_are_skipped_end_no_crawl(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis
) -> None:
    """One call looks at some of them only."""
    items = [f"{i}" for i in range(5000)]
    theirs.push_many(items, items)
    client.delete(f"{{{ours.name}}}:claims")
    calls_made = 0
    while not (taken := ours.take(10)).is_over:
        assert [] == taken.notes
        calls_made += 1
    assert calls_made > 1
    assert 0 == index_of(ours, client)


def test_a_push_needs_no_session(ours: TimeBloom, client: redis.Redis) -> None:
    """A program that pushes is no crawler that others wait for."""
    ours.push("a", "a")
    assert set() == sessions_of(ours, client)
    lose(client, flow_of(ours, "push", "b", "b"))
    assert set() == sessions_of(ours, client)
    assert 2 == index_of(ours, client)
