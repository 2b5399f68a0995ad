"""A file or an image that fails as a page would fail lets its page fail."""

from __future__ import annotations

import io
import re
import resource
import signal
from pathlib import Path
from typing import Any, ClassVar

import pytest
from scrapy.exceptions import DropItem
from scrapy.http import Response
from scrapy.pipelines.files import FilesPipeline
from scrapy.pipelines.images import ImageException

from tests.helpers.crawl import Part
from tests.helpers.pagestores import mounted
from tests.helpers.projects import LOCAL, Project, marked, path_of, times

#: What the site answers for files, and whether their pages are fetched again.
ANSWERS: dict[str, Any] = {
    "/fine.pdf": [200],
    "/gone.pdf": [404],
    "/busy.pdf": [503, 200],
    "/cut.pdf": [None, 200],
    "/moved.pdf": ["/fine.pdf", 200],
    "/empty.pdf": [b"", 200],
    "/small.pdf": [200],
    "/unwanted.pdf": [200],
    "/both.pdf": [503, 200],
    "/never.pdf": [503],
    "/robots.txt": [b"User-agent: *\nDisallow: /forbidden.pdf"],
}
#: For each page, the names of its files.
FILES = {
    "fine": ["fine"],
    "gone": ["gone", "fine"],
    "busy": ["fine", "busy"],
    "cut": ["cut"],
    "moved": ["moved"],
    "empty": ["empty"],
    "unwanted": ["unwanted"],
    "forbidden": ["forbidden"],
    "one": ["both"],
    "other": ["both"],
    "none": [],
    "done": ["never"],
}
AGAIN = {"busy", "cut", "moved", "empty", "one", "other"}
REASONS = {"503": 3, "302": 1, "FileException": 1}


class WithFiles(Project):
    pages = (*FILES,)
    files = FILES
    custom_settings: ClassVar[dict[str, Any]] = {"ROBOTSTXT_OBEY": True}

    def parse(self, response: Response) -> Any:
        page = path_of(response)
        if page == "done":  # does without its file
            response.meta["tbloom_done"] = True
        yield {"page": page, "file_urls": [f"{self.site}{name}.pdf" for name in self.files[page]]}


class InOrder(WithFiles):
    """One page after the other: the second one of two with one file finds it fetched."""

    custom_settings: ClassVar[dict[str, Any]] = {
        **WithFiles.custom_settings,
        "CONCURRENT_REQUESTS": 1,
    }


class Files(FilesPipeline):
    """Does not want one file."""

    def file_downloaded(self, response: Response, *more: Any, **item: Any) -> Any:
        if response.url.endswith("unwanted.pdf"):
            raise ImageException("too small")
        return super().file_downloaded(response, *more, **item)


class DropsItems(Files):
    """The usual idiom."""

    def item_completed(self, results: Any, item: Any, info: Any) -> Any:  # noqa: ARG002
        if not all(ok for ok, _ in results):
            raise DropItem("no file")
        return item


class Replaces(Part):
    async def process_item(self, item: Any) -> Any:
        return dict(item)


@pytest.mark.parametrize("mark", ["done", LOCAL])
@pytest.mark.parametrize(
    ("spider", "pipelines"),
    [
        (WithFiles, {Replaces: 1, Files: 2}),
        (InOrder, {DropsItems: 1}),
        pytest.param(InOrder, {Files: 2, Replaces: 3}, marks=pytest.mark.check),
        pytest.param(WithFiles, {DropsItems: 1}, marks=pytest.mark.check),
    ],
    ids=[
        "together, as they come",
        "in order, dropped",
        "in order, as they come",
        "together, dropped",
    ],
)
def test_a_page_fails_whose_file_fails_as_a_page_would(
    project: Any, tmp_path: Path, *, spider: Any, pipelines: Any
) -> None:
    """Several pages may have one file, which a crawl fetches once (scrapy#2371). The reason has the status (scrapy#2504).
    ``tbloom_done`` overrules it."""
    more = {"FILES_STORE": str(tmp_path / "files"), "ITEM_PIPELINES": pipelines}
    crawls = project(*[spider] * 3, answers=ANSWERS, **more)
    fetched = times(crawls)
    assert {page: [1, int(page in AGAIN), 0] for page in FILES} == {p: fetched[p] for p in FILES}
    stats = crawls[0].stats
    [warning] = crawls[0].warnings("pages have failed")
    assert 3 == len(re.findall(r"\(http://\S+\.pdf\b", warning))  # of its three examples
    assert REASONS == {why: stats.get(f"tbloom/failed/file/{why}") for why in REASONS}
    assert 6 == len(
        [*(tmp_path / "files" / "full").iterdir()]
    )  # all but gone, unwanted, forbidden and never


