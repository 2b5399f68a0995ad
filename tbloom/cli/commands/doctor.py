"""``tbloom doctor``: what is wrong with the settings of a Scrapy project."""

from __future__ import annotations

import click

from tbloom.cli.kit import formats, output
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import FAILED, CommandError

#: What is looked at, in this order, by what a fault of it begins with; the last one has all others. If tbloom is off, nothing
#: else is looked at.
_LOOKED_AT = {
    ("ADDONS", "tbloom"): "ADDONS and DUPEFILTER_CLASS: tbloom is on",
    ("TBLOOM_MARK",): "TBLOOM_MARK: pages can be marked as it says",
    ("SCHEDULER_PERSIST",): "SCHEDULER_PERSIST: a stopped crawl keeps its queue",
    ("",): "other settings can be read, and the server keeps what it is given",
}


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
    left = found
    for begins, sound in _LOOKED_AT.items():
        faults = [fault for fault in left if fault.startswith(begins)]
        left = [fault for fault in left if fault not in faults]
        for each in [f"✗ {fault}" for fault in faults] or [f"✓ {sound}"]:
            output.line(formats.printable(each))
        if faults and "tbloom" in begins:
            break
    if found:
        output.line(f"{formats.counted(len(found), 'fault')}: change what the ✗ says")
        return FAILED
    output.line("tbloom filters the requests of this project")
    return 0
