"""What ``tbloom doctor`` says of a project before its crawls: faults, and notes."""

from __future__ import annotations

import json
import re
import socketserver
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import redis
import scrapy
from scrapy import Request
from scrapy.extensions.httpcache import DummyPolicy
from scrapy.http import Response
from scrapy.pipelines.files import FilesPipeline
from scrapy.settings import Settings

from tbloom import ExactFilter, TimeBloom
from tbloom.distinct import DistinctCounter
from tbloom.scrapy.extras.doctor import examine
from tbloom.version import NEWEST_TESTED
from tests.helpers.commands import tbloom, tbloom_in
from tests.helpers.contents import keys_of
from tests.helpers.folders import Folder
from tests.helpers.localredis import LocalRedis, save
from tests.helpers.making import needed
from tests.helpers.schedulers import ADDON, SCHEDULED, SCRAPY, STORES, UNREACHABLE, refusal

OFF = "tbloom is off: neither ADDONS nor DUPEFILTER_CLASS names it"
SHARED = {"SCHEDULER": "scrapy_redis.scheduler.Scheduler"}
COUNTED = {"EXTENSIONS": {"tbloom.scrapy.DistinctCounts": 500}}
THEIRS = {"DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter"}
SPIDER = "import scrapy\nclass A(scrapy.Spider): name = 'a'\n"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (ADDON, ""),
        (SCRAPY, ""),
        ({**ADDON, "TBLOOM_STORE": "local", "REDIS_URL": UNREACHABLE}, ""),
        ({}, f"{OFF}. Set ADDONS"),
        ({"TBLOOM_SLICES": 3, "TBLOOM_KEY": "a"}, f"{OFF} (without effect: TBLOOM_KEY, TBLOOM_SL"),
        ({"ADDONS": {"tbloom.scrapy.AddOn": 500}}, "ADDONS can't be imported: NameError: M…; did you mean 'tbloom.scrapy.Addon'?"),
        ({"DUPEFILTER_CLASS": "tbloom.DupeFilter"}, "DUPEFILTER_CLASS can't be imported: …; did you mean 'tbloom.scrapy.DupeFilter'?"),
        ({**ADDON, **THEIRS}, "tbloom's add-on is off: DUPEFILTER_CLASS is "),
        ({**SCRAPY, "TBLOOM_MARK": "done"}, "TBLOOM_MARK: expected 'scheduled', or tbloom's add-on: ADDONS ="),
        ({**ADDON, "TBLOOM_SLCES": 3}, "unknown setting TBLOOM_SLCES; did you mean TBLOOM_SLICES?"),
        ({**SCHEDULED, **SHARED}, "SCHEDULER_PERSIST: without it, scrapy-redis deletes the queue"),
        ({**SCHEDULED, **SHARED, "SCHEDULER_PERSIST": True}, ""),
        ({**ADDON, **SHARED}, "TBLOOM_MARK: expected 'scheduled' with scrapy-redis' SCHEDULER; or remove SCHEDULER"),
        ({**ADDON, **STORES["exact"], "TBLOOM_MARK": None}, "TBLOOM_MARK: expected 'scheduled', with TBLOOM_STORE = 'exact' (the add-on's def"),
        ({**SCRAPY, **SHARED, "TBLOOM_MARK": "done"}, "TBLOOM_MARK: expected 'scheduled' with scrapy-redis' SCHEDULER"),
        ({**ADDON, "REDIS_URL": UNREACHABLE}, "REDIS_URL is redis://127.0.0.1:1/0: Error 111"),
        ({**ADDON, "REDIS_URL": UNREACHABLE, "TBLOOM_CAPACITY": -1}, "TBLOOM_CAPACITY: expected"),
        ({**ADDON, "REDIS_PARAMS": '{"password": "secret"'}, "REDIS_PARAMS: expected a dict"),
        ({"DUPEFILTER_CLASS": "x.y.Z"}, "DUPEFILTER_CLASS can't be imported: M"),
        ({**ADDON, **COUNTED, "TBLOOM_COUNT_MAX_MEMBERS": 0}, "TBLOOM_COUNT_MAX_MEMBERS: expected a"),
        ({**ADDON, **COUNTED, "TBLOOM_TIMEZONE": "Europe/Berlin"}, ""),
    ],
)  # fmt: skip
def test_a_fault_is_one_line(url: str, settings: dict[str, Any], expected: str) -> None:
    found = examine(Settings({"REDIS_URL": url, **settings}))[0]
    assert len(found) == bool(expected)
    start, _, end = expected.partition("…")
    assert "".join(found).startswith(start)
    assert "".join(found).endswith(end)
    assert "secret" not in "".join(found)


