"""``tbloom queue``, ``failed``, ``retry``, ``drop``, ``push`` and ``watch`` where crawls of a spider have other arguments."""

from __future__ import annotations

import json
import re
import shlex
import subprocess

import pytest

from tests.cli.test_watch import commands, text_of
from tests.helpers.commands import refused, tbloom
from tests.helpers.folders import Shop

#: The store, and whether the commands run in the project's folder.
PLACES = pytest.mark.parametrize(
    ("store", "is_inside"),
    [
        ("bloom", True),
        ("local", False),
        pytest.param("bloom", False, marks=pytest.mark.check),
        pytest.param("local", True, marks=pytest.mark.check),
    ],
)


class Asked:
    """A spider of which two crawls with other arguments have three failed pages each, asked in its project's folder or elsewhere."""

    def __init__(self, shop: Shop, *, is_inside: bool) -> None:
        self.shop, self.is_inside = shop, is_inside
        for n, country in enumerate(("de", "fr")):
            links = [f"flaky/{n}{page}" for page in range(3)]
            assert [] == shop.crawl(*links, country=country)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        settings = self.shop.settings
        names = "REDIS_URL", "TBLOOM_KEY", "TBLOOM_STORE", "TBLOOM_PATH", "TBLOOM_CAPACITY"
        given = {n: settings[n] for n in (*names, "TBLOOM_ERROR_RATE") if n in settings}
        where = [word for pair in given.items() for word in ("-s", "=".join(map(str, pair)))]
        return self.shop.run(*words) if self.is_inside else tbloom(*words, *where)

    def said(self, *words: str) -> str:
        done = self.run(*words)
        assert (0, "") == (done.returncode, done.stderr)
        return done.stdout

    def failed(self, *words: str) -> list[str]:
        lines = self.said("failed", "shop", "--json-lines", *words).splitlines()
        return sorted(json.loads(line)["url"].rpartition("/")[2] for line in lines)

    def left(self) -> dict[str, int]:
        queues = json.loads(self.said("queue", "shop", "--json"))["queues"]
        return {each["queue"]: each["pages"]["left"] for each in queues}


@pytest.fixture
def asked(shop: Shop, *, is_inside: bool) -> Asked:
    return Asked(shop, is_inside=is_inside)


@PLACES
def test_without_arguments_all_crawls_of_a_spider_are_meant(asked: Asked, store: str) -> None:
    """And with some, or --no-arguments, those of one set. Those of no crawl are answered with what is known."""
    shown = asked.said("failed", "shop")
    rows = [line.split() for line in shown.splitlines() if " status/503 " in line]
    assert 2 + 6 == len(rows)
    assert ["-a", "country=de", "failed", "status/503"] == rows[0][:4]
    assert ["-a", "country=fr", "failed", "status/503"] == rows[1][:4]
    assert "arguments" in shown
    assert ["00", "01", "02", "10", "11", "12"] == asked.failed()
    assert ["00", "01", "02"] == asked.failed("-a", "country=de")
    assert [] == asked.failed("--no-arguments")

    shown = asked.said("queue", "shop")
    assert "failed       6  " in shown
    assert ["-a", "country=de", "0", "0", "0", "3", "0"] in map(str.split, shown.splitlines())
    one = asked.said("queue", "shop", "-a", "country=fr")
    assert one.startswith("shop -a country=fr at ")
    assert "failed       3  " in one
    for words in ["queue"], ["failed"], ["retry", "--all", "--yes"], ["drop", "--all", "--yes"]:
        done = asked.run(words[0], "shop", *words[1:], "-a", "country=d")
        refused(done, "no crawl of 'shop -a country=d' is known", "-a country=de, -a country=fr")
    done = asked.run("queue", "shop", "-a", "a=b", "--no-arguments")
    refused(done, "expected one of -a, --no-arguments")
    if store == "bloom":  # on the page, each with the line that frees its pages, and no others
        text = text_of(html := asked.said("watch", "shop", "--once", "-"))
        assert "failed 6 given up 0" in text
        lines = [line.split() for line in commands(html)]
        assert [["-a", "country=de"], ["-a", "country=fr"]] == [line[3:5] for line in lines]
        one = asked.said("watch", "shop", "-a", "country=de", "--once", "-")
        assert "failed 3 given up 0" in text_of(one)

    said = asked.said("retry", "shop", "--all", "-a", "country=fr", "--yes")
    assert said == "Retried 3 pages of 'shop -a country=fr'\n"
    assert "Retried 1 page of " in asked.said("retry", "shop", "--match", "*/00", "--yes")
    said = asked.said("retry", "shop", "--all", "--yes")
    assert said == "Retried 2 pages of 'shop -a country=de'\n"
    sets = "shop\n[('country', 'de')]", "shop\n[('country', 'fr')]"
    assert dict.fromkeys(sets, 3) == asked.left()
    said = asked.said("drop", "shop", "--all", "--left", "--yes")
    assert said == "Dropped 6 pages of 'shop': 3 of -a country=de, 3 of -a country=fr\n"
    assert not any(asked.left().values())


