"""Random crawls of a few pages in versions, beside a model of what is to be fetched, remembered and kept.

Each crawl has links to some pages, in some versions or without one. A page answers 200 or 503, or is redirected. A crawl comes to its
end, is stopped early (CLOSESPIDER_PAGECOUNT), or is killed. After each one, the model looks at what the store keeps of the pages.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import scrapy
from scrapy.http import Response

from tbloom.bloom.claims.fleet import FAILED, GIVEN_UP, LEFT
from tbloom.scrapy.crawl import crawl_of
from tbloom.scrapy.done.page import MOST_FAILURES
from tests.helpers.crawl import Part
from tests.helpers.projects import Project, path_of

PAGES = "abcd"
#: More crawlers may not die of a page (tbloom/scrapy/done/taking.py).
MOST_KILLS = 2

Version = str | None


class Round(NamedTuple):
    """A crawl: its links, the answer of each page, and how it ends."""

    links: tuple[tuple[str, Version], ...]
    #: 200, 503, or the path that it is redirected to.
    answers: dict[str, int | str]
    #: "", "stopped", "killed" (before a download) or "killed in a callback"; and at which page.
    end: str = ""
    at: int = 0
    concurrent: int = 16
    #: Whether the next crawl begins while the one that was killed seems to be alive. (Then that one comes to its end.)
    is_blind: bool = False

    def __str__(self) -> str:
        links = " ".join(f"{page}{version or ''}" for page, version in self.links)
        answers = " ".join(f"{page}:{answer}" for page, answer in self.answers.items())
        return (
            f"{links or '-'} | {answers} | {self.end} {self.at} {self.concurrent} {self.is_blind}"
        )


def rounds_of(seed: int, *, is_local: bool, queue: str = "memory", most: int = 7) -> list[Round]:
    """The seed's crawls; the last one is whole, and each page answers 200 in it."""
    chance, kills, rounds = random.Random(seed), 0, list[Round]()
    for number in range(most):
        is_last, was_blind = number == most - 1, bool(rounds) and rounds[-1].is_blind
        versions: list[Version] = [None, *map(str, range(max(1, number - 1), number + 3))]
        links = tuple(
            (chance.choice(PAGES), chance.choice(versions)) for _ in range(chance.randint(0, 7))
        )
        answers: dict[str, int | str] = {
            page: 200 if is_last else chance.choice([200, 200, 503, 503, f"/{page}-r"])
            for page in PAGES
        }
        end = chance.choices(["", "stopped", "killed", "killed in a callback"], [5, 3, 2, 2])[0]
        if (
            is_last
            or was_blind
            or (end.startswith("killed") and (queue != "memory" or kills == MOST_KILLS))
        ):
            end = ""  # fmt: skip
        kills += end.startswith("killed")
        is_blind = end.startswith("killed") and not is_local and chance.random() < 0.3
        at, concurrent = chance.randint(1, 3), chance.choice([1, 16])
        rounds.append(Round(links, answers, end, at, concurrent, is_blind and number < most - 2))
    return rounds


# The crawls


class Gate(Part):
    """A downloader middleware: lets pages pass once all links of the start are settled. It notes each one, and may kill the crawl."""

    async def process_request(self, request: scrapy.Request) -> None:
        crawler = self.crawler
        inbox = crawl_of(crawler).scheduler.requests.inbox
        while not crawler.spider.has_started or inbox.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        crawler.spider.note("asked", request, "killed")


class Links(Project):
    """Follows the links of LINKS."""

    has_started = False

    async def start(self) -> AsyncIterator[Any]:
        for path, version in self.settings["LINKS"]:
            yield self.request(path, meta={"tbloom_version": version} if version else {})
        type(self).has_started = self.has_started = True

    def parse(self, response: Response) -> Any:
        self.note("item", response, "killed in a callback")
        yield {"page": path_of(response)}

    def note(self, what: str, source: Any, end: str) -> None:
        """Appends a line to the file NOTED, of what may die."""
        path = Path(self.settings["NOTED"])
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{what} {path_of(source)} {source.meta.get('tbloom_version') or ''}\n")
        times = path.read_text(encoding="utf-8").count(f"{what} ")
        if (end, times) == (self.settings["END"], self.settings["AT"]):
            os.kill(os.getpid(), signal.SIGKILL)


