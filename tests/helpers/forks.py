"""`pytest --forks N`: collects once, then runs the tests in N forks of this process, which takes each report as its own.

So all options that look at reports (-x, --lf, --durations, --junitxml) mean what they mean in one process.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import warnings
from collections import deque
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection, wait
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers import guard

_FORK = multiprocessing.get_context("fork")

#: So many forks keep two cores busy, because tests often wait.
LEAST = 6


class Hooks:
    """What a conftest may do in a fork before its first test."""

    def pytest_fork(self, config: pytest.Config, number: int) -> Any:
        """Return a context in which the fork of this number runs its tests."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--forks", default="0", help="processes; auto: as many as cores, and 6 at least"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    forks, option = session.config.option.forks, session.config.option
    count = max(LEAST, os.cpu_count() or 1) if forks == "auto" else int(forks)
    count = min(count, len(session.items))
    if count < 1 or option.collectonly or option.usepdb or session.testsfailed:
        return None
    Run(session, count).play()
    return True


class Run:
    """The tests of a session, and the forks that run them."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session = session
        self._hook = session.config.hook
        numbers, share = range(len(session.items)), -(-len(session.items) // count)
        #: The tests, as numbers, that each fork is yet to be given: neighbours, which share what a module or a session sets up.
        self._shares = [deque(numbers[share * each : share * (each + 1)]) for each in range(count)]
        self._forks = dict[Connection, Fork]()

    def play(self) -> None:
        if reporter := self._session.config.pluginmanager.get_plugin("terminalreporter"):
            reporter.showfspath = False  # the reports of several files alternate
        try:
            for number in range(len(self._shares)):
                self._begin(number)
            while self._forks:
                # The pipe of a fork that was killed stays open while a process that it has started lives.
                ready = wait(list(self._forks), timeout=1)
                for pipe in [pipe for pipe in self._forks if pipe in ready] or list(self._forks):
                    self._hear(pipe)
        finally:
            for fork in self._forks.values():
                fork.end()
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _begin(self, number: int, held: Iterable[int] = ()) -> None:
        fork = Fork(self._session, number)
        self._forks[fork.pipe] = fork
        for each in held:
            fork.give(each)
        while len(fork.given) < 2:  # the next one, too: what a test tears down depends on it
            fork.give(self._next(number))

    def _next(self, number: int) -> int | None:
        """Return this fork's next test: of its share, or else of the second half of the largest one; None: there is none."""
        if self._session.shouldfail or self._session.shouldstop:
            return None
        own = self._shares[number]
        if not own:
            largest = max(self._shares, key=len)
            taken = [largest.pop() for _ in range((len(largest) + 1) // 2)]
            own.extend(reversed(taken))
        return own.popleft() if own else None

    def _hear(self, pipe: Connection) -> None:
        fork = self._forks[pipe]
        try:
            if not pipe.poll() and fork.process.is_alive():
                return
            kind, what = pipe.recv() if pipe.poll() else ("crash", None)
        except (EOFError, ConnectionResetError):
            kind, what = "crash", None
        if kind == "report":
            report = self._hook.pytest_report_from_serializable(
                config=self._session.config, data=what
            )
            self._hook.pytest_runtest_logreport(report=report)
        elif kind == "warning":
            self._hook.pytest_warning_recorded.call_historic(kwargs=what)
        elif kind == "ended":
            self._end(fork)
            fork.give(self._next(fork.number))
        elif kind == "crash":
            self._replace(fork)
        else:
            del self._forks[pipe]
            fork.end()

    def _end(self, fork: Fork) -> None:
        item = self._session.items[fork.given.popleft()]
        self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _replace(self, fork: Fork) -> None:
        """Report that the test in which a fork has ended has failed, and let another fork take its place."""
        del self._forks[fork.pipe]
        fork.end()
        if fork.given[0] is not None:
            item = self._session.items[fork.given[0]]
            said = f"The process of this test has ended with exit code {fork.process.exitcode}."
            report = pytest.TestReport(
                item.nodeid, item.location, {}, outcome="failed", longrepr=said, when="call"
            )
            self._hook.pytest_runtest_logreport(report=report)
            self._end(fork)
        else:
            code = fork.process.exitcode
            self._session.shouldfail = f"A process of the run has ended with exit code {code}."
        held = [each for each in fork.given if each is not None]
        if held or any(self._shares):
            self._begin(fork.number, held)


class Fork:
    """A process that runs the tests whose numbers it is given; None: no more."""

    def __init__(self, session: pytest.Session, number: int) -> None:
        self.number = number
        #: What it has been given, and has not ended: the test that it runs, and the next one.
        self.given = deque[int | None]()
        self.pipe, theirs = _FORK.Pipe()
        self.process = _FORK.Process(target=_work, args=(session, number, theirs))
        self.process.start()
        assert self.process.pid
        guard.watch(self.process.pid)
        theirs.close()

    def give(self, number: int | None) -> None:
        with suppress(BrokenPipeError):  # it has crashed, which is heard next
            self.pipe.send(number)
        self.given.append(number)

    def end(self) -> None:
        """Wait for its end; kill it if Ctrl-C, which goes to all processes, has not ended it."""
        self.process.join(10)
        self.process.kill()
        self.process.join()
        guard.forget(self.process.pid or 0)
        self.pipe.close()


def _work(session: pytest.Session, number: int, pipe: Connection) -> None:
    """Run tests in a fork."""
    config = session.config
    random.seed()  # each fork has random numbers of its own
    if capture := config.pluginmanager.get_plugin("capturemanager"):
        capture.stop_global_capturing()  # its files are those of all forks
        capture.start_global_capturing()
    if reporter := config.pluginmanager.unregister(name="terminalreporter"):
        # pytest-timeout writes to its terminal.
        terminal = SimpleNamespace(_tw=reporter._tw)
        config.pluginmanager.register(terminal, "terminalreporter")
    config.pluginmanager.register(Messages(config, pipe))
    with suppress(KeyboardInterrupt), ExitStack() as stack:
        for context in config.hook.pytest_fork(config=config, number=number):
            stack.enter_context(context)
        this = pipe.recv()
        while this is not None:
            following = pipe.recv()
            config.hook.pytest_runtest_protocol(
                item=session.items[this],
                nextitem=None if following is None else session.items[following],
            )
            pipe.send(("ended", None))
            this = following
    pipe.send(("done", None))


class Messages:
    """Sends what a fork would report to the process that reports it."""

    def __init__(self, config: pytest.Config, pipe: Connection) -> None:
        self._config = config
        self._pipe = pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._pipe.send(("report", data))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        message = warnings.WarningMessage(
            str(warning_message.message),
            warning_message.category,
            warning_message.filename,
            warning_message.lineno,
        )
        what = {"warning_message": message, "when": when, "nodeid": nodeid, "location": location}
        self._pipe.send(("warning", what))
