"""The contents of a filter without a server, except its bits: parameters, layouts and the list of parts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NamedTuple


class PartEntry(NamedTuple):
    """A part that has begun."""

    #: When its slice leaves the window (ms).
    expires: int
    #: Its size (bytes), the count included.
    size: int
    #: Its offset in a file.
    offset: int = 0


class LayoutEntry(NamedTuple):
    """A shard's layout, and when it expires (ms)."""

    text: str
    expires: int


@dataclass(slots=True)
class Contents:
    """The parameters, the layouts and the parts. A store's contents are never changed: see ``copy``."""

    #: The parameters, as ``Config.stored``; '' if there are none.
    stored: str = ""
    #: When the newest slice leaves the window, and the parameters with it (ms).
    expires: int = 0
    layouts: dict[int, LayoutEntry] = field(default_factory=dict)
    parts: dict[str, PartEntry] = field(default_factory=dict)
    #: Increases whenever the filter is cleared.
    epoch: int = 0

    def parameters(self, now: int) -> str:
        """Return the parameters; '' if there are none, or all slices have left the window."""
        return self.stored if now < self.expires else ""

    def layout(self, shard: int, now: int) -> str:
        """Return the text of a shard's layout; '' if it has none."""
        entry = self.layouts.get(shard)
        return entry.text if entry and now < entry.expires else ""

    def copy(self, now: int) -> Contents:
        """Return a copy to change and save, without the layouts and parts that have expired."""
        return Contents(
            self.stored,
            self.expires,
            {shard: entry for shard, entry in self.layouts.items() if now < entry.expires},
            {key: entry for key, entry in self.parts.items() if now < entry.expires},
            self.epoch,
        )

    def cleared(self) -> Contents:
        """Return empty contents, of the next epoch."""
        return Contents(epoch=self.epoch + 1)

    def keep(self, stored: str, expires: int) -> None:
        """Set the parameters, and extend their lifetime. Parameters that differ from the old ones clear the filter."""
        if stored != self.stored:
            self.layouts, self.parts, self.expires = {}, {}, 0
            self.epoch += bool(self.stored)
        self.stored, self.expires = stored, max(expires, self.expires)

    def keep_layout(self, shard: int, text: str, expires: int) -> None:
        """Set a shard's layout. It never expires earlier than before, because the clock may be set back."""
        before = self.layouts.get(shard)
        self.layouts[shard] = LayoutEntry(text, max(expires, before.expires if before else 0))

    def to_text(self) -> str:
        """Return the contents as text, for a file."""
        return json.dumps(
            [self.stored, self.expires, self.layouts, self.parts, self.epoch],
            separators=(",", ":"),
        )

    @classmethod
    def from_text(cls, text: str) -> Contents:
        """Return the contents in a text of ``to_text``."""
        stored, expires, layouts, parts, epoch = json.loads(text)
        return cls(
            stored,
            expires,
            {int(shard): LayoutEntry(*entry) for shard, entry in layouts.items()},
            {key: PartEntry(*entry) for key, entry in parts.items()},
            epoch,
        )
