"""The Scrapy project in whose folder a command runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
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
    import scrapy.utils.project as scrapys  # noqa: PLC0415 - most commands do without Scrapy

    import tbloom.scrapy  # noqa: F401, PLC0415 - refuses a Scrapy that is too old

    try:
        return _settings_of_project(scrapys)
    except Exception as error:  # noqa: BLE001 - whatever the project's own modules raise
        why = f"{type(error).__name__}: {error}"
        raise CommandError(f"the project's settings can't be imported: {why}") from None


def _settings_of_project(scrapys: Any) -> Any:
    """Return what ``settings_if_here`` returns. Raise ImportError where scrapy.cfg names no module, or none that exists."""
    if not scrapys.inside_project():
        return None
    try:
        settings = scrapys.get_project_settings()
    except ModuleNotFoundError as error:
        named = os.environ.get(scrapys.ENVVAR, "")
        if named != error.name and not named.startswith(f"{error.name}."):
            raise
        raise ImportError(f"there is no module {named}, which scrapy.cfg names") from None
    if scrapys.ENVVAR not in os.environ:  # Scrapy would take its defaults
        raise ImportError(
            "scrapy.cfg names no module: write [settings], and below it default = PROJECT.settings"
        )
    return settings


def settings_of(given: Mapping[str, str], base: Any) -> Any:
    """Return settings as of ``scrapy crawl -s NAME=VALUE``: those of a project, or Scrapy's defaults, with the given ones over them."""
    from scrapy.settings import Settings  # noqa: PLC0415 - as above

    settings = Settings() if base is None else base.copy()
    settings.setdict(dict(given), "cmdline")
    return settings


def _may_be_in_project() -> bool:
    """Return whether Scrapy's ``inside_project`` may find a project: to import Scrapy takes half a second."""
    if os.environ.get("SCRAPY_SETTINGS_MODULE"):
        return True
    try:
        here = Path.cwd()
        return any((folder / "scrapy.cfg").exists() for folder in (here, *here.parents))
    except OSError:  # the folder is gone, or may not be read: Scrapy's error says so
        return True
