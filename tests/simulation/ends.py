"""How schedules end: callers ask again for pending answers, and what the server holds is compared with the account."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tbloom import ConfigMismatch
from tests.simulation.accounts import Account
from tests.simulation.callers import Question
from tests.simulation.questions import claim, label_of, take_over
from tests.simulation.windows import WindowAccount

if TYPE_CHECKING:
    from tests.simulation.cases import Case
    from tests.simulation.world import World


def ask_for_pending_answers(world: World) -> None:
    """Each object asks once more for the items whose adds have failed."""
    world.account.nothing_is_late()
    for number in {*range(len(world.stores))} - world.gone:
        failed = [
            item
            for item, history in world.account.histories.items()
            if any(op.store == number and op.failed is not None and op.verb.startswith("add")
                   for op in history.open.values())
        ]  # fmt: skip
        for item in failed:
            with suppress(ConfigMismatch):  # it has other parameters, and no pending answers
                world.through(number, _of(item, "add"))


def _of(item: str, verb: str, **how: Any) -> Question:
    def call(store: Any) -> Any:
        return getattr(store, verb)(item)

    return Question(verb, {item: how}, call, lambda got: {item: got})


def _left(world: World) -> list[str]:
    """The keys on the server, but for those that hold lanes alone."""
    return [
        key
        for key in world.server.all_keys()
        if ":lane:" not in key
        and not (key.endswith(":state") and not world.server.do("HEXISTS", key, "layout"))
    ]


def all_contained(items: Iterable[str]) -> Question:
    """Which of the items are remembered?"""
    all_ = [*items]
    return Question(
        "contains_many",
        {item: {} for item in all_},
        lambda store: store.contains_many(all_),
        lambda seen: dict(zip(all_, seen, strict=True)),
    )


def of_window(world: World, case: Case) -> None:
    """A filter's: all items are where the account has them, counted once, each key leaves in time, and a clear leaves none."""
    account = world.account
    assert isinstance(account, WindowAccount)
    ask_for_pending_answers(world)
    observer = _observer(world, case, account)
    world.through(observer, all_contained(account.histories))
    _check_counts(world, account, observer)
    check_ttls(world, account)
    world.undisturbed(world.stores[observer], lambda store: store.clear())
    left = [key for key in _left(world) if ":new:" not in key]
    assert not left, f"a clear leaves {left}"


def _observer(world: World, case: Case, account: WindowAccount) -> int:
    """The number of a new object, with the parameters that are stored."""
    number = len(world.stores)
    for parameters, others in ((0, {}), *case.others.items()):
        store = case.store(world, number, **others)
        with suppress(ConfigMismatch):
            world.undisturbed(store, lambda store: store.contains("another"))
            account.parameters[number] = parameters
            world.stores.append(store)
            return number
        world.stores_besides.append(store)
    raise AssertionError("other parameters are stored than any client's")


def of_claims(world: World, case: Case) -> None:
    """A filter's whose items are claimed: what nobody works on any more can be had, once; what is committed is seen."""
    account = world.account
    account.nothing_is_late()
    living = {*range(len(world.stores))} - world.gone
    for _ in "what has failed", "what that has freed":
        for number in sorted(living):
            world.through(number, world.heartbeat)
    observer = observe(world, case)
    check_ttls(world, account)
    for history in account.histories.values():
        history.look_ahead()
    world.through(observer, take_over([*account.histories], all_=True))
    for item in account.histories:
        world.through(observer, claim(item))
    world.undisturbed(world.stores[observer], lambda store: store.clear())
    left = _left(world)
    assert not left, f"a clear leaves {left}"


def observe(world: World, case: Case) -> int:
    """The number of a store of which no caller knows, which has looked for all items."""
    world.stores.append(case.store(world, len(world.stores)))
    observer = len(world.stores) - 1
    world.through(observer, all_contained(world.account.histories))
    return observer


def of_exact(world: World, case: Case) -> None:
    """An exact filter's: it has what the account has, counted once; each key leaves; a clear leaves lanes only."""
    account = world.account
    ask_for_pending_answers(world)
    observer = observe(world, case)
    info = world.undisturbed(world.stores[observer], lambda store: store.info())
    least, most = _remembered(account)
    assert least <= info.items <= most, f"{info.items} items are counted, not {least} to {most}"
    for_ever = [key for key, ttl in world.server.all_keys().items() if ttl == -1]
    assert not for_ever, f"never leave: {for_ever}"
    world.undisturbed(world.stores[observer], lambda store: store.clear())
    # Buckets of a generation that a clear left expire.
    left = [key for key in world.server.all_keys() if key.endswith((":config", ":layout"))]
    assert not left, f"a clear leaves {left}"


def of_distinct(world: World, case: Case) -> None:
    """A counter's: it has whom the account has, counted once; each member has one id."""
    account = world.account
    ask_for_pending_answers(world)
    observer = observe(world, case)
    least, most = _remembered(account)
    counted = world.undisturbed(world.stores[observer], lambda store: store.count())
    assert least <= counted <= most, f"{counted} members are counted, not {least} to {most}"
    members = world.undisturbed(world.stores[observer], lambda store: store.info()).members
    assert counted <= members <= len(account.histories), f"{members} ids for {counted} members"
    world.undisturbed(world.stores[observer], lambda store: store.clear(mapping=True))
    left = _left(world)
    assert not left, f"a clear leaves {left}"


def _remembered(account: Account) -> tuple[int, int]:
    """The least and the most items that may be remembered."""
    now = account.now
    there = [
        {state.until is not None and state.until > now for state in history.states}
        for history in account.histories.values()
    ]
    return sum(map(all, there)), sum(map(any, there))


def _check_counts(world: World, account: WindowAccount, observer: int) -> None:
    """The count of each slice is the number of items that were new in it."""
    info = world.undisturbed(world.stores[observer], lambda store: store.info())
    counted = {round(s.start.timestamp() * 1000) // account.length: s.items for s in info.slices}
    for number, items in counted.items():
        holding = [
            {number in state.slices for state in history.states}
            for history in account.histories.values()
        ]
        least, most = sum(map(all, holding)), sum(map(any, holding))
        assert least <= items <= most, f"slice {number} counts {items} items, not {least} to {most}"


def check_ttls(world: World, account: Account) -> None:
    """Each key leaves when its slice does; what belongs to no slice, not before the last one, and not much later."""
    assert isinstance(account, WindowAccount)
    now = account.now
    ends = {
        label_of(number): (number + account.slices) * account.length
        for number in range(account.current - account.slices, account.current + account.slices)
    }
    ttls = {key.partition("}")[::2]: ttl for key, ttl in world.server.all_keys().items()}
    last: dict[str, int] = {}  # by the tag of a shard
    for (tag, rest), ttl in ttls.items():
        assert ttl != -1, f"{tag}}}{rest} never leaves"
        label = rest[1:].partition(":")[0]
        if label in ends:
            expected = ends[label] - now
            # (Shards leave one after another, 100 ms apart.)
            assert abs(ttl - expected) < 1000, (
                f"{tag}}}{rest} leaves in {ttl} ms, not in {expected}"
            )
            last[tag] = max(ttl, last.get(tag, 0))
    of_all = max(last.values(), default=0)
    for (tag, rest), ttl in ttls.items():
        if rest in (":config", ":state"):
            least = last.get(tag, 0) if ":" in tag else of_all  # a shard's, or the root's
            assert ttl >= least - 1000, f"{tag}}}{rest} leaves in {ttl} ms, a slice in {least}"
