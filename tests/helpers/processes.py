"""The end of child processes."""

from __future__ import annotations

import subprocess
from typing import Any

_SECONDS = 5.0


def end(process: subprocess.Popen[Any]) -> None:
    """Terminates the process, kills it if that does not help, and waits for its end."""
    process.terminate()
    try:
        process.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
