"""Signals with which a pipeline says that it keeps items in memory.

With ``TBLOOM_MARK = "done"``, it sends them like this::

    crawler.signals.send_catch_log(tbloom.scrapy.signals.items_buffered, pipeline=self)

Pages whose items pass while the pipeline keeps some are committed after its ``items_flushed``. All pipelines that send no
``pipeline`` count as one.
"""

#: The pipeline keeps items. Sent in ``process_item``.
items_buffered: object = object()
#: All items that the pipeline kept are stored; sent in ``close_spider`` too.
items_flushed: object = object()
