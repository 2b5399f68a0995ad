"""``tbloom queue``, ``failed``, ``retry``, ``drop`` and ``push --again``: pages that one can see and free."""

from __future__ import annotations

import json
import re
import time
from html import unescape
from typing import Any

import pytest
import redis
import scrapy

from tbloom import Claim, Note, TimeBloom
from tests.helpers.commands import refused, tbloom
from tests.helpers.folders import Shop

STORES = pytest.mark.parametrize("store", ["bloom", pytest.param("local", marks=pytest.mark.check)])
NOTHING = "no pages are claimed, left, failed or given up, and no crawlers are known"


@STORES
def test_pages_of_a_renamed_callback_are_listed_and_retried(shop: Shop) -> None:
    """Without a link. sidekiq#4703: the retry of a renamed job loses it."""
    shop.spider("parse_article", fails="raise KeyError")
    links = [{"url": page, "callback": "parse_article"} for page in "abcde"]
    assert [] == shop.crawl(*links)
    assert {"failed": 5} == shop.queue()
    shop.spider("parse_item")
    assert [] == shop.crawl()
    shown = shop.said("failed", "shop")
    assert "failed  unreadable/parse_article  site" in shown
    assert {f"/{page}" for page in "abcde"} <= {*shown.split()}
    retry = "retry", "shop", "--reason", "unreadable", "--callback"
    words = "--callback: expected the name of a method of the spider 'shop', got 'parse_article'"
    refused(shop.run(*retry, "parse_article", "--yes"), words)
    assert "Retried 5 pages of 'shop'\n" == shop.said(*retry, "parse_item", "--yes")
    assert {"left": 5} == shop.queue()
    assert [f"{page} parse_item" for page in "abcde"] == shop.crawl()
    assert {} == shop.queue()


FAILS = """
        if response.url.endswith("key"):
            json.loads('{"title": 1}')["price"]
        json.loads("x" if response.url.endswith("json") else "1")
        yield {"price": response.url}


class Prices:
    def process_item(self, item):
        raise ValueError(f"no price [EUR]\\nat https://user:hunter2@shop.example/?token=hunter2 of {len(item)}")
"""


@STORES
def test_an_errors_words_and_place_are_shown_everywhere(shop: Shop, store: str) -> None:
    """In the log, the lists and the page. The standard library is no place, and a URL's password no word."""
    shop.spider(fails=FAILS, ITEM_PIPELINES={"spiders.Prices": 1}, RETRY_ENABLED=False)
    lines = (shop.path / "spiders.py").read_text().splitlines()
    key, error, parse = (
        1 + next(n for n, line in enumerate(lines) if piece in line)
        for piece in ('["price"]', "raise ValueError", 'json.loads("x"')
    )
    failing = [{"url": page, "callback": "parse_item"} for page in ("key", "item", "json")]
    slow = {"url": "slow", "meta": {"download_timeout": 0.2}}
    assert [] == shop.crawl("flaky", *failing, slow)
    price = "no price (EUR) at https://***@shop.example/ of 1"
    value = "Expecting value: line 1 column 1 (char 0)"
    expected = {
        "key": ("callback/KeyError", "'price'", f"spiders.py:{key}"),
        "item": ("pipeline/Prices", price, f"spiders.py:{error}"),
        "json": ("callback/JSONDecodeError", value, f"spiders.py:{parse}"),
        "flaky": ("status/503", "Service Unavailable", ""),
    }
    listed = [*map(json.loads, shop.said("failed", "shop", "--json-lines").split("\n")[:-1])]
    found = {
        line["url"].rpartition("/")[2]: (line["_reason"], line["_message"], line["_where"])
        for line in listed
    }
    reason, message, where = found.pop("slow")
    assert re.fullmatch("download/.*Timeout.*", reason)
    assert "took longer than 0.2 seconds" in message
    assert "" == where
    assert expected == found
    expected["slow"] = reason, message, where
    views = [shop.said("failed", "shop")]
    if store != "local":
        html = shop.run("watch", "shop", "--once", "-").stdout
        views.append(unescape(re.sub("<[^>]*>", "", html)))
    for view in views:
        assert [] == [word for each in expected.values() for word in each if word not in view]
    log = (shop.path / "log").read_text()
    [warning] = re.findall("5 pages have failed.*", log.replace("[EUR]", "(EUR)"))
    shown = [f"({' at '.join(filter(None, said))})" in warning for _, *said in expected.values()]
    assert 3 == shown.count(True)
    assert all("hunter2" not in view for view in (*views, str(listed), warning))
    assert f"has failed (callback/KeyError): 'price' at spiders.py:{key}" in log