def test_a_password_in_a_setting_that_nobody_reads_is_named(crawl: Any) -> None:
    """By doctor, and by the crawl that can't begin; not if another one is refused (rq#809)."""
    hint = "(REDIS_PASSWORD has no effect: put it into REDIS_PARAMS, as 'password')"
    with LocalRedis(needed(), "--requirepass", "secret") as server:
        given = {**ADDON, "REDIS_URL": server.url, "REDIS_PASSWORD": "secret"}
        [fault], _ = examine(Settings(given))
        assert fault.endswith(hint)
        assert refusal(crawl("pages", given, ["a"])).endswith(hint)
        [fault], _ = examine(Settings({**given, "REDIS_PARAMS": {"password": "other"}}))
        assert hint not in fault
        assert [] == examine(Settings({**given, "REDIS_PARAMS": {"password": "secret"}}))[0]


EVICTS = ["CONFIG SET maxmemory 100000000", "CONFIG SET maxmemory-policy allkeys-lru"]
EVICTS_NOT = ["CONFIG SET maxmemory-policy noeviction", "CONFIG SET maxmemory 0"]


@pytest.mark.parametrize(
    ("worse", "better", "expected"),
    [
        (EVICTS, EVICTS_NOT, ["set noeviction"]),
        (["REPLICAOF 127.0.0.1 1"], ["REPLICAOF NO ONE"], ["REDIS_URL is {}: a replica", "name its master"]),
    ],
    ids=["may drop slices", "takes no writes"],
)  # fmt: skip
def test_a_server_that_a_crawl_cannot_use_is_a_fault(
    own: redis.Redis, own_url: str, worse: list[str], better: list[str], expected: list[str]
) -> None:
    """A crawl would wait for a replica, as for a server that a failover has not yet made the master."""
    for words in worse:
        own.execute_command(*words.split())
    try:
        [fault], _ = examine(Settings({**ADDON, "REDIS_URL": own_url}))
    finally:
        for words in better:
            own.execute_command(*words.split())
    assert [] == [each for each in expected if each.format(own_url) not in fault]
    assert [] == examine(Settings({**ADDON, "REDIS_URL": own_url}))[0]


@pytest.mark.parametrize(
    ("options", "settings", "noted"),
    [
        ([], {}, True),
        ([], STORES["exact"] | {"TBLOOM_MARK": "scheduled"}, True),
        ([], {"TBLOOM_STORE": "local"}, False),
        (["--appendonly", "yes"], {}, False),
        (["--save", "3600 1"], {}, False),
    ],
    ids=["nothing", "exact", "local", "a file", "snapshots"],
)
def test_a_server_that_keeps_nothing_is_noted(
    crawl: Any, options: list[str], settings: dict[str, Any], *, noted: bool
) -> None:
    """By doctor and by each crawl, until it has saved (scrapy-redis#248)."""
    server = LocalRedis(needed(), *options)
    server.saves = False
    with server:
        given = {**ADDON, "REDIS_URL": server.url, "TBLOOM_KEY": "news", **settings}
        found, notes = examine(Settings(given))
        assert ([], noted) == (
            found,
            "a restart of the server would forget all since" in "".join(notes),
        )
        result = crawl("pages", given, ["a"])
        assert noted == ("a restart of the server would forget" in result["log"])
        assert int(noted) == result["stats"].get("tbloom/unsaved", 0)
        save(server.port)
        assert [] == [note for note in examine(Settings(given))[1] if "restart" in note]


