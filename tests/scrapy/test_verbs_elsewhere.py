"""``tbloom queue``, ``failed``, ``retry`` and ``drop`` for a filter, in any folder; and where they find it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import Claim, Note, TimeBloom
from tbloom.claims.fleet import KeptPages, failed_queue_of
from tbloom.cli.commands import fleet as commands
from tests.helpers.clock import Clockwork
from tests.helpers.commands import refused, tbloom, tbloom_asking, tbloom_in
from tests.helpers.folders import Shop
from tests.helpers.keptpages import claimed, failed, note_of, told


class Filter:
    """A filter with pages that crawlers have kept."""

    def __init__(self, seen: TimeBloom) -> None:
        self.seen = seen

    def keep(self, queue: str, *urls: str, **why: Any) -> None:
        claimed(self.seen, *urls, queue=queue, callback="parse_item")
        if why:
            self.seen.note_history(dict.fromkeys(urls, failed(**why, queue=queue)))
        self.seen.leave_many(urls)

    def tell(self, queue: str, **more: Any) -> None:
        self.seen.take(0, queue, idle=False)
        told(self.seen, queue=queue, **more)


@pytest.fixture
def kept(client: redis.Redis, name: str) -> Iterator[Filter]:
    with TimeBloom(client, f"{name}:tbloom", capacity=1000) as seen:
        yield Filter(seen)


@pytest.fixture
def said(url: str, name: str) -> Callable[..., str]:
    """What a command about this spider prints."""

    def said(command: str, *words: str, spider: str = name) -> str:
        done = tbloom(command, spider, *words, "--url", url)
        assert (0, "") == (done.returncode, done.stderr)
        return done.stdout

    return said


def test_a_fleet_is_found_by_its_filter_and_its_server(
    kept: Filter, said: Any, name: str, url: str, tmp_path: Path
) -> None:
    """By ``--url``, the environment or ``-s``; by the spider's name or the filter's, with a prefix, or by a key of its own."""
    kept.keep(name, "http://a/")
    place = f"'{name}:tbloom', {url.partition('//')[2]}"
    assert said("queue").startswith(f"{name} at {place}\n\npages  number\nleft        1  for")
    assert said("queue") == said("queue", spider=f"{name}:tbloom")
    assert said("queue") == tbloom("queue", name, TBLOOM_URL=url).stdout
    assert said("queue") == tbloom("queue", name, "-s", f"REDIS_URL={url}").stdout
    port = url.split(":")[2].partition("/")[0]
    own = f"-s REDIS_PORT={port} -s REDIS_HOST=127.0.0.1 -s TBLOOM_KEY=%(spider)s:tbloom"
    assert said("queue") == tbloom("queue", name, *own.split()).stdout
    expected = f"no filter 'none:tbloom' or 'none' on {url} ('tbloom list' shows the filters)"
    refused(tbloom("queue", "none", "--url", url), expected)
    refused(tbloom("queue", name, "--url", url, "-s", "TBLOOM_KEYS=a"), "did you mean TBLOOM_KEY?")
    refused(tbloom("queue", name, "-s", "a"), "'-s': expected NAME=VALUE, got 'a'")
    refused(tbloom("queue", name, "--url", "redis://127.0.0.1:1/0"), "127.0.0.1:1")
    push = tbloom_in(tmp_path, "push", name, "--url", url)
    refused(push, "expected the folder of a Scrapy project")
    with TimeBloom.from_url(url, "news", prefix=f"{name}:") as seen:
        Filter(seen).keep("news", "http://a/")
        shown = said("queue", "--prefix", f"{name}:", spider="news")
        assert shown.startswith("news at 'news', ")
        assert "left        1" in shown


def test_settings_and_a_server_go_over_those_of_the_project(
    shop: Shop, kept: Filter, url: str, name: str
) -> None:
    """And a filter is found there that is of no spider of the project."""
    shop.spider(REDIS_URL="redis://127.0.0.1:1/0", REDIS_DECODE_RESPONSES=True)
    kept.keep("shop", "http://a/1", reason="status/503", failures=1)
    key = "-s", f"TBLOOM_KEY={name}:tbloom", "-s", "TBLOOM_ERROR_RATE=1e-4", "--url", url
    assert f"shop at '{name}:tbloom', " in shop.said("queue", "shop", *key)
    assert "status/503" in shop.said("failed", "shop", *key)
    kept.tell(name)
    kept.keep(name, "http://a/2")
    assert f"{name} at '{name}:tbloom', " in shop.said("queue", name, "--url", url)
    refused(shop.run("queue", name), "127.0.0.1:1")
    error = "SPIDER: expected the name of a spider of this project (shop)"
    refused(shop.run("push", name, "--url", url), error)
    done = shop.run("queue", "shop", "-s", "TBLOOM_RETRY_FOR=0")
    refused(done, "REDIS_URL is redis://127.0.0.1:1/0")


def test_a_name_is_never_that_of_spiders_of_several_projects(
    kept: Filter, said: Any, name: str, url: str
) -> None:
    """Outside a project: that of its own name, or of the one project that has it."""
    for project in ("one", "two"):
        kept.tell(f"{project}:{name}")
        kept.keep(f"{project}:{name}", f"http://u:secret@{project}/", reason="x", failures=1)
    error = f"one:{name}, two:{name}): name one, with -s TBLOOM_KEY={name}:tbloom"
    refused(tbloom("drop", name, "--all", "--yes", "--url", url), error)
    own = "--url", url, "-s", f"TBLOOM_KEY={name}:tbloom"
    shown = tbloom("failed", f"two:{name}", *own).stdout
    assert "http://two/" in shown
    assert "secret" not in shown
    kept.tell(name)
    kept.keep(name, "http://a/own", reason="x", failures=1)
    assert f"Dropped 1 page of '{name}'\n" == said("drop", "--all", "--yes")
    done = tbloom("queue", "-a", "country=de", "--url", url)
    refused(done, "-a and --no-arguments need a SPIDER")


def test_failed_pages_are_grouped_and_the_newest_are_shown(
    kept: Filter, said: Any, name: str, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    now, before = time.time(), time.time() - 86_400 * 3
    for n in range(15):
        kept.keep(name, f"http://a.example/{n}", reason="status/503", failures=1, at=now - 60 * n)
    kept.keep(name, "http://b.example/", reason="callback/KeyError", failures=3, at=before)
    kept.keep(name, "http://c.example/left")
    shown = said("failed")
    rows = [line.split() for line in shown.splitlines() if ".example" in line]
    assert ["failed", "status/503", "a.example", "15"] == rows[0][:4]
    assert [
        "given",
        "up",
        "callback/KeyError",
        "b.example",
        "1",
        "3",
        "d",
        "3",
        "d",
        "parse_item",
    ] == rows[1]
    assert [f"http://a.example/{n}" for n in range(10)] == [row[-1] for row in rows[2:]]
    assert 16 == len(said("failed", "--json-lines").splitlines())
    [left] = said("failed", "--left", "--json-lines").splitlines()
    assert "http://c.example/left" == json.loads(left)["url"]

    def found(*words: str) -> int:
        return len(said("failed", "--json-lines", *words).splitlines())

    assert (15, 1) == (found("--reason", "status"), found("--given-up"))
    assert (11, 1) == (found("--since", "10.5min"), found("--before", "2d"))
    assert (2, 1) == (found("--match", "*/1?", "--since", "11.5min"), found("--host", "b.*"))
    assert 1 == found("--reason", "*/KeyError")
    none = "no pages are given up, or match"
    assert f"{none}\n" in said("failed", "--given-up", "--host", "c")
    shown = said("failed", "--given-up", "--match", "b.ex")
    assert f"{none}; --match is a whole URL: '*b.ex*' matches a part\n" in shown
    monkeypatch.setattr(commands, "_MOST_READ", 5)
    done = tbloom("failed", name, "--url", url)
    assert "there are more than 5 failed pages; --json-lines has all\n" == done.stderr
    expected = "expected a time such as 45s, 30min, 2h or 30d, got '2'"
    refused(tbloom("failed", name, "--since", "2"), expected)


def test_the_times_of_failed_pages_are_the_server_s(clockwork: Clockwork) -> None:
    """Here the clock of programs and operators is years ahead."""
    words = "news", "--url", clockwork.server.url
    with TimeBloom.from_url(clockwork.server.url, "news") as seen:
        seen.take(0, "news")
        claimed(seen, "http://a/", queue="news")
        seen.fail("http://a/", "status/503")
        seen.leave_many(["http://a/"])
        failed_at = int(clockwork.client.time()[0])
        clockwork.go_on(3 * 3600)
        [line] = tbloom("failed", *words, "--json-lines", "--since", "4h").stdout.splitlines()
        assert failed_at == json.loads(line)["_failed_at"]
        for shown in tbloom("failed", *words).stdout, tbloom("watch", *words, "--once", "-").stdout:
            assert re.search(r"\b3 h\b", re.sub("<[^>]*>", " ", shown))
        dropped = tbloom("drop", *words, "--before", "4h", "--yes").stdout
        assert dropped.startswith("Dropped 0 pages of 'news': no pages")
        assert "Dropped 1 page" in tbloom("drop", *words, "--before", "2h", "--yes").stdout


def test_without_a_filter_or_a_yes_nothing_is_changed(
    kept: Filter, said: Any, name: str, url: str
) -> None:
    """oban#1104, django-rq#179: all that match, after a question."""
    kept.keep(name, "http://a/1", "http://a/2", reason="status/503", failures=1)
    for command in "retry", "drop":
        words = "expected a choice, such as --reason status/503 or --host, or --all"
        refused(tbloom(command, name, "--yes", "--url", url), words)
        refused(tbloom(command, name, "--all", "--url", url), "--yes: needed where standard input")
        none = "no pages are failed or given up, or match"
        assert said(command, "--host", "none").endswith(f"0 pages of '{name}': {none}\n")
    question = f"Drop 2 pages of '{name}', for example http://a/"
    for answer in "n\n", "\n":
        done = tbloom_asking(answer, "drop", name, "--all", "--url", url)
        assert (1, "") == (done.returncode, done.stdout)
        assert done.stderr.startswith(question)
        assert done.stderr.endswith("? [y/N]: tbloom: nothing is dropped\n")
    assert 2 == len(said("failed", "--json-lines").splitlines())
    done = tbloom_asking("y\n", "drop", name, "--reason", "status", "--url", url)
    assert (0, f"Dropped 2 pages of '{name}'\n") == (done.returncode, done.stdout)
    assert [False, False] == kept.seen.contains_many(["http://a/1", "http://a/2"])
    assert Claim.NEW is kept.seen.claim("http://a/1", note=note_of("http://a/1", name))
    kept.seen.leave_many(["http://a/1"])
    assert f"Dropped 1 page of '{name}'\n" == said("drop", "--left", "--all", "--yes")


