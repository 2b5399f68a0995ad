"""``tbloom list``, ``info``, ``plan``, ``add``, ``check``; tables and numbers; ``tbloom pages`` with bytes that no recorded
session can have. (The rest: recorded/lookup.txt, plan.txt, secret.txt, pages.txt.)"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import redis
from rich.cells import cell_len

from tbloom import TimeBloom
from tbloom.cli.kit import filters, output, streams
from tbloom.distinct import DistinctCounter
from tbloom.distinct.config import MappingKeys
from tbloom.pages import PageStore
from tests.helpers.commands import process, refused, started, tbloom, tbloom_bytes
from tests.helpers.keptpages import claimed, failed, told
from tests.helpers.proxy import Fault, Proxy


def test_planted_names_are_no_commands_to_a_terminal(
    own: redis.Redis, own_url: str, tmp_path: Path
) -> None:
    """Escapes, also of eight bits, text from right to left, further lines: they are shown escaped. JSON has the name. What would
    be rich's markup is a name like others: zabbix-cli#199."""
    odd, file = "a\x1b[2J\x9b2J\u202e\r\x07\nb [red]:bug:", tmp_path / "file"
    with TimeBloom(own, odd, capacity=1000) as seen:
        seen.add_many(map(str, range(5000)))
        own.hset(seen.config.keys.state(), odd, "x")
    DistinctCounter(own, odd, f"mapping {odd}").add("a")
    own.set("{bad\x1b[2J}:config", "mine")
    own.hset(MappingKeys(f"mapping {odd}").counters(), b"bad\x1b[2J\xff", "{}")
    shows = ["count", "show", odd, "--mapping", f"mapping {odd}"]
    for words in (
        *(["list"], ["info", odd], ["export", odd, file], ["import", file, "--replace"]),
        *(["watch", odd, "--once", "-"], ["count", "list"], shows),
    ):
        done = tbloom(*words, "--url", own_url)
        text = done.stdout + done.stderr
        assert text.replace("\n", "").isprintable(), (words, text)
        assert r"a\x1b[2J\x9b2J\u202e\r\x07\nb [red]:bug:" in text, (words, text)
        assert (r"bad\x1b[2J" in done.stderr) is (words[-1] == "list") is (done.returncode == 1)
    for words in (["list"], ["count", "list"]):
        [found] = json.loads(tbloom(*words, "--url", own_url, "--json").stdout)
        assert odd == found["name"]


#: Commands outside a project, and what they say, without a server.
_AWAY = "redis://127.0.0.1:1"
_OUTSIDE = [
    (["queue", "shop", "--url", _AWAY], f"{_AWAY}: Error 111"),
    (["failed", "shop", "--url", _AWAY, "--prefix", "a:"], f"{_AWAY}: Error 111"),
    (["retry", "shop", "--all", "--yes", "--url", _AWAY], f"{_AWAY}: Error 111"),
    (["push", "shop"], "expected the folder of a Scrapy project, with a scrapy.cfg"),
    (["doctor"], "expected the folder of a Scrapy project, with a scrapy.cfg"),
]