def test_what_a_replica_was_sent_is_not_saved() -> None:
    """A server that comes back empty empties its replica, too. (Redis 6.2 counts both as one.)"""
    server = LocalRedis(needed(), "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")
    server.saves = False
    replica = LocalRedis(needed(), "--replicaof", f"127.0.0.1 {server.port}")
    with server, redis.Redis.from_url(server.url) as client, replica:
        if "rdb_saves" not in client.info("persistence"):
            pytest.skip("this server does not count its saves")
        assert client.set("a", "b")
        assert client.wait(1, 0) == 1
        [note] = examine(Settings({**ADDON, "REDIS_URL": server.url}))[1]
    assert "a restart of the server would forget all since" in note


def test_a_server_that_refuses_info_is_not_noted() -> None:
    """If it refuses CONFIG only, INFO decides."""
    server = LocalRedis(needed())
    server.saves = False
    with server, redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "managed", "on", "nopass", "~*", "+@all", "-info")
        url = server.url.replace("//", "//managed:a@")
        [fault], notes = examine(Settings({**ADDON, "REDIS_URL": url}))
        assert ("refuses INFO" in fault, notes) == (True, [])
        client.execute_command("ACL", "SETUSER", "managed", "+info", "-config")
        [note] = examine(Settings({**ADDON, "REDIS_URL": url}))[1]
    assert "restart" in note


@pytest.mark.parametrize(
    "lost", ["*", "*state*", "*{news}:????????*"], ids=["all", "state", "slice"]
)
def test_what_a_server_has_lost_is_a_note(own: redis.Redis, own_url: str, lost: str) -> None:
    """Nobody can mend it."""
    with TimeBloom(own, "news") as seen:
        seen.add("a")
        own.delete(*own.keys(lost))
        if lost != "*{news}:????????*":
            seen.add("b")
    found, notes = examine(Settings({**ADDON, "REDIS_URL": own_url, "TBLOOM_KEY": "news"}))
    assert ([], 1) == (found, len(notes))
    assert re.search("has lost the filter|has dropped .* early", notes[0])


def test_a_version_newer_than_the_tested_is_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = Settings({**ADDON, "TBLOOM_STORE": "local"})
    monkeypatch.setattr("tbloom.scrapy.extras.project.project_settings", lambda: project)
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "settings")
    monkeypatch.setitem(NEWEST_TESTED, "redis", (10**6, 0))
    monkeypatch.setitem(NEWEST_TESTED, "scrapy", (2, 99))
    monkeypatch.setattr(scrapy, "__version__", "2.100.0")
    done = tbloom("doctor")
    note, verdict = done.stdout.splitlines()
    newest = "2.99, the newest that tbloom's tests have seen"
    assert (0, f"note: Scrapy 2.100.0 is newer than {newest}") == (done.returncode, note)
    assert verdict.startswith("✓")