def test_text_of_strangers_does_no_harm(kept: Filter, said: Any, name: str) -> None:
    """Neither in a terminal nor to the command."""
    kept.keep(name, "http://a/\x1b[2J\n", reason="status/\x1b[2J", failures=1)
    kept.tell(name, host="\x1b[2J", failed={"\x1b": 1})
    kept.tell(f"{name}\n[('\x1b[2J', '\x1b')]")
    kept.tell(f"{name}\n{'(' * 5000}")
    failed = '{"a": 1, "_failed": [x]}', '[1, "_failed": ["", 1]}'
    for note in (*failed, "no JSON", '{"url": ' + "[" * 9_000):
        kept.seen.push(note, Note(f"{'0' * 40}\n{note}", failed_queue_of(name)))
    shown = [
        said(*command.split())
        for command in ("queue", "failed", "retry --all --yes", "drop --left --all --yes")
    ]
    assert not any("\x1b" in text for text in shown)
    assert "http://a/" in shown[1]


def test_a_link_that_comes_first_is_reported(
    kept: Filter, said: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.keep(name, "http://a/1", "http://a/2", reason="status/503", failures=1)
    retry = KeptPages.retry

    def late(fleet: Any, pages: Any, new_note: Any) -> Any:
        known = [*pages]
        assert Claim.NEW is kept.seen.claim("http://a/1")
        return retry(fleet, known, new_note)

    monkeypatch.setattr(KeptPages, "retry", late)
    expected = "; 1 were no longer there: a link, or a crawl, came first\n"
    assert f"Retried 1 page of '{name}'{expected}" == said("retry", "--all", "--yes")


def test_commands_about_a_filter_know_the_project(
    shop: Shop, kept: Filter, url: str, name: str
) -> None:
    """Its spiders, too; a name that one takes, the others take. In place of a wrong one, a near one is named."""
    shop.crawl("a")
    kept.keep("other", "http://a/")
    assert f"{name}: 7 slices" in shop.said("info", "shop")
    assert f"{name}: 7 slices" in shop.said("info", "shop", "--url", url)
    assert f"{name}:tbloom" in shop.said("list")
    assert f"tbloom queue {name} " in shop.said("queue")
    changes = "clear --yes", "retry --all --yes", "drop --all --yes"
    for verb, *words in map(str.split, ("info", "check", "queue", "failed", *changes)):
        kept.keep("other", f"http://{verb}/")
        assert shop.run(verb, "shop", *words).returncode == (verb == "check")
        refused(shop.run(verb, "shopp", *words), "(did you mean 'shop'?)")
        done = tbloom(verb, f"{name}:tblom", *words, "--url", url)
        refused(done, f"(did you mean '{name}:tbloom'?)")
        assert tbloom(verb, f"{name}:tbloom", *words, "--url", url).returncode == (verb == "check")
        if verb == "clear":
            shop.crawl("a")
    refused(shop.run("push", "shp"), "a spider of this project (shop)")
    shop.spider(TBLOOM_STORE="local", TBLOOM_PATH="seen")
    refused(shop.run("info", "shop"), "TBLOOM_STORE", "tbloom queue shop")
    refused(shop.run("queue", "shp"), "shop")
    refused(shop.run("queue"), "expected SPIDER")


@pytest.mark.parametrize("is_inside", [True, False])
def test_a_missing_password_is_named(
    shop: Shop, own: redis.Redis, own_url: str, *, is_inside: bool
) -> None:
    """In our words: Redis' own are of its protocol."""
    own.config_set("requirepass", "hunter2")
    shop.spider(REDIS_URL=own_url)
    words = "queue", "shop", *(() if is_inside else ("--url", own_url))
    error = refused(shop.run(*words) if is_inside else tbloom(*words), "wants a password")
    assert "Authentication" not in error
    assert "NOAUTH" not in error


def test_values_that_are_no_texts_are_named_as_shown(kept: Filter, url: str, name: str) -> None:
    """And arguments that say nothing of the crawl, such as scrapyd's _job, choose nothing."""
    kept.keep(f"{name}\n[('n', 1), ('tags', ['a'])]", "http://a/1", reason="status/503", failures=1)
    kept.tell(f"{name}\n[('n', 1), ('tags', ['a'])]")
    words = "-a", "n=1", "-a", "tags=['a']", "-a", "_job=7", "--url", url
    assert "http://a/1" in tbloom("failed", name, *words).stdout
