"""Chromium, as a user has it, without a window."""

from __future__ import annotations

import subprocess
from pathlib import Path
from shutil import which

from tests.helpers.making import missing

#: The time of a page goes as fast as its scripts do. (A page that refreshes itself would do so for ever.)
_SCRIPTS = "--virtual-time-budget=20000"


def in_browser(address: str, profile: Path, *more: str, scripts: bool = True) -> str:
    """Return the page once it is there, and its ``scripts`` have run."""
    if (chromium := which("chromium")) is None:
        missing("Debian's package chromium")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", *more]
    options += [_SCRIPTS] * scripts
    done = subprocess.run(
        [chromium, *options, "--dump-dom", address],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout
