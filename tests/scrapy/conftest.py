from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.localredis import free_port


@pytest.fixture
def project(url: str, name: str) -> Any:
    """Crawls with spiders of ``tests.helpers.projects``, one after the other, in a process of its own and on a filter of the
    test's own; ``answers``: the site's, whose address stays the same."""
    from tests.helpers.forked import Forked, in_turn  # noqa: PLC0415 - slow, and only needed here
    from tests.helpers.projects import crawl_in_turn  # noqa: PLC0415

    port = free_port()

    def project(*rounds: Any, answers: Any = None, alone: bool = False, **settings: Any) -> Any:
        own = {
            "REDIS_URL": url,
            "TBLOOM_KEY": name,
            "TBLOOM_ERROR_RATE": 1e-9,
            "SCHEDULER_QUEUE_KEY": f"{name}:requests",
        }
        settings = {key: value for key, value in {**own, **settings}.items() if value is not None}
        if alone:  # finds libraries that a test has put on its path, and leaves nothing open
            return Forked(crawl_in_turn, rounds, answers or {}, settings, port).result()
        return in_turn(crawl_in_turn, rounds, answers or {}, settings, port)

    return project


@pytest.fixture(params=["done", pytest.param("done, local", marks=pytest.mark.check)])
def done_project(request: pytest.FixtureRequest, project: Any, tmp_path: Path) -> Any:
    """The same, with pages that are marked once they are done; in `make check` without a server, too."""
    from tests.helpers.projects import marked  # noqa: PLC0415

    return partial(project, **marked(request.param, tmp_path))


@pytest.fixture
def server() -> Iterator[Any]:
    """The site of ``shop``."""
    from tests.helpers.folders import Flaky  # noqa: PLC0415
    from tests.helpers.website import served  # noqa: PLC0415

    with served(Flaky, asked=Counter(), is_well=False) as server:
        yield server
        server.is_well = True


@pytest.fixture
def store() -> str:
    """The kind of filter that ``shop`` has; a test may choose "local"."""
    return "bloom"


@pytest.fixture
def shop(tmp_path: Path, url: str, name: str, server: Any, store: str) -> Any:
    """A project in a folder, with one spider."""
    from tests.helpers.folders import Shop  # noqa: PLC0415

    return Shop(tmp_path, url, name, server, store)
