"""A page in headless Chromium."""

from __future__ import annotations

import subprocess
import tempfile
from shutil import which

CHROMIUM = which("chromium")
_OPTIONS = ["--headless", "--no-sandbox", "--no-first-run", "--disable-background-networking"]
_OPTIONS += ["--hide-scrollbars", "--enable-logging=stderr"]


def run(address: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Opens the page once; what it says on its console is on stderr, in lines with CONSOLE."""
    assert CHROMIUM
    with tempfile.TemporaryDirectory(prefix="tbloom-chromium-") as profile:
        return subprocess.run(
            [CHROMIUM, *_OPTIONS, f"--user-data-dir={profile}", *options, address],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
        )  # fmt: skip
