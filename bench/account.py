"""The account of a replay: of every link that was asked about, whether the answer was right.

A link is new once, then seen while the window lasts. The answers of all processes are put together: after a link was new in a slice,
it may not be new again in that slice and the next ``slices - 1``, and it may not be seen unless it was new in one of these.
A call may have been executed at any time between its beginning and its end, so it may belong to two slices; an answer is wrong
if it is wrong whenever the call was executed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.asking import Graph, Plan, Record, records

#: The server's clock and the clients' estimates of it may differ by this (us). They are of the same machine.
_SKEW = 20_000
COUNTS = "asked", "new", "twice", "lost", "died", "false"
#: Times (us) are below this, so that a link and a time make one number.
_TIMES = 1 << 40


@dataclass
class Account:
    """How many answers there were, of each kind."""

    asked: int = 0
    new: int = 0
    #: Wrong: new, though the link was new before, and still in the window.
    twice: int = 0
    #: The same, but the server was killed within the time for which its log may lose what it was told.
    lost: int = 0
    #: Links that were seen, and never new: the answer "new" may have died with a crawler.
    died: int = 0
    #: Links that were seen, though none was told that they are new: errors of the filter. A link counts once in each slice.
    false: int = 0
    #: Some of the links that were new twice.
    examples: list[str] = field(default_factory=list)
    #: From the first call to the last answer (s).
    seconds: float = 0

    @property
    def rate(self) -> float:
        """The share of false answers among the answers about links that were not in the window."""
        return self.false / max(1, self.new + self.false)


class _Answers:
    """Answers, one for each link: when its call began and ended (us), and in which slices it may have been executed."""

    def __init__(self, graph: Graph, calls: Sequence[Record], plan: Plan, began: int) -> None:
        pages = [graph.links(call.page) for call in calls]
        sizes = [*map(len, pages)]
        self.links = np.concatenate([*pages, np.zeros(0, np.int64)])
        times = np.array([(call.before, call.after) for call in calls], np.int64).reshape(-1, 2)
        self.before, self.after = np.repeat(times - began, sizes, axis=0).T
        length = plan.slice_seconds * 10**6
        self.first = (self.before + began - _SKEW) // length
        self.last = (self.after + began) // length

    def take(self, which: np.ndarray) -> _Answers:
        """Return these of the answers."""
        taken = object.__new__(_Answers)
        taken.__dict__ = {name: values[which] for name, values in vars(self).items()}
        return taken

    def explains(self, asked: _Answers, slices: int) -> np.ndarray:
        """Return for each answer "seen" whether one of these calls may have added the link, within the window."""
        if not len(self.links):
            return np.zeros(len(asked.links), bool)
        order = np.lexsort((self.before, self.links))
        keys = (self.links * _TIMES + self.before)[order]
        # The last of the calls that began before the answer came.
        place = np.searchsorted(keys, asked.links * _TIMES + asked.after, "right") - 1
        last = order[np.maximum(place, 0)]
        is_same = (place >= 0) & (self.links[last] == asked.links)
        return is_same & (asked.first < self.last[last] + slices)


def account(plan: Plan, kills: Iterable[int], loses: float) -> Account:
    """Make the account. The server was killed at these times (us); its log may lose the last ``loses`` seconds before."""
    of_host: defaultdict[int, list[Record]] = defaultdict(list)
    began, ended = list[int](), list[int]()
    for line in range(plan.processes * plan.lines):
        for record in records(plan, line):
            of_host[plan.crawls[record.crawl]].append(record)
            began.append(record.before)
            ended.append(record.after)
    total = Account(seconds=(max(ended) - min(began)) / 1e6)
    kills = [*kills]
    for host in sorted(of_host):
        found = _of_host(plan, host, of_host.pop(host), kills, loses)
        for name in COUNTS:
            setattr(total, name, getattr(total, name) + getattr(found, name))
        total.examples += found.examples
    return total


def _of_host(
    plan: Plan, host: int, calls: Sequence[Record], kills: Sequence[int], loses: float
) -> Account:
    began = min(call.before for call in calls)
    answered = [call for call in calls if call.bits is not None]
    unknown = [call for call in calls if call.bits is None]
    bits = [
        np.unpackbits(np.frombuffer(call.bits or b"", np.uint8), count=plan.graph.sizes[call.page])
        for call in answered
    ]
    is_new = np.concatenate([*bits, np.zeros(0, np.uint8)]).astype(bool)
    answers = _Answers(plan.graph, answered, plan, began)
    new, seen = answers.take(is_new), answers.take(~is_new)

    new = new.take(np.lexsort((new.before, new.links)))
    one, next_ = new.take(np.s_[:-1]), new.take(np.s_[1:])
    again = (one.links == next_.links) & (next_.last - one.first < plan.slices)
    lost = np.zeros_like(again)
    for kill in kills if loses else ():
        at = kill - began
        lost |= (one.before <= at) & (one.after >= at - loses * 10**6) & (next_.after >= at)
    twice = again & ~lost
    examples = [
        f"https://{host}.example/{plan.graph.paths[int(link)]}" for link in one.links[twice][:3]
    ]

    strange = seen.take(~new.explains(seen, plan.slices))
    may_have_died = _Answers(plan.graph, unknown, plan, began).explains(strange, plan.slices)
    false = strange.take(~may_have_died)
    return Account(
        asked=len(answers.links),
        new=len(new.links),
        twice=int(twice.sum()),
        lost=int((again & lost).sum()),
        died=len(np.unique(strange.links[may_have_died])),
        false=len({*zip(false.links.tolist(), false.last.tolist(), strict=True)}),
        examples=examples,
    )
