"""The scripts, read when they are first used."""

from __future__ import annotations

import signal
import threading

import pytest

from tbloom.engine import scripts
from tbloom.engine.scripts import Script
from tests.helpers.forks import in_child, needs_fork


@needs_fork
def test_a_child_that_is_forked_while_a_script_is_read_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, forked, read = threading.Event(), threading.Event(), scripts._read

    def wait_for_the_fork(name: str) -> str:
        if threading.current_thread() is reader:
            reading.set()
            forked.wait()
        return read(name)

    def child() -> str:
        signal.alarm(30)
        return script.sha

    script = Script("shared/clock")  # which nothing else reads
    monkeypatch.setattr(scripts, "_read", wait_for_the_fork)
    reader = threading.Thread(target=lambda: script.sha)
    reader.start()
    reading.wait()
    try:
        sha = in_child(child)
    finally:
        forked.set()
        reader.join()
    assert sha == script.sha