@pytest.mark.check
def test_an_older_scrapy_is_named_with_the_needed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an import, and by doctor; it is the one in setup.cfg."""
    found = (re.match(r"scrapy *>= *([\d.]+)", line) for line in requires("tbloom") or ())
    [needed] = {match[1] for match in found if match}
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "settings")
    older = "import scrapy; scrapy.version_info, scrapy.__version__ = (2, 13, 4), '2.13.4'"
    said = f"tbloom.scrapy needs Scrapy {needed} or later; 2.13.4 is installed: pip install "
    for use in ("import tbloom.scrapy", "import tbloom.cli; exit(tbloom.cli.main(['doctor']))"):
        words = [sys.executable, "-c", f"{older}; {use}"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert f"{said}'scrapy>=" in done.stderr.splitlines()[-1]
    assert (2, 1) == (done.returncode, done.stderr.count("\n"))


def test_doctor_asks_the_server_that_is_named(own_url: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path, SPIDER, REDIS_URL=UNREACHABLE)
    assert 1 == folder.run("doctor").returncode
    assert 0 == folder.run("doctor", "--url", own_url, "--prefix", "app1:").returncode
    what, _ = folder.run("doctor", "--url", "localhost").stdout.splitlines()  # in no file
    assert what.startswith("✗ REDIS_URL: expected a URL")


def test_doctor_reads_the_project_in_the_folder(tmp_path: Path) -> None:
    """Of a wrong scrapy.cfg, Scrapy would take its defaults, or name only a part of the module (scrapy#849, scrapy#141)."""

    def doctor(code: int, words: str) -> str:
        done = tbloom_in(tmp_path, "doctor")
        text: str = done.stdout or done.stderr
        assert (code, True) == (done.returncode, words in text), text
        return text

    doctor(2, "expected the folder of a Scrapy project")
    folder = Folder(tmp_path, TBLOOM_STORE="local")
    doctor(0, "✓ tbloom filters the requests of this project")
    folder.write(ADDONS={})
    text = doctor(1, f"✗ {OFF}")
    assert "\n  settings.py: ADDONS\n" in text
    assert text.endswith("1 fault: change what the ✗ says\n")
    for wrong, why in (("import gone", "gone"), ("a =", "SyntaxError"), ("ADDONS = 5", "int")):
        (tmp_path / "settings.py").write_text(wrong)
        assert doctor(2, why).startswith("tbloom: the project's settings can't be imported: ")
    for wrong, why in (
        ("[deploy]\nproject = shop", "scrapy.cfg names no module: write [settings], and below it"),
        (
            "[settings]\ndefault = settings.gone",
            "there is no module settings.gone, which scrapy.cfg",
        ),
    ):
        (tmp_path / "scrapy.cfg").write_text(wrong)
        assert doctor(2, why).startswith("tbloom: the project's settings can't be imported: ")


def begins(lines: list[str], starts: Sequence[str]) -> list[str]:
    """The lines, each as far as these starts go."""
    return [line[: len(start)] for line, start in zip(lines, starts, strict=True)]


def doctor_of(path: Path, url: str, spiders: str, **settings: Any) -> tuple[int, list[str]]:
    """The exit code and the lines for a project with these spiders."""
    return Folder(path, spiders, REDIS_URL=url, **settings).doctor()


def test_doctor_looks_at_the_settings_of_each_spider(
    own: redis.Redis, own_url: str, tmp_path: Path
) -> None:
    """A misspelled setting in custom_settings, too (scrapy#4302, scrapy-redis#134); and it compares them with what is stored. It changes
    nothing."""
    TimeBloom(own, "b:tbloom").add("a")
    TimeBloom(own, "c:tbloom", slices=3).add("a")
    ExactFilter(own, "exact").add("a", 100)
    DistinctCounter(own, "urls", mapping="counted").add("a")
    spiders = f"""{SPIDER}
class B(A): name = "b"
class C(A): name = "c"
class D(A):
    name = "d"
    custom_settings = {{"TBLOOM_KEY": "exact"}}
class E(D): name = "e"
class F(A):
    name = "f"
    @classmethod
    def update_settings(cls, settings): settings.set("TBLOOM_KEY", "counted", "spider")
class G(A):
    name = "g"
    custom_settings = {THEIRS}
class H(A):
    name = "h"
    custom_settings = {{"ADDONS": {{}}, "TBLOOM_SLCES": 5}}
class I(A):
    name = "i"
    custom_settings = {{"TBLOOM_SLCES": 5}}
class J(A):
    name = "j"
    @classmethod
    def update_settings(cls, settings): settings["GONE"]["a"]
"""
    before = {key: own.dump(key) for key in keys_of(own)}
    code, lines = doctor_of(tmp_path, own_url, spiders, TBLOOM_SLICES=3)
    assert before == {key: own.dump(key) for key in keys_of(own)}
    remedy = "another TBLOOM_KEY, or TBLOOM_SLICES = 7"
    starts = (
        f"✗ spider b: TBLOOM_SLICES is 3, the stored filter has 7: {remedy}",
        "  settings.py: TBLOOM_SLICES",
        "✗ spider d, e: TBLOOM_KEY: 'exact' is the name of an exact filter: take another name, or TBLOOM_STORE = 'exact'",
        "  spiders.py: TBLOOM_KEY",
        "✗ spider f: TBLOOM_KEY: 'counted' is the name of a mapping of distinct counters: take another name",
        "  spiders.py: TBLOOM_KEY",
        "✗ spider g: tbloom's add-on is off: DUPEFILTER_CLASS is 'scrapy.dupefi",
        "  spiders.py: DUPEFILTER_CLASS",
        f"✗ spider h: {OFF} (without effect: TBLOOM_SL",
        "  spiders.py: ADDONS",
        "✗ spider i: unknown setting TBLOOM_SLCES; did you mean TBLOOM_SLICES?",
        "  spiders.py: TBLOOM_SLCES",
        "✗ spider j: update_settings of a spider fails: TypeError: 'NoneType'",
        "  spiders.py:26",
        "7 faults: change what the ✗ says",
    )
    assert (1, [*starts]) == (code, begins(lines, starts))


@pytest.mark.parametrize(
    ("wrong", "why", "line"),
    [
        ("import gone", "ModuleNotFoundError: No module named 'gone'", 2),
        ("from scrapy import gone", "ImportError: cannot import name 'gone' from 'scrapy'", 2),
        ("a =", "SyntaxError: invalid syntax", 2),
        ("{}['a']", "KeyError: 'a'", 2),
        ("raise SystemExit(3)", "SystemExit: 3", 2),
    ],
)
def test_doctor_names_a_spider_that_cannot_be_imported(
    url: str, tmp_path: Path, wrong: str, why: str, line: int
) -> None:
    """The file, not SPIDER_MODULES (scrapy#2518, #2602). A crawl of any other spider ends, too."""
    code, lines = doctor_of(tmp_path, url, f"import scrapy\n{wrong}")
    assert lines[0].startswith(f"✗ a spider can't be imported, so none can crawl: {why}")
    assert (1, 3, f"  spiders.py:{line}") == (code, len(lines), lines[1])


def test_doctor_names_the_first_fault_of_each_spider(tmp_path: Path) -> None:
    """The one that its crawl names, once for all spiders that have it. A server that is away is asked once, and no password is shown."""
    spiders = f"""{SPIDER}
class B(A): name = 'b'
class C(A): name = 'c'; custom_settings = {{'TBLOOM_TIMEZONE': 'UTC'}}
class D(C): name = 'd'; custom_settings = {{'TBLOOM_CAPACITY': 9, 'TBLOOM_TIMEZONE': 'UTC'}}
"""
    spiders += "".join(f"class D{n}(D): name = 'd{n}'\n" for n in range(50))
    asked = list[object]()

    class HangsUp(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            asked.append(self.client_address)

    wrong: dict[str, Any] = {"TBLOOM_CAPACITY": -1, "TBLOOM_TIMEZONE": "Mars/Olympus"}
    with socketserver.TCPServer(("127.0.0.1", 0), HangsUp) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"127.0.0.1:{server.server_address[1]}"
        code, lines = doctor_of(tmp_path, f"redis://:secret@{host}/0", spiders, **wrong)
        server.shutdown()
    starts = (
        "✗ spider a, b: TBLOOM_TIMEZONE: expected an IANA time zone",
        "  settings.py: TBLOOM_TIMEZONE",
        "✗ spider c: TBLOOM_CAPACITY: expected a whole number from 1",
        "  settings.py: TBLOOM_CAPACITY",
        f"✗ REDIS_URL is redis://***@{host}/0: ",
        "  settings.py: REDIS_URL",
        "3 faults: change what the ✗ says",
    )
    assert (1, [*starts]) == (code, begins(lines, starts))
    assert 1 == len(asked)


HOSTS = {"TBLOOM_SHARE": "hosts"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ""),
        ({"DOWNLOAD_DELAY": 1, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}, ""),  # as Scrapy's template
        ({"DOWNLOAD_DELAY": 3}, "DOWNLOAD_DELAY holds for each crawler; with TBLOOM_SHARE = 'hosts'"),
        ({"AUTOTHROTTLE_ENABLED": True}, "AUTOTHROTTLE_ENABLED holds for each crawler"),
        ({"DOWNLOAD_DELAY": 3, **HOSTS}, ""),
        ({"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue"}, ""),
        ({"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue", **HOSTS}, "SCHEDULER_PRIORITY_QUEUE lets no crawler give hosts away"),
        ({"TBLOOM_KEY": "a-%(timestamp)s"}, "TBLOOM_KEY: %(timestamp)s gives each crawler a separate filter"),
        ({"SCHEDULER_FLUSH_ON_START": True}, "SCHEDULER_FLUSH_ON_START clears the filter of"),
        ({"TBLOOM_MARK": "scheduled"}, "TBLOOM_MARK = 'scheduled' shares no work"),
        ({"TBLOOM_MARK": "scheduled", **SHARED, "SCHEDULER_PERSIST": True}, ""),
        ({"TBLOOM_TAKE_OVER": False}, "TBLOOM_TAKE_OVER = False shares no work"),
        ({"JOBDIR": "job"}, "JOBDIR: requests are lost unless each crawler has its own"),
        ({"JOBDIR": "job", "TBLOOM_STORE": "local"}, ""),
        *(({"FEEDS": {uri: {"format": kind, **more}}}, "FEEDS: 'LOSES items" * loses) for uri, kind, more, loses in (
            ("a.jsonl", "jsonlines", {}, False), ("a.json", "json", {}, True), ("a-%(time)s.json", "json", {}, False),
            ("%(name)s.xml", "xml", {}, True), ("a.jl", "jl", {"overwrite": True}, True), ("ftp://b/a.jl", "jl", {}, True),
            ("file:///a.csv", "csv", {}, False), ("stdout:", "json", {}, False),
            ("a.jl.gz", "jl", {"postprocessing": ["scrapy.extensions.postprocessing.GzipPlugin"]}, True))),
        ({"DOWNLOAD_DELAY": "soon"}, ""),  # Scrapy says that
    ],
)  # fmt: skip
def test_what_does_not_fit_several_crawlers_is_a_note(
    url: str, name: str, settings: dict[str, Any], expected: str
) -> None:
    """A delay holds for each crawler (scrapyd#221); two can share no JOBDIR (hepcrawl#186), and no file of XML (scrapy#4103)."""
    found, notes = examine(Settings({**ADDON, "REDIS_URL": url, "TBLOOM_KEY": name, **settings}))
    assert [] == found
    notes = [note for note in notes if not note.startswith("FEEDS: ")]
    assert len(notes) == bool(expected)
    start = expected.replace("LOSES", f"{next(iter(settings.get('FEEDS', [''])))}' loses")
    assert "".join(notes).startswith(start and f"with several crawlers: {start}")


