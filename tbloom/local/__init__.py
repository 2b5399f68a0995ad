"""The same filter without a server: in the memory of one process, or in a file that many share.

::

    contents.py  the parameters, the layouts, and which parts there are
    memory.py    a store in memory
    file.py      a store in a file: its format, and the order that survives a crash
    shard.py     the parts of one shard's live slices, and where an item's bits are in them
    protocol.py  what the verbs do
    merging.py   merge()
    info.py      info()
    verbs.py     the verbs, each declared once
    sync.py      LocalBloom
    aio.py       AsyncLocalBloom
"""
