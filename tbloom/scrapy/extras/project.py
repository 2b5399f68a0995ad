"""The Scrapy project in whose folder a command runs."""

from __future__ import annotations

import os
from collections.abc import Mapping

from scrapy.settings import Settings
from scrapy.utils.project import ENVVAR, get_project_settings, inside_project


def project_settings() -> Settings | None:
    """Return the settings of the project in whose folder this process is; None where there is no project.

    :raises Exception: whatever the project's modules raise; ImportError where scrapy.cfg names no module, or none that exists.
    """
    if not inside_project():
        return None
    try:
        settings = get_project_settings()
    except ModuleNotFoundError as error:
        named = os.environ.get(ENVVAR, "")
        if named != error.name and not named.startswith(f"{error.name}."):
            raise
        raise ImportError(f"there is no module {named}, which scrapy.cfg names") from None
    if ENVVAR not in os.environ:  # Scrapy would take its defaults
        raise ImportError(
            "scrapy.cfg names no module: write [settings], and below it default = PROJECT.settings"
        )
    return settings


def settings_of(given: Mapping[str, str], base: Settings | None) -> Settings:
    """Return settings as of ``scrapy crawl -s NAME=VALUE``: those of a project, or Scrapy's defaults, with the given ones over them."""
    settings = Settings() if base is None else base.copy()
    settings.setdict(dict(given), "cmdline")
    return settings
