"""``tbloom pages import`` and ``tbloom pages export``."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from tbloom.cli.kit import progress
from tbloom.pages import PageStore
from tests.helpers.commands import refused, started, tbloom
from tests.helpers.foreignwarcs import MEMBERS, record, response
from tests.helpers.pagestores import NOON, bodies, files, url

PAGES = [response(url(n), b"page %d" % n) for n in range(3)]
HAS = {url(n): b"page %d" % n for n in range(3)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pages"


@pytest.fixture
def crawl(tmp_path: Path) -> Path:
    """A WARC file with three pages, a request, and damage."""
    file = tmp_path / "crawl.warc.gz"
    request = record("request", url(0), b"GET / HTTP/1.1\r\n\r\n")
    file.write_bytes(MEMBERS.packed([*PAGES, request, PAGES[0], b"garbage"]))
    return file


def stored(path: Path) -> dict[str, bytes]:
    """All pages of a store."""
    with PageStore(path, readonly=True) as store:
        return bodies(store)


def test_import_counts_and_names_damage(path: Path, crawl: Path) -> None:
    """Exit code 1, and a second time nothing changes."""
    place = gzip.decompress(crawl.read_bytes()).rindex(PAGES[0])
    for counts in ("3 pages stored, 0 already there", "0 pages stored, 3 already there"):
        done = tbloom("pages", "import", path, crawl)
        assert (done.returncode, done.stdout) == (
            1,
            f"{crawl}: at {place} of its content: no record follows where it should end; what follows was not read\n",
        )
        assert f"{counts}; skipped: 1 request, 1 damaged\n" in done.stderr
        assert HAS == stored(path)


def test_import_leaves_out_what_is_longer_than_it_may_be(path: Path, crawl: Path) -> None:
    done = tbloom("pages", "import", path, crawl, "--max-body", "5", "--json")
    found = json.loads(done.stdout)
    assert (0, 3) == (found["stored"], found["skipped"]["longer than max_body"])
    assert 1 == len(found["damaged"])
    refused(tbloom("pages", "import", path, crawl, "--max-body", "lots"), "--max-body", "'lots'")


def test_an_empty_standard_input_makes_no_store(path: Path) -> None:
    refused(tbloom("pages", "import", path, "-"), "SOURCE", "it is empty")
    assert not path.exists()


def test_import_from_several_sources(path: Path, tmp_path: Path) -> None:
    """WARC files, one of them on standard input; another store; into a store with a window."""
    (tmp_path / "1.warc").write_bytes(PAGES[1])
    with PageStore(tmp_path / "other") as other:
        other.put(url("other"), b"other")
    options = ["--codec", "zstd", "--granularity", "d", "--slices", 3]
    words = ["pages", "import", path, "-", tmp_path / "1.warc", *options, tmp_path / "other"]
    done = tbloom(*words, stdin=PAGES[0].decode())
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.endswith("1 page stored, 0 already there; skipped: 2 outside the window\n")
    assert {url("other"): b"other"} == stored(path)
    assert {".zst"} == {file.suffix for file in files(path)}


@pytest.mark.parametrize("name", ["text", "folder", "missing", "empty", "store"])
def test_import_of_something_else_changes_nothing(
    path: Path, crawl: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "text").write_text("text")
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").write_bytes(b"")
    with PageStore(tmp_path / "store"):
        pass
    target = tmp_path / "store" if name == "store" else tmp_path / "new"
    done = tbloom("pages", "import", target, crawl, tmp_path / name)
    refused(done, name, "No such file" if name == "missing" else "SOURCE: expected a")
    assert not (tmp_path / "new").exists()
    assert not files(tmp_path / "store")
    refused(tbloom("pages", "import", path, crawl, "--slices", 3), "--granularity")
    assert not path.exists()


@pytest.mark.check
def test_ctrl_c_ends_an_import_between_two_batches(path: Path, tmp_path: Path) -> None:
    """What was stored stays, and the same command goes on."""
    pages = [response(url(n), b"%d" % n) for n in range(1_000)]
    (tmp_path / "all.warc").write_bytes(b"".join(pages))
    running = started("pages", "import", path, "-", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdin
    running.stdin.write(b"".join(pages[:500]))
    running.stdin.flush()
    while sum(found.stat().st_size for found in files(path)) < 10_000:  # a batch has begun
        assert running.poll() is None
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(b"".join(pages[500:]))
    assert (130, False) == (running.returncode, b"Traceback" in errors)
    assert 256 <= len(stored(path)) < 1_000
    assert tbloom("pages", "import", path, tmp_path / "all.warc", "--quiet").returncode == 0
    assert len(stored(path)) == 1_000


@pytest.fixture
def filled(path: Path) -> Path:
    with PageStore(path) as store:
        for n in range(5):
            store.put(
                url(n),
                b"page %d" % n,
                at=NOON + timedelta(hours=n),
                key=b"\x01" if n == 4 else None,
            )
    return path


@pytest.mark.parametrize(
    ("words", "stdin", "expected"),
    [
        ([], "", range(5)),
        ([url(1), "key:01"], "", [1, 4]),
        ([url(1), "--urls", "-"], f"{url(2)}\nkey:01\n", [1, 2, 4]),
        (["--since", "2019-06-10T13:00:00Z", "--until", "2019-06-10T15:00:00Z"], "", [1, 2]),
        (["--since", "2019-06-10", "--until", "2019-06-11"], "", range(5)),
    ],
)
def test_exported_pages_can_be_imported(
    filled: Path, tmp_path: Path, words: list[str], stdin: str, expected: list[int]
) -> None:
    done = tbloom("pages", "export", filled, "-o", tmp_path / "some.warc.zst", *words, stdin=stdin)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.endswith(f"{len(expected)} pages written\n")
    assert tbloom("pages", "import", tmp_path / "new", tmp_path / "some.warc.zst").returncode == 0
    with PageStore(filled) as store, PageStore(tmp_path / "new") as new:
        assert [page for page in store.pages() if int(page.url[-1]) in expected] == [*new.pages()]


@pytest.mark.parametrize(
    ("words", "last"),
    [
        ([], "  5 of 5 pages"),
        ([url(1), url("none")], "  1 of 2 pages"),
        (["--since", "2019-06-10T13:00:00Z"], "  4 pages so far"),
    ],
)
def test_export_shows_how_much_is_done(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], last: str
) -> None:
    """Where it is known how much there is."""
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0)
    done = tbloom("pages", "export", filled, "-o", tmp_path / "some.warc.gz", *words)
    lines = [line for line in done.stderr.splitlines() if line.startswith("  ")]
    assert last == lines[-1]


def test_export_names_what_is_not_there(filled: Path, tmp_path: Path) -> None:
    """The others are in the file."""
    file = tmp_path / "some.warc.gz"
    done = tbloom("pages", "export", filled, "-o", file, url(1), url("none"), url(4), "--quiet")
    named = "".join(f"tbloom: no page '{url(name)}' in '{filled}'\n" for name in ("none", 4))
    assert (1, "", named) == (done.returncode, done.stdout, done.stderr)
    assert tbloom("pages", "import", tmp_path / "new", file).returncode == 0
    assert {url(1): b"page 1"} == stored(tmp_path / "new")


def test_export_of_wrong_arguments_leaves_no_file(filled: Path, tmp_path: Path) -> None:
    file = tmp_path / "some.warc.gz"
    refused(
        tbloom("pages", "export", filled, "-o", file, url(1), "--since", "2019-06-10T13:00:00Z"),
        "--since",
    )
    refused(tbloom("pages", "export", filled, "-o", file, "key:zz"), "key:zz")
    refused(tbloom("pages", "export", tmp_path / "none", "-o", file), "PATH")
    assert [filled] == [*tmp_path.iterdir()]
