"""Random projects: what each of their crawls fetches, stores and marks is what a model says."""

from __future__ import annotations

import random

import pytest

from tests.scrapy.random_projects import differing, plan_of, show


@pytest.mark.parametrize("seeds", [3, pytest.param(150, marks=pytest.mark.check)])
def test_a_random_project_is_crawled_as_its_model_says(url: str, seeds: int) -> None:
    """The same projects each time, and as many others; those that differ are printed."""
    first = random.randrange(1_000, 1_000_000)
    wrong = differing([*range(seeds), *range(first, first + seeds // 3)], url)
    for seed, what in wrong.items():
        print(show(plan_of(seed)), *what, sep="\n")
    assert {} == wrong
