"""The same filter without a server: in the memory of one process, or in a file that many share.

::

    parts.py     the bits of one part, and its count
    contents.py  what there is besides: parameters, layouts, which parts
    memory.py    a store in memory
    room.py      free regions of a file
    file.py      a store in a file: its format, and the order that survives a crash
    bound.py     the parts of the live slices, and looks at many items in them
    vectors.py   the same with numpy
    live.py      what is live now: plan, layouts, parts
    engine.py    the verbs
    info.py      info() and keys()
    bloom.py     the two classes
"""
