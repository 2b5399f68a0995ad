"""The example that copies Scrapy's own HTTP cache into a page store."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import HtmlResponse, JsonResponse, Response, TextResponse

from tests.helpers.cached import THEIRS, Opened
from tests.helpers.documents import ROOT

URL = "https://a.example/"


def exchanges() -> list[tuple[Request, Response]]:
    """Requests of several kinds, and what a site answered."""
    gzipped = {"Content-Encoding": "gzip", "Content-Type": "text/html"}
    responses = [
        HtmlResponse(f"{URL}?y=1&x=2", headers={"Content-Type": "text/html"}, body=b"<p>caf\xe9"),
        Response(f"{URL}301", status=301, headers={"Location": "/b"}),
        Response(f"{URL}cookies", headers={"Set-Cookie": ["a=1", "b=2", "a=1"], "X-A": "1"}),
        HtmlResponse(f"{URL}gzip", headers=gzipped, body=gzip.compress(b"<p>")),
        JsonResponse(f"{URL}json", headers={"Content-Type": "application/json"}, body=b"{}"),
        Response(f"{URL}empty"),
    ]
    posts = [
        (Request(URL, method=method, body=body), TextResponse(URL, body=f"{method} {body}".encode()))
        for method in ("GET", "POST", "HEAD")
        for body in ("", "a")
    ]  # fmt: skip
    return [*((Request(response.url), response) for response in responses), *posts]


@pytest.mark.parametrize("settings", [{}, {"HTTPCACHE_GZIP": True}], ids=["plain", "gzipped"])
def test_the_store_answers_like_the_cache(settings: dict[str, Any], tmp_path: Path) -> None:
    """Each page byte for byte, with its time; so after it was copied again."""
    asked = exchanges()
    with Opened(tmp_path / "cache", storage=THEIRS, **settings) as opened:
        for request, response in asked:
            opened.store(request, response)
        theirs = [opened.retrieve(request) for request, _ in asked]
    command = [sys.executable, ROOT / "examples/scrapy_cache.py", tmp_path / "cache/tests"]
    for stored in (len(asked), 0):
        done = subprocess.run(
            [*command, tmp_path / "pages"], capture_output=True, text=True, check=True
        )
        assert f"{stored} pages stored\n" == done.stdout
    with Opened(tmp_path / "pages") as opened:
        for (request, _), their in zip(asked, theirs, strict=True):
            own = opened.retrieve(request)
            assert own is not None
            assert their is not None
            assert (their.url, their.status, their.headers, their.body) == (
                own.url,
                own.status,
                own.headers,
                own.body,
            )
