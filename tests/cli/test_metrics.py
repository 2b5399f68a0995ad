"""``tbloom metrics``, and Prometheus' part of docs/operating.md."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from shutil import which
from urllib.request import urlopen

import pytest
import redis
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tbloom import ConfigError, ExactFilter, TimeBloom
from tbloom.bloom.info import FilterInfo
from tbloom.claims.record import LOST
from tbloom.cli.kit import filters
from tbloom.metrics import FilterCollector, read_filter
from tests.cli.test_rights import rights
from tests.helpers.commands import Serving
from tests.helpers.documents import ROOT
from tests.helpers.keptpages import claimed, failed, kill, told
from tests.helpers.localredis import OLDEST, LocalRedis
from tests.helpers.making import missing, needed

PAGE = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
RULES = (ROOT / "docs" / "alerts.yml").read_text(encoding="utf-8")
DASHBOARD = json.loads((ROOT / "docs" / "grafana-dashboard.json").read_text(encoding="utf-8"))
#: The metrics of the page's list.
METRICS = set(re.findall(r"^- `(tbloom_\w+)`", PAGE, re.MULTILINE))

#: The metrics of redis_exporter that alerts have.
EXPORTED = {"redis_memory_used_bytes", "redis_memory_max_bytes", "redis_evicted_keys_total"}

Values = dict[tuple[str, ...], float]


def parsed(text: str) -> Values:
    """By the metric's name, its filter, and its age, state or kind."""
    return {
        (s.name, *filter(None, map(s.labels.get, ("filter", "age", "state", "kind")))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


class Exporter(Serving):
    def __init__(self, *arguments: str) -> None:
        super().__init__("metrics", *arguments)

    def scrape(self) -> Values:
        with urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            return parsed(answer.read().decode())


def expected_of_fleet(
    name: str,
    crawlers: dict[str, int],
    pages: dict[str, int],
    done: int,
    failed: dict[str, int],
    *,
    oldest: int = 0,
) -> Values:
    zeros = dict.fromkeys(("works", "waits", "silent", "dead", "lost"), 0)
    pages_by = dict.fromkeys(("claimed", "left", "failed", "given_up"), 0) | pages
    return (
        {
            ("tbloom_pages_done_total", name): done,
            ("tbloom_crawler_oldest_page_seconds", name): oldest,
        }
        | {("tbloom_crawlers", name, state): n for state, n in (zeros | crawlers).items()}
        | {("tbloom_pages", name, state): n for state, n in pages_by.items()}
        | {("tbloom_pages_failed_total", name, kind): n for kind, n in failed.items()}
    )


def expected(info: FilterInfo) -> Values:
    name = info.name
    return {
        ("tbloom_filter_up", name): 1,
        ("tbloom_window_items", name): info.items,
        ("tbloom_window_bytes", name): info.bytes,
        ("tbloom_window_error_ratio", name): info.error_rate,
        ("tbloom_promised_error_ratio", name): info.promised_error_rate,
        ("tbloom_capacity_items", name): info.made_for(info.slices[-1]),
        ("tbloom_warnings", name): len(info.warnings),
        ("tbloom_lost_timestamp_seconds", name): 0,
        ("tbloom_damage", name): 0,
        ("tbloom_unsaved_timestamp_seconds", name): 0,
    } | {
        (f"tbloom_slice_{what}", name, str(len(info.slices) - 1 - place)): value
        for place, slice in enumerate(info.slices)
        for what, value in (
            ("items", slice.items),
            ("bytes", slice.bytes),
            ("fill_ratio", slice.fill_ratio),
            ("error_ratio", slice.error_rate),
            ("parts", slice.parts),
        )
    }


def test_the_metrics_are_the_figures_of_info(url: str, name: str) -> None:
    """Of the filters that were named; one has grown, one has claims."""
    names = [name, f"{name}-b"]
    with (
        TimeBloom.from_url(url, names[0], capacity=1000) as grown,
        TimeBloom.from_url(url, names[1], slices=2, granularity="h", capacity=500) as claimed,
        ExitStack() as stack,
    ):
        grown.add_many(f"item {i}" for i in range(2500))
        claimed.add("a")
        claimed.claim("b")
        # Names after an option are names too.
        exporter = stack.enter_context(Exporter("--url", url, names[0], "--every", "0", names[1]))
        served = exporter.scrape()
        infos = [grown.info(), claimed.info()]
        assert 1 == infos[1].claims
        fleet = expected_of_fleet(names[1], {}, {"claimed": 1}, 0, {})
        assert served == {("tbloom_up",): 1} | expected(infos[0]) | expected(infos[1]) | fleet
        assert served[("tbloom_slice_items", names[0], "0")] == 2500
        assert served[("tbloom_slice_parts", names[0], "0")] > 1
        assert exporter.end() == (0, [])
        # Scrapes share a look that is not too old.
        exporter = stack.enter_context(Exporter("--url", url, names[0], "--every", "3600"))
        before = exporter.scrape()
        grown.add("new")
        assert before == exporter.scrape()


def test_a_fleet_is_served_by_state_and_kind(url: str, name: str) -> None:
    """Of all queues of a filter, and of clients that tell nothing of themselves."""
    sizes = {"capacity": 1000, "shards": 3}
    with ExitStack() as stack:
        works, waits, dies, old, ended, lost = (
            stack.enter_context(TimeBloom.from_url(url, name, **sizes)) for _ in range(6)
        )
        works.take(0, "shop", idle=False)
        claimed(works, *(f"http://a/{n}" for n in range(9)))
        failures = [failed(), failed("callback/KeyError"), failed("status/404", failures=3)]
        works.note_history({f"http://a/{n}": each for n, each in enumerate(failures)})
        works.leave_many([f"http://a/{n}" for n in (1, 2, 3)])
        told(works, done=6, failed={"status/503": 2, "callback/KeyError": 1})
        told(works, done=7, failed={"status/503": 1, "status/404": 2})
        waits.take(1, "other")
        told(waits, queue="other", done=1, oldest_page="http://d/", oldest_seconds=4000)
        dies.take(0, "shop", idle=False)
        claimed(dies, *(f"http://b/{n}" for n in range(4)))
        told(dies, ttl=2.0, oldest_page="http://b/1", oldest_seconds=9000)
        old.claim_many(["http://c/1", "http://c/2"])
        for one, why in (ended, "finished"), (lost, LOST):
            one.take(0, "shop", idle=False)
            told(one, ended=why)
        ended.end_session()
        for each in works, waits, old, lost:  # a heartbeat would find the dead one
            each._stop_heartbeat()
        kill(dies)
        exporter = stack.enter_context(Exporter("--url", url, name, "--every", "0"))
        served = exporter.scrape()
        stack.enter_context(TimeBloom.from_url(url, name, **sizes)).take(0, "shop")
        found = exporter.scrape()
    # Once its pages are found, nothing is dead: an alert would go on for a day.
    assert 0 == found["tbloom_crawlers", name, "dead"]
    crawlers = {"works": 1, "waits": 1, "dead": 1, "lost": 1}
    pages = {"claimed": 5 + 2, "left": 1 + 4, "failed": 2, "given_up": 1}
    # A page of the dead crawler is in work no more.
    oldest = round(served["tbloom_crawler_oldest_page_seconds", name], -3)
    fleet = expected_of_fleet(name, crawlers, pages, 8, {"status": 3, "callback": 1}, oldest=4000)
    prefixes = "tbloom_crawler", "tbloom_pages"
    served["tbloom_crawler_oldest_page_seconds", name] = oldest
    assert fleet == {key: value for key, value in served.items() if key[0].startswith(prefixes)}


def test_a_scrape_searches_no_keys(own: redis.Redis, own_url: str) -> None:
    """On a server with millions of other keys, a search takes seconds of the server's time."""
    TimeBloom(own, "news", capacity=1000).add("a")
    own.config_resetstat()
    with Exporter("--url", own_url, "news", "--every", "0") as exporter:
        assert {"news"} == _filters_of(exporter.scrape())
    assert not {"cmdstat_scan", "cmdstat_keys"} & own.info("commandstats").keys()
    with Exporter("--url", own_url, "news", "blgo", "--every", "0") as exporter:
        for _ in range(3):  # for what may be meant by a filter that there is not
            assert 0 == exporter.scrape()[("tbloom_filter_up", "blgo")]
    assert 1 == own.info("commandstats")["cmdstat_scan"]["calls"]


def test_without_names_all_filters_are_served(
    own: redis.Redis, own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are new are found after a while; those that are gone are served no longer."""
    TimeBloom(own, "news", capacity=1000).add("a")
    ExactFilter(own, "exact").add("a")
    own.config_resetstat()
    with Exporter("--url", own_url, "--every", "0") as exporter:
        for _ in range(3):
            assert {"news"} == _filters_of(exporter.scrape())
        assert 1 == own.info("commandstats")["cmdstat_scan"]["calls"]
        TimeBloom(own, "news").clear()
        assert 0 == exporter.scrape()[("tbloom_filter_up", "news")]
        _, [gone] = exporter.end()
        assert "no filter 'news'" in gone
        assert "did you mean" not in gone
    TimeBloom(own, "news", capacity=1000).add("a")
    monkeypatch.setattr(filters, "SEARCH_EVERY", 0)
    with filters.connect(own_url, "--url") as server:
        registry = CollectorRegistry()
        registry.register(
            FilterCollector.reading(
                lambda: server.each(server.searched(), read_filter), server.searched(), 0
            )
        )
        assert {"news"} == _filters_of(parsed(generate_latest(registry).decode()))
        TimeBloom(own, "blog", capacity=1000).add("a")
        TimeBloom(own, "news").clear()
        served = parsed(generate_latest(registry).decode())
        assert ({"blog"}, 1) == (_filters_of(served), served[("tbloom_up",)])


def _filters_of(served: Values) -> set[str]:
    return {key[1] for key in served if key[0] == "tbloom_filter_up"}


def test_a_filter_may_be_made_later(own: redis.Redis, own_url: str) -> None:
    """What can't be read is said once, and hides no other."""
    TimeBloom(own, "news", capacity=1000).add("a")
    own.set("{broken}:config", "mine")
    with Exporter("--url", own_url, "news", "blog", "broken", "--every", "0") as exporter:
        for up in ({"news": 1, "blog": 0, "broken": 0}, {"news": 1, "blog": 1, "broken": 0}):
            served = exporter.scrape()
            assert up == {name: served[("tbloom_filter_up", name)] for name in up}
            assert served[("tbloom_up",)] == 1
            assert ("tbloom_window_items", "broken") not in served
            TimeBloom(own, "blog", capacity=1000).add("a")
        code, [missing, broken, no_longer] = exporter.end(signal.SIGTERM)
    assert code == 0
    assert missing.startswith("tbloom: filter 'blog' can't be read: no filter 'blog'")
    assert broken.startswith("tbloom: filter 'broken' can't be read: ")
    assert no_longer == "tbloom: no longer so: filter 'blog' can't be read"


def test_a_redis_that_goes_away_is_logged_and_survived() -> None:
    """And that it is back, without its filters, as it had no persistence."""
    names = ["news", "blog"]
    with LocalRedis(needed(OLDEST)) as server:
        for name in names:
            with TimeBloom.from_url(server.url, name, capacity=1000) as seen:
                seen.add("a")
        with Exporter("--url", server.url, *names, "--every", "0") as exporter:
            assert exporter.scrape()[("tbloom_up",)] == 1
            server.stop()
            down = {("tbloom_up",): 0} | {("tbloom_filter_up", name): 0 for name in names}
            assert [down, down] == [exporter.scrape(), exporter.scrape()]
            server.start()
            assert exporter.scrape() == {**down, ("tbloom_up",): 1}
            code, said = exporter.end()
    assert code == 0
    lines = ["can't be found: .*Connection refused", "'news' .*no filter", "'blog' .*no filter"]
    lines.append("no longer so: .*can't be found")
    assert all(re.search(line, text) for line, text in zip(lines, said, strict=True)), said


def test_a_program_can_serve_the_metrics_itself(url: str, name: str) -> None:
    """Beside one that answers, filters of a server that is lost are down."""
    lost = redis.Redis.from_url("redis://127.0.0.1:1", retry=None)
    with TimeBloom.from_url(url, name) as seen, lost:
        seen.add("a")
        others = [TimeBloom(lost, f"{name}-{n}") for n in range(2)]
        registry = CollectorRegistry(auto_describe=True)
        registry.register(FilterCollector(*others, seen))
        down = {("tbloom_filter_up", other.name): 0 for other in others}
        found = parsed(generate_latest(registry).decode())
        assert found == {("tbloom_up",): 0, **down} | expected(seen.info())
        for wrong in ([seen, seen], [ExactFilter(seen.client, name)]):
            with pytest.raises(
                ConfigError, match=f"filters of the class TimeBloom, each name once, got '{name}'"
            ):
                FilterCollector(*wrong)  # type: ignore[arg-type]
        with pytest.raises(
            ValueError, match=r"register one for all filters: FilterCollector\(a, b\)"
        ):
            registry.register(FilterCollector(seen))


def test_a_user_that_may_only_read_suffices(own: redis.Redis) -> None:
    """The page's ACL SETUSER line, for the exporter, of all filters."""
    own.flushall()
    with TimeBloom(own, "news", capacity=1000, shards=3) as seen:
        seen.add_many(map(str, range(3000)))
    url = rights(own, "metrics", page="docs/operating.md")
    with Exporter("--url", url) as exporter:
        assert exporter.scrape()[("tbloom_window_items", "news")] == 3000
        assert exporter.end() == (0, [])
    with TimeBloom.from_url(url, "news") as user, pytest.raises(redis.ResponseError):
        user.clear()


#: Two hours from the start, each alert's input begins to be wrong; from 200 to 260 minutes, a page hangs.
_INPUTS = """
rule_files: [rules.yml]
tests:
  - interval: 1m
    input_series:
      - {series: 'tbloom_lost_timestamp_seconds{filter="news"}', values: "0x119 7200x9000"}
      - {series: 'tbloom_damage{filter="news"}', values: "0x119 1x9000"}
      - {series: 'tbloom_warnings{filter="blog"}', values: "0x119 1x9000"}
      - {series: 'tbloom_window_items{filter="news"}', values: "100x119 10x9000"}
      - {series: 'tbloom_unsaved_timestamp_seconds{filter="news"}', values: "0x119 60x9000"}
      - {series: 'tbloom_pages{filter="news", state="left"}', values: "0x119 3x9000"}
      - {series: 'tbloom_crawler_oldest_page_seconds{filter="news"}', values: "2x199 0+60x60 2x60"}
      - {series: 'tbloom_pages_done_total{filter="news"}', values: "0+9x200 1800x60 1800+9x60"}
    alert_rule_test:
"""
_RINGS = "      - {{eval_time: {}m, alertname: {}, exp_alerts: [{}]}}\n"
_NEWS, _BLOG, _LEFT = (
    f"{{exp_labels: {{{x}}}}}"
    for x in ("filter: news", "filter: blog", "filter: news, state: left")
)
#: By alert, what rings when (minutes).
_ALARMS = {
    "FilterIsLost": {110: "", 125: _NEWS, 185: ""},
    "FilterForgets": {110: "", 125: _NEWS, 185: ""},
    "FilterIsHarmed": {110: "", 125: f"{_NEWS}, {_BLOG}", 185: _BLOG},
    "RestartWouldForget": {110: "", 125: "", 245: _NEWS},
    "PagesWaitForCrawlers": {110: "", 125: "", 135: _LEFT},
    "FleetWaitsForOnePage": {190: "", 205: "", 240: _NEWS, 280: ""},
    "PagesAreLeftForDays": {110: "", 185: "", 3005: _LEFT},
}


@pytest.mark.check
def test_an_alarm_rings_for_as_long_as_it_should(tmp_path: Path) -> None:
    """That of a loss, which nobody can undo, for an hour."""
    if which("promtool") is None:
        missing("promtool, of Debian's package prometheus,")
    (tmp_path / "rules.yml").write_text(RULES)
    (tmp_path / "test.yml").write_text(
        _INPUTS
        + "".join(
            _RINGS.format(minute, alert, rings)
            for alert, expected in _ALARMS.items()
            for minute, rings in expected.items()
        )
    )
    for words in (["check", "rules", "rules.yml"], ["test", "rules", "test.yml"]):
        done = subprocess.run(["promtool", *words], cwd=tmp_path, capture_output=True, check=False)
        assert (0, b"") == (done.returncode, done.stderr), done


def test_page_dashboard_and_alerts_have_the_metrics_that_are_served(url: str, name: str) -> None:
    """The page has all of them; the dashboard shows those of the filters that are chosen."""
    with TimeBloom.from_url(url, name) as seen:
        registry = CollectorRegistry()
        claimed(seen, "http://a/")
        told(seen, failed={"status/503": 1})
        registry.register(FilterCollector(seen))
        families = list(registry.collect())
    ends = {"counter": "_total", "gauge": ""}
    assert {f"{family.name}{ends[family.type]}" for family in families} == METRICS
    assert all(family.samples and family.documentation for family in families)
    head, *rules = RULES.split("      - alert: ")
    assert ["groups:", "- name: tbloom", "rules:"] == [line.strip() for line in head.splitlines()]
    assert all(re.fullmatch(r"\w+\n        expr: (.+)\n(        for: \d+m\n)?", r) for r in rules)
    alerts = {*re.findall(r"\b(?:tbloom|redis)_\w+", "".join(rules))}
    assert EXPORTED < alerts <= METRICS | EXPORTED
    shown = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    expressions = [t["expr"] for panel in shown for t in panel["targets"]]
    for expression in expressions:
        asked = re.findall(r"\b(tbloom_\w+)(\{filter=~\"\$filter\")?", expression)
        assert asked, expression
        assert {metric for metric, _ in asked} <= METRICS
        assert all(of_filter or metric == "tbloom_up" for metric, of_filter in asked), expression
    assert "tbloom_promised_error_ratio" in " ".join(expressions)
    assert [each["id"] for each in DASHBOARD["panels"]] == [*range(1, len(DASHBOARD["panels"]) + 1)]
    # Each metric of the fleet is in its row, which comes last, and in an alert.
    of_fleet = {metric for metric in METRICS if re.match("tbloom_(crawler|pages)", metric)}
    titles = [panel["title"] for panel in DASHBOARD["panels"]]
    row = DASHBOARD["panels"][titles.index("Fleet") :]
    assert "row" == row[0]["type"]
    in_row = {re.search(r"tbloom_\w+", t["expr"])[0] for panel in row[1:] for t in panel["targets"]}
    assert of_fleet == in_row == of_fleet & alerts