def test_each_pushed_line_is_answered_and_again_fetches_it_once(
    shop: Shop, server: Any, url: str, name: str
) -> None:
    """With the callback with which it was kept. simplecrawler#286: a URL that has failed is a duplicate."""
    failing = {"url": "flaky", "callback": "parse_item", "meta": {"own": (1,)}}
    assert ["done parse_item"] == shop.crawl({"url": "done", "callback": "parse_item"}, failing)
    item = scrapy.utils.request.fingerprint(scrapy.Request(f"{shop.site}claimed"))
    given = "\n".join(f"{shop.site}{page}" for page in ("done", "flaky", "claimed", "new", "new"))
    with TimeBloom.from_url(url, name, capacity=1000, error_rate=1e-9) as other:
        assert Claim.NEW is other.claim(item, note=Note("", "shop"))
        assert shop.said("push", "shop", stdin=given) == (
            "5 lines: 1 new; not new: 1 done already, 1 failed, 1 claimed by a crawler, 1 repeated "
            "(--again fetches them now)\n"
        )
        assert {"left": 1, "failed": 1} == shop.queue()
        counts = json.loads(shop.said("push", "shop", "--again", "--json", stdin=given))
        expected = {"done": 1, "left": 1, "failed": 1, "claimed": 1, "repeated": 1}
        assert {"lines": 5, **expected} == {kind: n for kind, n in counts.items() if n}
        assert {"left": 3} == shop.queue()
    server.is_well = True
    assert ["done parse", "flaky parse_item", "new parse"] == shop.crawl()
    assert "(1,)" == shop.pages["flaky"]["meta"]
    said = shop.said("push", "shop", "--again", stdin=f"{shop.site}done\n{shop.site}b")
    assert "2 lines: 1 new; fetched again: 1 done\n" == said
    assert ["b parse", "done parse"] == shop.crawl()


def test_a_line_with_a_callback_replaces_the_kept_request(shop: Shop, server: Any) -> None:
    shop.crawl({"url": "flaky", "callback": "parse_item", "meta": {"own": 1}})
    line = {"url": f"{shop.site}flaky", "callback": "parse", "meta": {"own": 2}}
    said = shop.said("push", "shop", "--again", stdin=json.dumps(line))
    assert "1 line: 0 new; fetched again: 1 failed\n" == said
    server.is_well = True
    assert ["flaky parse"] == shop.crawl()
    assert "2" == shop.pages["flaky"]["meta"]


def test_a_killed_crawlers_pages_are_shown_until_they_are_taken(shop: Shop, server: Any) -> None:
    """flower#1422: offline workers for ever. A page that is pushed meanwhile keeps its callback."""
    shop.spider(TBLOOM_SESSION_TTL=1)
    crawl = shop.start(*({"url": f"slow/{n}", "callback": "parse_item"} for n in range(21)))
    while shop.queue() != {"claimed": 21}:
        time.sleep(0.2)
    while "works" not in shop.said("queue", "shop"):  # a busy machine may keep it silent
        time.sleep(0.2)
    crawl.kill()
    while "  dead  " not in (shown := shop.said("queue", "shop")):
        time.sleep(0.2)
    assert "of dead crawlers      21  left, as soon as a crawler asks for pages" in shown
    [row] = [line for line in shown.splitlines() if "  dead  " in line]
    assert "21" in row.split()
    said = shop.said("push", "shop", stdin=f"{shop.site}slow/0")
    assert "1 line: 0 new; not new: 1 left already (--again fetches them now)\n" == said
    server.is_well = True
    assert sorted(f"slow/{n} parse_item" for n in range(21)) == shop.crawl()
    assert {} == shop.queue()
    shown = shop.said("queue", "shop")
    [row] = [line for line in shown.splitlines() if "  dead  " in line]
    assert "21" not in row.split()
    assert "1 ended (--all shows them)" in shown
    assert "ended (finished)" in shop.said("queue", "shop", "--all")


def test_listed_pages_are_pushed_as_they_were(shop: Shop, server: Any) -> None:
    """With bytes, headers, tuples and the class of a form."""
    shop.crawl("a")
    form = {"url": f"{shop.site}flaky/form", "callback": "parse_item", "method": "POST"}
    form |= {"_class": "scrapy.http.request.form:FormRequest", "dont_filter": True, "flags": ["f"]}
    headers = {"!dict": [[{"!bytes": "X"}, [{"!bytes": "\xfe"}]]]}
    form |= {"body": {"!bytes": "\xff\x00"}, "headers": headers}
    form |= {"meta": {"own": {"!tuple": [1, {"!set": [2]}]}}, "cookies": {"a": "b"}, "priority": 3}
    lines = [form, {"url": f"{shop.site}flaky/\xe9"}]
    given = "\n".join(map(json.dumps, lines))
    assert "2 lines: 2 new\n" == shop.said("push", "shop", stdin=given)
    shop.crawl()
    listed = shop.run("failed", "shop", "--json-lines").stdout
    about = {"_state": "failed", "_reason": "status/503", "_tries": 1}
    for line in map(json.loads, listed.splitlines()):
        assert {**line, **about} == line
        assert abs(time.time() - line["_failed_at"]) < 600
    assert "Dropped 2 pages of 'shop'\n" == shop.said("drop", "shop", "--all", "--yes")
    assert {} == shop.queue()
    assert "2 lines: 2 new\n" == shop.said("push", "shop", stdin=listed)
    said = shop.said("push", "shop", "--again", stdin=listed)
    assert "2 lines: 0 new; fetched again: 2 left\n" == said
    server.is_well = True
    assert ["flaky/%C3%A9 parse", "flaky/form parse_item"] == shop.crawl()
    page = shop.pages["flaky/form"]
    expected = {"kind": "FormRequest", "method": "POST", "meta": "(1, {2})"}
    expected |= {"body": repr(b"\xff\x00"), "header": repr(b"\xfe")}
    assert {**page, **expected} == page


