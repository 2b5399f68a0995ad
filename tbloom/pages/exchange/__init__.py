"""Import and export of a store's pages.

::

    sources.py      what can be imported
    content.py      the content of WARC files of other tools
    responses.py    their records as pages
    warcs.py        they are a source
    importing.py    feeds a store from a source
    exporting.py    writes pages into a WARC file
"""
