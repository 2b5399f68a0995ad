"""Crawlers that share a filter, and are killed and replaced, as is their server."""

from __future__ import annotations

import secrets

import pytest

from tests.helpers.account import FULL
from tests.helpers.making import needed
from tests.scrapy.soak import soak

MINUTES, CRAWLERS = (10.0, 12) if FULL else (0.5, 6)


@pytest.mark.check
@pytest.mark.timeout(2400)
def test_the_accounts_of_pages_are_exact_though_crawlers_and_server_are_killed() -> None:
    """Each page is stored once, and again only where a kill or a long outage came between storing and marking it."""
    needed()
    rounds = soak(MINUTES, CRAWLERS, secrets.token_hex(4), print)
    assert [] == rounds[-1].wrong
    assert any(played.faults for played in rounds)
