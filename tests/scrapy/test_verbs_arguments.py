"""``tbloom queue``, ``failed``, ``retry``, ``drop``, ``push`` and ``watch`` where crawls of a spider have other arguments."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from tests.cli.test_watch import commands, text_of
from tests.helpers.commands import refused, tbloom
from tests.scrapy.test_verbs import Filter, Project, kept, make, server  # noqa: F401 - fixtures

STORES = pytest.mark.parametrize("store", ["bloom", "local"])
INSIDE = pytest.mark.parametrize("is_inside", [True, False])


class Asked:
    """A spider of which two crawls with other arguments have three failed pages each, asked in its project's folder or elsewhere."""

    def __init__(self, project: Project, *, is_inside: bool) -> None:
        self.project, self.is_inside = project, is_inside
        for n, country in enumerate(("de", "fr")):
            links = [f"flaky/{n}{page}" for page in range(3)]
            assert [] == project.crawl(*links, country=country)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        settings = self.project.settings
        names = "REDIS_URL", "TBLOOM_KEY", "TBLOOM_STORE", "TBLOOM_PATH", "TBLOOM_CAPACITY"
        given = {n: settings[n] for n in (*names, "TBLOOM_ERROR_RATE") if n in settings}
        where = [word for pair in given.items() for word in ("-s", "=".join(map(str, pair)))]
        return self.project.run(*words) if self.is_inside else tbloom(*words, *where)

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
def asked(make: Callable[..., Project], store: str, *, is_inside: bool) -> Asked:  # noqa: F811
    return Asked(make(store), is_inside=is_inside)


@STORES
@INSIDE
def test_without_arguments_all_crawls_of_a_spider_are_meant(asked: Asked) -> None:
    """And with some, or --no-arguments, those of one set."""
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

    said = asked.said("retry", "shop", "--all", "-a", "country=fr", "--yes")
    assert said == "Retried 3 pages of 'shop -a country=fr'\n"
    said = asked.said("retry", "shop", "--all", "--yes")
    assert said == "Retried 3 pages of 'shop -a country=de'\n"
    sets = "shop\n[('country', 'de')]", "shop\n[('country', 'fr')]"
    assert dict.fromkeys(sets, 3) == asked.left()
    said = asked.said("drop", "shop", "--all", "--left", "--yes")
    assert said == "Dropped 6 pages of 'shop': 3 of -a country=de, 3 of -a country=fr\n"
    assert not any(asked.left().values())


@STORES
@INSIDE
def test_pages_of_all_arguments_are_dropped(asked: Asked) -> None:
    """What is left stays, and is named."""
    assert "Retried 1 page of " in asked.said("retry", "shop", "--match", "*/00", "--yes")
    said = asked.said("drop", "shop", "--all", "--yes")
    assert said == (
        "Dropped 5 pages of 'shop': 3 of -a country=fr, 2 of -a country=de; 1 left page stays (--left: those)\n"
    )


@STORES
@INSIDE
def test_arguments_of_no_crawl_are_answered_with_those_that_are_known(asked: Asked) -> None:
    for words in ["queue"], ["failed"], ["retry", "--all", "--yes"], ["drop", "--all", "--yes"]:
        done = asked.run(words[0], "shop", *words[1:], "-a", "country=d")
        refused(done, "no crawl of 'shop -a country=d' is known", "-a country=de, -a country=fr")
    refused(
        asked.run("queue", "shop", "-a", "a=b", "--no-arguments"),
        "expected one of -a, --no-arguments",
    )


@pytest.mark.parametrize("store", ["bloom"])
@INSIDE
def test_the_page_has_the_crawls_of_all_arguments(asked: Asked) -> None:
    """Each with the line that frees its pages, and no others."""
    text = text_of(html := asked.said("watch", "shop", "--once", "-"))
    assert "failed 6 given up 0" in text
    lines = [line.split() for line in commands(html)]
    assert ["-a", "country=de"] == lines[0][3:5]
    assert ["-a", "country=fr"] == lines[1][3:5]
    assert "failed 3 given up 0" in text_of(
        asked.said("watch", "shop", "-a", "country=de", "--once", "-")
    )
    assert "Retried 3 pages of 'shop -a country=fr'\n" == asked.said(*lines[1][1:], "--yes")


@pytest.mark.parametrize("store", ["bloom"])
def test_pages_are_pushed_for_one_crawl(make: Callable[..., Project], store: str) -> None:  # noqa: F811
    """That without arguments, and a remark says if none is known; there, they are seen, too."""
    project = make(store)
    assert "1 line: 1 new\n" == project.said("push", "shop", stdin=f"{project.site}a")
    project.crawl(country="de")
    done = project.run("push", "shop", stdin=f"{project.site}b")
    assert (0, "1 line: 1 new\n") == (done.returncode, done.stdout)
    assert done.stderr.startswith("only crawls of 'shop' with arguments are known (-a country=de)")
    words = "push", "shop", "-a", "country=de"
    assert "1 line: 1 new\n" == project.said(*words, stdin=f"{project.site}c")
    said = project.said("queue", "shop", "--json")
    assert [1, 2] == sorted(each["pages"]["left"] for each in json.loads(said)["queues"])
    assert ["a parse", "b parse"] == project.crawl()


def test_a_spider_that_needs_arguments_is_asked_without_them(
    make: Callable[..., Project],  # noqa: F811
) -> None:
    project = make()
    code = (project.folder / "spiders.py").read_text()
    needs = "    def __init__(self, country, **given):\n        super().__init__(**given)\n"
    (project.folder / "spiders.py").write_text(
        code.replace("    async def", f"{needs}\n    async def")
    )
    project.crawl("flaky/1", country="de")
    assert "-a country=de" in project.said("failed", "shop")
    assert "Retried 1 page of" in project.said(
        *("retry", "shop", "--all", "--yes", "--callback", "parse_item")
    )
    refused(project.run("push", "shop", stdin=f"{project.site}b"), "can't be made", "country")


def test_values_that_are_no_texts_are_named_as_they_are_shown(
    kept: Filter,  # noqa: F811
    url: str,
    name: str,
) -> None:
    """And arguments that say nothing of the crawl, such as scrapyd's _job, choose nothing."""
    kept.keep(f"{name}\n[('n', 1), ('tags', ['a'])]", "http://a/1", reason="status/503", failures=1)
    kept.tell(f"{name}\n[('n', 1), ('tags', ['a'])]")
    words = "-a", "n=1", "-a", "tags=['a']", "-a", "_job=7", "--url", url
    assert "http://a/1" in tbloom("failed", name, *words).stdout