def _modules_of(words: list[str], folder: Path) -> tuple[set[str], int, str]:
    """The modules that a command loads in a folder, its exit code, and what it says."""
    code = (
        f"import sys; from tbloom.cli import main; code = main({words})\nprint(code, *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if not key.startswith("SCRAPY_")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    exit_code, *modules = done.stdout.split()
    return {*modules}, int(exit_code), done.stderr


def test_a_command_outside_a_project_loads_no_scrapy(tmp_path: Path) -> None:
    """To import it takes half a second."""
    usual, _, _ = _modules_of(["check", "news", "x", "--url", _AWAY], tmp_path)
    for words, said in _OUTSIDE:
        modules, exit_code, error = _modules_of(words, tmp_path)
        assert not {"scrapy", "twisted"} & modules, words
        assert len(modules) <= 1.25 * len(usual), words
        assert (2, True) == (exit_code, error.startswith(f"tbloom: {said}")), error


#: Runs command lines where no package of Scrapy's can be imported.
_WITHOUT_SCRAPY = """
import sys
sys.modules |= dict.fromkeys(("scrapy", "scrapy_redis", "twisted", "itemadapter"))
from tbloom.cli import main
print(*(main(line.split()) for line in sys.argv[1:]))
"""


def test_a_fleet_is_seen_and_freed_without_scrapy(
    own: redis.Redis, own_url: str, tmp_path: Path
) -> None:
    """As that of examples/worker.py, whose pages have no spider."""
    own.flushall()
    with TimeBloom.from_url(own_url, "pages") as seen:
        for queue in ("pages", "pages\n[('n', 1)]"):
            urls = [f"http://a/{queue[6:]}/{n}" for n in range(2)]
            claimed(seen, *urls, queue=queue)
            told(seen, queue=queue)
            seen.note_history(dict.fromkeys(urls, failed(queue=queue)))
    lines = ["queue", "queue pages", "failed pages", "watch pages --once page.html"]
    lines += ["retry pages -a n=1 --match *1 --yes -s TBLOOM_KEY=pages", "drop pages --all --yes"]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_SCRAPY, *lines],
        cwd=tmp_path,
        env={**os.environ, "TBLOOM_URL": own_url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "" == done.stderr
    assert done.stdout.endswith("\n0 0 0 0 0 0\n")
    assert "\ntbloom queue pages  " in done.stdout
    assert "Retried 1 page of 'pages -a n=1'\nDropped 3 pages of 'pages': " in done.stdout
    assert "tbloom retry pages -a n=1 -s TBLOOM_KEY=pages --reason" in " ".join(
        re.sub("<[^>]*>", "", (tmp_path / "page.html").read_text()).split()
    )
    assert not any("Needs" in tbloom(line.split()[0], "--help").stdout for line in lines[1:3])


def test_a_command_finds_the_project_of_a_parent_folder(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for text, said, (words, _) in (
        (
            "[settings]\ndefault = nosuch",
            "there is no module nosuch, which scrapy.cfg",
            _OUTSIDE[0],
        ),
        ("", "scrapy.cfg names no module: ", _OUTSIDE[-1]),
    ):
        (tmp_path / "scrapy.cfg").write_text(text)
        _, exit_code, error = _modules_of(words, tmp_path / "a" / "b")
        expected = f"tbloom: the project's settings can't be imported: ImportError: {said}"
        assert (2, True) == (exit_code, error.startswith(expected)), words


def test_after_an_outage_the_lost_answers_are_counted(
    url: str, filled: TimeBloom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "RETRY_FOR", 0.5)
    with Proxy(url, lambda _: Fault.LOSE) as proxy:
        done = tbloom("add", "--url", proxy.url, filled.name, stdin="item 1\nnew\n")
    assert (2, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith(f"tbloom: {proxy.url}: ")
    assert "the answers to 2 lines could not be printed" in done.stderr


def test_lines_are_answered_as_they_come(url: str, filled: TimeBloom) -> None:
    """``tail -f urls.txt | tbloom add ...``, until Ctrl-C."""
    with started("add", "--url", url, filled.name, text=True, bufsize=1) as running:
        for line in ("new a\n", "new b\n"):
            running.stdin.write(line)
            assert running.stdout.readline() == line
        running.send_signal(signal.SIGINT)
        assert running.wait() == 130
        assert running.stderr.read().endswith("tbloom: interrupted: 2 lines answered\n")


@pytest.mark.parametrize(
    "reader",
    ["pipe", *(pytest.param(each, marks=pytest.mark.check) for each in ("file", "slow")), "closed"],
)
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        *(pytest.param(each, marks=pytest.mark.check) for each in (signal.SIGTERM, signal.SIGHUP)),
    ],
)
def test_a_signal_leaves_no_line_added_and_unprinted(
    url: str, name: str, tmp_path: Path, number: signal.Signals, reader: str
) -> None:
    """All items that were added before it are printed, or counted; no others are added."""
    file, out = tmp_path / "lines", tmp_path / "out"
    # More than a request asks for, and more than a pipe holds.
    file.write_text("".join(f"item {i}\n" for i in range(500_000)))
    streams = {"stdout": out.open("wb")} if reader == "file" else {}
    with started("add", "--url", url, name, file, "--create", "--quiet", **streams) as running:
        if reader == "file":
            while not out.stat().st_size:
                assert running.poll() is None
        first = running.stdout.readline() if running.stdout else b""
        if reader == "closed":
            running.stdout.close()
        running.send_signal(number)
        running.send_signal(signal.SIGHUP)  # as a shell and the kernel do
        if reader == "slow":
            time.sleep(0.5)
        rest = running.stdout.read() if reader in {"pipe", "slow"} else b""
        code, said = running.wait(), running.stderr.read().decode()
    printed = (first + rest or out.read_bytes()).count(b"\n")
    with TimeBloom.from_url(url, name) as seen:
        added = seen.info().items
    assert added < 500_000
    assert "" != said
    [(answered, lost)] = re.findall(r": ([\d,]+) lines answered|([\d,]+) answers could not", said)
    if lost:
        assert ("closed", 1) == (reader, code)
        assert printed <= added - int(lost.replace(",", ""))
    else:
        assert (130, f"{added:,}") == (code, answered)
        assert reader == "closed" or added == printed


#: What signals do to a command, within a step and after the first one that ends it.
_SIGNALS = """
import os, signal
from tbloom.cli.kit import interrupts

def get(*names):
    for name in names:
        os.kill(os.getpid(), getattr(signal, name))
    print(*names, flush=True)

interrupts.as_ctrl_c()
try:
    with interrupts.step():
        get("SIGHUP", "SIGHUP", "SIGTERM")
    print("not ended")
except KeyboardInterrupt:
    get("SIGHUP", "SIGTERM", "SIGHUP")
    get("SIGINT")
"""


def test_only_ctrl_c_ends_a_command_that_is_ending() -> None:
    """A terminal that is closed sends a SIGHUP by the kernel, and one by the shell: the second may come while the command says
    what it has done."""
    done = subprocess.run([sys.executable, "-c", _SIGNALS], capture_output=True, check=False)
    assert b"SIGHUP SIGHUP SIGTERM\nSIGHUP SIGTERM SIGHUP\n" == done.stdout
    assert (-signal.SIGINT, b"") == (done.returncode, done.stderr)


def test_a_too_long_line_is_refused_by_its_number(
    url: str, filled: TimeBloom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_LONGEST", 1 << 20)
    for end in (b"\n", b"\r"):
        (tmp_path / "long").write_bytes(end.join([b"a", b"", b"b", b"x" * (1 << 21), b"c"]))
        done = tbloom("check", "--url", url, filled.name, str(tmp_path / "long"), "--quiet")
        assert (1, "a\nb\n") == (done.returncode, done.stdout)
        assert f"{tmp_path / 'long'}: line 4: expected at most 64 MB" in done.stderr


def test_answers_that_nobody_gets_are_counted(url: str, name: str) -> None:
    """They were added."""
    words = ["add", "--url", url, name, "--create", "--quiet"]
    with Path("/dev/full").open("wb") as full:
        done = process(*words, input=b"a\nb\n", stdout=full)
    lost = b"tbloom: standard output: No space left on device: 2 answers could not be printed\n"
    assert lost == done.stderr
    with TimeBloom.from_url(url, name) as seen:
        assert [False, False] == seen.add_many(["a", "b"])
    # Nothing is added where no answer can be printed.
    done = process(*words, input=b"c\n", preexec_fn=partial(os.close, 1))
    assert (2, b"tbloom: standard output is closed\n") == (done.returncode, done.stderr)
    with TimeBloom.from_url(url, name) as seen:
        assert "c" not in seen


URL = "https://example.com/"
#: Characters that must not reach a terminal.
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


def test_control_characters_of_urls_and_keys_are_not_printed(tmp_path: Path) -> None:
    """Such as escapes of eight bits, or text from right to left; the printed addresses work all the same."""
    addresses: list[tuple[str, str | bytes | None]] = [
        (f"{URL}\x9b2J", None),
        (f"{URL}\u202efdp.exe", None),
        (f"{URL}é/日本", None),
        (URL, "\x1b[2J"),
        (URL, f"{URL}\r\x1b[2J"),
        (URL, b"\xff\xfe"),
        (URL, "--json"),
        (URL, "key:00"),
        (URL, f"{URL}a page"),
        (URL, f"{URL}session"),
    ]
    with PageStore(tmp_path) as store:
        for number, (url, key) in enumerate(addresses):
            store.put(url, b"%d" % number, key=key)
    listed = tbloom("pages", "ls", tmp_path).stdout.splitlines()
    assert [f"{URL}é/日本", f"{URL}session"] == [one for one in listed if one[:4] != "key:"]
    bodies = [tbloom("pages", "get", tmp_path, one).stdout for one in listed]
    assert [f"{number}" for number in range(len(addresses))] == bodies
    for form in ([], ["--long"], ["--json"]):
        text = tbloom("pages", "ls", tmp_path, *form).stdout
        assert (len(addresses), None) == (len(text.splitlines()), CONTROL.search(text))
    refused(tbloom("pages", "put", tmp_path, f"{URL}\x1b[2J"), "URL: ", r"\x1b[2J")
    for verb in ("put", "get", "delete"):
        refused(tbloom("pages", verb, tmp_path, "\udcff"), "URL: ", r"'\udcff'")
    refused(tbloom("pages", "put", tmp_path, URL, "--header", "A: b\nC: d"), "without line breaks")


def test_pages_go_through_pipes(tmp_path: Path) -> None:
    """``tbloom pages export ... -o - | tbloom pages import ... -``; a body is any bytes."""
    body = bytes(range(256))
    put = tbloom_bytes("pages", "put", tmp_path / "here", URL, stdin=body)
    written = tbloom_bytes("pages", "export", tmp_path / "here", "-o", "-")
    assert (0, 0, b"1 page written\n") == (put.returncode, written.returncode, written.stderr)
    tbloom_bytes("pages", "import", tmp_path / "there", "-", stdin=written.stdout)
    get = ["pages", "get", tmp_path / "there", URL]
    assert body == tbloom_bytes(*get).stdout
    assert b"HTTP/1.1 200 OK\r\n\r\n" + body == tbloom_bytes(*get, "--headers").stdout


def test_wide_characters_keep_columns_aligned() -> None:
    """As a terminal shows them: an ideograph takes two columns, a combining accent none."""
    names = ["news", "ニュース", "新闻🚀", "e\u0301te\u0301"]
    lines = output.table(
        [{"name": name, "next": "x"} for name in names], left=["name"]
    ).splitlines()
    assert {14} == {cell_len(line) for line in lines[1:]}


def test_a_table_in_a_pipe_is_not_cut(own: redis.Redis, own_url: str) -> None:
    """rich#501, Gym#2949"""
    TimeBloom(own, "n" * 200).add("a")
    done = tbloom("list", "--url", own_url, COLUMNS="40")
    heading, row = done.stdout.splitlines()
    assert ["n" * 200, "error"] == [row.split()[0], heading.split()[-2]]


def test_a_locale_without_the_character_is_no_error(own: redis.Redis, own_url: str) -> None:
    """labgrid#486"""
    TimeBloom(own, "新闻").add("a")
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = process("list", "--url", own_url, env=ascii_only)
    assert (0, b"") == (done.returncode, done.stderr)
    assert done.stdout.splitlines()[1].startswith(b"??")


def test_the_other_lists_are_read_where_one_can_t_be(
    url: str, filled: TimeBloom, tmp_path: Path
) -> None:
    """It is named, and the exit code is 1."""
    (tmp_path / "one").write_text("a\nb\n")
    (tmp_path / "packed").write_bytes(b"\x1f\x8b\x08\0")
    (tmp_path / "three").write_text("b\nc\n")
    lists = [tmp_path / each for each in ("one", "packed", "none", ".", "three")]
    for words in ["add", filled.name], ["check", filled.name, "--seen"]:
        done = tbloom(*words, *lists, "--url", url)
        assert (1, {*"abc"}) == (done.returncode, {*done.stdout.split()})
        packed, none, folder = done.stderr.splitlines()[:3]
        assert packed.startswith(
            f"tbloom: {tmp_path / 'packed'}: expected lines of text in UTF-8, got a NUL"
        )
        assert f"tbloom: {tmp_path / 'none'}: No such file or directory" == none
        assert f"tbloom: {tmp_path}: Is a directory" == folder


def test_a_url_may_end_in_a_newline(own_url: str) -> None:
    """As in a file with a secret; redis-py drops it, too."""
    for given in (["--url", f"{own_url}\n"], []):
        done = tbloom("list", *given, TBLOOM_URL=f"{own_url}\r\n")
        assert (0, f"no filters on {own_url}\n") == (done.returncode, done.stderr)
    done = tbloom("list", TBLOOM_URL="redis://:secret@127.0.0.1:1\n")
    assert "connecting to 127.0.0.1:1." in done.stderr
