"""Pages of any number, addressed by URL, in WARC files that can forget old pages.

::

    page.py         a page: checked, decoded
    record.py       a page as a WARC record, and back
    segments.py     the WARC files
    snapshot.py     the contents of the index
    forks.py        forks wait for transactions
    environment.py  an LMDB environment of this process
    index.py        the index: where each page is
    config.py       the parameters that all users of a store must agree on
    calendar.py     the slices that are live now
    lock.py         one writer at a time, and how the last one ended
    recovery.py     the index is brought up to the files
    opening.py      opens a store, and repairs it
    writer.py       puts, deletes, forgets
    listing.py      all pages
    info.py         what stats() and verify() return
    verify.py       verify()
    sync.py         PageStore
"""

try:
    from tbloom.pages.info import PagesInfo, PagesReport, PagesSlice
    from tbloom.pages.page import Page
    from tbloom.pages.sync import PageStore
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing not in {"isal", "lmdb", "warcio"}:
        raise
    message = f"tbloom.pages needs {missing}: pip install 'tbloom[pages]'"
    raise ModuleNotFoundError(message, name=error.name) from None

__all__ = ["Page", "PageStore", "PagesInfo", "PagesReport", "PagesSlice"]
