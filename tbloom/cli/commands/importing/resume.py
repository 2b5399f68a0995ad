"""The file of ``tbloom import --resume``: the progress of an import."""

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
    """Source, target and position of an import, with its counts."""

    source: str
    target: str
    #: ``Source.mark`` when the import began.
    mark: str
    position: int = 0
    read: int = 0
    new: int = 0

    def after(self, position: int, read: int, new: int) -> Progress:
        """The progress after one more page: its position, and its number of items read and new."""
        return replace(self, position=position, read=self.read + read, new=self.new + new)

    def is_same_import(self, other: Progress) -> bool:
        """Both have the same source and target."""
        return (self.source, self.target) == (other.source, other.target)


class ResumeFile:
    """The progress, kept in a file; without a path, it is not kept."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path is not None else None

    def begin(self, fresh: Progress, *, is_valid: Callable[[Progress], bool]) -> Progress:
        """The file's progress if it ``is_valid``, else ``fresh``. Raises CommandError where the file can't be written."""
        known = self._read()
        if known is not None and not known.is_same_import(fresh):
            raise CommandError(
                f"--resume {self._path}: belongs to another import, from {known.source} into {known.target}"
            )
        is_good = known is not None and known.mark == fresh.mark and is_valid(known)
        progress = known if known is not None and is_good else fresh
        self.keep(progress)
        return progress

    def keep(self, progress: Progress) -> None:
        """Writes the progress; the file is replaced as a whole."""
        if self._path is None:
            return
        beside = self._path.with_name(f"{self._path.name}.tmp")
        try:
            beside.write_text(json.dumps(asdict(progress)), encoding="utf-8")
            os.replace(beside, self._path)  # noqa: PTH105 - its name says "replace"
        except OSError as error:
            raise CommandError(f"--resume {self._path}: {error.strerror}") from None

    def remove(self) -> None:
        """Removes the file of a finished import."""
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
        if not _is_progress(values):
            raise CommandError(
                f"--resume {self._path}: expected a file by 'tbloom import', or a new name"
            )
        return Progress(**values)


def _is_progress(values: Any) -> bool:
    """The values have the names and types of a Progress."""
    texts, numbers = ("source", "target", "mark"), ("position", "read", "new")
    return (
        isinstance(values, dict)
        and values.keys() == {*texts, *numbers}
        and all(isinstance(values[name], str) for name in texts)
        and all(type(values[name]) is int and values[name] >= 0 for name in numbers)
    )
