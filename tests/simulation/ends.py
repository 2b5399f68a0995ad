"""How schedules end: callers ask again for pending answers, and what the server holds is compared with the account."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tests.helpers.contents import ids_of
from tests.simulation.accounts import LENGTH, SLICES, Account, WindowAccount
from tests.simulation.callers import add, claim, contains_many, label_of, take

if TYPE_CHECKING:
    from tests.simulation.world import Case, World


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
            world.through(number, add(item))


def _left(world: World) -> list[str]:
    """The keys on the server, but for those that hold lanes alone."""
    return [
        key
        for key in world.server.all_keys()
        if ":lane:" not in key
        and not (key.endswith(":state") and not world.server.do("HEXISTS", key, "layout"))
    ]


def of_window(world: World, case: Case) -> None:
    """A filter's: all items are where the account has them, counted once, each key leaves in time, and a clear leaves none."""
    account = world.account
    assert isinstance(account, WindowAccount)
    ask_for_pending_answers(world)
    observer = observe(world, case)
    _check_counts(world, account, observer)
    check_ttls(world, account)
    _check_clear(world, observer)


def of_claims(world: World, case: Case) -> None:
    """A filter's whose items are claimed: what nobody works on any more can be had, once; what is committed is seen."""
    account = world.account
    assert isinstance(account, WindowAccount)
    account.nothing_is_late()
    account.nothing_is_asked()
    living = sorted({*range(len(world.stores))} - world.gone)
    for _ in "what has failed", "what that has freed":
        for number in living:
            world.through(number, world.heartbeat)
    # Sessions that have changed, or have come back with the server, die of silence.
    for _ in "half of their time", "the rest":
        account.time_changes(lambda: world.server.clock.pass_by(76_000))
        for number in living:
            world.through(number, world.heartbeat)
    observer = observe(world, case)
    check_ttls(world, account)
    _check_claims(world, account)
    for history in account.histories.values():
        history.look_ahead()
    while world.through(observer, take([*account.histories], sure=True)).notes:
        _check_index(world)
    for item in account.histories:
        world.through(observer, claim(item))
    _check_end(world, account, [*living, observer])
    _check_clear(world, observer)


def _check_end(world: World, account: WindowAccount, living: list[int]) -> None:
    """Once all sessions have nothing else to do, all is over."""
    for number in living:
        taken = world.through(number, take([*account.histories], sure=True))
        assert not taken.notes, f"{taken.notes} are left, though somebody has them"
    account.time_changes(lambda: world.server.clock.pass_by(1_100))  # a count is used for so long
    taken = world.through(living[-1], take([*account.histories], sure=True))
    assert taken.is_over, f"all sessions wait, and {taken} does not say so"


def _check_index(world: World) -> None:
    """The index has each left item once, and no other item."""
    claims_of = {
        key[: -len(":claims")] for key in world.server.all_keys() if key.endswith(":claims")
    }
    indexes = {key[: -len(":left")] for key in world.server.all_keys() if key.endswith(":left")}
    for shard in claims_of | indexes:
        stored = world.server.do("HGETALL", f"{shard}:claims").items()
        left = sorted(digest for digest, claim in stored if claim[:15] == b"0" * 15)
        members = world.server.do("ZRANGE", f"{shard}:left", 0, -1)
        assert left == sorted(member[-16:] for member in members), (
            f"{left} are left, and the index has {members}"
        )


def observe(world: World, case: Case) -> int:
    """The number of a new object, which has looked for all items."""
    number = len(world.stores)
    world.stores.append(case.store(world, number))
    world.through(number, contains_many(world.account.histories))
    return number


def of_exact(world: World, case: Case) -> None:
    """An exact filter's: it has what the account has, counted once; each key leaves; a clear leaves lanes only."""
    ask_for_pending_answers(world)
    observer = observe(world, case)
    check_count(world, world.stores[observer], lambda store: store.info().items)
    for_ever = [key for key, ttl in world.server.all_keys().items() if ttl == -1]
    assert not for_ever, f"never leave: {for_ever}"
    # Buckets of a generation that a clear left expire.
    _check_clear(world, observer, but=(":exact:",))


def of_distinct(world: World, case: Case) -> None:
    """A counter's: it has whom the account has, counted once; each member has one id."""
    ask_for_pending_answers(world)
    observer = observe(world, case)
    counted = check_count(world, world.stores[observer], lambda store: store.count())
    ids = sorted(ids_of(world.server.client, f"{world.name}-ids").values())
    assert [*range(len(ids))] == ids, f"ids are not given once each: {ids}"
    members = world.undisturbed(world.stores[observer], lambda store: store.info()).members
    assert counted <= members <= len(world.account.histories), (
        f"{members} ids for {counted} members"
    )
    _check_clear(world, observer, mapping=True)


def _check_claims(world: World, account: Account) -> None:
    """Who works on an item has its claim, and what is left has one; nothing else has. (That of a dead session goes if it has no
    note.)"""
    holders = [[state.holder for state in history.states] for history in account.histories.values()]
    least = sum(
        all(h is not None and h[1] is None and (h[2] or h[0] not in account.dead) for h in may)
        for may in holders
    )
    most = sum(any(h is not None for h in may) for may in holders)
    keys = [key for key in world.server.all_keys() if key.endswith(":claims")]
    claims = sum(world.server.do("HLEN", key) for key in keys)
    _check_index(world)
    assert least <= claims <= most, f"{claims} claims, not {least} to {most}"


def check_count(
    world: World, store: Any, count: Callable[[Any], Any], *, of: Callable[[str], bool] = bool
) -> int:
    """As many of these items are counted as the account has; returns how many."""
    now = world.account.now
    least, most = _at_least_and_most(
        {state.until is not None and state.until > now for state in history.states}
        for item, history in world.account.histories.items()
        if of(item)
    )
    counted: int = world.undisturbed(store, count)
    assert least <= counted <= most, f"{counted} items are counted, not {least} to {most}"
    return counted


def _check_clear(world: World, observer: int, but: Iterable[str] = (), **how: Any) -> None:
    """A clear leaves no key, but for those with these words in them."""
    world.undisturbed(world.stores[observer], lambda store: store.clear(**how))
    left = [key for key in _left(world) if not any(word in key for word in but)]
    assert not left, f"a clear leaves {left}"


def _at_least_and_most(each: Iterable[set[bool]]) -> tuple[int, int]:
    """How many there are, by what may be true of each."""
    may = [*each]
    return sum(map(all, may)), sum(map(any, may))


def _check_counts(world: World, account: WindowAccount, observer: int) -> None:
    """The count of each slice is the number of items that were new in it."""
    info = world.undisturbed(world.stores[observer], lambda store: store.info())
    counted = {round(s.start.timestamp() * 1000) // LENGTH: s.items for s in info.slices}
    for number, items in counted.items():
        least, most = _at_least_and_most(
            {number in state.slices for state in history.states}
            for history in account.histories.values()
        )
        assert least <= items <= most, f"slice {number} counts {items} items, not {least} to {most}"


def check_ttls(world: World, account: Account) -> None:
    """Each key leaves when its slice does; what belongs to no slice, not before the last one, and not much later."""
    assert isinstance(account, WindowAccount)
    now = account.now
    ends = {
        label_of(number): (number + SLICES) * LENGTH
        for number in range(account.current - SLICES, account.current + SLICES)
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
            if rest == ":config":  # the layout is of these parameters
                least = max(least, ttls.get((tag, ":state"), 0))
            assert ttl >= least - 1000, f"{tag}}}{rest} leaves in {ttl} ms, a slice in {least}"