def made_like(path: str) -> type:
    """A pipeline with the name of a package's that keeps items."""
    module, _, name = path.rpartition(".")
    return type(name, (), {"__module__": module})


class OwnFiles(FilesPipeline):
    """With a store of its own."""

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        return cls("files", crawler=crawler)


ELASTIC = made_like("scrapyelasticsearch.scrapyelasticsearch.ElasticSearchPipeline")
FILES, IMAGES = "scrapy.pipelines.files.FilesPipeline", "scrapy.pipelines.images.ImagesPipeline"


@pytest.mark.parametrize(
    ("pipeline", "settings", "note"),
    [
        (ELASTIC, {}, "ElasticSearchPipeline keeps up to 500 items"),
        (type("Own", (ELASTIC,), {}), {}, "Own keeps up to 500 items"),
        (ELASTIC, {"ELASTICSEARCH_BUFFER_LENGTH": 1}, ""),
        (ELASTIC, {"TBLOOM_MARK": "scheduled"}, ""),
        (made_like("s3pipeline.pipelines.S3Pipeline"), {}, "keeps up to 100 items"),
        (made_like("scrapy_mongodb.MongoDBPipeline"), {}, ""),
        (made_like("scrapy_mongodb.MongoDBPipeline"), {"MONGODB_BUFFER_DATA": 9}, "up to 9 items"),
        (FILES, {}, "FilesPipeline is off: FILES_STORE is not set"),
        (FILES, {"FILES_STORE": "files"}, ""),
        (OwnFiles, {}, ""),
        (IMAGES, {"FILES_STORE": "files"}, "ImagesPipeline is off: IMAGES_STORE is not set"),
        ("gone.Pipeline", {}, ""),  # Scrapy says that
    ],
)
def test_a_pipeline_that_keeps_items_is_a_note(
    url: str, name: str, pipeline: Any, settings: dict[str, Any], note: str
) -> None:
    pipelines = {type("Usual", (), {}): 0, pipeline: 1}
    own = {**ADDON, "REDIS_URL": url, "TBLOOM_KEY": name, "ITEM_PIPELINES": pipelines}
    found, notes = examine(Settings({**own, **settings}))
    assert [] == found
    assert [bool(note)] * bool(note) == [note in each for each in notes if "PIPELINES" in each]


