"""Packages, and environments with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.helpers.making import missing

ROOT = Path(__file__).parents[2]


def uv(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """What uv did; it finds the packages itself, and keeps them for the next environment."""
    return subprocess.run(
        [sys.executable, "-m", "uv", *words],
        capture_output=True, text=True, check=False, **options,
    )  # fmt: skip


def build(folder: Path) -> None:
    """Makes an sdist of this checkout, and a wheel from that sdist."""
    done = uv("build", "--quiet", "--out-dir", folder, ROOT)
    if done.returncode and "setuptools" in done.stderr:
        missing("PyPI, to build with")
    assert done.returncode == 0, done.stderr
