"""Signals with which a pipeline says that it keeps items in memory (``TBLOOM_MARK = "done"``)::

    crawler.signals.send_catch_log(tbloom.scrapy.signals.items_buffered)

While items are buffered, no page is marked that has yielded some since; ``items_flushed`` says that all are stored.
"""

#: The pipeline keeps items. Sent in ``process_item``.
items_buffered: object = object()
#: All items that the pipeline kept are stored; sent in ``close_spider`` too.
items_flushed: object = object()
