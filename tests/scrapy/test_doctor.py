"""``tbloom doctor``: what Scrapy does not say."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import redis
from scrapy.settings import Settings

from tbloom.scrapy.doctor import faults
from tests.helpers.commands import TBLOOM
from tests.helpers.schedulers import ADDON, SCRAPY, UNREACHABLE

OFF = "tbloom is off: neither ADDONS nor DUPEFILTER_CLASS names it"
SHARED = {"SCHEDULER": "scrapy_redis.scheduler.Scheduler"}
THEIRS = {"DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (ADDON, ""),
        (SCRAPY, ""),
        ({**ADDON, "TBLOOM_STORE": "local", "REDIS_URL": UNREACHABLE}, ""),
        ({}, f"{OFF}. Set ADDONS"),
        ({"ADDONS": {"tbloom.scrapy.Addon": None}}, OFF),
        ({"TBLOOM_SLICES": 3, "TBLOOM_KEY": "a"}, f"{OFF} (without effect: TBLOOM_KEY, TBLOOM_SL"),
        ({"ADDONS": {"tbloom.scrapy.AddOn": 500}}, "ADDONS names what can't be imported: Module 'tb"),
        ({"ADDONS": {"tblom.scrapy.Addon": 500}}, "ADDONS names what can't be imported: No module"),
        ({**ADDON, **THEIRS}, "tbloom's add-on is off: the project sets DUPEFILTER_CLASS"),
        ({**SCRAPY, "TBLOOM_MARK": "done"}, "TBLOOM_MARK: 'done' and 'parsed' need ADDONS ="),
        ({**ADDON, "TBLOOM_SLCES": 3}, "unknown setting TBLOOM_SLCES; did you mean TBLOOM_SLICES?"),
        ({**ADDON, **SHARED}, "SCHEDULER_PERSIST: without it, scrapy-redis deletes the queue"),
        ({**ADDON, **SHARED, "SCHEDULER_PERSIST": True}, ""),
        ({**ADDON, **SHARED, "TBLOOM_MARK": "done"}, ""),
        ({**ADDON, "REDIS_URL": UNREACHABLE}, "REDIS_URL is redis://127.0.0.1:1/0: Error 111"),
    ],
)  # fmt: skip
def test_a_fault_is_one_line(url: str, settings: dict[str, Any], expected: str) -> None:
    found = [*faults(Settings({"REDIS_URL": url, **settings}))]
    assert len(found) == bool(expected)
    assert "".join(found).startswith(expected)


def test_a_server_that_may_drop_slices_is_a_fault(own: redis.Redis, own_url: str) -> None:
    own.config_set("maxmemory", 100_000_000)
    own.config_set("maxmemory-policy", "allkeys-lru")
    try:
        [fault] = faults(Settings({**ADDON, "REDIS_URL": own_url}))
    finally:
        own.config_set("maxmemory-policy", "noeviction")
        own.config_set("maxmemory", 0)
    assert "set noeviction" in fault


def test_it_reads_the_project_in_the_folder(tmp_path: Path) -> None:
    def doctor(folder: Path) -> subprocess.CompletedProcess[str]:
        words = [*TBLOOM, "doctor"]
        return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)

    without = doctor(tmp_path)
    assert 2 == without.returncode
    assert "expected the folder of a Scrapy project" in without.stderr
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
    lines = ["ADDONS = {'tbloom.scrapy.Addon': 500}", "TBLOOM_STORE = 'local'"]
    for more, code, said in (
        ("", 0, "tbloom filters the requests of this project"),
        ("ADDONS = {}", 1, OFF),
    ):
        (tmp_path / "settings.py").write_text("\n".join([*lines, more]))
        done = doctor(tmp_path)
        assert code == done.returncode, done.stderr
        first, *_others, last = done.stdout.splitlines()
        assert first.startswith("✗ " + said if code else "✓ ADDONS")
        assert last == ("1 fault: change what the ✗ says" if code else said)
