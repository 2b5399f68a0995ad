"""Compares all records of a store with their digests, and with the index."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path

from tbloom.pages import scanning, segments
from tbloom.pages.calendar import Calendar
from tbloom.pages.index import Index
from tbloom.pages.info import PagesReport
from tbloom.pages.rows import unpacked
from tbloom.pages.scanning import Batch, Part, Progress
from tbloom.pages.snapshot import Segment, Snapshot


def verify(
    root: Path,
    index: Index,
    calendar: Calendar,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> PagesReport:
    """The numbers of pages and records, and the problems."""
    scanning.check_jobs(jobs)
    problems: list[str] = []
    pages = 0
    with index.reading() as snapshot:
        kept = snapshot.kept(calendar.since())[::-1]
        found: dict[str, list[_Findings]] = {slice.label: [] for slice in kept}
        for segment in snapshot.segments():
            if segment.label in found:
                found[segment.label].append(_Findings(root, segment))
        every = [one for ours in found.values() for one in ours]
        _fill(every, snapshot, progress, jobs)
        for slice in kept:
            if slice.start < calendar.since():  # it has left since then, perhaps with its files
                continue
            ours = found[slice.label]
            problems += [problem for one in ours for problem in one.problems]
            pages += (has := snapshot.pages(slice))
            if has != (where := sum(one.pages for one in ours)):
                problems.append(
                    f"slice {slice.label}: the index has {has} pages, and {where} of them are where it says"
                )
    return PagesReport(pages, sum(one.records for one in every), tuple(problems))


class _Findings:
    """What is found in a segment."""

    def __init__(self, root: Path, segment: Segment) -> None:
        path, size = segments.path_of(root, segment.label, segment.number), segment.size
        self.problems: list[str] = []
        self.pages = self.records = self.done = 0
        with suppress(FileNotFoundError):
            size = path.stat().st_size
        if size < segment.size:
            self.problems.append(f"{path}: has {size} bytes, and the index knows of {segment.size}")
        self.part = Part(path, segment.number, 0, min(size, segment.size), is_checked=True)

    def add(self, batch: Batch, snapshot: Snapshot) -> None:
        """Adds some records."""
        self.done = batch.end
        self.records += batch.records
        self.problems += batch.problems
        for row in unpacked(batch.rows):
            if row.is_page:
                where = snapshot.find(row.fingerprint)
                self.pages += where is not None and where[1] == row.entry


def _fill(
    findings: list[_Findings], snapshot: Snapshot, progress: Progress | None, jobs: int | None
) -> None:
    total = sum(one.part.end for one in findings)
    done = 0
    with closing(scanning.scan([one.part for one in findings], jobs)) as batches:
        for place, batch in batches:
            done += batch.end - findings[place].done
            findings[place].add(batch, snapshot)
            if progress is not None:
                progress(done, total)
