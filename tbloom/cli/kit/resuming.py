"""The file of ``tbloom import --resume``: how far an import has come."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbloom.cli.kit.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Progress:
    """From where, into what, and how far."""

    source: str
    target: str
    #: See ``sources.Source``.
    mark: str
    position: int = 0
    read: int = 0
    new: int = 0

    def after(self, position: int, read: int, new: int) -> Progress:
        """The same, so much later."""
        return replace(self, position=position, read=self.read + read, new=self.new + new)

    def is_same_import(self, other: Progress) -> bool:
        """Whether the two are of the same import."""
        return (self.source, self.target) == (other.source, other.target)


class ResumeFile:
    """Keeps the progress in a file; without a path, nowhere."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path is not None else None

    def begin(self, fresh: Progress, *, goes_on: Callable[[Progress], bool]) -> Progress:
        """What the file says, if one ``goes_on`` with that; or else ``fresh``. That is kept: a file that
        can't be written is found out now."""
        known = self._read()
        if known is not None and not known.is_same_import(fresh):
            raise CommandError(
                f"--resume {self._path}: is of another import, from {known.source} into {known.target}"
            )
        is_good = known is not None and known.mark == fresh.mark and goes_on(known)
        progress = known if known is not None and is_good else fresh
        self.keep(progress)
        return progress

    def keep(self, progress: Progress) -> None:
        """Writes it: the file is always a whole one."""
        if self._path is None:
            return
        beside = self._path.with_name(f"{self._path.name}.tmp")
        try:
            beside.write_text(json.dumps(asdict(progress)), encoding="utf-8")
            os.replace(beside, self._path)  # noqa: PTH105 - says that it replaces
        except OSError as error:
            raise CommandError(f"--resume {self._path}: {error.strerror}") from None

    def remove(self) -> None:
        """The import is done."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _read(self) -> Progress | None:
        if self._path is None:
            return None
        try:
            values = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CommandError(f"--resume {self._path}: {error.strerror}") from None
        except ValueError:
            values = None
        if not _are_ours(values):
            raise CommandError(
                f"--resume {self._path}: expected a file that 'tbloom import' wrote, or none"
            )
        return Progress(**values)


def _are_ours(values: Any) -> bool:
    """Whether these are a Progress's values."""
    texts, numbers = ("source", "target", "mark"), ("position", "read", "new")
    return (
        isinstance(values, dict)
        and values.keys() == {*texts, *numbers}
        and all(isinstance(values[name], str) for name in texts)
        and all(type(values[name]) is int and values[name] >= 0 for name in numbers)
    )
