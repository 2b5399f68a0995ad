"""What follows from the repository's address in setup.cfg: the links of an index of packages, which shows README without the files
beside it."""

from __future__ import annotations

import re
import runpy
from configparser import ConfigParser
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent


def described() -> dict[str, object]:
    """Return README, with whole addresses once the repository has one, and the addresses that an index lists."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    url = config["metadata"].get("url")
    if not url:
        return {"long_description": readme}
    version = runpy.run_path(f"{ROOT}/tbloom/version.py")["__version__"]
    readme = re.sub(r'(src(?:set)?=")(?!https?:)', rf"\g<1>{url}/raw/v{version}/", readme)
    readme = re.sub(r"(\]\()(?!https?:|#)", rf"\g<1>{url}/blob/v{version}/", readme)
    pages = {"Changelog": "blob/HEAD/CHANGELOG.md", "Issues": "issues", "Source": ""}
    return {
        "long_description": readme,
        "project_urls": {name: f"{url}/{page}".rstrip("/") for name, page in pages.items()},
    }


setup(**described())
