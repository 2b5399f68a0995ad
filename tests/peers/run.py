"""Scrapy's and scrapy-redis' own tests with tbloom's dupefilter, beside the same with theirs: ``make peers``.

The tests are those of the installed versions' sdists, where tbloom's settings become Scrapy's defaults. Prints what fails with ours
alone; what is not in ``known.txt``, which has the reasons, ends this with 1. Arguments go to pytest, such as ``tests/test_crawl.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree as ET

from redis import Redis

from tests.helpers.localredis import BINARIES, MAIN, LocalRedis

ROOT = Path(__file__).parents[2]
KNOWN = Path(__file__).with_name("known.txt")
FOLDER = ROOT / "build" / "peers"
#: Put at the end of Scrapy's default settings. PID: tests that run at the same time have spiders of the same name.
DEFAULTS = """
import json, os
globals().update(json.loads(os.environ.get("PEERS", "{}").replace("PID", str(os.getpid()))))
"""
OURS = {"DUPEFILTER_CLASS": "tbloom.scrapy.DupeFilter"}
ADDON = {"ADDONS": {"tbloom.scrapy.Addon": 500}, "TBLOOM_MARK": "done"}
EMPTY = {"TBLOOM_KEY": "%(spider)s:PID", "SCHEDULER_FLUSH_ON_START": True}
WAYS = {"the dupefilter": {**OURS, **EMPTY}, "the add-on, 'done'": {**ADDON, **EMPTY}}


def sdist(package: str) -> Path:
    """The tests of the installed version, as they are released."""
    pinned = f"{package}=={version(package)}"
    wanted = ["--no-deps", "--no-binary", ":all:", "--dest", str(FOLDER), pinned]
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *wanted], check=True)
    [archive] = FOLDER.glob(f"{package.replace('-', '[-_]')}-{version(package)}.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(FOLDER, filter="data")
    return FOLDER / archive.name.removesuffix(".tar.gz")


def failures(folder: Path, *arguments: str, **environment: str) -> set[str]:
    """The tests that fail there, also when they are tried again."""
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-n", "2", "--reruns", "2"]
    command += [f"--junitxml={report}", "-m", "not requires_internet", *arguments]
    subprocess.run(command, cwd=folder, env={**os.environ, **environment}, check=False)
    return {
        f"{case.get('classname')}::{case.get('name')}"
        for case in ET.parse(report).iter("testcase")  # noqa: S314 - our own pytest wrote it
        if case.find("failure") is not None or case.find("error") is not None
    }


def failures_of_ours(folder: Path, *arguments: str, **environment: str) -> set[str]:
    """Those that pass without tbloom."""
    found = failures(folder, *arguments, **environment)
    failed_last = "--last-failed", "--last-failed-no-failures=none"
    return found - failures(folder, *failed_last, **{**environment, "PEERS": "{}"})


def known() -> set[str]:
    """Failures that are not faults of ours."""
    lines = KNOWN.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def main() -> int:
    """Runs all, and compares."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    arguments = sys.argv[1:] or ["tests"]
    ours = dict[str, set[str]]()
    with LocalRedis(BINARIES[MAIN]) as server:
        folder = sdist("scrapy")
        settings = folder / "scrapy" / "settings" / "default_settings.py"
        settings.write_text(settings.read_text(encoding="utf-8") + DEFAULTS, encoding="utf-8")
        for way, defaults in WAYS.items():
            own = json.dumps({"REDIS_URL": server.url, **defaults})
            ours[way] = failures_of_ours(folder, *arguments, PEERS=own)
        folder = sdist("scrapy-redis")
        place = {"REDIS_HOST": "127.0.0.1", "REDIS_PORT": str(server.port)}
        # One after another, because they share keys.
        theirs = failures(folder, "tests", "-n0", **place)
        Redis.from_url(server.url).flushall()  # they leave URLs in their lists
        tests = folder / "tests" / "test_scrapy_redis.py"
        named = '"scrapy_redis.dupefilter.RFPDupeFilter"', '"tbloom.scrapy.DupeFilter"'
        tests.write_text(tests.read_text(encoding="utf-8").replace(*named), encoding="utf-8")
        ours["scrapy-redis"] = failures(folder, "tests", "-n0", **place) - theirs
    for way, tests in ours.items():
        print(f"\n{way}: {len(tests)} tests fail that pass without tbloom")
        for test in sorted(tests):
            print(f"  {test}" + " NOT KNOWN" * (test not in known()))
    return int(bool(set().union(*ours.values()) - known()))


if __name__ == "__main__":
    sys.exit(main())
