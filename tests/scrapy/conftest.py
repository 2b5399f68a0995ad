from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def mark() -> str:
    """The mark of a test that has no parameter of this name."""
    return "done"


@pytest.fixture
def queue() -> str:
    """The queue of a test that has no parameter of this name."""
    return "memory"


@pytest.fixture
def project(url: str, name: str, tmp_path: Path, mark: str, queue: str) -> Iterator[Any]:
    """Crawls with spiders of ``tests.helpers.projects``, one after the other, in a process of its own and on a filter of the
    test's own, with its ``mark`` and ``queue``, or with an add-on or a dupefilter that the settings name; ``answers``: the site's,
    whose address stays the same."""
    from tests.helpers.forked import Forked, in_turn  # noqa: PLC0415 - slow, and only needed here
    from tests.helpers.projects import crawl_in_turn, marked, queued  # noqa: PLC0415

    own_port = socket.socket()  # of the site, in whatever process it is, and nobody else's
    own_port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    own_port.bind(("127.0.0.1", 0))
    port = own_port.getsockname()[1]

    def project(
        *rounds: Any, answers: Any = None, alone: bool = False, mark: str = mark, **settings: Any
    ) -> Any:
        own = {
            "REDIS_URL": url,
            "TBLOOM_KEY": name,
            "TBLOOM_ERROR_RATE": 1e-9,
            "SCHEDULER_QUEUE_KEY": f"{name}:requests",
            **({} if settings.keys() & {"ADDONS", "DUPEFILTER_CLASS"} else marked(mark, tmp_path)),
            **queued(queue, tmp_path),
        }
        settings = {key: value for key, value in {**own, **settings}.items() if value is not None}
        if alone:  # finds libraries that a test has put on its path, and leaves nothing open
            return Forked(crawl_in_turn, rounds, answers or {}, settings, port).result()
        return in_turn(crawl_in_turn, rounds, answers or {}, settings, port)

    with own_port:
        yield project


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
