"""Pages of any number, addressed by URL, in WARC files that can forget old pages.

::

    page.py         a page: checked, decoded
    record.py       a page as a WARC record, and back
    members.py      a record's bytes in a file, compressed
    segments.py     the WARC files
    index.py        the index: where each page is
    config.py       the parameters of a store: its window
    clock.py        the clock of this machine
    writer.py       puts and deletes pages, removes old slices; one writer at a time
    opening.py      opens a store; adds to its index what it lacks
    reading.py      reads pages by address, or all; stats() and verify()
    sync.py         PageStore
    exporting.py    writes pages into a WARC file
    importing.py    stores the pages of WARC files of any tool; finds the bodies of revisits
    responses.py    reads the responses, and counts by kind what is no page
    archives.py     reads records by FastWARC, counts what it reads, and goes on behind damage
    unpacking.py    decompresses for FastWARC
    message.py      the HTTP message in a record: digests, headers, chunks
    coding.py       content codings of bodies
"""

from tbloom.errors import StoreLocked

try:
    from tbloom.pages.exporting import PagesExported, export_warc
    from tbloom.pages.importing import PagesImported, import_warc
    from tbloom.pages.page import Page
    from tbloom.pages.reading import PagesInfo, PagesReport, PagesSlice
    from tbloom.pages.sync import PageStore
except ModuleNotFoundError as error:
    missing: str = (error.name or "").partition(".")[0]
    if missing not in {"backports", "fastwarc", "isal"}:
        raise
    message: str = f"tbloom.pages needs {missing}: pip install 'tbloom[pages]'"
    raise ModuleNotFoundError(message, name=error.name) from None

__all__ = [
    "Page",
    "PageStore",
    "PagesExported",
    "PagesImported",
    "PagesInfo",
    "PagesReport",
    "PagesSlice",
    "StoreLocked",
    "export_warc",
    "import_warc",
]