def settings_of(this: Round, noted: Path) -> dict[str, Any]:
    """The settings of a crawl."""
    return {
        "LINKS": this.links,
        "END": this.end,
        "AT": this.at,
        "NOTED": str(noted),
        "CONCURRENT_REQUESTS": this.concurrent,
        "DOWNLOADER_MIDDLEWARES": {Gate: 543},
        "CLOSESPIDER_PAGECOUNT": this.at if this.end == "stopped" else 300,
    }


def answers_of(this: Round) -> dict[str, list[int | str]]:
    """What the site answers in a crawl."""
    return {f"/{page}": [answer] for page, answer in this.answers.items()}


def rows_of(fleet: Any) -> list[Row]:
    """The kept pages."""
    return [
        Row(
            page.url.rpartition("/")[2],
            page.state,
            page.fields.get("meta", {}).get("tbloom_version"),
            page.tries,
        )
        for page in fleet.kept()
    ]


# The model


class Row(NamedTuple):
    """A kept page, as the store has it."""

    path: str
    state: str
    version: Version
    tries: int


@dataclass
class State:
    """What is known of a page after a crawl. (None: without a version.)"""

    seen: set[Version] = field(default_factory=set)
    #: What may be seen as well.
    maybe: set[Version] = field(default_factory=set)
    #: Whether it is kept, in which version, and how often in a row it has failed.
    kept: str = ""
    versions: set[Version] = field(default_factory=set)
    tries: int = 0
    #: Whether the last crawl was killed, and nobody has looked since: the page may be done, or given up.
    is_unsure: bool = False
    #: Whether that crawl had claimed it, and did not fetch it: it is kept.
    is_claimed: bool = False

    def done(self, certain: Iterable[Version], perhaps: Iterable[Version]) -> None:
        self.seen |= {None, *certain}
        self.maybe = (self.maybe | {*perhaps}) - self.seen
        self.kept, self.versions, self.tries = "", set(), 0


