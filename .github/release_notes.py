"""Prints what CHANGELOG.md says of a tag's version: ``python .github/release_notes.py v0.1.0``.

Ends with an error if the tag is not the version of ``tbloom/version.py``, or that version has no dated section.
"""

# ruff: noqa: INP001 - not a package

import os
import re
import sys
from pathlib import Path

tag = sys.argv[1]
version = re.findall(r'^__version__ = "(.+)"', Path("tbloom/version.py").read_text(), re.MULTILINE)
if [tag] != [f"v{found}" for found in version]:
    sys.exit(f"The tag is {tag}, and tbloom/version.py has {', '.join(version)}")
_, *sections = re.split(r"^## ", Path("CHANGELOG.md").read_text(), flags=re.MULTILINE)
for section in sections:
    title, _, text = section.partition("\n")
    if re.fullmatch(rf"\[{re.escape(tag[1:])}\] - \d{{4}}-\d\d-\d\d", title):
        # A release's page is no page of the repository: its links need the whole address.
        home = f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"
        text = re.sub(r"(?<=\]\()(?!https?:)", f"{home}/blob/{tag}/", text)
        sys.stdout.write(f"{text.strip()}\n")
        break
else:
    sys.exit(f"CHANGELOG.md has no line like '## [{tag[1:]}] - 2026-11-21'")
