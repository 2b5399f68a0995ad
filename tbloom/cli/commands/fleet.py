"""``tbloom queue``, ``failed``, ``retry``, ``drop`` and ``push``: the pages and the crawlers of a Scrapy spider."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import wraps
from heapq import nlargest
from itertools import chain, islice
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

import click
from click.core import ParameterSource

from tbloom.claims.fleet import (
    CRAWLERS,
    DEAD,
    ELSEWHERE,
    ENDED,
    FAILED,
    GIVEN_UP,
    LEFT,
    LIVING,
    WORKS,
    Crawler,
    KeptPage,
    KeptPages,
    Moved,
    NewNote,
    Pages,
    View,
    Where,
    grouped,
    kept_note,
    natural,
    numbers_of,
    oldest_page,
    order,
    per_minute,
)
from tbloom.cli.commands.targets import Target, arguments_of, of_fleet, shortened, words_of
from tbloom.cli.kit import errors, formats, numbers, options, output, progress, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filters import Server
from tbloom.engine.urls import without_userinfo
from tbloom.errors import ConfigError, TBloomError

if TYPE_CHECKING:
    from tbloom.scrapy.extras.moving import OldQueue
    from tbloom.scrapy.extras.pushing import Given, SpiderQueue

#: Lines, or requests, in a call.
_BATCH = 1_000
#: The most pages of a state that ``failed`` looks at, and the newest that it shows.
_MOST_READ, _SHOWN = 10_000, 10
#: The most wrong lines that ``push`` names.
_NAMED = 20
#: The most reasons of a crawler's failures that ``queue`` shows; so many queues are shown without --all.
_REASONS, _MOST_SETS = 3, 20
#: The columns of crawlers that a narrow terminal does without, the most important first.
_LEAST = (
    *("claimed", "done", "a minute", FAILED, "arguments", "spider"),
    *("why", "beat", "started", "given", "taken"),
)
#: How crawls end without an error.
_WELL = re.compile("finished|shutdown|cancelled|closespider_(?!errorcount).*")
#: So many characters of an error's message stand in a table; --json-lines has all.
_MESSAGE = 50
#: The headings of what tells queues apart.
_APART = _ARGUMENTS, _SPIDER = "arguments", "spider"
_NOTHING = "no pages are claimed, left, failed or given up, and no crawlers are known"
#: A row of a table.
Row = dict[str, str | int]


# queue


class FleetLine(NamedTuple):
    """What is shown of a filter with crawlers, where all are shown."""

    filter: str
    #: The state of its liveliest crawler.
    state: str
    #: How many crawlers live.
    crawlers: int
    done: int
    failed: int
    given_up: int
    per_minute: int


def fleets_of(server: Server) -> Iterator[tuple[str, FleetLine | Exception]]:
    """Yield the filters that have, or had, crawlers: those at work first, each with its name, or with the error that it raises."""
    found = list[FleetLine]()
    for name, told in server.each(server.searched(), numbers_of):
        if isinstance(told, Exception):
            yield name, told
        elif told and (told.states or told.done or any(told.pages)):
            states = [state for state in CRAWLERS if told.states[state]] or [ENDED]
            living = sum(told.states[state] for state in LIVING)
            pace = per_minute(told.crawlers)
            about = told.done, told.pages.failed, told.pages.given_up, pace
            found.append(FleetLine(name, states[0], living, *about))
    found.sort(key=lambda each: (CRAWLERS.index(each.state), natural(each.filter)))
    yield from ((each.filter, each) for each in found)


def _overview(server: Server, words: list[str], **_: Any) -> int:
    """Show all fleets of a server."""
    found, code = output.readable(fleets_of(server))
    headings = "crawlers", "done", FAILED, GIVEN_UP, "a minute"
    rows: list[Row] = [
        {
            "fleet": f"tbloom queue {shlex.quote(each.filter)}",
            "is": each.state,
            **dict(zip(headings, each[2:], strict=True)),
        }
        for each in found
    ]
    where = f"; each with {shlex.join(words)}" * bool(words)
    title = formats.printable(f"{formats.counted(len(rows), 'fleet')} on {server.place}{where}")
    table = output.table(rows, left=("fleet", "is"), least=headings)
    output.show(
        [each._asdict() for each in found], lambda: "\n\n".join(filter(None, [title, table]))
    )
    return code


@click.command(cls=Command, example="tbloom queue shop -a country=de")
@of_fleet(overview=_overview)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="also crawlers that have ended within the hour, and all arguments",
)
@options.as_json
def queue(target: Target, *, everything: bool) -> None:
    """Show a Scrapy spider's pages by state, and its crawlers.

    SPIDER is a spider of the project in whose folder you are. Elsewhere, it is a filter, or a spider whose filter has the default
    name. Without one, all filters with crawlers are shown; -s or --url name the server. A crawler has the pages that it fetches and
    those that it has queued. What it has failed and done are those of its session. To see it live: watch -n 5 tbloom queue SPIDER.
    """
    views, done = target.look()
    queues = [
        {
            **each._asdict(),
            "pages": each.pages._asdict(),
            "crawlers": [*map(_as_json, each.crawlers)],
        }
        for each in views
    ]
    value = {"filter": target.name, "server": target.server, "done": done, "queues": queues}
    output.show(value, lambda: _queue_text(target, views, done, everything=everything))


def _queue_text(target: Target, views: list[View], done: int | None, *, everything: bool) -> str:
    names = _names_of(views)
    pages = Pages(*map(sum, zip(*(each.pages for each in views), strict=True)))
    crawlers = sorted(
        ((one, names[each.queue]) for each in views for one in each.crawlers),
        key=lambda row: order(row[0]),
    )
    ended = [one for one, _ in crawlers if one.state == ENDED and not everything]
    rows = [_crawler_row(*each) for each in crawlers if everything or each[0].state != ENDED]
    done_so_far = ""
    if done:  # else nobody has told
        waiting = pages.claimed + pages.left + pages.orphaned
        rate = per_minute(one for one, _ in crawlers)
        done_so_far = f"{waiting:,} claimed or left, {rate:,} done a minute; {done:,} done in the whole filter"
    shown = [
        *output.warnings(() if target.is_local else target.seen.warnings()),
        output.sentence(done_so_far),
        output.table(_page_rows(target, pages), left=("pages", ""), least=[""]),
        _sets_text(views, names, everything=everything),
        output.table(_said(rows), left=("crawler", *_APART, "is", "why"), least=_LEAST),
    ]
    if oldest := oldest_page(one for one, _ in crawlers):
        told, age = oldest.record, formats.age(oldest.oldest_for or 0)
        where = f"{age} ({told.oldest_state} of {oldest.place})"
        shown.append(formats.printable(f"oldest page in work: {told.oldest_page}, for {where}"))
    if ended:
        failing = sum(not _WELL.fullmatch(one.record.ended) for one in ended)
        by_errors = f", {failing:,} of them by errors" * bool(failing)
        shown.append(f"{len(ended):,} ended{by_errors} (--all shows them)")
    if not (crawlers or any(pages)):
        shown.append(_NOTHING)
    return "\n\n".join(filter(None, [_title(target, views), *shown]))


def _title(target: Target, fleets: Iterable[View | KeptPages]) -> str:
    return formats.printable(f"{target.title([each.queue for each in fleets])} at {target.place}")


def _names_of(fleets: Iterable[View | KeptPages]) -> dict[str, dict[str, str]]:
    """Return the cell that tells each queue from the others, by its heading; none, if there is one queue."""
    queues = [each.queue for each in fleets]
    if len(queues) == 1:
        return {queues[0]: {}}
    if len({queue.partition("\n")[0] for queue in queues}) == 1:
        return {queue: {_ARGUMENTS: arguments_of(queue)} for queue in queues}
    return {queue: {_SPIDER: words_of(queue)} for queue in queues}


def _sets_text(views: list[View], names: dict[str, dict[str, str]], *, everything: bool) -> str:
    """Return a line for each of several queues, those with the most crawlers and pages first."""
    if len(views) == 1:
        return ""
    found = list[tuple[Any, Row]]()
    for queue, crawlers, pages in views:
        living = sum(one.state in LIVING for one in crawlers)
        numbers = {"crawlers": living, "claimed": pages.claimed, LEFT: pages.left}
        numbers |= {FAILED: pages.failed, GIVEN_UP: pages.given_up}
        found.append(((-living, -sum(pages), natural(queue)), {**names[queue], **numbers}))
    rows = [row for _, row in sorted(found, key=lambda each: each[0])]
    shown = rows if everything else rows[:_MOST_SETS]
    more = f"\n{len(rows) - len(shown):,} more: --all shows them" * (len(rows) > len(shown))
    return output.table(shown, left=_APART, least=[*numbers]) + more


def _page_rows(target: Target, pages: Pages) -> list[Row]:
    held = f"; {pages.held:,} held by crawlers at work" * bool(pages.held)
    alone = f"; {pages.suspects:,} alone, because crawlers have died of them" * bool(pages.suspects)
    retry = shlex.join(["tbloom", "retry", *(target.way() or ()), "--given-up"])
    rows = [
        ("claimed", pages.claimed, "being fetched, or queued in a crawler"),
        (LEFT, pages.left, f"for the next crawler that has nothing to fetch{alone}"),
        ("of dead crawlers", pages.orphaned, "left, as soon as a crawler asks for pages"),
        (FAILED, pages.failed, f"for the next crawl that starts{held}"),
        (GIVEN_UP, pages.given_up, f"for a link, or: {retry}"),
    ]
    return [{"pages": state, "number": n, "": remark} for state, n, remark in rows if n]


def _said(rows: list[Row]) -> list[Row]:
    """Return the rows without the columns that say nothing."""
    said = {heading for row in rows for heading, cell in row.items() if cell}
    return [{heading: cell for heading, cell in row.items() if heading in said} for row in rows]


def _crawler_row(crawler: Crawler, name: dict[str, str]) -> Row:
    record, beat = crawler.record, crawler.beat
    row: Row = {
        "crawler": crawler.place,
        **name,
        "is": f"{ENDED} ({record.ended})" if crawler.state == ENDED else crawler.state,
        "started": "" if beat is None else formats.age(record.up + beat),
        "beat": "" if beat is None else formats.age(beat),
        "claimed": crawler.claimed if crawler.state in (*LIVING, DEAD) else "",
        "done": record.done,
        "a minute": record.per_minute if crawler.state == WORKS else "",
        "taken": record.taken,
        "given": record.given,
        "failed": sum(record.failed.values()),
        "why": ", ".join(f"{why} {n:,}" for why, n in Counter(record.failed).most_common(_REASONS)),
    }
    if not record.host:  # it tells nothing of itself
        row |= dict.fromkeys(
            ("started", "claimed", "done", "a minute", "taken", "given", "failed"), ""
        )
    return row


def _as_json(crawler: Crawler) -> dict[str, Any]:
    about = {"session": crawler.session, "state": crawler.state, "beat": crawler.beat}
    return {**about, **asdict(crawler.record), "claimed": crawler.claimed}


# failed, retry, drop


class _Chosen(NamedTuple):
    """The kept pages that a command is about."""

    fleets: list[KeptPages]
    where: Where
    states: Sequence[str]
    #: The time (s since the epoch) by the clock by which they have failed.
    now: float
    #: Whether the command line says which ones.
    is_narrow: bool

    def of(self, fleet: KeptPages, *states: str) -> Iterator[KeptPage]:
        """Yield those of a fleet, in these states or in all that are chosen."""
        return filter(self.where.has, fleet.kept(states or self.states))


def _choosing(function: Callable[..., Any]) -> Any:
    """Give a command the options that say which pages it is about; it gets them as ``_Chosen``, its second argument.

    One that has ``--all`` needs a choice, or this option.
    """

    @wraps(function)
    def command(
        target: Target,
        *,
        since: float | None,
        before: float | None,
        failed: bool,
        given_up: bool,
        left: bool = False,
        everything: bool = True,
        **more: Any,
    ) -> Any:
        fleets = target.fleets()
        now = fleets[0].now()
        where = Where(
            reason=more.pop("reason"),
            host=more.pop("host"),
            url=more.pop("match"),
            since=0 if since is None else now - since,
            before=0 if before is None else now - before,
        )
        states = [LEFT] * left + [FAILED] * failed + [GIVEN_UP] * given_up
        is_narrow = bool(where or states)
        if not (is_narrow or everything):
            raise CommandError("expected a choice, such as --reason status/503 or --host, or --all")
        chosen = _Chosen(fleets, where, states or [FAILED, GIVEN_UP], now, is_narrow)
        return function(target, chosen, **more)

    return _filters(command)


def _pattern(flag: str, metavar: str, what: str) -> options.Decorator:
    return click.option(flag, metavar=metavar, default="", type=options.text_of, help=what)


def _age(flag: str, what: str) -> options.Decorator:
    return click.option(flag, metavar="AGE", type=numbers.age, help=what)


def _flag(flag: str, name: str, what: str) -> options.Decorator:
    return click.option(flag, name, is_flag=True, help=what)


_filters = options.all_of(
    _pattern("--reason", "REASON", "that failed so: status/503, or status; * and ? are wildcards"),
    _pattern("--host", "HOST", "of this host, or pattern"),
    _pattern("--match", "URL", "with such a URL, a pattern"),
    _age("--since", "that failed within this time, such as 2h"),
    _age("--before", "that failed longer ago, such as 30d"),
    _flag("--failed", "failed", "only those that have failed, and are not given up"),
    _flag("--given-up", "given_up", "only those that are given up"),
)
_left = _flag("--left", "left", "those that are left, in place of failed ones")
_all = _flag("--all", "everything", "all of them")


@click.command(cls=Command, example="tbloom failed shop --reason status --since 2h")
@of_fleet()
@_choosing
@_left
@_flag(
    *("--json-lines", "as_lines"),
    "all of them, a request as JSON in each line, as tbloom push takes it",
)
def failed(target: Target, chosen: _Chosen, *, as_lines: bool) -> None:
    """Show which pages of a Scrapy spider have failed, and why.

    By state, reason and host, then the newest. The next crawl that starts takes the failed ones; given-up ones are for a link, or
    tbloom retry. SPIDER is as of tbloom queue. Without --json-lines, at most 10,000 pages of each state are shown.
    """
    if as_lines:
        _print_lines(chain.from_iterable(map(chosen.of, chosen.fleets)))
    else:
        _show_failed(target, chosen)


def _print_lines(pages: Iterator[KeptPage]) -> None:
    others = 0
    for page in pages:
        fields = page.fields
        if "url" in fields:
            said = {"_reason": page.reason, "_message": page.message, "_where": page.where}
            about = {"_state": page.state, **said, "_tries": page.tries}
            line = {**fields, **about, "_failed_at": page.failed_at}
            sys.stdout.write(f"{json.dumps(line)}\n")
        else:
            others += 1
    if others:
        output.say(f"{formats.counted(others, 'note')} of another program: no request")


def _show_failed(target: Target, chosen: _Chosen) -> None:
    fleets, more = chosen.fleets, list[str]()
    names, pages = _names_of(fleets), {fleet.queue: list[KeptPage]() for fleet in fleets}
    for state in chosen.states:
        room = _MOST_READ
        for fleet in fleets:
            found = [*islice(chosen.of(fleet, state), room + 1)]
            pages[fleet.queue] += found[:room]
            if len(found) > room:
                more.append(state)
                break
            room -= len(found)
    output.line(_title(target, fleets) + "\n")
    if not any(pages.values()):
        output.line(_none_found(chosen))
        return
    groups = [(group, names[queue]) for queue in pages for group in grouped(pages[queue])]
    groups.sort(key=lambda each: -each[0].number)
    left: tuple[str, ...] = (*_APART, "state", "reason", "host", "callback")
    least = [*_APART, "host", "newest", "oldest", "callback"]
    rows: list[Row] = [
        {
            **name,
            "state": group.state,
            "reason": group.reason,
            "host": group.host,
            "pages": group.number,
            "newest": _ago(group.newest, chosen.now),
            "oldest": _ago(group.oldest, chosen.now),
            "callback": ", ".join(group.callbacks),
        }
        for group, name in groups
    ]
    output.line(output.table(rows, left=left, least=least))
    every = [(page, names[queue]) for queue in pages for page in pages[queue]]
    newest: list[Row] = [
        {
            "newest": _ago(page.failed_at, chosen.now),
            "state": page.state,
            "reason": page.reason,
            "tries": page.tries,
            **name,
            "URL": without_userinfo(page.url),
            "message": _cut(page.message),
            "where": page.where,
        }
        for page, name in nlargest(_SHOWN, every, key=lambda each: each[0].failed_at or 0)
    ]
    least = ["reason", "message", *_APART, "where", "newest", "state", "tries"]
    left = (*left, "URL", "message", "where")
    output.line("\n" + output.table(_said(newest), left=left, least=least))
    for state in more:
        output.say(f"there are more than {_MOST_READ:,} {state} pages; --json-lines has all")


def _none_found(chosen: _Chosen) -> str:
    where = chosen.where
    none = f"no pages are {' or '.join(chosen.states)}" + ", or match" * bool(where)
    if where.url and not {*where.url} & {*"*?"}:
        none += f"; --match is a whole URL: '*{where.url}*' matches a part"
    return none


def _cut(message: str) -> str:
    return message if len(message) <= _MESSAGE else f"{message[: _MESSAGE - 3]}..."


def _ago(at: float | None, now: float) -> str:
    return "" if at is None else formats.age(max(0.0, now - at))


@click.command(cls=Command, example="tbloom retry shop --reason unreadable --callback parse_item")
@of_fleet()
@_choosing
@click.option(
    "--callback",
    metavar="NAME",
    default="",
    type=options.text_of,
    help="the method of the spider that gets their responses, in place of that with which they were kept",
)
@_all
@options.yes
def retry(target: Target, chosen: _Chosen, callback: str) -> None:
    """Give a Scrapy spider's failed pages to its crawlers.

    A crawler takes them once it has nothing else to fetch: one that runs, or else the next one that starts. The tries of a page
    begin again. Without a choice or --all, nothing is done. SPIDER is as of tbloom queue.
    """
    new_note: NewNote = kept_note
    if callback:
        from tbloom.scrapy.extras.pushing import with_callback  # noqa: PLC0415 - needs Scrapy

        new_note = with_callback(callback, target.spider and target.spider.spider)
    _move(target, chosen, ("Retry", "Retried"), lambda fleet, pages: fleet.retry(pages, new_note))


@click.command(cls=Command, example="tbloom drop shop --reason status/403 --before 30d")
@of_fleet()
@_choosing
@_left
@_all
@options.yes
def drop(target: Target, chosen: _Chosen) -> None:
    """Forget a Scrapy spider's failed pages.

    Each is new to the next link. Without a choice or --all, nothing is done. SPIDER is as of tbloom queue.
    """
    _move(
        target,
        chosen,
        ("Drop", "Dropped"),
        lambda fleet, pages: fleet.drop(pages),
        names_left=not chosen.is_narrow,
    )


def _move(
    target: Target,
    chosen: _Chosen,
    verbs: tuple[str, str],
    move: Callable[[KeptPages, Iterator[KeptPage]], Moved],
    *,
    names_left: bool = False,
) -> None:
    """Move the pages, after a question that says how many they are; say what became of them. ``names_left``: and how many are left."""
    ask, done = verbs
    fleets = chosen.fleets
    if not output.is_on("yes"):
        numbers, example = Counter[str](), ""
        for fleet in fleets:
            for page in _counted(chosen.of(fleet)):
                numbers[fleet.queue] += 1
                example = example or without_userinfo(page.url)
        if numbers:
            what = f"{_numbered(target, fleets, numbers)}, for example {example}"
            output.confirm(f"{ask} {what}?", f"nothing is {done.lower()}")
    found = {fleet.queue: move(fleet, _counted(chosen.of(fleet))) for fleet in fleets}
    numbers = Counter({queue: each.moved for queue, each in found.items() if each.moved})
    moved, gone = numbers.total(), sum(each.gone for each in found.values())
    shown = f"{done} {_numbered(target, fleets, numbers)}"
    if gone:
        shown += f"; {gone:,} were no longer there: a link, or a crawl, came first"
    if not moved + gone:
        shown += f": {_none_found(chosen)}" * bool(chosen.where)
    if names_left:
        left = sum(each.pages.left for each in target.look()[0])
        stay = "stay" if left != 1 else "stays"
        shown += f"; {formats.counted(left, 'left page')} {stay} (--left: those)" * bool(left)
    output.line(formats.printable(shown))


def _numbered(target: Target, fleets: list[KeptPages], numbers: Counter[str]) -> str:
    """Return how many pages these are, also of each queue if they are of several ones."""
    words = target.title([*numbers] or [fleet.queue for fleet in fleets])
    total = f"{formats.counted(numbers.total(), 'page')} of {words!r}"
    names = _names_of(fleets)
    parts = shortened(f"{n:,} of {''.join(names[q].values())}" for q, n in numbers.most_common())
    return f"{total}: {parts}" if len(numbers) > 1 else total


def _counted(pages: Iterator[KeptPage]) -> Iterator[KeptPage]:
    """Yield the pages, and show on a terminal how many there were so far."""
    with progress.bar("pages", 0) as advance:
        for page in pages:
            yield page
            advance(1)


# push


@click.command(cls=Command, extra="scrapy", example="tbloom push shop urls.txt -a country=de")
@of_fleet(of_project=True)
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--again",
    is_flag=True,
    help="fetch those now that were seen, are left, have failed or are given up, with the requests that are kept",
)
@click.option(
    "--skip-wrong",
    is_flag=True,
    help="push the other lines if some are wrong (exit code 1)",
)
@click.option(
    "--from-scrapy-redis",
    "old_key",
    metavar="[KEY]",
    is_flag=False,
    flag_value="",
    type=options.text_of,
    help="move the requests in scrapy-redis' queue (by SCHEDULER_QUEUE_KEY)",
)
@options.as_json
def push(
    target: Target, file: BinaryIO, old_key: str | None, *, again: bool, skip_wrong: bool
) -> int:
    """Give URLs to the crawlers of a Scrapy spider.

    Run it in the project's folder. The project needs tbloom's add-on. Each line of the file, or of standard input, is a URL,
    or a request as a JSON object with the fields url, callback, errback, method, headers, body, cookies, priority, meta, cb_kwargs
    and others of Scrapy's; tbloom failed --json-lines prints such lines. A new one waits in the spider's filter for the next
    crawler with the same arguments that has nothing to fetch. What becomes of the others is counted. If a line is wrong, nothing
    is pushed, and the first twenty wrong lines are named.

    With --from-scrapy-redis, the requests come from the queue of the spider's scrapy-redis crawlers, which must have ended, and
    are removed from it once they are pushed. Do this before tbloom migrate --from-set: requests that were seen stay in the old
    queue. So do those that can't be pushed, which are named. Exit code 1: some have stayed. The requests are pickles, unless
    SCHEDULER_SERIALIZER is set: whoever can write to that Redis can run code here.
    """
    assert target.spider is not None  # noqa: S101 - of_fleet has looked
    if old_key is None:
        code = _push_lines(target.spider, file, again=again, skip_wrong=skip_wrong)
        known = target.known()
        if target.arguments is None and known and target.plain not in known:
            others = shortened(map(arguments_of, known))
            output.say(
                f"only crawls of {target.asked!r} with arguments are known ({others}): "
                "these pages wait for one without any"
            )
        return code
    source = click.get_current_context().get_parameter_source("file")
    if source is ParameterSource.COMMANDLINE or again or skip_wrong:
        raise CommandError("expected --from-scrapy-redis without FILE, --again and --skip-wrong")
    from tbloom.scrapy.extras.moving import open_old_queue  # noqa: PLC0415 - needs Scrapy

    queue = target.spider
    with open_old_queue(queue.settings, queue.spider.name, old_key) as old:
        return _move_old(queue, old)


#: What a line is that is not new, as the summary has it; those that --again fetches come first.
_KINDS = {
    "done": "done already",
    LEFT: "left already",
    FAILED: "failed",
    GIVEN_UP: "given up",
    "claimed": "claimed by a crawler",
    ELSEWHERE: "kept for other arguments",
    "repeated": "repeated",
}
_AGAIN = "done", LEFT, FAILED, GIVEN_UP


def _push_lines(queue: SpiderQueue, file: BinaryIO, *, again: bool, skip_wrong: bool) -> int:
    """Push the requests of lines, and return the exit code."""
    name = streams.name_of(file)
    if not skip_wrong:
        file, checked = _seekable(file), _Wrong()
        number = sum(1 for _ in checked.read(queue, file, name))
        file.seek(0)
        checked.say()
        if checked.number:
            raise CommandError(
                f"wrong lines: {checked.number:,} of {number:,}, so nothing is pushed (--skip-wrong pushes the others)"
            )
    total, found, wrong = 0, Counter[str](), _Wrong()
    requests = wrong.read(queue, file, name)
    queue.bury()
    with progress.bar("lines", 0) as advance:
        while batch := [*islice(requests, _BATCH)]:
            given = [*filter(None, batch)]
            try:
                found += queue.push(given, again=again)
            except TBloomError as error:  # the server's memory is full, or it is away
                before = _pushed(total, found, again=again)
                raise CommandError(f"{error}; before that: {before}") from None
            total += len(given)
            advance(len(batch))
    wrong.say()
    value = {"lines": total, "new": found["new"], **{kind: found[kind] for kind in _KINDS}}
    output.show(
        {name.replace(" ", "_"): number for name, number in value.items()},
        lambda: _pushed(total, found, again=again),
    )
    return errors.FAILED if wrong.number else 0


class _Wrong:
    """The lines that are neither a URL nor a request."""

    def __init__(self) -> None:
        self.number = 0
        self._first: list[ConfigError] = []

    def read(self, queue: SpiderQueue, file: BinaryIO, name: str) -> Iterator[Given | None]:
        """Yield what each line asks for that is not empty, or None if it is wrong. Raise CommandError if the file is not text."""
        for number, line in enumerate(file, start=1):
            streams.check_text(name, line)
            text = line.decode("utf-8-sig" if number == 1 else "utf-8", errors="surrogateescape")
            try:
                if stripped := text.strip():
                    yield queue.read(number, stripped)
            except ConfigError as error:
                self.number += 1
                if len(self._first) < _NAMED:
                    self._first.append(error)
                yield None

    def say(self) -> None:
        """Name the first wrong lines, and say how many more there are."""
        for error in self._first:
            output.say(f"tbloom: {errors.one_line(error)}")
        if more := self.number - len(self._first):
            output.say(f"tbloom: {formats.counted(more, 'more wrong line')}")


def _seekable(file: BinaryIO) -> BinaryIO:
    """Return the file, or what comes through a pipe as a file, so that it can be read twice."""
    if file.seekable() and not file.tell():
        return file
    copied = TemporaryFile()  # noqa: SIM115 - until the process ends
    shutil.copyfileobj(file, copied)
    copied.seek(0)
    return cast("BinaryIO", copied)


def _pushed(total: int, found: Counter[str], *, again: bool) -> str:
    def counts(kinds: Sequence[str]) -> str:
        return ", ".join(f"{found[kind]:,} {_KINDS[kind]}" for kind in kinds if found[kind])

    parts = [f"{formats.counted(total, 'line')}: {found['new']:,} new"]
    others = [kind for kind in _KINDS if not (again and kind in _AGAIN)]
    if again and (fetched := counts(_AGAIN)):
        parts.append(f"fetched again: {fetched.replace(' already', '')}")
    if not_new := counts(others):
        may_fetch = not again and any(found[kind] for kind in _AGAIN)
        parts.append(f"not new: {not_new}" + " (--again fetches them now)" * may_fetch)
    return "; ".join(parts)


def _move_old(queue: SpiderQueue, old: OldQueue) -> int:
    """Move the requests of scrapy-redis' queue, and return the exit code."""
    total, refused = Counter[str](), 0
    with progress.bar("requests", old.size()) as advance:
        while (moved := queue.move(old, total["seen"] + refused, _BATCH))[0]["read"]:
            numbers, staying = moved
            total += numbers
            refused += len(staying)
            for each in staying:
                output.say(f"stays in {old.key!r}: {each}")
            advance(numbers["read"])
    read, new, seen = total["read"], total["new"], total["seen"]
    shown = (
        f"{formats.counted(read, 'request')}: {new:,} new, {read - new - seen - refused:,} not new"
    )
    value = {"requests": read, "new": new, "seen": seen, "refused": refused}
    output.show(value, lambda: shown)
    if seen:
        output.say(
            f"{formats.counted(seen, 'request')} of pages that count as seen stay in {old.key!r}: "
            "scrapy-redis' set is imported after its queue is moved"
        )
    return errors.FAILED if seen or refused else 0
