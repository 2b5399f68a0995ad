"""The Scrapy project in whose folder a command runs."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tbloom.cli.kit.errors import CommandError


def settings_here() -> Any:
    """Return the project's settings. Raise CommandError if there is no project, or if its settings can't be imported."""
    settings = settings_if_here()
    if settings is None:
        if find_spec("scrapy") is None:
            raise ModuleNotFoundError("a project needs Scrapy", name="scrapy")
        raise CommandError("expected the folder of a Scrapy project, with a scrapy.cfg")
    return settings


def settings_if_here() -> Any:
    """Return the project's settings; None: there is no project. Raise CommandError if they can't be imported."""
    if not _may_be_in_project():
        return None
    from tbloom.scrapy.extras.project import project_settings  # noqa: PLC0415 - needs Scrapy

    try:
        return project_settings()
    except Exception as error:  # noqa: BLE001 - whatever the project's own modules raise
        why = f"{type(error).__name__}: {error}"
        raise CommandError(f"the project's settings can't be imported: {why}") from None


def _may_be_in_project() -> bool:
    """Return whether Scrapy's ``inside_project`` may find a project: to import Scrapy takes half a second."""
    if os.environ.get("SCRAPY_SETTINGS_MODULE"):
        return True
    try:
        here = Path.cwd()
        return any((folder / "scrapy.cfg").exists() for folder in (here, *here.parents))
    except OSError:  # the folder is gone, or may not be read: Scrapy's error says so
        return True
