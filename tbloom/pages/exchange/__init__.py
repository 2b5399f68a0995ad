"""Import and export of a store's pages.

::

    stream.py       the records of a WARC file of any tool
    responses.py    records as pages
    importing.py    stores the pages of WARC files and other stores
    exporting.py    writes pages into a WARC file
"""
