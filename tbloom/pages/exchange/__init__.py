"""Import and export of a store's pages.

::

    importing.py    feeds a store from a source
    content.py      the content of WARC files of other tools
    responses.py    their records as pages
    warcs.py        the files are a source
    exporting.py    writes pages into a WARC file
"""
