"""The same filter without a server: in the memory of one process, or in a file that many share.

::

    contents.py  the parameters, the layouts, and which parts there are
    memory.py    a store in memory
    regions.py   where regions of a file are, and disk space for them
    file.py      a store in a file: its format, and the order that survives a crash
    shard.py     parts; those of one shard's live slices, and probes for items in them
    vectors.py   probes for many items with numpy
    live.py      the slices, layouts and parts that are live now
    protocol.py  what the verbs do
    merging.py   merge()
    info.py      info() and keys()
    verbs.py     the verbs, each declared once
    sync.py      LocalBloom
    aio.py       AsyncLocalBloom
"""
