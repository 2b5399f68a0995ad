"""Work in forked children."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system can't fork")


def in_child(work: Callable[[], Any]) -> Any:
    """Does the work in a forked process; returns its answer, which JSON must be able to carry."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writable, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return json.loads(answer)
