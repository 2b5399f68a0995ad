"""``tbloom doctor``: what is wrong with the settings of a Scrapy project."""

from __future__ import annotations

import click

from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import FAILED, CommandError


@click.command(cls=Command, example="tbloom doctor")
def command() -> int:
    """Says what is wrong with a Scrapy project's settings.

    Run it in the project's folder. Exit code 1: something is wrong, such as an add-on that is off.
    """
    from tbloom.scrapy import doctor  # noqa: PLC0415 - needs Scrapy

    settings = doctor.project_settings()
    if settings is None:
        raise CommandError("expected the folder of a Scrapy project, with a scrapy.cfg")
    found = [*doctor.faults(settings)]
    for line in found or ["tbloom filters the requests of this project"]:
        click.echo(line)
    return FAILED if found else 0
