"""Import and export of a store's pages.

::

    importing.py    feeds a store from a source
    stream.py       the records of a WARC file of any tool
    responses.py    records as pages
    warcs.py        WARC files and other stores are a source
    exporting.py    writes pages into a WARC file
"""
