"""Filters as metrics for Prometheus: ``REGISTRY.register(FilterCollector(seen))``."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Self

from redis import RedisError
from redis.exceptions import RedisClusterException

from tbloom.bloom.info import FilterInfo, SliceInfo
from tbloom.bloom.sync import TimeBloom
from tbloom.engine.flow import with_rights
from tbloom.engine.retries import as_redis_error, is_outage
from tbloom.errors import ConfigError, TBloomError

try:
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "prometheus_client":
        raise
    message: str = f"tbloom.metrics needs {error.name}: pip install 'tbloom[metrics]'"
    raise ModuleNotFoundError(message, name=error.name) from None

#: Each filter's name with its FilterInfo, or the error that it raises; none of a filter whose server is known not to answer.
Infos = Iterator[tuple[str, Any]]
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
    "tbloom_claims": (
        "Items that are claimed or left.",
        lambda info: info.claims,
    ),
    "tbloom_warnings": (
        "Warnings about the filter; `tbloom info` shows their text.",
        lambda info: len(info.warnings),
    ),
}
_OF_SLICE: dict[str, tuple[str, Callable[[SliceInfo], float | None]]] = {
    "tbloom_slice_items": ("Items added to the slice.", lambda slice: slice.items),
    "tbloom_slice_bytes": ("Memory of the slice in Redis.", lambda slice: slice.bytes),
    "tbloom_slice_fill_ratio": ("Bits set / bits.", lambda slice: slice.fill_ratio),
    "tbloom_slice_error_ratio": (
        "Estimated chance that an item never added is found in the slice.",
        lambda slice: slice.error_rate,
    ),
    "tbloom_slice_parts": (
        "Parts of the slice, in the shard that has most: more than 1 where it grew, became full, or was reconfigured.",
        lambda slice: slice.parts,
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
        self._infos: Callable[[], Infos] = partial(_infos, filters)
        self._names: Sequence[str] = names
        self._max_age = max_age
        self._lock = threading.Lock()
        self._found: list[GaugeMetricFamily] = []
        self._read_again_at = 0.0
        self._troubles: dict[str, type[Exception]] = {}

    @classmethod
    def reading(cls, infos: Callable[[], Infos], names: Sequence[str], max_age: float) -> Self:
        """Return a collector of the filters with these ``names``, which ``infos`` reads at each scrape."""
        made = cls(max_age=max_age)
        made._infos, made._names = infos, names
        return made

    def describe(self) -> list[GaugeMetricFamily]:
        """Return the families without values, for a registry that needs their names while Redis may be down."""
        return [*_families().values()]

    def collect(self) -> list[GaugeMetricFamily]:
        """Return the families; the registry calls this for each scrape."""
        with self._lock:
            if time.monotonic() >= self._read_again_at:
                self._found = self._read()
                self._read_again_at = time.monotonic() + self._max_age
            return self._found

    def _read(self) -> list[GaugeMetricFamily]:
        families, troubles, answered = _families(), dict[str, Exception](), True
        unread = dict.fromkeys(self._names)
        try:
            for name, info in self._infos():
                if isinstance(info, Exception):
                    trouble = troubles[f"filter {name!r} can't be read"] = as_redis_error(info)
                    answered &= not is_outage(trouble)
                _add(families, name, info if isinstance(info, FilterInfo) else None)
                unread.pop(name, None)
        except _ERRORS as error:
            answered = False
            troubles["the filters can't be found"] = as_redis_error(error)
        for name in unread:
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


def _families() -> dict[str, GaugeMetricFamily]:
    """Return the metric families by name, without values."""
    helps = [
        ("tbloom_up", "1 if Redis answered when the filters were last read, else 0.", []),
        ("tbloom_filter_up", "1 if the filter could be read, else 0.", ["filter"]),
        *((name, help, ["filter"]) for name, (help, _) in _OF_FILTER.items()),
        *((name, help, ["filter", "age"]) for name, (help, _) in _OF_SLICE.items()),
    ]
    return {name: GaugeMetricFamily(name, help, labels=labels) for name, help, labels in helps}


def _add(families: dict[str, GaugeMetricFamily], filter: str, info: FilterInfo | None) -> None:
    """Add a filter's samples. If it can't be read, or the server refuses to tell, there are no values."""
    labels = {"filter": filter}
    families["tbloom_filter_up"].add_sample("tbloom_filter_up", labels, info is not None)
    if info is None:
        return
    for name, (_, of_filter) in _OF_FILTER.items():
        if (value := of_filter(info)) is not None:
            families[name].add_sample(name, labels, value)
    for age, slice in enumerate(reversed(info.slices)):
        # One for all samples: ten thousand filters have half a million.
        labels = {"filter": filter, "age": str(age)}
        for name, (_, of_slice) in _OF_SLICE.items():
            if (value := of_slice(slice)) is not None:
                families[name].add_sample(name, labels, value)


def _infos(filters: Sequence[TimeBloom]) -> Infos:
    lost = list[Any]()
    for one in filters:
        if _server(one.client) in lost:
            continue
        try:
            yield one.name, one.info()
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
