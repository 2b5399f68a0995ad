"""Stores used by processes, forks and threads at once: each item is new once."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from multiprocessing.pool import Pool

import pytest

from tests.helpers.account import FULL, names, pieces
from tests.helpers.forks import in_child, needs_fork
from tests.helpers.stores import STORES, Store

SPAWN = multiprocessing.get_context("spawn")
NUMBER = 20_000 if FULL else 4500  # 4,097 make a distinct counter's bitmap


def _add(kind: str, url: str, name: str, items: list[str], seed: int) -> list[str]:
    [store] = [store for store in STORES if store.kind == kind]
    with store.open(url, name) as seen:
        return [
            item
            for piece in pieces(items, seed)
            for item, new in zip(piece, seen.add_many(piece), strict=True)
            if new
        ]


@pytest.fixture(scope="module")
def processes() -> Iterator[Pool]:
    with SPAWN.Pool(3) as processes:
        yield processes


def test_of_processes_that_add_the_same_items_one_gets_new(
    store: Store, processes: Pool, url: str, name: str
) -> None:
    items, seeds = names(NUMBER), range(3)
    answers = processes.starmap(_add, [(store.kind, url, name, items, seed) for seed in seeds])
    assert Counter(items) == sum(map(Counter, answers), Counter())
    with store.open(url, name) as seen:
        assert len(items) == store.held(seen)


@needs_fork
def test_forks_that_go_on_with_one_object_are_clients_of_their_own(
    store: Store, url: str, name: str
) -> None:
    seen, items = store.open(url, name), names(6000)
    assert all(seen.add_many(items[:1000]))

    def child() -> list[bool]:
        answers: list[bool] = seen.add_many(items[500:5000])
        return answers

    assert [False] * 500 + [True] * 4000 == in_child(child)
    assert [False] * 4500 == in_child(child)
    assert [False] * 5000 + [True] * 1000 == seen.add_many(items)
    assert 6000 == store.held(seen)