RULES = """
import json
from pathlib import Path

import scrapy
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class Shop(CrawlSpider):
    name = "shop"
    rules = [Rule(LinkExtractor(allow="a$"), callback="OTHER"), Rule(LinkExtractor(allow="b$"), callback="CALLBACK")]

    async def start(self):
        for request in self.settings["LINKS"]:
            yield scrapy.Request(request["url"], dont_filter=True)

    def OTHER(self, response):
        self.note(response, "OTHER")

    def CALLBACK(self, response):
        FAILS
        self.note(response, "CALLBACK")

    def note(self, response, callback):
        with Path(self.settings["FETCHED"]).open("a") as file:
            file.write(json.dumps({"url": response.url, "callback": callback}) + "\\n")
"""


@pytest.mark.parametrize("with_project", [True, False])
def test_the_callback_of_a_rule_is_replaced(
    shop: Shop, url: str, name: str, *, with_project: bool
) -> None:
    """Though the page was kept with the spider's own callback, which finds the rule by its number."""
    code = RULES.replace("OTHER", "parse_other")
    shop.write(code.replace("CALLBACK", "parse_old").replace("FAILS", "raise KeyError"))
    assert ["a parse_other"] == shop.crawl("")
    later = code.replace("CALLBACK", "parse_new").replace("FAILS", "pass")
    another = "rules = [Rule(LinkExtractor(allow='c$'), callback='parse_other'), "
    shop.write(later.replace("rules = [", another))
    words = "retry", "shop", "--all", "--callback", "parse_new", "--yes"
    if with_project:
        assert "Retried 1 page of 'shop'\n" == shop.said(*words)
    else:
        done = tbloom(*words, "--url", url, "-s", f"TBLOOM_KEY={name}")
        assert (0, "Retried 1 page of 'shop'\n") == (done.returncode, done.stdout)
    assert ["b parse_new"] == shop.crawl()


@pytest.mark.parametrize("store", ["local"])
def test_a_crawl_locks_a_filter_without_a_server(shop: Shop, server: Any) -> None:
    for command in (["queue"], ["failed"], ["retry", "--all"], ["drop", "--all"]):
        words = "TBLOOM_PATH: expected a file that a crawl has made, got "
        refused(shop.run(command[0], "shop", *command[1:]), words)
    crawl = shop.start("slow")
    while not server.asked["/slow"] and not (shop.path / "seen.claims").exists():
        time.sleep(0.02)
    busy = "is in use by another process", "wait for the end of that crawl"
    refused(shop.run("queue", "shop"), *busy)
    server.is_well = True
    crawl.result()
    place = f"shop at '{shop.settings['TBLOOM_KEY']}', {shop.path / 'seen'}"
    assert f"{place}\n\n{NOTHING}\n" == shop.said("queue", "shop")
    words = "-s", "TBLOOM_STORE=local", "-s", f"TBLOOM_PATH={shop.path / 'seen'}"
    sizes = "-s", "TBLOOM_CAPACITY=1000", "-s", "TBLOOM_ERROR_RATE=1e-9"
    assert NOTHING in tbloom("queue", "shop", *words, *sizes).stdout


@pytest.mark.check
def test_a_push_into_a_full_server_says_its_progress(shop: Shop, url: str) -> None:
    (shop.path / "urls").write_text("\n".join(f"{shop.site}{n}" for n in range(30_000)))
    assert 0 == shop.run("push", "shop", stdin=f"{shop.site}first").returncode
    with redis.Redis.from_url(url) as client:
        client.config_set("maxmemory", int(client.info("memory")["used_memory"]) + 2_000_000)
        try:
            done = shop.run("push", "shop", "urls")
        finally:
            client.config_set("maxmemory", 0)
        left = client.zcard(f"{{{shop.settings['TBLOOM_KEY']}}}:left")
    said = refused(done, "memory is full", "before that: ")
    assert f"{(left - 1) // 1000 * 1000:,} lines: {(left - 1) // 1000 * 1000:,} new" in said
