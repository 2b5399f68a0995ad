"""Schedules that have found something, or that a change once broke: each is played again."""

from __future__ import annotations

import pytest

from tests.simulation.network import Player
from tests.simulation.playing import CASES
from tests.simulation.schedules import replay

Schedule = tuple[str, list[str]]

#: By case; a failure of ``test_played`` prints its schedule in this form.
FOUND: list[Schedule] = [
    (
        "two clients add an item",
        ["A asks", "A: cut off, 0 of 1 executed, the others late, then error", "B asks"],
    ),
    (  # The copy comes after another client's release, and its caller was answered BUSY.
        "two clients work on an item, one releases it",
        ["A asks", "B asks", "B is answered",
         "B: cut off, 0 of 1 executed, the others late, then again"],
    ),
    (  # The copy comes between the release of a claim without an answer, and the next claim.
        "two threads of an object work on an item, one releases it",
        ["A asks", "A is answered", "A: cut off, 0 of 1 executed, the others late, then error",
         "A asks again", "A is answered", "a late request arrives"],
    ),
    (  # A lost call is repeated, the slice that it was made for ends, and the repeat's reply is lost too: the pending answer is
       # forgotten as of the first slice (``keep=1``), though the repeat has added the item to the next one.
        "items for some slices, asked in some",
        ["C asks", "C is answered", "A asks", "A is answered", "A: interrupted, 0 of 1 executed, the others late",
         "A asks again", "the slice ends", "A is answered", "A: interrupted, 1 of 1 executed"],
    ),
    (  # C repeats a batch that shares items with D's lost one, and has the answers of that one too; D, which repeats its own
       # meanwhile, is answered False. Only a third call would be answered True.
        "slices grow",
        ["D asks", "A asks", "A is answered", "D: refused, OOM, then again", "C asks", "D: interrupted, 1 of 1 executed",
         "D asks again", "C: refused, LOADING, then error", "C asks again", "C is answered", "C is answered", "C is answered"],
    ),
    (  # Two tasks of an object repeat a lost call of one of them in other numbers of slices: the answer True reaches none.
        "tasks whose items go together",
        ["F asks", "F is answered", "H asks", "G asks", "A asks", "G is answered", "H: refused, LOADING, then error",
         "G is answered", "H asks again", "the slice ends"],
    ),
    (  # A thread's discard drops the answer that another call of the object has on its way.
        "distinct: four threads add and discard",
        ["A asks", "B asks", "C asks", "scripts are forgotten", "A is answered", "A is answered", "C is answered",
         "A is answered", "B is answered", "C: refused, OOM, then error", "B: refused, OOM, then error", "C is answered",
         "A: cut off, 0 of 1 executed, the others lost, then error", "A goes on", "B asks again", "A asks"],
    ),
    (  # The same of a call that is lost twice: it was executed after the discard, and its answer dropped before.
        "distinct: four threads add and discard",
        ["A asks", "B asks", "D asks", "scripts are forgotten", "C asks", "C is answered", "C is answered", "C is answered",
         "D is answered", "D is answered", "C: interrupted, 0 of 1 executed, the others lost", "D asks", "C asks again",
         "C is answered", "C: interrupted, 0 of 1 executed, the others lost"],
    ),
    (  # Two threads of an object fetch a lost answer, and ask in other numbers of slices: in one of them nobody gets the answer new.
        "threads of an object ask in other numbers of slices",
        ["A asks", "B asks", "B is answered", "A is answered", "B is answered", "the slice ends",
         "A: cut off, 0 of 1 executed, the others lost, then error", "B asks", "A asks again", "A is answered"],
    ),
    (  # The same, by tasks whose items go together.
        "tasks whose items go together",
        ["H asks", "A asks", "C asks", "H is answered", "A is answered", "A is answered", "D asks", "the slice ends",
         "H: refused, BUSY, then error", "A is answered", "H asks again"],
    ),
    (  # One shard has the slice that begins, and the other one does not.
        "slices grow in two shards",
        ["D asks", "D: refused, OOM, then again", "C asks", "C is answered", "D asks again", "A asks again", "D is answered",
         "D is answered", "D: cut off, 1 of 2 executed, the others late, then error", "the slice ends"],
    ),
    (  # B fetches the answer to A's lost call; A, which asks again, is given it first; and another client reconfigures meanwhile.
        "another client reconfigures",
        ["D asks", "A asks", "D is answered", "D is answered", "A: refused, OOM, then again", "B asks", "B is answered",
         "D is answered", "B asks", "B is answered", "B: executed, the reply is slow", "D is answered", "A asks again",
         "A is answered"],
    ),
    (  # C claims an item that a task of the same object is about to take over: it is busy, though that call claims nothing.
        "three clients work on three items, and one dies",
        ["A asks", "A is answered", "A is answered", "E asks", "the first object's process dies", "E is answered",
         "E: refused, OOM, then error", "C asks", "E: interrupted, 0 of 1 executed, the others late"],
    ),
    (  # Two threads of an object begin a slice: what one has counted belongs to the layout of before, and not to the one that the
       # other has learned since.
        "thirty items, without a capacity",
        ["D asks", "D is answered", "C asks", "C is answered", "D is answered", "D is answered", "D is answered", "D is answered",
         "D asks", "the slice ends", "C is answered"],
    ),
    (  # The session that has a claim without an answer could not be ended, and the heartbeats are those of the next one.
        "a client ends its session",
        ["A asks", "A is answered", "A is answered", "A asks", "A: cut off, 1 of 1 executed, then error", "A goes on", "A asks",
         "A: interrupted, 0 of 1 executed, the others lost"],
    ),
    (  # The answer of a call that was executed late was taken for one of 45 days ago, and dropped.
        "the server's clock is set",
        ["B asks", "B is answered", "B: interrupted, 0 of 1 executed, the others late", "a late request arrives",
         "the clock is set back", "D asks"],
    ),
    (  # A clear that came at another time was made again from the parts that were there before, and left a later slice.
        "the server's clock is set",
        ["E asks", "B asks", "E is answered", "E is answered", "B is answered", "B is answered", "the clock is set back"],
    ),
    (  # An answer of a task that had gone was known from a lost call, and was not kept.
        "tasks whose items go together",
        ["D asks", "D is answered", "E asks", "D is answered", "C asks", "B asks", "E: interrupted, requests are late",
         "C: refused, READONLY, then again", "C: cut off, 0 of 1 executed, the others lost, then error", "the slice ends"],
    ),
    (  # A call without an answer was sent again into a slice that had not begun, and the slice began with another size.
        "slices grow",
        ["C asks", "B asks", "B is answered", "A asks", "D asks", "A is answered", "C is answered", "C is answered",
         "C is answered", "A: refused, BUSY, then error", "C: refused, BUSY, then error", "C asks again", "the slice ends",
         "D is answered", "D is answered", "C is answered", "A asks again", "D is answered", "C is answered", "D is answered",
         "A is answered", "A is answered"],
    ),
    (  # A claim whose call was executed twice comes back after its release, and ends with the session's next heartbeat.
        "three clients work on three items, the server comes back with what it had saved",
        ["C asks", "C is answered", "C: cut off, 1 of 1 executed, then again", "the server saves", "C is answered", "C asks",
         "C is answered", "the server restarts with what it saved"],
    ),
    (  # A lost answer about a past slice is none about the current one.
        "distinct: members are added to two slices",
        ["C asks", "D asks", "C is answered", "C is answered", "C is answered", "D is answered", "C: refused, BUSY, then error",
         "D is answered", "D asks"],
    ),
    (  # A client clears twice, because the first clear comes late: it forgets nothing of what was added since.
        "exact: two clients, one clears",
        ["A asks", "A is answered", "A is answered", "A is answered", "B asks", "B is answered", "B is answered",
         "B: cut off, 0 of 1 executed, the others late, then error", "B asks again"],
    ),
    (  # A thread fetches the answers of another one's lost call, and sends it once more after the item was discarded.
        "exact: four threads add and discard",
        ["scripts are forgotten", "A asks", "D asks", "B asks", "C asks", "A is answered", "A is answered", "B is answered",
         "D is answered", "A is answered", "C is answered", "B: refused, READONLY, then again", "D is answered",
         "C is answered", "D is answered", "A: cut off, 0 of 1 executed, the others late, then error", "D asks",
         "B is answered", "C is answered", "D is answered", "B asks", "a late request arrives", "B is answered",
         "B is answered", "D: refused, READONLY, then error", "A asks again", "D asks again", "B asks"],
    ),
    (  # Tasks that ask in other numbers of slices fetch a lost call at once, and each sent it again as its own.
        "tasks whose items go together",
        ["G asks", "D asks", "G is answered", "D is answered", "F asks", "E asks", "D: refused, OOM, then again",
         "G is answered", "the slice ends", "D asks again", "H asks", "H is answered"],
    ),
    (  # A lane that a clear had left there kept the layout for longer than its parameters.
        "the server's clock is set",
        ["E asks", "E is answered", "E is answered", "E is answered", "the clock is set back"],
    ),
    (  # Parts of slices that are later than the server's clock stayed where they were, and their counts were taken over.
        "another client swaps a filter in while the clock is set",
        ["the clock is set back"],
    ),
    (  # A slice that had begun with its usual part began anew, with a larger one, once the clock was right again.
        "slices grow while the server's clock is set",
        ["A asks", "A is answered", "A is answered", "A asks", "the clock is set back", "A is answered", "A is answered",
         "A is answered", "A is answered", "the slice ends"],
    ),
    (  # A late copy of a claim was kept, because its repeat, which was given up too, had another number.
        "a client ends its session",
        ["C asks", "C is answered", "C: cut off, 0 of 1 executed, the others late, then error", "C asks again", "C is answered",
         "C: refused, LOADING, then error", "a late request arrives"],
    ),
    *(
        # A copy of a lost add met only buckets that had been split: it stayed pending though its items were asked for, and was
        # executed after one of them was discarded.
        (f"{kind}: buckets are split",
         ["C asks", "C is answered", "C is answered", "C: cut off, 0 of 1 executed, the others lost, then error", "A asks",
          *["A is answered"] * 5, *["B asks", "B is answered"] * 3, "C asks again", *["C is answered"] * 5, "A asks",
          "A is answered", "C asks", *["C is answered"] * 3])
        for kind in ("exact", "distinct")
    ),
    (  # A copy of a lost add met a full part, and another one, which knew of the next part, came late.
        "threads of an object add while the slice grows",
        ["C asks", "C is answered", "C is answered", "D asks", "D is answered", "D is answered", "B asks",
         "B: cut off, 0 of 1 executed, the others lost, then error", "A asks", "A: executed, the reply is slow", "C asks",
         "C is answered", "C is answered", "C is answered", "B asks again",
         "B: cut off, 0 of 1 executed, the others late, then error", "A is answered", "a late request arrives"],
    ),
    (  # An import whose reply is lost as its slice ends is executed in the next slice too.
        "other clients import items, and ask when they were last seen",
        ["B asks", "B is answered", "B: cut off, 1 of 1 executed, then again", "the slice ends"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "moves"), FOUND)
def test_a_schedule_that_found_something(player: Player, name: str, moves: list[str]) -> None:
    CASES[name].play(player, replay(moves))