FAILURES = [403, 408, 429, 500, 502, 503, 504, 522, 524]


class KeepsRefusals(DummyPolicy):
    """A cache's policy of a project."""

    def should_cache_response(self, response: Response, request: Request) -> bool:  # noqa: ARG002 - Scrapy's
        return response.status == 403


@pytest.mark.parametrize(
    ("settings", "statuses"),
    [
        ({}, FAILURES),
        ({"HTTPCACHE_ENABLED": False}, []),
        ({"HTTPCACHE_STORAGE": "tbloom.scrapy.PageCacheStorage"}, FAILURES),
        ({"TBLOOM_STORE": "local"}, FAILURES),
        ({"TBLOOM_MARK": "scheduled"}, []),  # a failed page is lost, with a cache or without it
        ({"HTTPCACHE_IGNORE_HTTP_CODES": FAILURES}, []),
        ({"HTTPCACHE_IGNORE_HTTP_CODES": FAILURES[1:]}, [403]),
        ({"RETRY_HTTP_CODES": ["418"], "TBLOOM_DONE_STATUSES": [403]}, [418]),
        ({"HTTPCACHE_POLICY": "scrapy.extensions.httpcache.RFC2616Policy"}, []),
        ({"HTTPCACHE_POLICY": "scrapy.extensions.httpcache.RFC2616Policy", "HTTPCACHE_ALWAYS_STORE": True}, []),
        ({"HTTPCACHE_POLICY": KeepsRefusals}, [403]),
        ({"HTTPCACHE_POLICY": "gone.Policy"}, []),  # Scrapy says that
    ],
)  # fmt: skip
def test_a_cache_that_serves_failures_again_is_a_note(
    url: str, name: str, settings: dict[str, Any], statuses: list[int]
) -> None:
    own = {**ADDON, "REDIS_URL": url, "TBLOOM_KEY": name, "HTTPCACHE_ENABLED": True}
    found, notes = examine(Settings({**own, **settings}))
    assert [] == found
    notes = [note for note in notes if note.startswith("HTTPCACHE")]
    assert len(notes) == bool(statuses)
    for note in notes:
        assert f"({', '.join(map(str, statuses))})" in note
        to_set = re.findall(r"HTTPCACHE_IGNORE_HTTP_CODES = (\[.*?\])", note)
        healed = {**own, **settings, "HTTPCACHE_IGNORE_HTTP_CODES": json.loads(to_set[0])}
        if settings.get("HTTPCACHE_POLICY") is not KeepsRefusals:
            assert [] == [each for each in examine(Settings(healed))[1] if "HTTPCACHE" in each]


