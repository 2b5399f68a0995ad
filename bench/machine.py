"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> str:
    """The processor, how many cores, and the system."""
    return f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "a processor"
