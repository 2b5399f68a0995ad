"""The same filter without a server: in the memory of one process, or in a file that many share.

::

    contents.py  parameters, layouts, and the list of parts
    memory.py    a store in memory
    file.py      a store in a file: its format, and the order of writes that survives a crash
    shard.py     the parts of one shard's live slices, and an item's bits in them
    sync.py      LocalBloom
    claims.py    LocalBloom with the claims of a crawl
"""
