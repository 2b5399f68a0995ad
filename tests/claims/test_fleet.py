"""The crawlers and the kept pages of a fleet, as its view shows them (``claims/fleet``)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from redis import Redis

from tbloom import Claim, Note, TimeBloom
from tbloom.claims import fleet as fleets
from tbloom.claims.fleet import (
    FAILED,
    GIVEN_UP,
    LEFT,
    Fleet,
    Pages,
    failed_queue_of,
    forget_old_records,
    numbers_of,
    project_of,
    queues_of,
    views_of,
)
from tbloom.claims.flows import bury
from tbloom.cli.commands.page import look_at
from tbloom.cli.commands.targets import Target
from tests.helpers.keptpages import AT, MAIN, Model, claimed, failed, kill, note_of, told

Open = Callable[..., TimeBloom]


def counts(fleet: Fleet) -> Pages:
    return fleet.look().pages


def shown(fleet: Fleet, *states: str) -> list[tuple[str, str, str]]:
    return sorted((page.state, page.url, page.reason) for page in fleet.kept(states or fleets.KEPT))


def test_each_kept_page_is_shown_with_its_state_and_reason(open_client: Open) -> None:
    ours, looks = open_client(), Fleet(open_client(), "shop")
    ours.take(0, "shop")
    claimed(ours, "http://a/1", "http://a/2", "http://b/3", "http://b/4", callback="parse_item")
    ours.note_history({"http://a/1": failed(), "http://b/3": failed("callback/KeyError", 3)})
    ours.leave_many(["http://b/3", "http://a/2"])
    assert Pages(left=1, failed=1, held=1, given_up=1) == counts(looks)
    expected = [
        (FAILED, "http://a/1", "status/503"),
        (GIVEN_UP, "http://b/3", "callback/KeyError"),
        (LEFT, "http://a/2", ""),
    ]
    assert expected == shown(looks)
    [page] = looks.kept([FAILED])
    assert (AT, 1, "parse_item", "a") == (page.failed_at, page.tries, page.callback, page.host)
    ours.end_session()
    assert Pages(left=2, failed=1, given_up=1) == counts(looks)


@pytest.mark.parametrize("written", ["plain", "{}", "[1]", '{"a": ', "x}", "{" * 300 + "}" * 300])
def test_notes_that_are_no_pages_stay_as_they_are(open_client: Open, written: str) -> None:
    """Or get the field, where they end as an object does; nothing breaks."""
    ours = open_client()
    assert Claim.NEW is ours.claim("a", note=Note(written, "shop"))
    ours.note_history({"a": failed()})
    [page] = Fleet(ours, "shop").kept()
    assert ("?" if written.startswith("{") else written, "?") == (page.url, page.host)
    assert page.note.startswith(written[:-1])


def test_a_reason_can_not_break_a_note(open_client: Open) -> None:
    ours = open_client()
    claimed(ours, "http://a/")
    odd = 'an "odd" \\ [reason], "_failed": [' + "\U0001f600" * 400
    kept = odd.replace("[", "(").replace("]", ")")
    for _ in range(2):
        history = failed(odd)._replace(message=odd, where=f"{odd}a.py:7")
        ours.note_history({"http://a/": history})
        [page] = Fleet(ours, "shop").kept()
        assert (kept[:80], kept[:200]) == (page.reason, page.message)
        assert "\U0001f600" * 74 + "a.py:7" == page.where
        assert {"url": "http://a/"} == page.fields
    index = ours.config.keys.left(page.shard)
    assert 0 < ours.client.pttl(index)  # type: ignore[operator]
    assert (1, 0) == Fleet(ours, "shop").retry([page])
    assert 0 < ours.client.pttl(index)  # type: ignore[operator] # though its only page left it for a moment
    [note] = ours.take(1, "shop").notes
    assert note_of("http://a/").text == note.text


def test_retried_pages_are_left_as_if_they_had_never_failed(open_client: Open) -> None:
    """Also those that a crawler at work holds."""
    ours, other = open_client(), open_client()
    claimed(ours, "http://a/1", "http://a/2", "http://a/3", callback="old", meta={"a": 1})
    ours.note_history({"http://a/1": failed(), "http://a/2": failed(failures=4)})
    ours.leave_many(["http://a/2"])
    looks = Fleet(other, "shop")
    pages = looks.kept([FAILED, GIVEN_UP])
    assert (2, 0) == looks.retry(
        pages, lambda page: page.note_with({**page.fields, "callback": "new"})
    )
    assert Pages(left=2) == counts(looks)
    taken = other.take(10, "shop").notes
    assert [(0, 0)] * 2 == [(note.deaths, note.failures) for note in taken]
    fields = [json.loads(note.text.partition("\n")[2]) for note in taken]
    assert [("new", {"a": 1})] * 2 == [(each["callback"], each["meta"]) for each in fields]
    assert [True, True] == other.commit_many(["http://a/1", "http://a/2"])
    ours.end_session()
    assert [(LEFT, "http://a/3", "")] == shown(looks)


def test_a_page_that_fails_again_meanwhile_is_retried_once(open_client: Open) -> None:
    """sidekiq#3436: jobs that failed again were retried again, for as long as "retry all" ran. resque#548: they stood twice in the
    list."""
    ours, other = open_client(), open_client()
    looks, urls = Fleet(other, "shop"), [f"http://a/{n}" for n in range(700)]
    claimed(ours, *urls)
    ours.note_history(dict.fromkeys(urls, failed()))
    ours.end_session()

    def kept() -> Iterator[fleets.KeptPage]:
        for n, page in enumerate(looks.kept([FAILED])):
            if n in (400, 650):
                taken = [
                    json.loads(note.text.partition("\n")[2])
                    for note in ours.take(400, "shop").notes
                ]
                ours.note_history({each["url"]: failed() for each in taken})
            yield page

    assert (700, 0) == looks.retry(kept())
    assert 700 == sum(counts(looks)[1:4]) == len([*looks.kept()])


def test_a_link_that_came_first_wins(open_client: Open) -> None:
    ours, other = open_client(), open_client()
    claimed(ours, "http://a/1", "http://a/2", "http://a/3")
    ours.note_history({f"http://a/{n}": failed() for n in (1, 2, 3)})
    ours.end_session()
    looks = Fleet(other, "shop")
    pages = [*looks.kept()]
    claimed(ours, "http://a/1")
    other.commit("http://a/2")
    assert (1, 2) == looks.retry(pages)
    assert (0, 3) == looks.retry(pages)
    assert (0, 3) == looks.drop(pages)
    assert [(LEFT, "http://a/3", "")] == shown(looks)


def test_nobody_has_died_of_a_page_that_was_only_held(open_client: Open) -> None:
    """Its crawler was killed while it worked on another one."""
    dies, then = open_client(), open_client()
    claimed(dies, "http://a/held", "http://a/in work")
    dies.note_history({"http://a/held": failed()})
    kill(dies)
    then.take(0, "shop")
    deaths = {page.url: page.deaths for page in Fleet(then, "shop").kept()}
    assert {"http://a/held": 0, "http://a/in work": 1} == deaths
    assert Pages(left=1, failed=1) == counts(Fleet(then, "shop"))


@pytest.mark.parametrize("failures", [0, 1])
def test_a_failed_page_that_kills_a_crawl_counts_it(open_client: Open, failures: int) -> None:
    """While its queue is that of failed pages."""
    first, dies, then = open_client(), open_client(), open_client()
    claimed(first, "http://a/")
    first.note_history({"http://a/": failed(failures=failures)})
    first.end_session()
    assert 1 == len(dies.take(9, "shop", failed=True).notes)
    kill(dies)
    then.take(0, "shop")
    [page] = Fleet(then, "shop").kept()
    assert (FAILED, 1, failures) == (page.state, page.deaths, page.tries)


def test_only_the_newest_given_up_pages_are_kept(
    open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleets, "MOST_GIVEN_UP", 20)
    ours = open_client()
    looks, urls = Fleet(ours, "shop"), [f"http://a/{n}" for n in range(22)]
    claimed(ours, *urls)
    for some, dropped in ((urls[:21], 0), (urls[21:], 2)):
        ours.note_history({url: failed(failures=3, at=AT + urls.index(url)) for url in some})
        ours.leave_many(some)
        assert dropped == looks.trim()
    assert {*urls[2:]} == {page.url for page in looks.kept()}


def test_the_first_project_is_kept(open_client: Open, client: Redis) -> None:
    ours, theirs = open_client(), open_client()
    assert "" == project_of(ours)
    assert "first" == ours.run(ours._claims.first_project("first"))
    assert "first" == theirs.run(theirs._claims.first_project("second"))
    assert "first" == project_of(theirs)
    assert 0 < client.pttl(ours.config.keys.crawlers())


def test_old_records_are_forgotten(open_client: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, dead = open_client(), open_client()
    for one in ours, dead:
        one.take(0, "shop")
        told(one)
    told(ours, ended="finished")
    ours.end_session()
    monkeypatch.setattr("tbloom.claims.fleet._ENDED_FOR", -60_000)
    ours.run(forget_old_records(ours.config, ours._dispatcher.clock.now()))
    assert [dead.session] == [each.session for each in Fleet(dead, "shop").look().crawlers]
    monkeypatch.setattr("tbloom.claims.fleet._DEAD_FOR", -60_000)
    ours.run(forget_old_records(ours.config, ours._dispatcher.clock.now()))
    assert [""] == [each.record.host for each in Fleet(dead, "shop").look().crawlers]


def test_a_queue_without_crawlers_and_pages_is_forgotten(
    open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spider with the day as its argument has a queue for each day. flower#1420: old workers that stay for ever."""
    monkeypatch.setattr("tbloom.claims.fleet._ENDED_FOR", -60_000)
    ours, other = open_client(), open_client()
    ours.push("a", Note("a", "shop"))
    for one, queue in ((ours, "shop"), (other, "other")):
        one.take(0, queue)
        told(one, queue=queue)
        told(one, queue=queue, ended="finished")
        one.end_session()
    ours.run(forget_old_records(ours.config, ours._dispatcher.clock.now()))
    assert ["shop"] == queues_of(ours)
    assert ["a"] == [note.text for note in other.take(1, "shop").notes]
    other.commit("a")
    ours.run(forget_old_records(ours.config, ours._dispatcher.clock.now()))
    assert [] == queues_of(ours)


