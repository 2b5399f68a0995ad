"""Pages of any number, addressed by URL, in WARC files that forget old pages, if wanted.

::

    page.py      a page, and what is checked of it
    coding.py    bodies without their Content-Encoding
    record.py    a page as a WARC record, and back
    segments.py  the WARC files
    snapshot.py  what the index holds
    forks.py     forks wait for transactions
    environment.py, index.py  the index: LMDB
    config.py    what all who use a store must agree on
    calendar.py  which slices are live now
    lock.py      one writer at a time, and how the last one ended
    recovery.py  the index learns what the files hold
    opening.py   opens a store, and mends it
    writer.py    puts, deletes, forgets
    info.py      what stats() and verify() tell
    overview.py  all pages, and the numbers
    check.py     verify()
    store.py     the class
"""

try:
    from tbloom.pages.info import PagesInfo, PagesReport, PagesSlice
    from tbloom.pages.page import Page
    from tbloom.pages.store import PageStore
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing not in {"isal", "lmdb", "warcio"}:
        raise
    message = f"tbloom.pages needs {missing}: pip install 'tbloom[pages]'"
    raise ModuleNotFoundError(message, name=error.name) from None

__all__ = ["Page", "PageStore", "PagesInfo", "PagesReport", "PagesSlice"]
