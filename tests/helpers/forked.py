"""Crawls in processes forked from one that has imported Scrapy already, because that import takes a second."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

_CRAWLS = ["tests.helpers.crawl", "tests.helpers.cached"]
#: What a crawl imports only when it begins.
_LATER = ["aiohttp", "tldextract", "scrapy.core.downloader.handlers.s3", "tbloom.scrapy"]
_LATER += ["scrapy.extensions.feedexport", "scrapy.extensions.telnet", "scrapy_redis.scheduler"]
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([*_CRAWLS, *_LATER])


class Started:
    """What ``python -m module arguments`` starts, in a forked process; its methods are named as those of ``subprocess.Popen``."""

    def __init__(self, module: str, *arguments: str, stdin: str = "") -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tbloom-crawl-")
        self._streams = [Path(self._folder.name) / name for name in ("stdin", "stdout", "stderr")]
        for stream in self._streams:
            stream.write_text(stdin if stream.name == "stdin" else "", encoding="utf-8")
        job = (module, arguments, self._streams, Path.cwd(), dict(os.environ))
        self._process = _FORKS.Process(target=_run, args=job, daemon=True)
        self._process.start()

    def send_signal(self, number: int) -> None:
        if self._process.is_alive():
            assert self._process.pid
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int:
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def communicate(self) -> tuple[str, str]:
        try:
            self.wait()
        except BaseException:  # pytest-timeout's
            self.kill()
            raise
        out, err = (stream.read_text(encoding="utf-8") for stream in self._streams[1:])
        self._folder.cleanup()
        return out, err

    def result(self) -> Any:
        """What it prints, which is JSON."""
        out, err = self.communicate()
        assert out, err
        return json.loads(out)


def start_crawl(spider: str, site: str, settings: dict[str, Any], **job: Any) -> Started:
    """A crawl of a site by one of the spiders of ``tests.helpers.crawl``."""
    job |= {"spider": spider, "site": site, "settings": settings}
    return Started("tests.helpers.crawl", json.dumps(job))


def _run(
    name: str, arguments: tuple[str, ...], streams: list[Path], cwd: Path, env: dict[str, str]
) -> None:
    for number, stream in enumerate(streams):
        with stream.open("r+b") as file:
            os.dup2(file.fileno(), number)
    sys.stdin = os.fdopen(0, closefd=False)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    os.chdir(cwd)
    module = importlib.import_module(name)
    sys.modules["__main__"] = module  # settings may name classes by it
    sys.argv = [name, *arguments]
    module.main()
