"""Work in forked children."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from typing import Any

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system can't fork")


def in_child(work: Callable[[], Any]) -> Any:
    """Does the work in a forked process; returns its answer."""
    forks = multiprocessing.get_context("fork")
    reader, writer = forks.Pipe(duplex=False)
    child = forks.Process(target=lambda: writer.send(work()), daemon=True)
    child.start()
    writer.close()
    answer = reader.recv()  # EOFError: it has printed an error
    child.join()
    return answer
