from __future__ import annotations

import socket
from collections.abc import Iterator
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