@pytest.mark.parametrize("store", ["bloom", "local"])
@pytest.mark.parametrize("arguments", [{}, {"country": "de at"}])
def test_the_commands_in_a_crawls_last_words_work(shop: Shop, arguments: dict[str, str]) -> None:
    """A limit ends one crawl after the other: the pages that wait for the next one pile up."""
    shop.spider(CLOSESPIDER_PAGECOUNT=1, CONCURRENT_REQUESTS=1)
    links = [f"{n}" for n in range(20)]
    for _ in range(3):
        assert "closespider_pagecount" == shop.start(*links, **arguments).result()
    said = r"INFO:.*:(\d+) pages wait .* tbloom (queue .*) shows them, and tbloom (drop .*) forgets"
    *before, last = re.findall(said, (shop.path / "log").read_text())
    number, queue, drop = last
    assert [20, 19] > [int(each[0]) for each in before] > [int(number)] * 2
    assert re.search(rf"^left +{number} ", shop.said(*shlex.split(queue)), re.MULTILINE)
    dropped = shop.said(*shlex.split(drop), "--yes")
    assert dropped.startswith(f"Dropped {number} pages of ")
    assert {} == shop.queue()


def test_pages_are_pushed_for_one_crawl(shop: Shop) -> None:
    """That without arguments, and a remark says if none is known; there, they are seen, too."""
    assert "1 line: 1 new\n" == shop.said("push", "shop", stdin=f"{shop.site}a")
    shop.crawl(country="de")
    done = shop.run("push", "shop", stdin=f"{shop.site}b")
    assert (0, "1 line: 1 new\n") == (done.returncode, done.stdout)
    assert done.stderr.startswith("only crawls of 'shop' with arguments are known (-a country=de)")
    words = "push", "shop", "-a", "country=de"
    assert "1 line: 1 new\n" == shop.said(*words, stdin=f"{shop.site}c")
    said = shop.said("queue", "shop", "--json")
    assert [1, 2] == sorted(each["pages"]["left"] for each in json.loads(said)["queues"])
    assert ["a parse", "b parse"] == shop.crawl()


def test_a_spider_that_needs_arguments_is_asked_without_them(
    shop: Shop,
) -> None:
    code = (shop.path / "spiders.py").read_text()
    needs = "    def __init__(self, country, **given):\n        super().__init__(**given)\n"
    (shop.path / "spiders.py").write_text(code.replace("    async def", f"{needs}\n    async def"))
    shop.crawl("flaky/1", country="de")
    assert "-a country=de" in shop.said("failed", "shop")
    assert "Retried 1 page of" in shop.said(
        *("retry", "shop", "--all", "--yes", "--callback", "parse_item")
    )
    refused(shop.run("push", "shop", stdin=f"{shop.site}b"), "can't be made", "country")