def test_many_queues_are_counted(open_client: Open) -> None:
    """Also those with more pages than one call reads; suspects, and pages that crawlers at work hold, too."""
    ours, queues = open_client(), [f"shop\n[('n', {n})]" for n in range(12)]
    expected = list[Pages]()
    for n, queue in enumerate(queues):
        pages = Counter[str]()
        for state, name in fleets.queues_by_state(queue).items():
            for deaths in range(4):
                number = (0, 3, 1, 700 if n < 4 else 0)[(n + len(state) + deaths) % 4]
                urls = [f"http://{n}/{state}/{deaths}/{page}" for page in range(number)]
                ours.push_many(urls, [Note(f"{'0' * 40}\n{{}}", name, deaths=deaths)] * number)
                pages[state.replace(" ", "_")] += number
                pages["suspects"] += number * (state == LEFT and deaths > 1)
        expected.append(Pages(**pages))
    held = f"http://held/{queues[0]}"
    assert Claim.NEW is ours.claim(held, note=Note(f"{'0' * 40}\n{{}}", queues[0]))
    ours.note_history({held: failed()._replace(queue=failed_queue_of(queues[0]))})
    expected[0] = expected[0]._replace(failed=expected[0].failed + 1, held=1)
    views, _ = views_of(ours, queues)
    assert expected == [view.pages for view in views]
    total = Pages(*map(sum, zip(*expected, strict=True)))
    assert min(total.suspects, total.left - total.suspects, total.given_up) > 1000


