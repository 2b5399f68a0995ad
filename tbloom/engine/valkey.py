"""valkey-py, a fork of redis-py. Its clients are taken beside redis-py's, and its errors become redis-py's.

Its modules and classes have redis-py's names, with "valkey" in place of "redis". Who has a client of it has imported it, so it is
not imported here.
"""

from __future__ import annotations

import sys

from redis import exceptions


def with_valkeys(*kinds: type) -> tuple[type, ...]:
    """Return these classes of redis-py, and valkey-py's classes for the same purpose if valkey-py is imported."""
    modules = (sys.modules.get(kind.__module__.replace("redis", "valkey", 1)) for kind in kinds)
    names = (kind.__name__.replace("Redis", "Valkey") for kind in kinds)
    found = (getattr(*place, None) for place in zip(modules, names, strict=True))
    return *kinds, *(kind for kind in found if kind is not None)


def as_redis(error: Exception) -> Exception:
    """Return redis-py's error for an error of valkey-py: the class of the same name, or of a base class. Return any other error unchanged."""
    for kind in type(error).__mro__:
        known = getattr(exceptions, kind.__name__.replace("Valkey", "Redis"), None)
        if known is not None and kind.__module__.startswith("valkey."):
            made: Exception = known(*error.args)
            made.__cause__ = error.with_traceback(None)
            return made
    return error