class Model:
    """What is to become of the pages, crawl by crawl."""

    def __init__(self) -> None:
        self.pages = {page: State() for page in PAGES}
        self.targets = {page: State() for page in PAGES}

    def complaints(self, this: Round, noted: list[list[str]], rows: list[Row] | None) -> list[str]:
        """What is wrong with a crawl, of what it has noted, and of the rows that are kept after it; None: nobody has looked."""
        asked = Counter(path for what, path, _ in noted if what == "asked")
        items = {path.removesuffix("-r"): version or None for what, path, version in noted if what == "item"}  # fmt: skip
        wrong = [
            f"{path}: fetched {times} times"
            for path, times in asked.items()
            if times > 1 + self._may_come_again(path.removesuffix("-r"), this)
        ]
        kept = dict[str, Row]()
        for row in rows or ():
            if row.path in kept:
                wrong.append(f"{row.path}: kept twice")
            kept[row.path.removesuffix("-r")] = row
        for page in PAGES:
            wrong += [
                f"{page}: {what}; {self.pages[page]}, kept as {kept.get(page)}"
                for what in self._page(page, this, asked, items, kept, is_seen=rows is not None)
            ]
        return wrong

    def _may_come_again(self, page: str, this: Round) -> bool:
        """Return whether a link in another version may come while the page is in work: then it is fetched once more."""
        versions = {version for path, version in this.links if path == page}
        return len(versions | self.pages[page].versions) > 1 and versions != {None}

    def _page(  # noqa: C901, PLR0912, PLR0915 - a rule in each branch
        self,
        page: str,
        this: Round,
        asked: Counter[str],
        items: dict[str, Version],
        kept: dict[str, Row],
        *,
        is_seen: bool,
    ) -> Iterable[str]:
        known, target = self.pages[page], self.targets[page]
        links = [version for path, version in this.links if path == page]
        row, was, answer = kept.get(page), known.kept, this.answers[page]
        if asked[f"{page}-r"] and not asked[page]:  # a JOBDIR had its redirect
            answer = f"/{page}-r"
        new = [version for version in links if version not in known.seen | known.maybe]
        # The crawl that was killed may hold it until after this one.
        must = not known.is_unsure and (bool(new) or was in (FAILED, LEFT))
        may = must or known.is_unsure or any(version not in known.seen for version in links)
        fetched, is_redirected = asked[page] > 0 or asked[f"{page}-r"] > 0, isinstance(answer, str)
        is_whole = not this.end
        if fetched and not may:
            yield "fetched, but it was seen"
        if must and not fetched and is_whole:
            yield "not fetched"
        allowed = {*links} | known.versions
        if page in items:
            if items[page] not in allowed:
                yield f"fetched in version {items[page]}, expected one of {allowed}"
            # The last one: of the links, or of the versions as they were first asked for.
            in_order = [*filter(None, links)]
            last = {*in_order[-1:], *[*dict.fromkeys(in_order)][-1:]}
            if (
                was == FAILED
                and not known.is_unsure
                and last
                and last <= {*new}
                and items[page] not in last
            ):
                yield f"it was held, and fetched in version {items[page]}, not {last}"  # fmt: skip
        if row and row.version not in allowed:
            yield f"kept in version {row.version}, expected one of {allowed}"
        if row and (row.state == GIVEN_UP) != (row.tries >= MOST_FAILURES):
            yield "given up, or not, at the wrong time"
        # A crawl that was killed may have counted one that nobody has noted.
        if row and row.tries > known.tries + known.is_unsure + (answer == 503):
            yield f"it has failed {known.tries} times before"

        # What has become of it
        is_done = fetched and answer != 503
        if is_redirected and is_done and not asked[f"{page}-r"]:
            version = known.versions | {*links}
            if target.seen.isdisjoint(version | {None}) and target.maybe.isdisjoint(version):
                is_done = False
                if is_whole:
                    yield "its redirect is not followed"
            elif not is_whole:
                is_done = row is None
        if this.end.startswith("killed"):
            yield from self._killed(page, this, row, fetched=fetched, is_seen=is_seen, must=must)
            return
        comes_again = self._may_come_again(page, this)
        if is_done and row and (is_whole or not comes_again):
            yield "done, and kept"
        if fetched and comes_again:
            known.maybe |= {None, *allowed} - known.seen
        if not is_done and (fetched or must or known.is_claimed) and not row:
            yield "lost"
        if not fetched and not may and bool(row) != bool(was):
            yield "its row has changed"
        if not fetched and is_whole and row and row.state != GIVEN_UP and not known.is_unsure:
            yield "it stays"
        if is_done and not row:
            certain = {items[page]} if page in items else set[Version]()
            if was == FAILED and not known.is_unsure and known.versions:
                certain |= {*new} | known.versions
            known.done(certain, allowed)
            if is_redirected:
                target.done(certain, allowed)
        elif not fetched and is_whole and not row:
            known.seen |= {None} if links else set()
        self._keep(known, row)

    def _killed(
        self, page: str, this: Round, row: Row | None, *, fetched: bool, is_seen: bool, must: bool
    ) -> Iterable[str]:
        known, answer = self.pages[page], this.answers[page]
        links = {version for path, version in this.links if path == page}
        if fetched and self._may_come_again(page, this):
            known.maybe |= {None, *links, *known.versions} - known.seen
        if is_seen:
            if must and not row and (not fetched or answer == 503):
                yield "lost by the kill"
            if row is None and fetched:
                allowed = known.versions | links
                known.done((), allowed)
                if isinstance(answer, str):
                    self.targets[page].done((), allowed)
            self._keep(known, row)
        elif fetched or must or links:
            known.is_claimed = must and not fetched
            known.is_unsure, known.kept = True, known.kept or LEFT
            known.versions |= links
            known.maybe |= {None, *known.versions} - known.seen
            self.targets[page].maybe |= {None, *known.versions}

    @staticmethod
    def _keep(known: State, row: Row | None) -> None:
        known.is_unsure = known.is_claimed = False
        if row:
            known.kept, known.versions, known.tries = row.state, {row.version}, row.tries
        else:
            known.kept, known.versions, known.tries = "", set(), 0


def play(
    rounds: Iterable[Round],
    crawl: Callable[[Round, Path], object],
    rows: Callable[[], list[Row]],
    folder: Path,
) -> list[str]:
    """Makes the crawls; what is wrong with the first one that differs."""
    model = Model()
    for number, this in enumerate(rounds):
        noted = folder / f"noted-{number}"
        noted.touch()
        # A crawl that is to die may come to its end before.
        was_killed = crawl(this, noted) is None
        played = (
            this if was_killed or this.end == "stopped" else this._replace(end="", is_blind=False)
        )
        lines = [line.split(" ") for line in noted.read_text(encoding="utf-8").splitlines()]
        found = None if played.is_blind else rows()
        if wrong := model.complaints(played, lines, found):
            return [f"crawl {number}: {what}" for what in wrong] + [f"  {lines}"]
    return []
