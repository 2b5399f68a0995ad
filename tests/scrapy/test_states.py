"""The table of a page's states: a random walk against a plain model. What crawls do with it: test_steps.py."""

from __future__ import annotations

import random

import pytest

from tbloom.scrapy.done.states import TABLE, Event, Known, Register, State, UnknownStep

E, S = Event, State
QUEUED, FAILED = {S.QUEUED, S.WAITING, S.FOLLOWED}, {S.HELD, S.FREE}
#: What each event means: for pages in which states it is, and in which state they are then.
MEANING = {
    E.VERSION: ({S.UNKNOWN}, S.QUEUED),
    E.OUT: ({S.UNKNOWN} | QUEUED, S.WORK),
    E.ON: ({S.WORK}, S.WAITING),
    E.DROPPED: (QUEUED, S.UNKNOWN),
    E.DONE: ({S.WORK}, S.ENDED),
    E.FAIL: ({S.WORK, S.ENDED}, S.HELD),
    E.FAIL_LIST: ({S.WORK, S.ENDED}, S.UNKNOWN),
    E.GIVE_UP: ({S.WORK, S.ENDED}, S.FREE),
    E.KEPT: ({S.ENDED}, S.UNSTORED),
    E.STORED: ({S.UNSTORED}, S.ENDED),
    E.SEND: ({S.ENDED}, S.SENT),
    E.COMMITTED: ({S.SENT}, S.UNKNOWN),
    E.LINK: (FAILED, S.FOLLOWED),
    E.FETCH: (FAILED, S.UNKNOWN),
    E.PART: ({S.HELD}, S.FREE),
}


class Redirected(Known):
    """What is known of a page, as another class."""


class Model:
    """What should be known of a page."""

    def __init__(self, known: Known, state: State = S.UNKNOWN) -> None:
        self.known, self.state, self.others = known, state, known.others
        self.asked: dict[str, object] = {}


@pytest.mark.parametrize("seed", range(20))
def test_a_walk(seed: int) -> None:
    """What happens to four pages at random happens in the model, too; and what it does not know, raises."""
    rng, register = random.Random(seed), Register()
    pages, outlived = {first: Model(Known(first)) for first in "abcd"}, list[Model]()
    for _ in range(2_000):
        first = rng.choice([*pages])
        page, move = pages[first], rng.choice(["step"] * 9 + ["lose", "outlived", "ask", "take"])
        if move == "lose" and page.state is not S.UNKNOWN:  # its session: the page is claimed again
            outlived.append(page)
            page = pages[first] = Model(Known(first), S.WORK)
            register.step(page.known, E.OUT)
        elif move == "ask":
            version, link = rng.choice("123"), object()
            register.ask(rng.choice([first, *page.others]), version, link)
            if page.state is S.UNKNOWN:
                page.known, page.state = register.all(Known, S.QUEUED)[-1], S.QUEUED
            page.asked.pop(version, None)
            page.asked[version] = link
        elif move == "take":
            assert [*page.asked.items()] == [*register.take_asked(first).items()]
            page.asked = {}
        elif move == "step":
            pages[first] = step(rng, register, page)
        elif outlived:  # goes its own way, and the register knows nothing of it
            after = step(rng, register, outlived.pop(rng.randrange(len(outlived))))
            outlived += [after] if after.state is not S.UNKNOWN else []
        compare(register, pages)


def step(rng: random.Random, register: Register, page: Model) -> Model:
    event, known = rng.choice([*MEANING]), page.known
    before, after = MEANING[event]
    if rng.random() < 0.5:  # as another object, perhaps with redirects
        known = Redirected(page.known.first)
        known.others = (f"{known.first}1", f"{known.first}2")[: rng.randrange(3)]
    if page.state not in before:
        with pytest.raises(UnknownStep, match=f"'{page.state.value}' .* '{event.value}'"):
            register.step(page.known, event, known)
        return page
    assert register.step(page.known, event, known)
    assert after is known.state
    model = Model(known if after is not S.UNKNOWN else Known(known.first), after)
    model.asked = page.asked if model.known is page.known else {}
    return model


def compare(register: Register, pages: dict[str, Model]) -> None:
    for first, page in pages.items():
        known = page.known if page.state is not S.UNKNOWN else None
        found = register.get(Known, first)
        assert (page.state, known) == (found.state if found else S.UNKNOWN, found)
        assert (known if page.state in FAILED else None) is register.get(Known, first, *FAILED)
        redirected = known if isinstance(known, Redirected) else None
        assert redirected is register.get(Redirected, first)
        aliases = {f"{first}1", f"{first}2"}
        assert {*page.others} == {each for each in aliases if register.first_of(each) == first}
    for state in {*S} - {S.UNKNOWN}:
        of_state = {page.known for page in pages.values() if page.state is state}
        assert of_state == {*register.all(Known, state)}
        assert len(of_state) == register.count(state)


def test_the_table_is_whole() -> None:
    """Each state is reached, and left in the end; each event is used."""
    reached = {state: {*events.values()} for state, events in TABLE.items()}
    for _ in S:
        for after in reached.values():
            after.update(*(reached[state] for state in [*after]))
    assert {*S} == {*TABLE} == reached[S.UNKNOWN]
    assert all(S.UNKNOWN in after for after in reached.values())
    assert {*E} == {event for events in TABLE.values() for event in events}
