"""Prints the oldest versions that setup.cfg allows, for pip's ``--constraint``."""

from __future__ import annotations

import re
from configparser import RawConfigParser
from pathlib import Path

#: The extras whose users need each version; those of tests and tools need none.
EXTRAS = ("scrapy", "cli", "metrics", "pages", "distinct")

setup = RawConfigParser()
setup.read(Path(__file__).parents[2] / "setup.cfg")
extras = setup["options.extras_require"]
for text in (setup["options"]["install_requires"], *map(extras.__getitem__, EXTRAS)):
    for name, version in re.findall(r"^([\w-]+)>=([\d.]+)", text, re.MULTILINE):
        print(f"{name}=={version}")