def test_doctor_names_feeds_that_cannot_be_opened_or_lose_items(tmp_path: Path) -> None:
    """Each crawl replaces what earlier ones have stored (scrapy#5579)."""
    feeds: dict[str, dict[str, Any]] = {
        "a.jsonx": {"format": "jsonx"},
        "nowhere://b": {"format": "csv"},
        "fine-%(name)s-%(time)s.csv": {"format": "csv", "overwrite": True},
        "stdout:": {"format": "csv"},
        "appended.jl": {"format": "jl"},
        "ftp://host/appended.jl": {"format": "jl", "overwrite": False},
        "ftp://me:secret@host/f.csv": {"format": "csv", "store_empty": False},
        "ftp://host/g.jl": {"format": "jl"},
        "%(name)s.json": {"format": "json", "overwrite": True, "store_empty": False},
    }
    folder = Folder(tmp_path, SPIDER, TBLOOM_STORE="local", TBLOOM_PATH=None)
    opens = "✗ FEEDS: the crawl ends before its first request, because a feed can't be opened"
    for wrong, why in {
        "a.jsonx": "Unknown feed format: jsonx",
        "nowhere://b": "Unknown feed storage scheme: nowhere",
    }.items():
        folder.write(FEEDS=feeds)
        code, lines = folder.doctor()
        faults = [line for line in lines if line.startswith("✗")]
        assert (1, [f"{opens}: {why}"]) == (code, faults)
        del feeds[wrong]
    folder.write(FEEDS=feeds)
    code, lines = folder.doctor()
    start, new = (
        "note: FEEDS: each crawl replaces",
        "it has the items of one crawl's new pages only",
    )
    named = "put %(time)s into its name"
    notes = {
        f"{start} ftp://***@host/f.csv: {new}: {named}",
        f"{start} ftp://host/g.jl: {new}: set 'overwrite': False, or {named}",
        f"{start} %(name)s.json: {new}: set 'overwrite': False, or {named}",
    }
    assert (0, notes) == (code, {line for line in lines if line.startswith("note: ")})


NOTED = f"""{SPIDER}
class B(A): name = 'b'; custom_settings = {{'JOBDIR': 'job'}}

import scrapy.spiders
import tbloom.scrapy
class Old(scrapy.spiders.SitemapSpider): name = "old"
class New(tbloom.scrapy.SitemapSpider): name = "new"
"""


def test_a_note_leaves_the_exit_code_and_names_the_spiders(url: str, tmp_path: Path) -> None:
    """Such as Scrapy's SitemapSpider, which misses changes. Beside a fault there is none."""
    code, lines = doctor_of(tmp_path, url, NOTED)
    starts = (
        "note: spider b: with several crawlers: JOBDIR: requests are lost unless each",
        "note: spider old: Scrapy's SitemapSpider: ",
        "✓",
    )
    assert (0, [*starts]) == (code, begins(lines, starts))
    code, lines = doctor_of(tmp_path, url, NOTED, TBLOOM_A=1)
    assert (1, []) == (code, [line for line in lines if "note" in line])
