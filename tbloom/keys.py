"""Every key name that tbloom uses.

All keys of a filter share one hash tag, ``{news}:20190508``, so a script finds
them on one node of a cluster.
"""

from __future__ import annotations

import re

from tbloom.errors import ConfigError


class Keys:
    """The keys of the filter ``name``."""

    __slots__ = ("_tag", "config")

    def __init__(self, name: str) -> None:
        # A name that UTF-8 can't encode has a lone surrogate in it.
        if not isinstance(name, str) or not name or re.search("[{}\ud800-\udfff]", name):
            raise ConfigError("name", name, "a str that is not empty and has no braces")
        self._tag = f"{{{name}}}"
        #: The parameters that the filter was made with.
        self.config = f"{self._tag}:config"

    def slice(self, label: str) -> str:
        """The bitmap of one slice."""
        return f"{self._tag}:{label}"

    def lane(self, client: str, lane: int) -> str:
        """The last token and answer of one lane of one client."""
        return f"{self._tag}:lane:{client}:{lane}"
