"""What a crawler tells of itself with each heartbeat: for ``tbloom queue``, metrics and ``tbloom watch``."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from tbloom.claims.session import Session
from tbloom.engine.flow import Call, text
from tbloom.engine.parameters import StoreConfig

#: The most reasons that a record has.
_REASONS = 12
#: Pages a minute are those of the last heartbeats, so many.
_BEATS = 5
#: Why a session has ended whose pages others took while it was silent.
LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a crawler tells of itself. The numbers are those since its session began."""

    #: The queue whose pages it takes, and its project; or the program, if it is no spider.
    queue: str = ""
    project: str = ""
    program: str = ""
    host: str = ""
    pid: int = 0
    #: How long it has run, and how long its session lives without a further heartbeat (s).
    up: float = 0
    ttl: float = 0
    #: The number of pages that it fetches now, or has in its queue: not those that have failed, which it holds.
    claimed: int = 0
    #: The page that it has had in work for the longest time; what has it (downloader, callback, pipeline, feed), and for how long (s).
    oldest_page: str = ""
    oldest_state: str = ""
    oldest_seconds: int = 0
    #: Whether hosts have owners among the crawlers.
    owns_hosts: bool = False
    done: int = 0
    per_minute: int = 0
    taken: int = 0
    given: int = 0
    #: The number of failures by reason.
    failed: Mapping[str, int] = field(default_factory=dict)
    #: Why the session has ended; "": it has not. LOST: others took its pages while it was silent.
    ended: str = ""

    @property
    def text(self) -> str:
        """The record as it is stored: without what is zero or empty, and with the most frequent reasons."""
        told = {each.name: value for each in fields(self) if (value := getattr(self, each.name))}
        if self.failed:
            told["failed"] = dict(Counter(self.failed).most_common(_REASONS))
        return json.dumps(told, separators=(",", ":"))

    @property
    def counters(self) -> dict[str, int]:
        """The numbers that only grow, for the totals of the filter. Failures are counted by their kind, the first word of a reason."""
        kinds = Counter[str]()
        for reason, number in self.failed.items():
            kinds[f"failed:{kind_of(reason)}"] += number
        return {"done": self.done, **kinds}

    @classmethod
    def read(cls, stored: Any) -> tuple[int, Self] | None:
        """Return when a stored record was told (ms), and the record; None: it is none."""
        head, _, told = text(stored).partition("\n")
        at = head.partition(" ")[0]
        known = {each.name for each in fields(cls)}
        try:
            values = {name: value for name, value in json.loads(told).items() if name in known}
            return int(at), cls(**values)
        except (ValueError, TypeError, AttributeError):
            return None


class Process:
    """What this process tells of itself, whatever it crawls with. Called in the thread or task of the heartbeats."""

    def __init__(self, ttl: float) -> None:
        self._ttl, self._began = ttl, time.monotonic()
        self._done = deque([(self._began, 0)], maxlen=_BEATS)

    def about(self, done: int) -> dict[str, Any]:
        """Return the fields of a record that every program has, with the number of pages that it has done so far."""
        now, (began, before) = time.monotonic(), self._done[0]
        self._done.append((now, done))
        return {
            "host": clean(socket.gethostname()),
            "pid": os.getpid(),
            "up": round(now - self._began),
            "ttl": self._ttl,
            "done": done,
            "per_minute": max(0, round(60 * (done - before) / max(1.0, now - began))),
        }

    def record(self, session: Session) -> Record:
        """Return the record of a program's session."""
        return Record(
            queue=session.queue_name,
            program=clean(
                Path([*sys.argv, ""][0]).name
            ),  # an embedded Python may have no arguments
            claimed=session.working,
            taken=session.taken,
            failed=session.failures.copy(),
            **self.about(session.done),
        )


def clean(name: str) -> str:
    """Return a name of the system as a text that can be sent: it may have bytes that are no UTF-8."""
    return name.encode(errors="replace").decode()


def kind_of(reason: str) -> str:
    """Return the kind of a reason, its first word: "status" of "status/503"."""
    return reason.partition("/")[0].partition(" ")[0] or "unknown"


def told(config: StoreConfig) -> Call:
    """Return a call that reads all records of a filter, by their sessions, and what else ``lua/claims/tell.lua`` keeps."""
    return Call(("HGETALL", config.keys.crawlers()))