def test_owners_of_hosts_are_no_claimed_pages(open_client: Open) -> None:
    ours = open_client()
    ours.take(0, "shop", idle=False)
    claimed(ours, "http://a/1", "http://a/2")
    for shard in range(ours.config.shards):
        ours.client.hset(ours.config.keys.claims(shard), "hAAAAAAAA=abc", ours.session)
    told(ours, owns_hosts=True)
    numbers = numbers_of(ours)
    assert numbers is not None
    assert 2 == numbers.pages.claimed


# Counts and lists


def test_pages_of_a_half_buried_crawler_are_counted_once(open_client: Open) -> None:
    dies, ours = open_client(), open_client()
    dies.take(0, "shop", idle=False)
    claimed(dies, *(f"http://a/{n}" for n in range(17)))
    told(dies)
    kill(dies)
    ours.run(bury(ours.config, [0]))
    numbers = numbers_of(ours)
    assert numbers is not None
    for pages in numbers.pages, counts(Fleet(ours, "shop")):
        assert pages == Pages(left=pages.left, orphaned=17 - pages.left)
        assert pages.left > 0


@pytest.mark.parametrize("meets", ["retry", "drop"])
def test_an_entry_without_a_claim_is_counted_until_met(
    open_client: Open, client: Redis, meets: str
) -> None:
    """A server that has lost the claims leaves some."""
    ours = open_client()
    looks, urls = Fleet(ours, "shop"), [f"http://a/{n}" for n in range(250)]
    claimed(ours, *urls)
    ours.note_history(dict.fromkeys(urls, failed()))
    for shard in range(ours.config.shards):
        client.hdel(ours.config.keys.claims(shard), *ours.config.digests_of(urls[1:]))
    assert 250 == counts(looks).failed
    assert [urls[0]] == [page.url for page in looks.kept()]
    assert (0, 0) == getattr(looks, meets)(page for page in looks.kept() if page.url != urls[0])
    assert Pages(failed=1, held=1) == counts(looks)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.check) for seed in range(1, 4))]
)
def test_counts_and_lists_agree_whatever_is_done_with_pages(open_client: Open, seed: int) -> None:
    """As ``queue``, ``metrics``, ``watch`` and ``failed`` show them. What is done stands in no list (stormcrawler#415,
    bull-board#862: a stale error after a success)."""
    model, ours = Model(seed, str), [open_client(), open_client()]
    for one in ours:
        one.take(0, "shop", idle=False)
        told(one)
    looks = Fleet(ours[0], "shop")
    watched = Target(ours[0].name, ours[0], "", "shop")
    for n in range(60):
        model.step(ours[n % 2], looks)
        new = [url for url in model.some() if url not in {*model.known, *model.done}][:1]
        ours[0].push_many(new, [note_of(url) for url in new])
        model.known |= dict.fromkeys(new, (MAIN, None, False))
        assert model.shown() == {page.url: page.state for page in looks.kept()}
        digests = {ours[0].config.digest(url): url for url in (*model.known, *model.done)}
        states = dict.fromkeys(model.known) | model.shown()
        assert states == {
            digests[digest]: page and page.state for digest, page in looks.kept_of(digests).items()
        }
        expected, numbers, look = model.numbers(), numbers_of(ours[0]), look_at(watched)
        assert numbers is not None
        assert expected == numbers.pages == look.pages
        held = expected.failed - model.numbers(is_held=False).failed
        assert expected._replace(claimed=0, held=held) == counts(looks)._replace(claimed=0)
        assert expected.failed + expected.given_up == len(look.kept)
