"""A page in headless Chromium, for tests and for pictures."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from shutil import which

CHROMIUM = which("chromium")
_OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
]


def run(address: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Opens the page once; what it says on its console is on stderr, in lines with CONSOLE."""
    assert CHROMIUM
    with tempfile.TemporaryDirectory(prefix="tbloom-chromium-") as profile:
        return subprocess.run(
            [CHROMIUM, *_OPTIONS, f"--user-data-dir={profile}", *options, address],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
        )  # fmt: skip


def picture(html: bytes, file: Path, *, width: int, height: int) -> None:
    """Writes what a reader in a light room sees as a PNG."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "page.html"
        source.write_bytes(html)
        light = "--blink-settings=preferredColorScheme=1"
        run(source.as_uri(), light, f"--window-size={width},{height}", f"--screenshot={file}")
