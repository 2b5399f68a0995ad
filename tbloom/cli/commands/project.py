"""The Scrapy project in whose folder a command runs."""

from __future__ import annotations

from typing import Any

from tbloom.cli.kit.errors import CommandError


def settings_here() -> Any:
    """Return the project's settings. Raise CommandError if there is no project, or if its settings can't be imported."""
    settings = settings_if_here()
    if settings is None:
        raise CommandError("expected the folder of a Scrapy project, with a scrapy.cfg")
    return settings


def settings_if_here() -> Any:
    """Return the project's settings; None: there is no project. Raise CommandError if they can't be imported."""
    from tbloom.scrapy.extras.project import project_settings  # noqa: PLC0415 - needs Scrapy

    try:
        return project_settings()
    except Exception as error:  # noqa: BLE001 - whatever the project's own modules raise
        why = f"{type(error).__name__}: {error}"
        raise CommandError(f"the project's settings can't be imported: {why}") from None
