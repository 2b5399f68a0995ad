"""Ends a child process."""

from __future__ import annotations

import subprocess
from typing import Any

_SECONDS = 5.0


def end(process: subprocess.Popen[Any]) -> None:
    """Asks the process to end, makes it end if it does not, and waits until it has."""
    process.terminate()
    try:
        process.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
