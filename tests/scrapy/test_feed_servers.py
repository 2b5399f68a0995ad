"""Feeds on S3, of a real server, and in Parquet: the crawl after a failure fetches exactly what is not stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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
        assert {page: [1, 0, 0] for page in PAGES} == times(crawls)
        stored = s3.get_object(Bucket=bucket, Key="out")["Body"].read().decode()
        assert EIGHT == sorted(stored.splitlines())
    finally:
        server.stop()


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
