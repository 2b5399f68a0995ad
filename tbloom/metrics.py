"""Filters as metrics for Prometheus: ``REGISTRY.register(FilterCollector(seen))``."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Self, TypeAlias

from redis import RedisError
from redis.exceptions import RedisClusterException

from tbloom.bloom.info import FilterInfo, SliceInfo
from tbloom.claims.fleet import CRAWLERS, ENDED, Numbers, numbers_of, oldest_page
from tbloom.claims.sync import TimeBloom
from tbloom.engine.flow import with_rights
from tbloom.engine.retries import as_redis_error, is_outage
from tbloom.errors import ConfigError, TBloomError

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "prometheus_client":
        raise
    message: str = f"tbloom.metrics needs {error.name}: pip install 'tbloom[metrics]'"
    raise ModuleNotFoundError(message, name=error.name) from None

__all__ = ["FilterCollector"]


class Reading(NamedTuple):
    """What is read of a filter."""

    info: FilterInfo
    #: None: the filter has no claims.
    fleet: Numbers | None


#: Each filter's name with its Reading, or the error that it raises; none of a filter whose server is known not to answer.
Readings = Iterator[tuple[str, Reading | Exception]]
_Family: TypeAlias = GaugeMetricFamily | CounterMetricFamily
logger: logging.Logger = logging.getLogger(__name__)

#: Default of ``max_age`` (seconds).
MAX_AGE = 5.0
#: The errors of ``info()``. (RedisClusterException is no RedisError.)
_ERRORS = (RedisError, RedisClusterException, TBloomError)

_OF_FILTER: dict[str, tuple[str, Callable[[FilterInfo], float | None]]] = {
    "tbloom_window_items": ("Items added in the whole window.", lambda info: info.items),
    "tbloom_window_bytes": ("Memory of all slices in Redis.", lambda info: info.bytes),
    "tbloom_window_error_ratio": (
        "Expected chance that an item never added is called seen.",
        lambda info: info.error_rate,
    ),
    "tbloom_promised_error_ratio": (
        "The error rate that the filter was made for, over the whole window.",
        lambda info: info.promised_error_rate,
    ),
    "tbloom_capacity_items": (
        "Distinct items expected per slice; without a capacity, those that the current slice has room for.",
        lambda info: info.made_for(info.slices[-1]),
    ),
    "tbloom_warnings": (
        "Warnings about the filter that you can mend; `tbloom info` shows their text.",
        lambda info: len(info.warnings) - len(info.damage),
    ),
    "tbloom_damage": (
        "Warnings about what the server has lost or dropped, until it would have left the window.",
        lambda info: len(info.damage),
    ),
    "tbloom_unsaved_timestamp_seconds": (
        "Since when the server has written nothing to its disk, so that a restart forgets it; 0: it writes, or does not say.",
        lambda info: info.unsaved_since or 0,
    ),
    "tbloom_lost_timestamp_seconds": (
        "When the server has lost the filter, if what was seen before would be in the window still; 0: it has not.",
        lambda info: info.lost_at or 0,
    ),
}
_OF_SLICE: dict[str, tuple[str, Callable[[SliceInfo], float | None]]] = {
    "tbloom_slice_items": ("Items added to the slice.", lambda slice: slice.items),
    "tbloom_slice_bytes": ("Memory of the slice in Redis.", lambda slice: slice.bytes),
    "tbloom_slice_fill_ratio": (
        "Expected share of bits that are set.",
        lambda slice: slice.fill_ratio,
    ),
    "tbloom_slice_error_ratio": (
        "Estimated chance that an item never added is found in the slice.",
        lambda slice: slice.error_rate,
    ),
    "tbloom_slice_parts": (
        "Parts of the slice, in the shard that has most: more than 1 where it grew, or became full.",
        lambda slice: slice.parts,
    ),
}
#: The metrics of claims: the help, the second label, the values by that label. Those that end in _total are counters.
_OF_FLEET: dict[str, tuple[str, str, Callable[[Numbers], dict[str, int]]]] = {
    "tbloom_crawlers": (
        "Crawlers by state, without those that have ended.",
        "state",
        lambda fleet: {state: fleet.states[state] for state in CRAWLERS if state != ENDED},
    ),
    "tbloom_crawler_oldest_page_seconds": (
        "How long the oldest page has been in work that a crawler fetches or handles now; 0: there is none.",
        "",
        lambda fleet: {
            "": round(one.oldest_for or 0) if (one := oldest_page(fleet.crawlers)) else 0
        },
    ),
    "tbloom_pages": (
        "Pages by state. Those that a dead crawler had are left.",
        "state",
        lambda fleet: {
            "claimed": fleet.pages.claimed,
            "left": fleet.pages.left + fleet.pages.orphaned,
            "failed": fleet.pages.failed,
            "given_up": fleet.pages.given_up,
        },
    ),
    "tbloom_pages_done_total": (
        "Pages that crawlers have finished.",
        "",
        lambda fleet: {"": fleet.done},
    ),
    "tbloom_pages_failed_total": (
        "Failures of pages, by the first word of the reason.",
        "kind",
        lambda fleet: {**fleet.failed},
    ),
}


class FilterCollector(Collector):
    """Metrics of filters, read when Prometheus scrapes.

    A slice is labelled by its age: 0 is the current one. (Dates would make new time series for ever.) Scrapes within
    ``max_age`` seconds share one reading.
    """

    def __init__(self, *filters: TimeBloom, max_age: float = MAX_AGE) -> None:
        names = [one.name for one in filters]
        for one in filters:
            if names.count(one.name) > 1 or not isinstance(one, TimeBloom):
                raise ConfigError(
                    "filters", one.name, "filters of the class TimeBloom, each name once"
                )
        self._readings: Callable[[], Readings] = partial(_readings, filters)
        self._names: Sequence[str] = names
        self._max_age = max_age
        self._lock = threading.Lock()
        self._found: list[_Family] = []
        self._read_again_at = 0.0
        self._troubles: dict[str, type[Exception]] = {}

    @classmethod
    def reading(
        cls, readings: Callable[[], Readings], names: Sequence[str], max_age: float
    ) -> Self:
        """Return a collector of the filters with these ``names``, which ``readings`` reads at each scrape, and may change."""
        made = cls(max_age=max_age)
        made._readings, made._names = readings, names
        return made

    def describe(self) -> Sequence[Metric]:
        """Return the families without values, for a registry that needs their names while Redis may be down.

        It refuses a second collector, and shows the names, of which one says what to do.
        """
        remedy = Metric("tbloom", "", "gauge")
        remedy.name = "register one for all filters: FilterCollector(a, b)"
        return [remedy, *_families().values()]

    def collect(self) -> Sequence[Metric]:
        """Return the families; the registry calls this for each scrape."""
        with self._lock:
            if time.monotonic() >= self._read_again_at:
                self._found = self._read()
                self._read_again_at = time.monotonic() + self._max_age
            return self._found

    def _read(self) -> list[_Family]:
        families, troubles, answered = _families(), dict[str, Exception](), True
        read = set[str]()
        try:
            for name, found in self._readings():
                if isinstance(found, Exception):
                    trouble = troubles[f"filter {name!r} can't be read"] = as_redis_error(found)
                    answered &= not is_outage(trouble)
                _add(families, name, found if isinstance(found, Reading) else None)
                read.add(name)
        except _ERRORS as error:
            answered = False
            troubles["the filters can't be found"] = as_redis_error(error)
        for name in self._names:
            if name not in read:
                _add(families, name, None)
        families["tbloom_up"].add_metric([], answered)
        self._log(troubles)
        return [*families.values()]

    def _log(self, troubles: dict[str, Exception]) -> None:
        """Log each trouble when it begins, when its kind changes, and when it ends."""
        for what, error in troubles.items():
            # The type is compared, because a cluster's client names another node in each text.
            if type(error) is not self._troubles.get(what):
                logger.warning("%s: %s", what, with_rights(str(error)))
        for what in self._troubles.keys() - troubles.keys():
            logger.info("no longer so: %s", what)
        self._troubles = {what: type(error) for what, error in troubles.items()}


def _families() -> dict[str, _Family]:
    """Return the metric families by name, without values."""
    helps = [
        ("tbloom_up", "1 if Redis answered when the filters were last read, else 0.", []),
        ("tbloom_filter_up", "1 if the filter could be read, else 0.", ["filter"]),
        *((name, help, ["filter"]) for name, (help, _) in _OF_FILTER.items()),
        *((name, help, ["filter", "age"]) for name, (help, _) in _OF_SLICE.items()),
    ]
    helps += [
        (name, help, ["filter", label] if label else ["filter"])
        for name, (help, label, _) in _OF_FLEET.items()
    ]
    return {
        name: (CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily)(
            name, help, labels=labels
        )
        for name, help, labels in helps
    }


def _add(families: dict[str, _Family], filter: str, found: Reading | None) -> None:
    """Add a filter's samples. If it can't be read, or the server refuses to tell, there are no values."""
    labels = {"filter": filter}
    families["tbloom_filter_up"].add_sample("tbloom_filter_up", labels, found is not None)
    if found is None:
        return
    info, fleet = found
    for name, (_, of_filter) in _OF_FILTER.items():
        if (value := of_filter(info)) is not None:
            families[name].add_sample(name, labels, value)
    for age, slice in enumerate(reversed(info.slices)):
        # One for all samples: ten thousand filters have half a million.
        labels = {"filter": filter, "age": str(age)}
        for name, (_, of_slice) in _OF_SLICE.items():
            if (value := of_slice(slice)) is not None:
                families[name].add_sample(name, labels, value)
    if fleet is None:
        return
    for name, (_, label, of_fleet) in _OF_FLEET.items():
        for which, number in of_fleet(fleet).items():
            labels = {"filter": filter, label: which} if label else {"filter": filter}
            families[name].add_sample(name, labels, number)


def read_filter(seen: TimeBloom) -> Reading:
    """Return what is served of a filter."""
    return Reading(seen.info(), numbers_of(seen))


def _readings(filters: Sequence[TimeBloom]) -> Readings:
    lost = list[Any]()
    for one in filters:
        if _server(one.client) in lost:
            continue
        try:
            yield one.name, read_filter(one)
        except _ERRORS as error:
            if is_outage(as_redis_error(error)):
                lost.append(_server(one.client))
            yield one.name, error


def _server(client: Any) -> Any:
    """Return an id of the client's server; for a cluster or a Sentinel, of the client."""
    pool = getattr(client, "connection_pool", None)
    values = getattr(pool, "connection_kwargs", {})
    address = values.get("path") or (values.get("host"), values.get("port"))
    return id(client) if address == (None, None) else address
