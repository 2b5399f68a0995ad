"""Feeds on S3, FTP and SFTP, of real servers, and in Parquet: the crawl after a failure fetches exactly what is not stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from scrapy.exporters import BaseItemExporter

from tests.helpers.making import missing
from tests.helpers.projects import times
from tests.scrapy.test_feed_kinds import MARKS, PAGES, Eight

pytestmark = pytest.mark.check
EIGHT = [f'{{"page": "item-{page}!"}}' for page in PAGES]


@contextmanager
def needing(what: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        missing(what)


@MARKS
def test_a_feed_on_s3_is_stored_once_it_is_uploaded(project: Any, mark: str) -> None:
    """The bucket is there from the second crawl on. A fourth one without items keeps the file, as its feed says."""
    with needing("moto"):
        import boto3  # noqa: PLC0415
        from moto.server import ThreadedMotoServer  # noqa: PLC0415
    bucket = mark.replace(", ", "-")
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
        aws = {name.upper(): key for name, key in keys.items()}
        aws |= {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_REGION_NAME": "us-east-1"}
        feeds = {f"s3://{bucket}/out": {"format": "jsonlines", "store_empty": False}}
        settings = {**aws, "FEEDS": feeds}
        [first] = project(Eight, **settings)
        assert (8, None) == (first.stats["tbloom/failed/items"], first.stats.get("tbloom/done"))
        s3 = boto3.client("s3", "us-east-1", endpoint_url=aws["AWS_ENDPOINT_URL"], **keys)
        s3.create_bucket(Bucket=bucket)
        crawls = project(*[Eight] * 3, **settings)
        assert 1 == len(crawls[0].warnings(f"replaces s3://{bucket}/out", "put %(time)s"))
        assert {page: [1, 0, 0] for page in PAGES} == times(crawls)
        stored = s3.get_object(Bucket=bucket, Key="out")["Body"].read().decode()
        assert EIGHT == sorted(stored.splitlines())
    finally:
        server.stop()


@pytest.fixture
def ftp(tmp_path: Path) -> Iterator[str]:
    """The address of an FTP server, whose files are in ``tmp_path``."""
    with needing("pyftpdlib"):
        from pyftpdlib.authorizers import DummyAuthorizer  # noqa: PLC0415
        from pyftpdlib.handlers import FTPHandler  # noqa: PLC0415
        from pyftpdlib.servers import FTPServer  # noqa: PLC0415
    users = DummyAuthorizer()
    users.add_user("me", "secret", str(tmp_path), "elradfmw")
    server = FTPServer(("127.0.0.1", 0), type("Handler", (FTPHandler,), {"authorizer": users}))
    often = {"timeout": 0.05, "handle_exit": False}
    served = Thread(target=server.serve_forever, kwargs=often, daemon=True)
    served.start()
    yield f"ftp://me:secret@127.0.0.1:{server.address[1]}"
    server.ioloop.call_later(0, server.close_all)
    served.join()


@pytest.fixture
def sftp(tmp_path: Path) -> Iterator[str]:
    """The address of an SFTP server, whose files are in ``tmp_path``."""
    with needing("asyncssh"):
        import asyncssh  # noqa: PLC0415

    class Server(asyncssh.SSHServer):  # type: ignore[misc]
        def password_auth_supported(self) -> bool:
            return True

        def validate_password(self, username: str, password: str) -> bool:
            return (username, password) == ("me", "secret")

    async def serve() -> Any:
        return await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=Server,
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            sftp_factory=lambda channel: asyncssh.SFTPServer(channel, chroot=str(tmp_path)),
        )

    loop = asyncio.new_event_loop()
    served = Thread(target=loop.run_forever, daemon=True)
    served.start()
    server = asyncio.run_coroutine_threadsafe(serve(), loop).result()
    yield f"sftp://me:secret@127.0.0.1:{server.get_port()}"
    loop.call_soon_threadsafe(loop.stop)
    served.join()


class OneMore(Eight):
    pages = ("a", "z")


@pytest.mark.parametrize("mark", ["done, local"])
@pytest.mark.parametrize("overwrite", [None, True, False])
@pytest.mark.parametrize("kind", ["ftp", "sftp"])
def test_a_crawl_says_that_a_server_replaces_items(
    project: Any, tmp_path: Path, request: pytest.FixtureRequest, kind: str, overwrite: Any
) -> None:
    """FTP can append. SFTP's storage replaces the file, whatever its feed says."""
    address = request.getfixturevalue(kind)
    options = {} if overwrite is None else {"overwrite": overwrite}
    settings: dict[str, Any] = {"FEEDS": {f"{address}/out.jl": {"format": "jsonlines", **options}}}
    if kind == "sftp":
        with needing("scrapy-feedexporter-sftp"):
            from scrapy_feedexporter_sftp import SFTPFeedStorage  # noqa: PLC0415
        settings["FEED_STORAGES"] = {"sftp": SFTPFeedStorage}
    crawls = project(Eight, OneMore, **settings)
    is_kept = (kind, overwrite) == ("ftp", False)
    for crawl in crawls:
        assert int(not is_kept) == len(crawl.warnings("WARNING", f"replaces {kind}://***@127"))
        assert [] == crawl.warnings("secret")
    stored = (tmp_path / "out.jl").read_text().splitlines()
    assert ([*EIGHT] * is_kept + ['{"page": "item-z!"}']) == sorted(stored)


class Parquet:
    """The exporter of scrapy-contrib-bigexporters, for Scrapy 2.19 as well, which has renamed a method."""

    def __new__(cls, *arguments: Any, **more: Any) -> Any:
        from zuinnote.scrapy.contrib.bigexporters import ParquetItemExporter  # noqa: PLC0415

        serialized: Any = getattr(BaseItemExporter, "get_serialized_fields", None)
        old = {"_get_serialized_fields": serialized} if serialized else {}
        return type("Parquet", (ParquetItemExporter,), old)(*arguments, **more)


@MARKS
@pytest.mark.parametrize("size", [0, 3], ids=["one file", "batches"])
def test_a_parquet_feed_is_stored_once_its_file_is_finished(
    project: Any, tmp_path: Path, mark: str, size: int
) -> None:
    """The first crawl is killed. (Before Scrapy 2.18, all batches are stored at the crawl's end.)"""
    with needing("scrapy-contrib-bigexporters"):
        import fastparquet  # noqa: PLC0415
    uri = f"{tmp_path}/out{'-%(batch_id)d' * bool(size)}-%(time)s.parquet"
    feeds = {uri: {"format": "parquet", "store_empty": False, "batch_item_count": size}}
    settings = {"FEEDS": feeds, "FEED_EXPORTERS": {"parquet": Parquet}}
    settings |= {} if "local" in mark else {"TBLOOM_SESSION_TTL": 4}
    late = size and not hasattr(BaseItemExporter, "get_serialized_fields")
    done = 0 if late else size and 6
    assert project(Eight, **settings, KILLED=done) is None
    before = {path for path in tmp_path.glob("out*") if path.stat().st_size}
    crawls = project(Eight, Eight, **settings)
    again = times(crawls)
    assert ({(1, 0)}, 8 - done) == ({tuple(each) for each in again.values()}, len(again))
    files = [path for path in tmp_path.glob("out*") if path.stat().st_size]
    rows = [row for path in files for row in fastparquet.ParquetFile(str(path)).to_pandas()["page"]]
    assert [f"item-{page}!" for page in PAGES] == sorted(rows)
    assert (len(before) > 0) == (done > 0)