class OnAFullDisk(WithFiles):
    """In the first crawl, there is room for a half of the file that all pages have."""

    pages = ("first", "second", "third")
    files = {"first": ["large"], "second": ["large"], "third": ["large"]}  # noqa: RUF012 - as Scrapy has it

    def links(self) -> Any:
        ballast = Path(self.settings["FILES_STORE"]) / "ballast"
        if self.number:
            ballast.unlink()
        else:
            ballast.write_bytes(bytes(250_000))
        return super().links()


def test_a_file_without_room_is_stored_by_the_next_crawl(project: Any, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=400k", "tmpfs") as disk:
        more = {"FILES_STORE": str(disk), "ITEM_PIPELINES": {Files: 1}}
        answers = {"/large.pdf": [bytes(200_000)]}
        crawls = project(*[OnAFullDisk] * 3, answers=answers, **more)
        assert {page: [1, 1, 0] for page in OnAFullDisk.pages}.items() <= times(crawls).items()
        assert 3 == crawls[0].stats["tbloom/failed/file/OSError"]
        assert [200_000] == [path.stat().st_size for path in (disk / "full").iterdir()]


class DiesWhileItStores(Files):
    """The system kills the crawl in the midst of its first file."""

    def file_downloaded(self, *arguments: Any, **item: Any) -> Any:
        if self.crawler.settings.getbool("DIES"):
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        return super().file_downloaded(*arguments, **item)


class OneFile(WithFiles):
    pages = ("page",)
    files = {"page": ["large"]}  # noqa: RUF012


def test_a_torn_file_is_stored_by_the_next_crawl(project: Any, tmp_path: Path) -> None:
    """The pipelines take a file that exists for a whole one."""
    more = {"FILES_STORE": str(tmp_path / "files"), "ITEM_PIPELINES": {DiesWhileItStores: 1}}
    more |= marked("done, local", tmp_path)
    answers = {"/large.pdf": [bytes(200_000)]}
    assert project(OneFile, answers=answers, DIES=True, **more) is None
    [crawl] = project(OneFile, answers=answers, **more)
    assert "/page" in crawl.fetched
    assert [200_000] == [path.stat().st_size for path in (tmp_path / "files/full").glob("*.pdf")]


class WithImages(Project):
    pages = ("small", "none", "whole")

    def parse(self, response: Response) -> Any:
        page = path_of(response)
        yield {"page": page, "image_urls": [f"{self.site}{page}.png"]}


@pytest.mark.check
def test_a_page_fails_whose_image_is_none_not_too_small(project: Any, tmp_path: Path) -> None:
    """scrapy#5079: it has the other images."""
    from PIL import Image  # noqa: PLC0415 - slow, and only needed here

    def png(width: int) -> bytes:
        file = io.BytesIO()
        Image.new("RGB", (width, 90)).save(file, "PNG")
        return file.getvalue()

    more: dict[str, Any] = {"IMAGES_STORE": str(tmp_path / "images"), "IMAGES_MIN_WIDTH": 80}
    more["ITEM_PIPELINES"] = {"scrapy.pipelines.images.ImagesPipeline": 1}
    answers = {"/small.png": [png(10)], "/none.png": [b"wait", png(90)], "/whole.png": [png(90)]}
    crawls = project(*[WithImages] * 3, answers=answers, **more)
    fetched = times(crawls)
    expected = {"small": [1, 0, 0], "none": [1, 1, 0], "whole": [1, 0, 0]}
    assert expected == {page: fetched[page] for page in expected}
